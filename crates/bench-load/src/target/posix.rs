//! A directory as a target: whatever the kernel has mounted there.
//!
//! Calls block, so they run on threads, as many at a time as [`DirectoryOptions::threads`] allows. The kernel caches on
//! the client's side: by default the pages of a file are dropped when it is opened and after it was written, so
//! that a read is not measured from the client's own memory unknowingly. Names and attributes cannot be dropped
//! without root.

mod file;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use rustix::fs::{Access, StatVfsMountFlags};
use tokio::sync::Semaphore;
use types::{Error, ErrorKind, Result};

use super::{Client, EntryKind, EntryStatus, Target, TargetAbout, TargetEntry, TargetFile, components};
use file::PosixFile;

/// The options of a directory as a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryOptions {
    /// Go around the page cache with O_DIRECT. Off by default: not every file system has it, and it also
    /// disables read-ahead.
    pub direct: bool,
    /// Drop a file's clean pages when it is opened for reading and after it was made durable. On by default.
    pub drop_pages: bool,
    /// System calls at the same time, of all clients together: a thread each. Default 256; tokio has 512.
    pub threads: usize,
}

impl Default for DirectoryOptions {
    fn default() -> DirectoryOptions {
        DirectoryOptions { direct: false, drop_pages: true, threads: 256 }
    }
}

/// Its clients have no knowledge of their own, but the kernel's: each is the target again.
#[derive(Clone)]
pub struct PosixTarget {
    shared: Arc<SharedDirectory>,
}

/// What all clients and files share.
struct SharedDirectory {
    root: PathBuf,
    options: DirectoryOptions,
    threads: Semaphore,
}

impl PosixTarget {
    /// Fails with one line that says what to do if there is no such directory.
    pub fn open(path: &Path, options: DirectoryOptions) -> Result<Arc<PosixTarget>> {
        let refuse = |why: String| {
            let message = format!("{}: {why}; name an existing directory", path.display());
            Error::new(ErrorKind::Config, "target", message)
        };
        let meta = std::fs::metadata(path).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => refuse("there is no such directory".to_owned()),
            _ => refuse(e.to_string()),
        })?;
        if !meta.is_dir() {
            return Err(refuse("it is not a directory".to_owned()));
        }
        let root = path.canonicalize().map_err(|e| refuse(e.to_string()))?;
        let threads = Semaphore::new(options.threads.clamp(1, 512));
        Ok(Arc::new(PosixTarget { shared: Arc::new(SharedDirectory { root, options, threads }) }))
    }
}

impl SharedDirectory {
    fn path(&self, path: &str) -> Result<PathBuf> {
        let mut full = self.root.clone();
        full.extend(components(path)?);
        Ok(full)
    }

    /// Runs a call that blocks.
    async fn block<T: Send + 'static>(&self, call: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        let closed = |_| Error::new(ErrorKind::Io, "run a system call", "the target is closed");
        let _permit = self.threads.acquire().await.map_err(closed)?;
        let done = tokio::task::spawn_blocking(call).await;
        done.map_err(|e| Error::new(ErrorKind::Io, "run a system call", e))?
    }
}

#[async_trait]
impl Target for PosixTarget {
    async fn about(&self) -> Result<TargetAbout> {
        let direct = if self.shared.options.direct { "?direct=1" } else { "" };
        let url = format!("file://{}{direct}", self.shared.root.display());
        self.on_path("ask free space of", "", |root| {
            let stat = rustix::fs::statvfs(root)?;
            let mounted_so = stat.f_flag.contains(StatVfsMountFlags::RDONLY);
            let denied = rustix::fs::access(root, Access::WRITE_OK).is_err();
            let available = stat.f_bavail.saturating_mul(stat.f_frsize);
            let read_only = mounted_so || denied;
            Ok(TargetAbout { url, read_only, whole_files: false, available: Some(available) })
        })
        .await
    }

    async fn client(&self, _id: u32) -> Result<Arc<dyn Client>> {
        Ok(Arc::new(self.clone()))
    }
}

impl PosixTarget {
    /// A call on one path.
    async fn on_path<T: Send + 'static>(
        &self,
        operation: &'static str,
        path: &str,
        call: impl FnOnce(&Path) -> std::io::Result<T> + Send + 'static,
    ) -> Result<T> {
        let full = self.shared.path(path)?;
        self.shared
            .block(move || call(&full).map_err(|error| Error::io(operation, full.display(), error)))
            .await
    }

    async fn opened(&self, path: &str, write: bool) -> Result<Arc<dyn TargetFile>> {
        let (full, shared) = (self.shared.path(path)?, Arc::clone(&self.shared));
        let file = self.shared.block(move || PosixFile::open(&shared, &full, write)).await?;
        Ok(Arc::new(file))
    }
}

#[async_trait]
impl Client for PosixTarget {
    async fn mkdir(&self, path: &str) -> Result<()> {
        self.on_path("make directory", path, |path| match std::fs::create_dir(path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            other => other,
        })
        .await
    }

    async fn create(&self, path: &str) -> Result<Arc<dyn TargetFile>> {
        self.opened(path, true).await
    }

    async fn open(&self, path: &str) -> Result<Arc<dyn TargetFile>> {
        self.opened(path, false).await
    }

    async fn stat(&self, path: &str) -> Result<EntryStatus> {
        self.on_path("get status of", path, |path| {
            let meta = std::fs::symlink_metadata(path)?;
            Ok(EntryStatus { kind: kind_of(meta.file_type()), size: meta.len() })
        })
        .await
    }

    async fn list(&self, path: &str) -> Result<Vec<TargetEntry>> {
        self.on_path("list", path, |path| {
            std::fs::read_dir(path)?
                .map(|entry| {
                    let entry = entry?;
                    let name = entry.file_name().to_string_lossy().into_owned();
                    Ok(TargetEntry { name, kind: entry.file_type().ok().map(kind_of) })
                })
                .collect()
        })
        .await
    }

    async fn remove(&self, path: &str) -> Result<()> {
        self.on_path("remove", path, |path| std::fs::remove_file(path)).await
    }

    async fn rmdir(&self, path: &str) -> Result<()> {
        self.on_path("remove directory", path, |path| std::fs::remove_dir(path)).await
    }
}

fn kind_of(kind: std::fs::FileType) -> EntryKind {
    match (kind.is_file(), kind.is_dir()) {
        (true, _) => EntryKind::File,
        (_, true) => EntryKind::Directory,
        _ => EntryKind::Other,
    }
}
