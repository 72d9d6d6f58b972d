//! An origin with the limits of a service in front of it.

use std::fmt::Write;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use types::{ByteRange, Distance, FsStat, Name, Result, SetAttr, Stability, Version, XattrName};

use super::{EmulatedService, ServiceClient, ServiceLimits};
use crate::{
    Change, Changed, Committed, DirCursor, DirPage, Left, Object, Origin, OriginIdentity, OriginLimits,
    Reference, Written,
};

pub struct LimitedOrigin {
    inner: Arc<dyn Origin>,
    client: ServiceClient,
}

impl LimitedOrigin {
    pub fn new(inner: Arc<dyn Origin>, limits: ServiceLimits) -> Arc<LimitedOrigin> {
        Arc::new(LimitedOrigin { inner, client: EmulatedService::new(limits).client() })
    }

    async fn request<T>(
        &self,
        object: &Reference,
        bytes: u64,
        call: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let name = object.0.iter().fold(String::new(), |mut name, byte| {
            let _ = write!(name, "{byte:02x}");
            name
        });
        self.client.limited(&name, bytes, call).await
    }
}

#[async_trait]
impl Origin for LimitedOrigin {
    fn url(&self) -> String {
        self.inner.url()
    }

    fn read_max(&self) -> u32 {
        self.inner.read_max()
    }

    fn distance(&self) -> Option<Distance> {
        self.inner.distance()
    }

    fn connections(&self) -> u64 {
        self.inner.connections()
    }

    async fn identity(&self) -> Result<OriginIdentity> {
        self.inner.identity().await
    }

    async fn is_empty(&self) -> Result<bool> {
        self.inner.is_empty().await
    }

    async fn limits(&self) -> Result<OriginLimits> {
        self.inner.limits().await
    }

    fn demand_path(&self, path: &[u8], is_dir: bool) -> Result<()> {
        self.inner.demand_path(path, is_dir)
    }

    /// Asked when it is put up, by nobody who is measured.
    async fn root(&self) -> Result<Object> {
        self.inner.root().await
    }

    async fn lookup(&self, dir: &Reference, name: &Name) -> Result<Object> {
        self.request(dir, 0, self.inner.lookup(dir, name)).await
    }

    async fn getattr(&self, object: &Reference) -> Result<Object> {
        self.request(object, 0, self.inner.getattr(object)).await
    }

    async fn readlink(&self, link: &Reference) -> Result<Bytes> {
        self.request(link, 0, self.inner.readlink(link)).await
    }

    async fn readdir(&self, dir: &Reference, cursor: DirCursor) -> Result<DirPage> {
        self.request(dir, 0, self.inner.readdir(dir, cursor)).await
    }

    async fn read(&self, object: &Reference, version: Version, range: ByteRange) -> Result<Bytes> {
        self.request(object, range.length, self.inner.read(object, version, range)).await
    }

    async fn statfs(&self, object: &Reference) -> Result<FsStat> {
        self.request(object, 0, self.inner.statfs(object)).await
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
        self.request(object, 0, self.inner.xattrs(object)).await
    }

    async fn change(&self, change: &Change) -> Result<Changed> {
        self.request(change.place(), 0, self.inner.change(change)).await
    }

    async fn left_by_rename(&self, from: &Reference, was: Version, there: &Reference) -> Result<Left> {
        self.request(there, 0, self.inner.left_by_rename(from, was, there)).await
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
        let bytes = data.len() as u64;
        self.request(object, bytes, self.inner.write(object, offset, data, stability)).await
    }

    async fn commit(&self, object: &Reference, range: ByteRange) -> Result<Committed> {
        self.request(object, 0, self.inner.commit(object, range)).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_tells_what_the_directory_behind_it_can_never_take() {
        let dir = tempfile::tempdir().expect("directory");
        let plain = Arc::new(crate::posix::PosixOrigin::open(dir.path()).expect("opened"));
        let limited = LimitedOrigin::new(plain.clone(), "file=2MiB/s".parse().expect("limits"));
        assert_eq!(limited.limits().await.expect("told"), plain.limits().await.expect("told"));
        assert!(limited.demand_path(&[b'x'; 20_000], false).is_err());
    }

    /// How much slower it may be is this machine's business.
    #[tokio::test]
    async fn a_file_is_read_no_faster_than_its_limit() {
        let dir = tempfile::tempdir().expect("directory");
        std::fs::write(dir.path().join("a"), vec![7; 1 << 20]).expect("written");
        let plain = crate::posix::PosixOrigin::open(dir.path()).expect("opened");
        let limited = LimitedOrigin::new(Arc::new(plain), "file=2MiB/s".parse().expect("limits"));
        let root = limited.root().await.expect("there").reference;
        let file = limited.lookup(&root, &Name::new(b"a".to_vec()).expect("a name")).await.expect("there");
        let begun = std::time::Instant::now();
        for block in 0..4 {
            let range = ByteRange::new(block << 18, 1 << 18);
            let bytes = limited.read(&file.reference, file.version, range).await.expect("read");
            assert_eq!(bytes.len(), 1 << 18);
        }
        assert!(begun.elapsed().as_secs_f64() > 0.4, "{:?} for half a second's worth", begun.elapsed());
    }
}
