//! A tier at work: its servers run until it is stopped.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cache::Cache;
use front_fuse::FuseMount;
use namespace::Namespace;
use quantity::Size;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{error, info, warn};
use types::{Durability, Error, ErrorKind, Result};
use vfs::{JunctionLoad, Unflushed, Vfs, WritePolicy};

use crate::admin::{self, Admin};
use crate::cluster_node::RunningNode;
use crate::reload::{Again, Live, Reloading};
use crate::settings::{ExportSettings, JunctionSettings};
use crate::wire_up::{Mount, Tier};

/// Calls under way are given this long at the end.
const DRAIN: Duration = Duration::from_secs(8);

/// What clients wrote and nobody has stored yet is given this long then. An origin that cannot be reached now may not be
/// back before the system loses its patience with us.
const FLUSH: Duration = Duration::from_secs(20);

/// A journal's disk that hangs must not hold the process for ever.
const CLOSE: Duration = Duration::from_secs(10);

/// Junctions are looked at so often, whether a client asks for them or not: one that is away is told of before it is missed.
const LOOK_EVERY: Duration = Duration::from_secs(10);

pub fn tell_junction(junction: &JunctionSettings, journal: &Path) {
    info!(
        path = %junction.path,
        files = %junction.files,
        directories = %junction.directories,
        write = %junction.write,
        "junction"
    );
    if junction.write == WritePolicy::Back {
        warn!(
            path = %junction.path,
            journal = %journal.display(),
            durability = %junction.durability,
            "one copy on one disk: what clients are told is done is in the journal alone until it is flushed"
        );
    }
}

/// Whose clients are promised less than their protocol does.
pub fn tell_exports(exports: &[ExportSettings]) {
    for export in exports.iter().filter(|export| export.rule.durability == Durability::Fsync) {
        let clients: Vec<_> = export.rule.clients.iter().map(ToString::to_string).collect();
        warn!(
            junction = export.junction.as_deref().unwrap_or("all"),
            clients = clients.join(", "),
            "async: NFS clients are told that names and attributes written back are stable up to a second before they are on \
             the disk: a power cut takes them, and these clients do not send them again"
        );
    }
}

/// A tier at work.
pub struct RunningTier {
    stop: watch::Sender<bool>,
    nfs: Option<JoinHandle<()>>,
    s3: Option<JoinHandle<()>>,
    node: Option<RunningNode>,
    to_mount: Option<Mount>,
    mounted: Option<FuseMount>,
    operator: JoinHandle<()>,
    cache: Arc<Cache>,
    namespace: Arc<Namespace>,
    vfs: Arc<Vfs>,
    admin: Arc<Admin>,
    looking: JoinHandle<()>,
    reloading: Option<Reloading>,
}

impl RunningTier {
    pub fn start(tier: Tier) -> RunningTier {
        let (stop, stopped) = watch::channel(false);
        RunningTier {
            stop,
            nfs: tier.nfs.map(|nfs| tokio::spawn(nfs.serve(stopped.clone()))),
            s3: tier.s3.map(|s3| tokio::spawn(s3.serve(stopped.clone()))),
            node: tier.node.map(|node| node.start(stopped.clone())),
            to_mount: tier.mount,
            mounted: None,
            vfs: tier.admin.vfs.clone(),
            admin: tier.admin.clone(),
            looking: tokio::spawn(look_at_junctions(tier.namespace.clone())),
            reloading: None,
            operator: tokio::spawn(admin::serve(tier.admin, tier.doors, stopped)),
            cache: tier.cache,
            namespace: tier.namespace,
        }
    }

    /// Mount, if the settings say so; where.
    pub async fn mount(&mut self) -> Result<Option<String>> {
        let Some(Mount { config, vfs, metrics }) = self.to_mount.take() else {
            self.admin.phase.serves();
            return Ok(None);
        };
        let mounted = FuseMount::start(config, vfs, metrics).await?;
        let dir = mounted.mount_point().display().to_string();
        self.mounted = Some(mounted);
        self.admin.phase.serves();
        Ok(Some(dir))
    }

