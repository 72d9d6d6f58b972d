//! The border to the file system: what the journal asks of a disk, and the real one.
//!
//! Small on purpose, so that the tests' disk can lose at a power cut all that a real one may lose: what a call
//! leaves in memory until the matching `sync` (of a file) or `sync_dir` (of names) is not durable.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, IoSlice};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags};
use types::{Error, ErrorKind, Result};

/// A call ends where the file is at a multiple of this. The kernel keeps what a call writes in pieces of memory as large as the
/// call, and where memory is full of cached files it moves pages about to find large pieces (seen in a profile of calls of
/// 1 MiB).
const PIECE: usize = 64 << 10;

/// One directory, ours alone.
pub trait Disk: Send + Sync {
    fn list(&self) -> io::Result<Vec<String>>;
    /// A new file of `length` zeros with room on the disk for all of it; replaces one of that name.
    fn create(&self, name: &str, length: u64) -> io::Result<Arc<dyn DiskFile>>;
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Replaces `to`.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Names made, changed and removed until now are durable.
    fn sync_dir(&self) -> io::Result<()>;
    /// For messages.
    fn place(&self) -> String;
}

pub trait DiskFile: Send + Sync {
    fn length(&self) -> io::Result<u64>;
    /// As many bytes as there are; fewer only at the end of the file.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;
    /// The parts, one behind the other.
    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> io::Result<()>;
    fn truncate(&self, length: u64) -> io::Result<()>;
    /// Room on the disk for this length, and at least this length; what is added reads as zeros.
    fn allocate(&self, length: u64) -> io::Result<()>;
    /// Contents and length as they are now are durable (fdatasync).
    fn sync(&self) -> io::Result<()>;
}

/// No room on the disk, a file system that is read-only for a while, or no free file descriptor: an error that passes when
/// somebody sees to it. Nothing was written.
pub fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind as K;
    let descriptors = [rustix::io::Errno::MFILE, rustix::io::Errno::NFILE].map(|errno| errno.raw_os_error());
    matches!(error.kind(), K::StorageFull | K::QuotaExceeded | K::ReadOnlyFilesystem)
        || error.raw_os_error().is_some_and(|errno| descriptors.contains(&errno))
}

/// A new file, empty, that our user alone can read.
pub fn private_file() -> OpenOptions {
    let mut options = File::options();
    options.write(true).create(true).truncate(true).mode(0o600);
    options
}

/// A directory of the file system.
pub struct RealDisk {
    path: PathBuf,
    directory: File,
    /// Held while we live: a second process on the same directory is refused.
    _lock: File,
}

impl RealDisk {
    /// Create the directory if need be, and lock it.
    pub fn claim(path: &Path) -> Result<RealDisk> {
        let refuse = |what: &str, e: io::Error| {
            let message = format!("cannot {what} {}: {e}", path.display());
            Error::new(ErrorKind::Config, "journal directory:", message)
        };
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|e| refuse("create", e))?;
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            File::open(parent).and_then(|parent| parent.sync_all()).map_err(|e| refuse("sync above", e))?;
        }
        let lock = private_file().open(path.join("LOCK")).map_err(|e| refuse("write in", e))?;
        rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
            let message = format!("{} (give this one a directory of its own)", path.display());
            let why = io::Error::other("it is in use by another tier");
            Error::new(ErrorKind::Busy, "journal directory:", message).with_source(why)
        })?;
        let directory = File::open(path).map_err(|e| refuse("open", e))?;
        Ok(RealDisk { path: path.to_path_buf(), directory, _lock: lock })
    }
}

impl Disk for RealDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        let entries = std::fs::read_dir(&self.path)?.collect::<io::Result<Vec<_>>>()?;
        Ok(entries.iter().filter_map(|entry| entry.file_name().into_string().ok()).collect())
    }

    fn create(&self, name: &str, length: u64) -> io::Result<Arc<dyn DiskFile>> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::openat(&self.directory, name, flags, Mode::RUSR | Mode::WUSR)?);
        if let Err(e) = DiskFile::allocate(&file, length) {
            // What has no room must not keep what it got of it.
            let _ = self.remove(name);
            return Err(e);
        }
        Ok(Arc::new(file))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        Ok(Arc::new(File::from(rustix::fs::openat(&self.directory, name, flags, Mode::empty())?)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.directory, from, &self.directory, to)?)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.directory, name, rustix::fs::AtFlags::empty())?)
    }

    fn sync_dir(&self) -> io::Result<()> {
        Ok(rustix::fs::fsync(&self.directory)?)
    }

    fn place(&self) -> String {
        self.path.display().to_string()
    }
}

impl DiskFile for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match FileExt::read_at(self, &mut buffer[filled..], offset + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> io::Result<()> {
        let mut slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let (mut slices, mut offset) = (&mut slices[..], offset);
        IoSlice::advance_slices(&mut slices, 0); // empty ones are passed
        while !slices.is_empty() {
            let piece = first_bytes(slices, PIECE - (offset % PIECE as u64) as usize);
            match rustix::io::pwritev(self, &piece, offset) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => {
                    IoSlice::advance_slices(&mut slices, count);
                    offset += count as u64;
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    /// So that a later write finds the file system full only where it copies on write. A file system without the
    /// call gives the length alone.
    fn allocate(&self, length: u64) -> io::Result<()> {
        if length == 0 {
            return Ok(());
        }
        match rustix::fs::fallocate(self, FallocateFlags::empty(), 0, length) {
            Err(rustix::io::Errno::OPNOTSUPP) => self.set_len(length.max(self.metadata()?.len())),
            done => Ok(done?),
        }
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }
}

/// The slices up to so many bytes of them.
fn first_bytes<'a>(slices: &'a [IoSlice], mut room: usize) -> Vec<IoSlice<'a>> {
    let mut piece = Vec::with_capacity(slices.len());
    for slice in slices {
        let length = slice.len().min(room);
        piece.push(IoSlice::new(&slice[..length]));
        room -= length;
        if room == 0 {
            break;
        }
    }
    piece
}

#[cfg(test)]
pub mod faulty;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_any_length_are_written_one_behind_the_other() {
        let dir = tempfile::tempdir().expect("made");
        let disk = RealDisk::claim(dir.path()).expect("claimed");
        let file = disk.create("file", 0).expect("made");
        let bytes: Vec<u8> = (0..5 * PIECE + 77).map(|at| (at % 251) as u8).collect();
        for (offset, cuts) in
            [(0, vec![]), (13, vec![0, 64, 64, 64 + PIECE]), (PIECE as u64 - 1, vec![1, 2, 4 * PIECE])]
        {
            let ends = cuts.iter().copied().chain([bytes.len()]);
            let starts = [0].into_iter().chain(cuts.iter().copied());
            let parts: Vec<&[u8]> = starts.zip(ends).map(|(start, end)| &bytes[start..end]).collect();
            file.write_at(offset, &parts).expect("written");
            let mut read = vec![0; bytes.len() + 1];
            assert_eq!(file.read_at(offset, &mut read).expect("read"), bytes.len(), "at {offset}");
            assert!(read[..bytes.len()] == bytes[..], "at {offset}");
            file.truncate(0).expect("cut");
        }
    }
}
