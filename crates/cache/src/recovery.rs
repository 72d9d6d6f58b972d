//! Taking over a cache directory: one tier at a time, one format, and the books of what is there.

use std::fs::{DirEntry, File};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, IFlags};
use types::{Error, ErrorKind, FileId, Result};

use crate::disk_usage::DISK_UNIT;
use crate::file::pages::FolioRule;
use crate::folio_history::FolioHistory;
use crate::private_files::{PRIVATE_FILE, create_private_dir, private_file, tighten};
use crate::{Cache, format};

/// Content of the file FORMAT. A directory of another format is refused: remove it or name another one.
const FORMAT: &str = "forebay cache, format 1\n";

/// A tier that was killed holds its directory until the kernel has taken it apart.
const LAST_MOMENT: Duration = Duration::from_secs(2);

/// Create the directory if need be, check that it is ours to use, and lock it.
pub fn claim(dir: &Path, folios: FolioRule) -> Result<(File, FolioHistory)> {
    let refuse = |what: &str, e: std::io::Error| {
        let message = format!("{}: {e}; give a directory that can be written with --cache", dir.display());
        Error::new(ErrorKind::Config, "cache directory:", format!("cannot {what} {message}"))
    };
    create_private_dir(dir).map_err(|e| refuse("create", e))?;
    let lock_path = dir.join("LOCK");
    let lock = lock_file(&lock_path).map_err(|e| refuse("write in", e))?;
    lock_soon(&lock).map_err(|_| {
        let message = format!("{} (give this one a directory of its own)", dir.display());
        let why = std::io::Error::other("it is in use by another tier");
        Error::new(ErrorKind::Busy, "cache directory:", message).with_source(why)
    })?;
    let marker = dir.join("FORMAT");
    let is_new = !marker.exists();
    match std::fs::read_to_string(&marker) {
        Ok(text) if text == FORMAT => {}
        Ok(text) if !text.is_empty() => {
            let message = format!("{} holds another format; empty it or give another one", dir.display());
            return Err(Error::new(ErrorKind::Config, "cache directory:", message));
        }
        // Empty: killed between creating and writing it.
        _ => private_file(&marker)
            .and_then(|mut file| std::io::Write::write_all(&mut file, FORMAT.as_bytes()))
            .map_err(|e| refuse("write in", e))?,
    }
    do_without_access_times(dir);
    Ok((lock, FolioHistory::begin(&lock_path, folios, is_new)))
}

/// What it says stays until the lock is held.
fn lock_file(path: &Path) -> std::io::Result<File> {
    File::options().write(true).create(true).truncate(false).mode(PRIVATE_FILE).open(path)
}

fn lock_soon(lock: &File) -> rustix::io::Result<()> {
    let start = Instant::now();
    loop {
        match rustix::fs::flock(lock, FlockOperation::NonBlockingLockExclusive) {
            Err(_) if start.elapsed() < LAST_MOMENT => std::thread::sleep(Duration::from_millis(20)),
            result => return result,
        }
    }
}

/// Nobody asks when a block was read last, and to find out whether it is to be noted costs a twentieth of a read of
/// 4 KiB, through FUSE too. What is made in the directory inherits it; a file system that cannot goes on noting.
fn do_without_access_times(dir: &Path) {
    let set = |dir: File| {
        rustix::fs::ioctl_setflags(&dir, rustix::fs::ioctl_getflags(&dir)? | IFlags::NOATIME)?;
        Ok(())
    };
    if let Err(e) = File::open(dir).and_then(set) {
        tracing::debug!("access times stay on for {}: {e}", dir.display());
    }
}

/// Count what is on disk. Files are served before they are counted: they are found by their name.
pub fn start_scan(cache: &Arc<Cache>) -> tokio::task::JoinHandle<()> {
    let cache = cache.clone();
    tokio::task::spawn_blocking(move || {
        if let Err(e) = scan(&cache) {
            tracing::warn!("count the cache directory {}: {e}", cache.config.dir.display());
        }
        cache.counted.store(true, Ordering::Release);
        cache.note_used();
        cache.pressure.notify_one();
    })
}

fn scan(cache: &Cache) -> std::io::Result<()> {
    for sub in std::fs::read_dir(&cache.config.dir)? {
        let sub = sub?;
        if !sub.file_type()?.is_dir() {
            continue;
        }
        tighten(&sub.path(), &sub.metadata()?);
        for entry in std::fs::read_dir(sub.path())? {
            if cache.stopping.load(Ordering::Relaxed) {
                return Ok(());
            }
            count(cache, &entry?, None);
        }
    }
    Ok(())
}

/// Enter the versions of one file into the books, ahead of the scan.
pub fn count_versions(cache: &Cache, file: FileId) {
    let path = cache.config.dir.join(format::subdirectory(file));
    for entry in std::fs::read_dir(path).into_iter().flatten().flatten() {
        count(cache, &entry, Some(file));
    }
}

/// Enter a data file into the books. The name decides; what is not ours is left alone.
fn count(cache: &Cache, entry: &DirEntry, only: Option<FileId>) {
    let name = entry.file_name();
    let parsed = |ending| name.to_str().and_then(|name| format::parse_name(name, ending));
    let key = parsed(".data");
    if (key.is_some() || parsed(".map").is_some())
        && let Ok(meta) = entry.metadata()
        && meta.is_file()
    {
        tighten(&entry.path(), &meta);
    }
    let Some((file, version)) = key.filter(|(file, _)| only.is_none_or(|only| only == *file)) else { return };
    // Found where it would be looked for: not in another directory, not in capitals.
    let place = cache.config.dir.join(format::stem(file, version)).with_extension("data");
    if let Ok(meta) = entry.metadata()
        && meta.is_file()
        && entry.path() == place
    {
        cache.space().found(file, version, meta.blocks() * 512 + DISK_UNIT);
    }
}
