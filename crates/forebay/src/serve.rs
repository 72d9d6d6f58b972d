//! Running a tier: start, serve, stop cleanly.

use std::sync::Arc;
use std::time::Duration;

use cache::Cache;
use front_nfs::Registration;
use namespace::Namespace;
use rustix::process::{Resource, Rlimit};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{info, warn};
use types::{Error, Result};

use crate::settings::Settings;
use crate::wire_up::Tier;
use crate::{admin, wire_up};

/// Calls under way are given this long at the end.
const DRAIN: Duration = Duration::from_secs(8);

/// Serve until SIGTERM or SIGINT. `announce`: print where, as JSON, once it serves. `attended`: also end when standard
/// input does.
pub async fn run(settings: Settings, announce: bool, attended: bool) -> Result<()> {
    raise_descriptor_limit();
    let tier = wire_up::build(&settings).await?;
    let nfs_address = tier.nfs.local_addr()?;
    let admin_address = tier.admin_listener.local_addr();
    let admin_address =
        admin_address.map_err(|e| Error::io("ask for the address of", "the operator's interface", e))?;
    let registration = if settings.rpcbind { register(nfs_address.port()).await } else { None };
    for junction in &settings.junctions {
        info!(path = %junction.path, files = %junction.files, directories = %junction.directories, "junction");
    }
    info!(nfs = %nfs_address, admin = %admin_address, cache = %settings.dir.display(), "serving, read-only");
    let running = Running::start(tier);
    if announce {
        println!("{}", json!({ "nfs": nfs_address.to_string(), "admin": admin_address.to_string() }));
    }
    let stopped = running.until_signal(attended).await;
    if let Some(registration) = registration {
        registration.remove().await;
    }
    stopped
}

async fn register(port: u16) -> Option<Registration> {
    match Registration::create(port).await {
        Ok(registration) => Some(registration),
        Err(e) => {
            warn!("clients must name the port themselves: {e}");
            None
        }
    }
}

/// A tier at work.
pub struct Running {
    stop: watch::Sender<bool>,
    nfs: JoinHandle<()>,
    operator: JoinHandle<()>,
    cache: Arc<Cache>,
    namespace: Arc<Namespace>,
}

impl Running {
    pub fn start(tier: Tier) -> Running {
        let (stop, stopped) = watch::channel(false);
        Running {
            stop,
            nfs: tokio::spawn(tier.nfs.serve(stopped.clone())),
            operator: tokio::spawn(admin::serve(tier.admin, tier.admin_listener, stopped)),
            cache: tier.cache,
            namespace: tier.namespace,
        }
    }

    pub async fn until_signal(self, attended: bool) -> Result<()> {
        wait_for_signal(attended).await?;
        info!("stopping: no new calls, {DRAIN:?} for those under way");
        self.stop().await
    }

    pub async fn stop(self) -> Result<()> {
        let _ = self.stop.send(true);
        let drained = async { (self.nfs.await, self.operator.await) };
        if tokio::time::timeout(DRAIN, drained).await.is_err() {
            warn!("some calls did not end in time");
        }
        self.cache.shutdown().await;
        self.namespace.shutdown().await;
        info!("stopped");
        Ok(())
    }
}

/// SIGTERM, SIGINT, and if `attended` the end of standard input.
pub async fn wait_for_signal(attended: bool) -> Result<()> {
    let failed = |e| Error::io("wait for", "signals", e);
    let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = end_of_input(), if attended => {}
    }
    Ok(())
}

async fn end_of_input() {
    let (ended, told) = tokio::sync::oneshot::channel();
    // A thread of its own: a read that never ends must not keep the runtime from ending.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = ended.send(());
    });
    let _ = told.await;
}

/// Connections and cache files need descriptors; the usual soft limit of 1,024 is for programs that use select.
pub fn raise_descriptor_limit() {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(e) = rustix::process::setrlimit(Resource::Nofile, raised) {
        warn!("raise the limit of open files: {e}");
    }
}
