//! Bytes that are written, and how they come to the disk.
//!
//! Linux tells the failure to write something back once, to whoever asks next, and then forgets it and perhaps the
//! bytes. So a failed sync is an error to its caller and a new write verifier to everybody.

use std::os::fd::OwnedFd;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use types::{Error, ErrorKind, FileKind, Result, Stability, Version, WriteVerifier};

use super::inode::{attr_of, stat};
use super::path::in_proc;
use super::tree::PosixTree;
use crate::{Committed, Reference, Written};

impl PosixTree {
    pub fn write(
        &self,
        object: &Reference,
        offset: u64,
        data: &Bytes,
        stability: Stability,
    ) -> Result<Written> {
        let (fd, path) = self.open_to_write(object)?;
        let failed = |e: Errno| Error::io("write to", path.escape_ascii(), e.into());
        // Before a byte is written: if any is lost from here on, the verifier of the commit is another one.
        let verifier = self.verifier();
        let (before, after) = {
            let inode = attr_of(&stat(&fd).map_err(failed)?).fileid;
            let _alone = self.stripe_of_writers(inode).lock().unwrap_or_else(PoisonError::into_inner);
            let before = Version::from_attr(&attr_of(&stat(&fd).map_err(failed)?));
            write_all(&fd, offset, data).map_err(failed)?;
            (before, self.object(&path, &self.look(&fd).map_err(failed)?)?)
        };
        match stability {
            Stability::Unstable => {}
            Stability::DataSync => self.sync(&fd, |fd| rustix::fs::fdatasync(fd)).map_err(failed)?,
            Stability::FileSync => self.sync(&fd, |fd| rustix::fs::fsync(fd)).map_err(failed)?,
        }
        Ok(Written { stability, verifier, before: Some(before), after: Some(after), resent: false })
    }

    /// The whole file, whatever the range: the kernel has no call for a part of it that is as certain.
    pub fn commit(&self, object: &Reference) -> Result<Committed> {
        let (fd, path) = self.open(object, OFlags::PATH).map_err(|e| self.not_a_file(object, e))?;
        let failed = |e: Errno| Error::io("commit", path.escape_ascii(), e.into());
        let attr = attr_of(&stat(&fd).map_err(failed)?);
        if !attr.is_file() {
            let kind = if attr.is_dir() { ErrorKind::IsADirectory } else { ErrorKind::InvalidArgument };
            return Err(Error::new(kind, "commit", path.escape_ascii()));
        }
        let verifier = self.sync_object(&fd).map_err(failed)?;
        let after = Some(self.object(&path, &self.look(&fd).map_err(failed)?)?);
        Ok(Committed { verifier, before: Some(Version::from_attr(&attr)), after, resent: false })
    }

    fn open_to_write(&self, object: &Reference) -> Result<(OwnedFd, Vec<u8>)> {
        const WHAT: &str = "write to";
        let no_file = || Error::new(ErrorKind::InvalidArgument, WHAT, self.shown(object));
        let flags = OFlags::WRONLY | OFlags::NOCTTY | OFlags::NONBLOCK;
        let (fd, path) = self.open(object, flags).map_err(|e| match self.kind_of(object) {
            Ok(kind) if kind != FileKind::Regular && kind != FileKind::Directory => no_file(),
            _ => e,
        })?;
        let found = stat(&fd).map_err(|e| Error::io(WHAT, path.escape_ascii(), e.into()))?;
        if attr_of(&found).is_file() { Ok((fd, path)) } else { Err(no_file()) }
    }

    fn kind_of(&self, object: &Reference) -> Result<FileKind> {
        let (fd, path) = self.open(object, OFlags::PATH)?;
        let found = stat(&fd).map_err(|e| Error::io("look at", path.escape_ascii(), e.into()))?;
        Ok(attr_of(&found).kind)
    }

