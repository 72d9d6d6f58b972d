//! The `Origin` calls: names and changes go to the home.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use async_trait::async_trait;
use bytes::Bytes;
use origin::{
    Change, Changed, Committed, DirCursor, DirPage, Object, Origin, OriginIdentity, OriginLimits,
    OriginTraits, Reference, Written,
};
use origin_nfs::NfsOrigin;
use rpc_nfs3::tier_handle;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tracing::{info, warn};
use types::{ByteRange, Error, ErrorKind, FsStat, Name, NodeId, Result, Stability, Version};

use crate::client_view::ClientView;
use crate::kind::TRAITS;
use crate::node_link::{LinkFailure, NodeLink, Patience};
use crate::url::{ClusterUrl, NamedHost};

pub struct ClusterOrigin {
    pub(crate) url: ClusterUrl,
    /// Unlike that of other clients.
    pub(crate) client: u64,
    view: ArcSwap<ClientView>,
    home: Mutex<Option<NodeId>>,
    /// What is mounted, as the first node that was asked named it: a path may lead to another directory later.
    root: Mutex<Option<Reference>>,
    /// Which nodes answered under the names of the URL.
    named: Mutex<BTreeMap<NodeId, NamedHost>>,
    /// A node failed: the map may be another one.
    look_again: Arc<Notify>,
    /// What keeps the map current.
    refresh: Mutex<Option<AbortHandle>>,
}

impl ClusterOrigin {
    pub(crate) fn begin(
        url: ClusterUrl,
        client: u64,
        view: ClientView,
        named: BTreeMap<NodeId, NamedHost>,
    ) -> Arc<ClusterOrigin> {
        let look_again = Arc::new(Notify::new());
        let origin = Arc::new(ClusterOrigin {
            url,
            client,
            view: ArcSwap::from_pointee(view),
            home: Mutex::default(),
            root: Mutex::default(),
            named: Mutex::new(named),
            look_again: look_again.clone(),
            refresh: Mutex::default(),
        });
        let task = tokio::spawn(crate::refresh::keep_current(Arc::downgrade(&origin), look_again));
        *lock(&origin.refresh) = Some(task.abort_handle());
        origin
    }

    pub(crate) fn view(&self) -> Arc<ClientView> {
        self.view.load_full()
    }

    pub(crate) fn take_view(&self, view: ClientView) {
        self.view.store(Arc::new(view));
    }

    pub(crate) fn home(&self) -> Option<NodeId> {
        *lock(&self.home)
    }

    pub(crate) fn named(&self) -> BTreeMap<NodeId, NamedHost> {
        self.lock_named().clone()
    }

    pub(crate) fn lock_named(&self) -> MutexGuard<'_, BTreeMap<NodeId, NamedHost>> {
        lock(&self.named)
    }

    /// A link failed: it is left for some seconds, and the map is asked for.
    pub(crate) fn pass_over(&self, view: &ClientView, node: NodeId, link: &NodeLink, why: &Error) {
        if link.leave() {
            warn!(node = view.name_of(node), at = %link.at, "passed over for some seconds: {why}");
        }
        self.look_again.notify_one();
    }

    /// Names and changes go to `node` from now on: it has answered. Not if another node took the place of the `former` home
    /// meanwhile, for then the answer came late.
    fn settle(&self, view: &ClientView, node: NodeId, former: Option<NodeId>) {
        let mut home = lock(&self.home);
        if *home == former && home.replace(node) != Some(node) {
            info!(node = view.name_of(node), "names and changes go to this node");
        }
    }

    pub(crate) fn nobody(&self) -> Error {
        let why = "no node of its map can be reached, or none says where it serves NFS";
        Error::new(ErrorKind::Unavailable, "ask the cluster", format!("{}: {why}", self.url.url()))
    }

    /// A question to the home, or to the next node if that does not answer. `bytes`: how many the answer has, if they are many.
    pub(crate) async fn ask_home<T, F: Future<Output = Result<T>>>(
        &self,
        bytes: u64,
        call: impl Fn(Arc<NfsOrigin>) -> F,
    ) -> Result<T> {
        self.at_home(Patience::WhileAlive, bytes, call).await
    }

    /// A change. It is sent to the next node if the home was not reached at all, or if making it twice is the same as once: an
    /// `NfsOrigin` calls it an outage only then, and a change of unknown outcome otherwise.
    async fn change_at_home<T, F: Future<Output = Result<T>>>(
        &self,
        bytes: u64,
        call: impl Fn(Arc<NfsOrigin>) -> F,
    ) -> Result<T> {
        self.at_home(Patience::ToTheEnd, bytes, call).await
    }

    async fn at_home<T, F: Future<Output = Result<T>>>(
        &self,
        patience: Patience,
        bytes: u64,
        call: impl Fn(Arc<NfsOrigin>) -> F,
    ) -> Result<T> {
        let (view, former) = (self.view(), self.home());
        let mut failed = None;
        for node in view.homes(self.client, former) {
            for link in view.links_to(node) {
                match link.ask(patience, bytes, &call).await {
                    Ok(answer) => {
                        self.settle(&view, node, former);
                        return Ok(answer);
                    }
                    Err(LinkFailure::NotConnected(error) | LinkFailure::Silent(error)) => {
                        self.pass_over(&view, node, &link, &error);
                        failed = Some(error);
                    }
                    Err(LinkFailure::Doubtful(error)) => {
                        // Whoever looks what became of the change asks another node.
                        self.pass_over(&view, node, &link, &error);
                        return Err(error);
                    }
                    Err(LinkFailure::Answered(error)) => {
                        self.settle(&view, node, former);
                        return Err(error);
                    }
                }
            }
        }
        Err(self.unreached(failed, former))
    }

    /// No node could be asked, the last one for this reason. While the mount begins the reason is told as it is: a mistake in the
    /// URL, or a missing export rule. Later it is an outage, which may pass, whatever a single node says.
    pub(crate) fn unreached(&self, failed: Option<Error>, home: Option<NodeId>) -> Error {
        match failed {
            Some(error) if home.is_none() || error.is_retryable() => error,
            Some(error) => self.nobody().with_source(error),
            None => self.nobody(),
        }
    }
}

