//! What lies below a directory of this machine.

use std::fs::{File, Metadata, read_dir};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Advice, fadvise};
use types::{Error, Result};

/// Files and directories, each before what is in it. Those that leave meanwhile, or are closed to us, are left out; an error is one of
/// the directory itself.
pub fn entries_below(dir: &Path) -> io::Result<impl Iterator<Item = (PathBuf, Metadata)>> {
    let mut open = vec![read_dir(dir)?];
    Ok(std::iter::from_fn(move || {
        loop {
            let Some(entry) = open.last_mut()?.next() else {
                open.pop();
                continue;
            };
            let Ok((path, meta)) = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?))) else {
                continue;
            };
            if meta.is_dir() {
                open.extend(read_dir(&path));
            }
            return Some((path, meta));
        }
    }))
}

/// Asks the kernel to forget the pages of all files, so that the next reads come from the disk. Whether it did is for counters to
/// say: a file system in memory keeps them.
pub async fn forget_pages_below(dir: PathBuf) -> Result<()> {
    let name = dir.display().to_string();
    let forget = move || {
        for (path, _) in entries_below(&dir)?.filter(|(_, meta)| meta.is_file()) {
            let Ok(file) = File::open(path) else { continue };
            // Only clean pages are dropped.
            file.sync_data()?;
            fadvise(&file, 0, None, Advice::DontNeed)?;
        }
        Ok(())
    };
    let forgotten = tokio::task::spawn_blocking(forget).await.map_err(io::Error::other).flatten();
    forgotten.map_err(|e| Error::io("drop the page cache of", name, e))
}