    fn verifier(&self) -> WriteVerifier {
        self.verifier.load(Ordering::SeqCst).to_be_bytes()
    }

    /// As `sync_object`, behind a change of names or attributes. That was made, and whether it outlives a crash nobody
    /// knows if this fails: `Io`, whatever the kernel says, so that nobody takes it for a change that was not made.
    pub fn store(&self, fd: &OwnedFd, path: &[u8]) -> Result<()> {
        let failed = |e: Errno| {
            Error::new(ErrorKind::Io, "sync", path.escape_ascii()).with_source(std::io::Error::from(e))
        };
        self.sync_object(fd).map(|_| ()).map_err(failed)
    }

    /// Has the object that `fd` names on the disk, with its attributes, and tells the verifier that is true of what was
    /// written to it before. Links and special files have no sync of their own: they come to the disk with their
    /// directory.
    fn sync_object(&self, fd: &OwnedFd) -> rustix::io::Result<WriteVerifier> {
        let attr = attr_of(&stat(fd)?);
        if !attr.is_file() && !attr.is_dir() {
            return Ok(self.verifier());
        }
        // Whoever else syncs this file has told the verifier of a failure before we ask for one: the kernel tells it
        // to one of us only.
        let _alone = self.stripe(attr.fileid).lock().unwrap_or_else(PoisonError::into_inner);
        let open = |access| {
            let flags = access | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            rustix::fs::openat(CWD, in_proc(fd), flags, Mode::empty())
        };
        // A file that its owner may not read may be one that he may write.
        let synced = match open(OFlags::RDONLY).or_else(|e| open(OFlags::WRONLY).map_err(|_| e)) {
            Ok(opened) => rustix::fs::fsync(opened),
            Err(Errno::ACCESS) => self.sync_everything(),
            Err(e) => return Err(e),
        };
        self.told(synced)?;
        Ok(self.verifier())
    }

    /// For what we have made and may not open.
    fn sync_everything(&self) -> rustix::io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        rustix::fs::syncfs(rustix::fs::openat(&self.root().fd, c".", flags, Mode::empty())?)
    }

    fn sync(
        &self,
        fd: &OwnedFd,
        call: impl FnOnce(&OwnedFd) -> rustix::io::Result<()>,
    ) -> rustix::io::Result<()> {
        let _alone = self.stripe(attr_of(&stat(fd)?).fileid).lock().unwrap_or_else(PoisonError::into_inner);
        self.told(call(fd))
    }

    fn told(&self, synced: rustix::io::Result<()>) -> rustix::io::Result<()> {
        match synced {
            // The file system has no sync of directories, or of anything: there is nothing to wait for.
            Err(Errno::INVAL) => Ok(()),
            Err(e) => {
                self.verifier.fetch_add(1, Ordering::SeqCst);
                Err(e)
            }
            Ok(()) => Ok(()),
        }
    }
}

fn write_all(fd: &OwnedFd, offset: u64, data: &[u8]) -> rustix::io::Result<()> {
    let mut done = 0;
    while done < data.len() {
        match rustix::io::pwrite(fd, &data[done..], offset + done as u64) {
            Ok(0) => return Err(Errno::IO),
            Ok(written) => done += written,
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::posix::PosixOrigin;

    #[test]
    fn a_sync_that_fails_once_is_told_to_everybody_by_another_verifier() {
        let origin = PosixOrigin::open(&std::env::temp_dir()).expect("opened");
        let tree = &origin.tree;
        let before = tree.verifier();
        assert_eq!(tree.told(Ok(())), Ok(()));
        assert_eq!(tree.told(Err(Errno::INVAL)), Ok(()), "a file system that cannot sync cannot fail to");
        assert_eq!(tree.verifier(), before);
        for error in [Errno::IO, Errno::NOSPC] {
            let before = tree.verifier();
            assert_eq!(tree.told(Err(error)), Err(error));
            assert_ne!(tree.verifier(), before);
        }
    }
}