    /// Returns when somebody has unmounted the only front.
    pub async fn unmounted(&self) {
        let Some(mounted) = &self.mounted else { return std::future::pending().await };
        mounted.ended().await;
        warn!("{} was unmounted by somebody", mounted.mount_point().display());
        if self.nfs.is_some() || self.s3.is_some() {
            std::future::pending().await
        }
    }

    /// Has the tier read its configuration anew each time that the returned function is called.
    pub fn reload_by(&mut self, live: Live, again: Again) -> impl Fn() + use<> {
        let reloading = Reloading::start(live, again);
        let reload = reloading.ask();
        self.reloading = Some(reloading);
        reload
    }

    /// What the operator's interface tells of it.
    pub fn admin(&self) -> &Arc<Admin> {
        &self.admin
    }

    /// Ends it: new calls are refused, those in flight are waited for, what clients wrote is stored, files are closed.
    pub async fn stop(mut self) -> Result<()> {
        info!("stopping: no new calls, {DRAIN:?} for those under way");
        self.admin.phase.stops();
        self.looking.abort();
        if let Some(reloading) = self.reloading.take() {
            reloading.stop().await;
        }
        if let Some(mounted) = self.mounted.take() {
            mounted.unmount().await;
        }
        let _ = self.stop.send(true);
        let drained = async {
            if let Some(nfs) = self.nfs {
                let _ = nfs.await; // it ends, or failed and said why
            }
            if let Some(s3) = self.s3 {
                let _ = s3.await;
            }
            if let Some(node) = &mut self.node {
                node.drained().await;
            }
            self.operator.await
        };
        if tokio::time::timeout(DRAIN, drained).await.is_err() {
            warn!("some calls did not end in time");
        }
        let notices = match self.node {
            Some(node) => Some(node.stop().await),
            None => None,
        };
        for (file, bytes) in self.vfs.flush(FLUSH).await {
            warn!(%file, "{bytes} bytes that clients wrote are not stored at the origin");
        }
        if let Some(notices) = notices {
            notices.told().await;
        }
        let closed = close_journal(&self.vfs).await;
        self.cache.shutdown().await;
        self.namespace.shutdown().await;
        info!("stopped");
        closed
    }
}

/// What waits there is not flushed now: an origin that is away must not hold up the stop.
async fn close_journal(vfs: &Vfs) -> Result<()> {
    let late = |_| Err(Error::new(ErrorKind::Io, "close the journal", format!("in {CLOSE:?}")));
    let closed = tokio::time::timeout(CLOSE, vfs.close()).await.unwrap_or_else(late);
    let left = vfs.unflushed();
    if let Some(journal) = left.journal.as_ref().filter(|journal| journal.operations > 0) {
        let (operations, bytes) = (journal.operations, dirty_bytes(&left.junctions));
        let dir = journal.dir.display();
        info!(journal = %dir, "{operations} operations with {bytes} wait in the journal for the next start");
    }
    closed
}

/// By an earlier run, in its journal.
pub fn tell_what_was_left(left: &Unflushed) {
    let Some(journal) = &left.journal else { return };
    let dir = journal.dir.display();
    for place in &journal.damaged {
        error!(journal = %dir, "damaged, and nothing is written back: {place}");
    }
    if journal.operations > 0 {
        let (operations, bytes) = (journal.operations, dirty_bytes(&left.junctions));
        info!(journal = %dir, "{operations} operations with {bytes} of an earlier run are not at their origin yet");
    }
}

fn dirty_bytes(junctions: &[JunctionLoad]) -> Size {
    Size(junctions.iter().map(|junction| junction.dirty_bytes).sum())
}

async fn look_at_junctions(namespace: Arc<Namespace>) {
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        namespace.look_at_junctions();
    }
}
