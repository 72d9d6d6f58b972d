//! The life of a mount: the mount point is checked, what a killed tier left there is replaced, and however this
//! process ends, the mount leaves the tree.

use std::io::ErrorKind as IoKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use fuser::{Session, SessionACL};
use rustix::io::Errno;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::{debug, info, warn};
use types::{Error, ErrorKind, Result};
use vfs::Vfs;

use crate::dispatch::FuseFront;
use crate::mountinfo::MountEntry;
use crate::{Config, FuseState, Metrics, helper, invalidations, mountinfo, orphans, refresh, wakefulness};

/// The most mounts of ours on top of each other that are removed.
const LEFT_BEHIND_MAX: usize = 8;
/// How long a mount may take to answer: a live one answers sooner, even if its origin does not
/// (`FuseState::statfs`).
const PATIENCE: Duration = Duration::from_secs(10);
/// The time that requests in flight have after unmounting.
const DRAIN: Duration = Duration::from_secs(3);

/// A mounted tree. Unmounted when dropped.
pub struct FuseMount {
    dir: PathBuf,
    device: Option<String>,
    shared: Arc<FuseState>,
    ended: watch::Receiver<bool>,
    watchers: Vec<JoinHandle<()>>,
}

fn refuse<T>(message: String) -> Result<T> {
    Err(Error::new(ErrorKind::Config, "mount:", message))
}

/// Checks that a tree can be mounted at `dir`, and removes what a killed tier left there. Returns the path as the
/// kernel names it.
pub fn check_mount_point(dir: &Path) -> Result<PathBuf> {
    let shown = dir.display();
    let missing = || format!("{shown} does not exist; make it first: mkdir -p {shown}");
    let place = match mountinfo::absolute(dir) {
        Ok(place) => place,
        Err(e) if e.kind() == IoKind::NotFound => return refuse(missing()),
        Err(e) => return refuse(format!("{shown}: {e}; name an empty directory")),
    };
    replace_left_behind(&place)?;
    match std::fs::metadata(&place) {
        Ok(meta) if !meta.is_dir() => {
            return refuse(format!("{shown} is not a directory; name an empty directory"));
        }
        Ok(_) => {}
        Err(e) if e.kind() == IoKind::NotFound => return refuse(missing()),
        Err(e) => return refuse(format!("{shown}: {e}; name an empty directory")),
    }
    if mountinfo::top_at(&place).is_some_and(|entry| is_ours(&entry)) {
        return refuse(format!(
            "a forebay serves {shown} already; stop it, or end its mount: umount {shown}"
        ));
    }
    match std::fs::read_dir(&place).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(place),
        Ok(false) => {
            refuse(format!("{shown} is not empty; its files would be hidden: name an empty directory"))
        }
        Err(e) => refuse(format!("{shown}: {e}; name a directory that you may read")),
    }
}

fn is_ours(entry: &MountEntry) -> bool {
    entry.kind.strip_prefix("fuse.") == Some(helper::SUBTYPE)
}

/// Removes the mount of a killed process; every use of it fails with "Transport endpoint is not connected". A
/// process that was killed while it told the kernel of a change may even wait in the kernel for a program that waits
/// for it: neither ends before the mount is aborted.
fn replace_left_behind(place: &Path) -> Result<()> {
    let shown = place.display();
    for _ in 0..LEFT_BEHIND_MAX {
        let answer = answer_of(place);
        let state = match &answer {
            Some(Err(e)) if *e == Errno::NOTCONN => e.to_string(),
            Some(_) => return Ok(()),
            None => format!("no answer in {} s", PATIENCE.as_secs()),
        };
        if !mountinfo::top_at(place).is_some_and(|entry| is_ours(&entry)) {
            return refuse(format!("another program's dead mount is on {shown} ({state}): umount {shown}"));
        }
        if answer.is_none() {
            if let Err(e) = helper::abort(place) {
                return refuse(format!(
                    "a dead mount is on {shown} ({state}, {e}); as root: umount -f {shown}"
                ));
            }
            continue;
        }
        if let Err(e) = helper::unmount(place) {
            return refuse(format!("a dead mount is on {shown} and cannot be removed ({e}): umount {shown}"));
        }
        warn!("replacing the mount that a killed process left on {shown}");
    }
    Ok(())
}

/// Whether what is mounted there answers; not by attributes, which the kernel may have cached. `None`: it does not.
fn answer_of(place: &Path) -> Option<rustix::io::Result<()>> {
    let (sender, receiver) = sync_channel(1);
    let asked = place.to_owned();
    let ask = move || sender.send(rustix::fs::statvfs(&asked).map(drop));
    // If nobody answers, the thread is left behind; it ends when that mount does.
    let asking = std::thread::Builder::new().name("mount-probe".into()).spawn(ask);
    asking.map_or(Some(Ok(())), |_| receiver.recv_timeout(PATIENCE).ok())
}

