//! Extended attributes in the `user.` namespace. There are no others: those of the system and of security modules
//! would speak of the origin's machine, and permission is in the mode bits alone.

use bytes::{Bytes, BytesMut};
use fuser::{Errno, ReplyEmpty, ReplyXattr};
use rustix::fs::XattrFlags;
use types::{Caller, ErrorKind, Result, SetXattr, XattrName};

use crate::FuseState;

/// The change that SETXATTR asks for.
pub fn set_of(value: &[u8], flags: i32) -> SetXattr {
    let value = Bytes::copy_from_slice(value);
    let flags = XattrFlags::from_bits_retain(flags as u32);
    if flags.contains(XattrFlags::CREATE) {
        SetXattr::New(value)
    } else if flags.contains(XattrFlags::REPLACE) {
        SetXattr::Replace(value)
    } else {
        SetXattr::To(value)
    }
}

impl FuseState {
    /// `None`: the object has no attribute of this name.
    pub async fn xattr(&self, caller: &Caller, number: u64, name: Bytes) -> Result<Option<Bytes>> {
        let name = match XattrName::new(name) {
            // Asked before each write (for the file's capabilities), and by `ls` (for its label).
            Err(e) if e.kind() == ErrorKind::NotSupported => return Ok(None),
            name => name?,
        };
        let id = self.file(number)?;
        let all = self.retry_read(|| self.vfs.xattrs(caller, id)).await?;
        Ok(all.into_iter().find(|(known, _)| *known == name).map(|(_, value)| value))
    }

    /// The names, each followed by a zero.
    pub async fn xattr_names(&self, caller: &Caller, number: u64) -> Result<Option<Bytes>> {
        let id = self.file(number)?;
        let all = match self.retry_read(|| self.vfs.xattrs(caller, id)).await {
            Err(e) if e.kind() == ErrorKind::NotSupported => Vec::new(),
            all => all?,
        };
        let mut names = BytesMut::new();
        for (name, _) in all {
            names.extend_from_slice(name.as_bytes());
            names.extend_from_slice(&[0]);
        }
        Ok(Some(names.freeze()))
    }

    pub async fn set_xattr(&self, caller: &Caller, number: u64, name: Bytes, set: SetXattr) -> Result<()> {
        let (id, name) = (self.file(number)?, XattrName::new(name)?);
        let altered = self.retry_change(|| self.vfs.set_xattr(caller, id, &name, &set)).await?;
        self.changed(altered.before, &altered.node);
        Ok(())
    }

    /// A caller that offers no buffer asks for the size.
    pub fn answer_xattr(
        &self,
        operation: &'static str,
        found: Result<Option<Bytes>>,
        room: u32,
        reply: ReplyXattr,
    ) {
        match found {
            Ok(None) => reply.error(no_such_attribute()),
            Ok(Some(bytes)) if room == 0 => reply.size(bytes.len() as u32), // of Linux's bounds
            Ok(Some(bytes)) if bytes.len() > room as usize => reply.error(Errno::ERANGE),
            Ok(Some(bytes)) => reply.data(&bytes),
            Err(e) => reply.error(self.failed(operation, &e)),
        }
    }

    pub fn answer_set_xattr(&self, operation: &'static str, done: Result<()>, reply: ReplyEmpty) {
        match done {
            Ok(()) => reply.ok(),
            Err(e) if e.kind() == ErrorKind::NotFound => reply.error(no_such_attribute()),
            Err(e) => reply.error(self.failed(operation, &e)),
        }
    }
}

fn no_such_attribute() -> Errno {
    Errno::from_i32(rustix::io::Errno::NODATA.raw_os_error())
}
