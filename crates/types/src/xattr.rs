//! Extended attributes: what users attach to an object by name. Only theirs: those of the system and of its security
//! modules speak of the machine they are on.

use std::fmt;

use bytes::Bytes;

use crate::{Error, ErrorKind, Result};

/// Bytes that a name may have on Linux.
pub const XATTR_NAME_MAX: usize = 255;
/// Bytes that a value may have on Linux.
pub const XATTR_VALUE_MAX: usize = 64 << 10;
const PREFIX: &[u8] = b"user.";

/// `user.` and at least one byte more; no NUL.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct XattrName(Bytes);

impl XattrName {
    pub fn new(name: impl Into<Bytes>) -> Result<XattrName> {
        const WHAT: &str = "take as the name of an extended attribute";
        let name = name.into();
        let kind = match &name[..] {
            long if long.len() > XATTR_NAME_MAX => ErrorKind::NameTooLong,
            other if !other.starts_with(PREFIX) => ErrorKind::NotSupported,
            user if user.len() == PREFIX.len() || user.contains(&0) => ErrorKind::InvalidArgument,
            _ => return Ok(XattrName(name)),
        };
        Err(Error::new(kind, WHAT, name.escape_ascii()))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for XattrName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.escape_ascii().fmt(f)
    }
}

impl fmt::Debug for XattrName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What becomes of the attribute of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SetXattr {
    To(Bytes),
    /// `Exists` if there is one.
    New(Bytes),
    /// `NotFound` if there is none, as for what is removed.
    Replace(Bytes),
    Remove,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_users() {
        let kind = |name: &[u8]| XattrName::new(name.to_vec()).err().map(|e| e.kind());
        assert_eq!(kind(b"user.a"), None);
        assert_eq!(kind(&[b"user.".as_slice(), &[b'x'; 250]].concat()), None);
        assert_eq!(kind(&[b"user.".as_slice(), &[b'x'; 251]].concat()), Some(ErrorKind::NameTooLong));
        assert_eq!(kind(b"user."), Some(ErrorKind::InvalidArgument));
        assert_eq!(kind(b"user.a\0b"), Some(ErrorKind::InvalidArgument));
        for other in
            [b"security.capability".as_slice(), b"system.posix_acl_access", b"trusted.x", b"", b"use"]
        {
            assert_eq!(kind(other), Some(ErrorKind::NotSupported));
        }
    }
}