impl FuseMount {
    /// Mounts and serves until `unmount`, or until somebody removes the mount. Needs a tokio runtime with several
    /// threads.
    pub async fn start(config: Config, vfs: Arc<Vfs>, metrics: Metrics) -> Result<FuseMount> {
        let runtime = tokio::runtime::Handle::current();
        let starting = tokio::task::spawn_blocking(move || start(config, vfs, metrics, runtime));
        starting.await.map_err(|e| Error::new(ErrorKind::Io, "mount", "").with_source(e))?
    }

    pub fn mount_point(&self) -> &Path {
        &self.dir
    }

    /// Returns when the mount is gone.
    pub async fn ended(&self) {
        let _ = self.ended.clone().wait_for(|ended| *ended).await; // an error: the session's thread is gone
    }

    /// Unmounts; requests in flight are answered, for a while.
    pub async fn unmount(mut self) {
        self.detach();
        if tokio::time::timeout(DRAIN, self.ended()).await.is_err() {
            info!("{} is still in use; it ends with this process", self.dir.display());
            return;
        }
        // Nothing is open any more: the orphans can be removed.
        let leaving = self.shared.orphans.begin_all_removals();
        let removing = leaving.into_iter().map(|(file, orphan)| self.shared.remove_now(file, orphan));
        let all = async {
            for one in removing {
                one.await;
            }
        };
        if tokio::time::timeout(DRAIN, all).await.is_err() {
            info!("hidden names of removed files stay at the origin: find -name '{}*'", orphans::PREFIX);
        }
    }

    /// Detaches our mount, and not one that somebody put at the same place since.
    fn detach(&mut self) {
        self.shared.invalidations.close();
        self.watchers.drain(..).for_each(|watcher| watcher.abort());
        let Some(device) = self.device.take() else { return };
        if *self.ended.borrow() || mountinfo::top_at(&self.dir).is_none_or(|top| top.device != device) {
            return;
        }
        if let Err(e) = helper::unmount(&self.dir) {
            warn!("unmount {}: {e}", self.dir.display());
        }
    }
}

impl Drop for FuseMount {
    fn drop(&mut self) {
        self.detach();
    }
}

/// Mounts and starts the session. Blocking: waits for the kernel's first request.
fn start(
    config: Config,
    vfs: Arc<Vfs>,
    metrics: Metrics,
    runtime: tokio::runtime::Handle,
) -> Result<FuseMount> {
    let dir = check_mount_point(&config.mount_point)?;
    let failed = |e: std::io::Error| {
        let message = format!("{}: {e}", dir.display());
        Error::new(ErrorKind::Config, "mount:", message)
    };
    let changes = vfs.changes();
    let shared = FuseState::new(vfs, changes.mark(), config, metrics, runtime.clone());
    note_privilege(&shared);
    let writable = shared.config.writable || shared.vfs.is_writable();
    let fd = helper::mount(&dir, &shared.config.source, writable).map_err(failed)?;
    let device = mountinfo::top_at(&dir).map(|entry| entry.device);
    let (end, ended) = watch::channel(false);
    // From here on, dropping it unmounts.
    let mut mounted =
        FuseMount { dir: dir.clone(), device, shared: shared.clone(), ended, watchers: Vec::new() };

    let mut options = fuser::Config::default();
    options.n_threads = Some(shared.config.threads.max(1));
    options.clone_fd = true;
    let everybody = rustix::process::geteuid().is_root();
    let acl = if everybody { SessionACL::All } else { SessionACL::Owner };
    let front = FuseFront { shared: shared.clone() };
    let told = fd.try_clone().map_err(failed)?;
    let session = Session::from_fd(front, fd, acl, options).map_err(failed)?;
    invalidations::start(shared.invalidations.clone(), session.notifier(), told, shared.metrics.clone())
        .map_err(failed)?;
    let serve = move || {
        if let Err(e) = session.run() {
            warn!("the FUSE session ended: {e}");
        }
        let _ = end.send(true); // whoever waited may be gone
    };
    std::thread::Builder::new().name("fuse-session".into()).spawn(serve).map_err(failed)?;
    mounted.watchers.push(runtime.spawn(refresh::forward_changes(shared.clone(), changes)));
    mounted.watchers.push(runtime.spawn(refresh::refresh_followed(shared.clone())));
    if shared.config.low_latency {
        mounted.watchers.push(runtime.spawn(wakefulness::stay_awake(shared.clone())));
    }
    raise_readahead(&mounted);
    Ok(mounted)
}

/// Checks the privilege beforehand, so that its lack is logged at the start and not at some open.
fn note_privilege(shared: &FuseState) {
    use rustix::thread::CapabilitySet;
    let sets = rustix::thread::capabilities(None);
    if sets.is_ok_and(|sets| !sets.effective.contains(CapabilitySet::SYS_ADMIN)) {
        shared.passthrough.give_up("it needs the privilege CAP_SYS_ADMIN");
    }
}

/// Sets the kernel's read-ahead of this mount; for root only.
fn raise_readahead(mounted: &FuseMount) {
    let Some(device) = &mounted.device else { return };
    let kib = mounted.shared.config.kernel_readahead / 1024;
    let path = format!("/sys/class/bdi/{device}/read_ahead_kb");
    if let Err(e) = std::fs::write(&path, kib.to_string()) {
        debug!("{path}: {e}");
    }
}