impl Drop for ClusterOrigin {
    fn drop(&mut self) {
        if let Some(refresh) = lock(&self.refresh).take() {
            refresh.abort();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every section leaves the state whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[async_trait]
impl Origin for ClusterOrigin {
    fn url(&self) -> String {
        self.url.url()
    }

    fn traits(&self) -> OriginTraits {
        TRAITS
    }

    /// The cluster, and what is mounted of it: the same whichever node answers.
    async fn identity(&self) -> Result<OriginIdentity> {
        let root = self.root().await?;
        let cluster = self.view().told.cluster.clone();
        let Some((junction, file)) = tier_handle::named_by(&root.reference.0) else {
            return self.ask_home(0, |node| async move { node.identity().await }).await;
        };
        let bytes = [cluster.as_bytes(), &junction.0.to_be_bytes(), &file.0].concat().into();
        let shown = format!("the cluster {cluster}, junction {junction}, directory {file}");
        Ok(OriginIdentity { bytes, shown, is_lasting: true })
    }

    async fn is_empty(&self) -> Result<bool> {
        origin::identity::lists_nothing(self).await
    }

    async fn limits(&self) -> Result<OriginLimits> {
        self.ask_home(0, |node| async move { node.limits().await }).await
    }

    async fn root(&self) -> Result<Object> {
        let known = lock(&self.root).clone();
        if let Some(known) = known {
            match self.getattr(&known).await {
                Err(error) if error.kind() == ErrorKind::Stale => {}
                answer => return answer,
            }
        }
        let root = self.ask_home(0, |node| async move { node.root().await }).await?;
        *lock(&self.root) = Some(root.reference.clone());
        Ok(root)
    }

    async fn lookup(&self, dir: &Reference, name: &Name) -> Result<Object> {
        self.ask_home(0, |node| async move { node.lookup(dir, name).await }).await
    }

    async fn getattr(&self, object: &Reference) -> Result<Object> {
        self.ask_home(0, |node| async move { node.getattr(object).await }).await
    }

    async fn readlink(&self, link: &Reference) -> Result<Bytes> {
        self.ask_home(0, |node| async move { node.readlink(link).await }).await
    }

    /// A tier's cookies are the same at all nodes: a listing goes on at another one.
    async fn readdir(&self, dir: &Reference, cursor: DirCursor) -> Result<DirPage> {
        self.ask_home(0, |node| async move { node.readdir(dir, cursor).await }).await
    }

    async fn read(&self, object: &Reference, version: Version, range: ByteRange) -> Result<Bytes> {
        self.read_range(object, version, range).await
    }

    async fn statfs(&self, object: &Reference) -> Result<FsStat> {
        self.ask_home(0, |node| async move { node.statfs(object).await }).await
    }

    async fn change(&self, change: &Change) -> Result<Changed> {
        self.change_at_home(0, |node| async move { node.change(change).await }).await
    }

    /// What is written unstably is in the memory of the home. When another node takes its place, the verifier is another one, and
    /// the writer writes again what was not committed.
    async fn write(
        &self,
        object: &Reference,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> Result<Written> {
        let length = data.len() as u64;
        let write = |node: Arc<NfsOrigin>| {
            let data = data.clone();
            async move { node.write(object, offset, data, stability).await }
        };
        self.change_at_home(length, write).await
    }

    async fn commit(&self, object: &Reference, range: ByteRange) -> Result<Committed> {
        self.change_at_home(0, |node| async move { node.commit(object, range).await }).await
    }
}
