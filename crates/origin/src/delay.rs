//! Makes a near origin far: every call takes a round trip more. For tests and demonstrations without a network.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use types::{ByteRange, FsStat, Name, Result, SetAttr, Stability, Version, XattrName};

use crate::{
    Change, Changed, Committed, DirCursor, DirPage, Left, Object, Origin, OriginIdentity, OriginLimits,
    Reference, Written,
};

pub struct Delay {
    inner: Arc<dyn Origin>,
    round_trip: Duration,
}

impl Delay {
    pub fn new(inner: Arc<dyn Origin>, round_trip: Duration) -> Arc<Delay> {
        Arc::new(Delay { inner, round_trip })
    }

    async fn travel(&self) -> &dyn Origin {
        tokio::time::sleep(self.round_trip).await;
        self.inner.as_ref()
    }
}

#[async_trait]
impl Origin for Delay {
    fn url(&self) -> String {
        self.inner.url()
    }

    fn read_max(&self) -> u32 {
        self.inner.read_max()
    }

    fn distance(&self) -> Option<types::Distance> {
        self.inner.distance()
    }

    fn connections(&self) -> u64 {
        self.inner.connections()
    }

    async fn identity(&self) -> Result<OriginIdentity> {
        self.travel().await.identity().await
    }

    async fn is_empty(&self) -> Result<bool> {
        self.travel().await.is_empty().await
    }

    async fn limits(&self) -> Result<OriginLimits> {
        self.travel().await.limits().await
    }

    fn demand_path(&self, path: &[u8], is_dir: bool) -> Result<()> {
        self.inner.demand_path(path, is_dir)
    }

    async fn root(&self) -> Result<Object> {
        self.travel().await.root().await
    }

    async fn lookup(&self, dir: &Reference, name: &Name) -> Result<Object> {
        self.travel().await.lookup(dir, name).await
    }

    async fn getattr(&self, object: &Reference) -> Result<Object> {
        self.travel().await.getattr(object).await
    }

    async fn readlink(&self, link: &Reference) -> Result<Bytes> {
        self.travel().await.readlink(link).await
    }

    async fn readdir(&self, dir: &Reference, cursor: DirCursor) -> Result<DirPage> {
        self.travel().await.readdir(dir, cursor).await
    }

    async fn read(&self, object: &Reference, version: Version, range: ByteRange) -> Result<Bytes> {
        self.travel().await.read(object, version, range).await
    }

    async fn statfs(&self, object: &Reference) -> Result<FsStat> {
        self.travel().await.statfs(object).await
    }

    fn has_xattrs(&self) -> bool {
        self.inner.has_xattrs()
    }

    fn directories_show_changes(&self) -> bool {
        self.inner.directories_show_changes()
    }

    fn identity_is_place(&self) -> bool {
        self.inner.identity_is_place()
    }

    fn answers_side_by_side(&self) -> bool {
        self.inner.answers_side_by_side()
    }

    fn commits_whole_files(&self) -> bool {
        self.inner.commits_whole_files()
    }

    async fn set_at_commit(&self, object: &Reference, set: &SetAttr) -> Result<bool> {
        self.inner.set_at_commit(object, set).await
    }

    async fn xattrs(&self, object: &Reference) -> Result<Vec<(XattrName, Bytes)>> {
        self.travel().await.xattrs(object).await
    }

    async fn change(&self, change: &Change) -> Result<Changed> {
        self.travel().await.change(change).await
    }

    async fn left_by_rename(&self, from: &Reference, was: Version, there: &Reference) -> Result<Left> {
        self.travel().await.left_by_rename(from, was, there).await
    }

    fn write_max(&self) -> u32 {
        self.inner.write_max()
    }

    async fn write(
        &self,
        object: &Reference,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> Result<Written> {
        self.travel().await.write(object, offset, data, stability).await
    }

    async fn commit(&self, object: &Reference, range: ByteRange) -> Result<Committed> {
        self.travel().await.commit(object, range).await
    }
}
