//! One open file of a directory: positioned reads and writes, around the page cache where that is wanted.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use rustix::fs::{Advice, CWD, Mode, OFlags};
use types::{Error, ErrorKind, Result};

use super::{SharedDirectory, TargetFile};

/// What O_DIRECT wants of offsets, lengths and addresses: no device in use has larger blocks.
const ALIGNMENT: usize = 4096;

pub struct PosixFile {
    shared: Arc<SharedDirectory>,
    inner: Arc<OpenPosixFile>,
    size: u64,
    written: AtomicBool,
}

struct OpenPosixFile {
    path: PathBuf,
    file: OwnedFd,
    /// The same file with O_DIRECT.
    direct: Option<OwnedFd>,
}

impl PosixFile {
    pub(super) fn open(
        operation: &'static str,
        shared: &Arc<SharedDirectory>,
        path: &Path,
        flags: OFlags,
        drop_pages: bool,
    ) -> Result<PosixFile> {
        let failed = |e: rustix::io::Errno| Error::io(operation, path.display(), e.into());
        let open = |flags| rustix::fs::openat(CWD, path, flags | OFlags::CLOEXEC, Mode::from(0o644));
        let file = open(flags).map_err(failed)?;
        let stat = rustix::fs::fstat(&file).map_err(failed)?;
        if rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir() {
            return Err(Error::new(ErrorKind::IsADirectory, operation, path.display()));
        }
        let direct = match shared.options.direct {
            true => Some(
                open(flags.difference(OFlags::CREATE) | OFlags::DIRECT).map_err(|e| no_direct(path, e))?,
            ),
            false => None,
        };
        let inner = Arc::new(OpenPosixFile { path: path.to_owned(), file, direct });
        if drop_pages {
            inner.drop_pages();
        }
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        Ok(PosixFile { shared: Arc::clone(shared), inner, size, written: AtomicBool::new(false) })
    }
}

fn no_direct(path: &Path, error: rustix::io::Errno) -> Error {
    if error == rustix::io::Errno::INVAL {
        let message = format!("{}: this file system has no O_DIRECT; leave out direct=1", path.display());
        return Error::new(ErrorKind::Config, "open", message);
    }
    Error::io("open with O_DIRECT", path.display(), error.into())
}

#[async_trait]
impl TargetFile for PosixFile {
    fn size(&self) -> u64 {
        self.size
    }

    async fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        let inner = Arc::clone(&self.inner);
        self.shared.block(move || inner.read(offset, length)).await
    }

    async fn write(&self, offset: u64, data: Bytes) -> Result<()> {
        self.written.store(true, Ordering::Release);
        let inner = Arc::clone(&self.inner);
        self.shared.block(move || inner.write(offset, &data)).await
    }

    async fn sync(&self) -> Result<()> {
        let (inner, drop_pages) = (Arc::clone(&self.inner), self.shared.options.drop_pages);
        self.shared
            .block(move || {
                rustix::fs::fsync(&inner.file).map_err(|e| inner.error("sync", e))?;
                if drop_pages {
                    inner.drop_pages();
                }
                Ok(())
            })
            .await
    }

    async fn close(&self) -> Result<()> {
        match self.written.swap(false, Ordering::AcqRel) {
            true => self.sync().await,
            false => Ok(()),
        }
    }
}

fn aligned(offset: u64, length: usize) -> bool {
    offset.is_multiple_of(ALIGNMENT as u64) && length.is_multiple_of(ALIGNMENT)
}

impl OpenPosixFile {
    fn error(&self, operation: &'static str, error: rustix::io::Errno) -> Error {
        Error::io(operation, self.path.display(), error.into())
    }

    /// Clean pages only; a hint, so a file system may ignore it.
    fn drop_pages(&self) {
        let _ = rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed);
    }

    fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        match &self.direct {
            Some(fd) if offset.is_multiple_of(ALIGNMENT as u64) => self.read_direct(fd, offset, length),
            _ => self.read_plain(offset, length),
        }
    }

    fn read_plain(&self, offset: u64, length: usize) -> Result<Bytes> {
        let mut out = Vec::with_capacity(length);
        while out.len() < length {
            let at = offset.saturating_add(out.len() as u64);
            match rustix::io::pread(&self.file, rustix::buffer::spare_capacity(&mut out), at) {
                Ok(0) => break,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(self.error("read", error)),
            }
        }
        // The allocator may have given more room than was asked for.
        out.truncate(length);
        Ok(out.into())
    }

    /// The end of a file is no multiple of the alignment; the kernel wants the buffer to be one.
    fn read_direct(&self, fd: &OwnedFd, offset: u64, length: usize) -> Result<Bytes> {
        let room = length.next_multiple_of(ALIGNMENT);
        let mut buffer = vec![0_u8; room + ALIGNMENT];
        let start = buffer.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        let mut got = 0;
        while got < length {
            let Some(rest) = buffer.get_mut(start + got..start + room) else { break };
            match rustix::io::pread(fd, rest, offset.saturating_add(got as u64)) {
                Ok(0) => break,
                // After a short read the next offset is not aligned: that is the end of the file.
                Ok(n) if !n.is_multiple_of(ALIGNMENT) => {
                    got += n;
                    break;
                }
                Ok(n) => got += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(self.error("read", error)),
            }
        }
        Ok(Bytes::from(buffer).slice(start..start + got.min(length)))
    }

    fn write(&self, offset: u64, data: &Bytes) -> Result<()> {
        let mut copy = Vec::new();
        let (fd, data) = match &self.direct {
            Some(fd) if aligned(offset, data.len()) => {
                copy.resize(data.len() + ALIGNMENT, 0);
                let start = copy.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
                copy[start..start + data.len()].copy_from_slice(data);
                (fd, &copy[start..start + data.len()])
            }
            _ => (&self.file, &data[..]),
        };
        let mut done = 0;
        while let Some(rest) = data.get(done..).filter(|rest| !rest.is_empty()) {
            match rustix::io::pwrite(fd, rest, offset.saturating_add(done as u64)) {
                Ok(0) => return Err(Error::new(ErrorKind::Io, "write", self.path.display())),
                Ok(n) => done += n,
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(self.error("write", error)),
            }
        }
        Ok(())
    }
}
