//! One open file of a directory: positioned reads and writes, around the page cache where that is wanted.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use rustix::fs::{Advice, OFlags};
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
    file: File,
    /// The same file with O_DIRECT.
    direct: Option<File>,
}

impl PosixFile {
    /// To be read; or to be written, and made if it is missing.
    pub(super) fn open(shared: &Arc<SharedDirectory>, path: &Path, write: bool) -> Result<PosixFile> {
        let operation = if write { "create" } else { "open" };
        let failed = |error| Error::io(operation, path.display(), error);
        let mut options = OpenOptions::new();
        options.read(true).write(write).create(write).mode(0o644);
        let file = options.open(path).map_err(failed)?;
        let status = file.metadata().map_err(failed)?;
        if status.is_dir() {
            return Err(Error::new(ErrorKind::IsADirectory, operation, path.display()));
        }
        let direct = if shared.options.direct {
            options.create(false).custom_flags(OFlags::DIRECT.bits().cast_signed());
            Some(options.open(path).map_err(|error| no_direct(path, error))?)
        } else {
            None
        };
        let inner = Arc::new(OpenPosixFile { path: path.to_owned(), file, direct });
        if shared.options.drop_pages && !write {
            inner.drop_pages();
        }
        let (shared, size) = (Arc::clone(shared), status.len());
        Ok(PosixFile { shared, inner, size, written: AtomicBool::new(false) })
    }

    async fn block<T: Send + 'static>(
        &self,
        call: impl FnOnce(&OpenPosixFile) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let inner = Arc::clone(&self.inner);
        self.shared.block(move || call(&inner)).await
    }
}

fn no_direct(path: &Path, error: std::io::Error) -> Error {
    if error.kind() == std::io::ErrorKind::InvalidInput {
        let message = format!("{}: this file system has no O_DIRECT; leave out direct=1", path.display());
        return Error::new(ErrorKind::Config, "open", message);
    }
    Error::io("open with O_DIRECT", path.display(), error)
}

#[async_trait]
impl TargetFile for PosixFile {
    fn size(&self) -> u64 {
        self.size
    }

    async fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        self.block(move |file| file.read(offset, length)).await
    }

    async fn write(&self, offset: u64, data: Bytes) -> Result<()> {
        self.written.store(true, Ordering::Release);
        self.block(move |file| file.write(offset, &data)).await
    }

    async fn close(&self) -> Result<()> {
        if !self.written.swap(false, Ordering::AcqRel) {
            return Ok(());
        }
        let drop_pages = self.shared.options.drop_pages;
        self.block(move |file| {
            file.file.sync_all().map_err(file.failed("sync"))?;
            if drop_pages {
                file.drop_pages();
            }
            Ok(())
        })
        .await
    }
}

/// Room of so many bytes that begins where O_DIRECT wants it: the buffer, and where in it the room begins.
fn aligned_buffer(length: usize) -> (Vec<u8>, usize) {
    let buffer = vec![0; length + ALIGNMENT];
    let start = buffer.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
    (buffer, start)
}

impl OpenPosixFile {
    fn failed(&self, operation: &'static str) -> impl Fn(std::io::Error) -> Error {
        move |error| Error::io(operation, self.path.display(), error)
    }

    /// Clean pages only; a hint, so a file system may ignore it.
    fn drop_pages(&self) {
        let _ = rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed);
    }

    /// The file to go around the page cache by, if it is opened so and the offset allows it.
    fn direct_at(&self, offset: u64) -> Option<&File> {
        self.direct.as_ref().filter(|_| offset.is_multiple_of(ALIGNMENT as u64))
    }

    fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        match self.direct_at(offset) {
            Some(file) => self.read_direct(file, offset, length),
            None => self.read_plain(offset, length),
        }
    }

    /// Into memory that is not cleared before: that would count as the client's work.
    fn read_plain(&self, offset: u64, length: usize) -> Result<Bytes> {
        let mut out = Vec::with_capacity(length);
        while out.len() < length {
            let at = offset.saturating_add(out.len() as u64);
            match rustix::io::pread(&self.file, rustix::buffer::spare_capacity(&mut out), at) {
                Ok(0) => break,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(self.failed("read")(error.into())),
            }
        }
        // The allocator may have given more room than was asked for.
        out.truncate(length);
        Ok(out.into())
    }

    fn read_direct(&self, file: &File, offset: u64, length: usize) -> Result<Bytes> {
        // The end of a file is no multiple of the alignment; the kernel wants the buffer to be one.
        let room = length.next_multiple_of(ALIGNMENT);
        let (mut buffer, start) = aligned_buffer(room);
        let mut got = 0;
        while let Some(rest) = buffer.get_mut(start + got..start + room).filter(|_| got < length) {
            match file.read_at(rest, offset.saturating_add(got as u64)) {
                Ok(0) => break,
                Ok(n) => {
                    got += n;
                    // After a short read the next offset is not aligned: that is the end of the file.
                    if !n.is_multiple_of(ALIGNMENT) {
                        break;
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.failed("read")(error)),
            }
        }
        Ok(Bytes::from(buffer).slice(start..start + got.min(length)))
    }

    fn write(&self, offset: u64, data: &Bytes) -> Result<()> {
        let written = match self.direct_at(offset).filter(|_| data.len().is_multiple_of(ALIGNMENT)) {
            Some(file) => {
                let (mut copy, start) = aligned_buffer(data.len());
                let copy = &mut copy[start..start + data.len()];
                copy.copy_from_slice(data);
                file.write_all_at(copy, offset)
            }
            None => self.file.write_all_at(data, offset),
        };
        written.map_err(self.failed("write"))
    }
}
