//! Extended attributes, where the file system has them.

use std::os::fd::OwnedFd;

use bytes::Bytes;
use rustix::fs::{OFlags, XattrFlags};
use rustix::io::Errno;
use types::xattr::XATTR_VALUE_MAX;
use types::{Error, ErrorKind, Result, SetXattr, XattrName};

use super::inode::{attr_of, stat};
use super::path::in_proc;
use super::tree::PosixTree;
use crate::{Before, Changed, Reference};

/// Bytes that all names of an object may have on Linux.
const LIST_MAX: usize = 64 << 10;

impl PosixTree {
    pub fn xattrs(&self, object: &Reference) -> Result<Vec<(XattrName, Bytes)>> {
        let (fd, path) = self.open(object, OFlags::PATH)?;
        all_of(&fd).map_err(|e| Error::io("read extended attributes of", path.escape_ascii(), e.into()))
    }

    pub fn set_xattr(&self, object: &Reference, name: &XattrName, set: &SetXattr) -> Result<Changed> {
        const WHAT: &str = "set an extended attribute of";
        let (fd, path) = self.open(object, OFlags::PATH)?;
        let failed = |e: Errno| match e {
            Errno::NODATA => Error::new(ErrorKind::NotFound, WHAT, path.escape_ascii()).with_source(errno(e)),
            // Of the place for them; that of the file system may not be full.
            Errno::RANGE | Errno::TOOBIG => {
                Error::new(ErrorKind::NoSpace, WHAT, path.escape_ascii()).with_source(errno(e))
            }
            e => Error::io(WHAT, path.escape_ascii(), e.into()),
        };
        let before = Some(Before::from_weak(attr_of(&stat(&fd).map_err(failed)?).weak()));
        let place = in_proc(&fd);
        let put = |value: &Bytes, flags| rustix::fs::setxattr(&place, name.as_bytes(), value, flags);
        let done = match set {
            SetXattr::To(value) => put(value, XattrFlags::empty()),
            SetXattr::New(value) => put(value, XattrFlags::CREATE),
            SetXattr::Replace(value) => put(value, XattrFlags::REPLACE),
            SetXattr::Remove => rustix::fs::removexattr(&place, name.as_bytes()),
        };
        done.map_err(failed)?;
        self.store(&fd, &path)?;
        let look = || self.object(&path, &self.look(&fd).map_err(failed)?);
        let object = look().map_err(|error| Error::doubtful(WHAT, path.escape_ascii(), error))?;
        Ok(Changed { object: Some(object), before, ..Changed::default() })
    }
}

fn all_of(fd: &OwnedFd) -> rustix::io::Result<Vec<(XattrName, Bytes)>> {
    let place = in_proc(fd);
    let mut names = vec![0; LIST_MAX];
    let length = rustix::fs::listxattr(&place, &mut names[..])?;
    let mut value = vec![0; XATTR_VALUE_MAX];
    let mut all = Vec::new();
    for name in names[..length].split(|byte| *byte == 0) {
        let Ok(name) = XattrName::new(Bytes::copy_from_slice(name)) else { continue };
        match rustix::fs::getxattr(&place, name.as_bytes(), &mut value[..]) {
            Ok(length) => all.push((name, Bytes::copy_from_slice(&value[..length]))),
            Err(Errno::NODATA) => {} // removed meanwhile
            Err(e) => return Err(e),
        }
    }
    Ok(all)
}

fn errno(errno: Errno) -> std::io::Error {
    errno.into()
}
