//! One component of a path. Bytes, not UTF-8; checked once, where it enters (wire, origin, command line).

use std::fmt;

use bytes::Bytes;

use crate::error::{Error, ErrorKind, Result};

/// Longest name that a component may have, in bytes.
pub const NAME_MAX: usize = 255;

/// A name that is safe to join to a directory: not empty, no `/`, no NUL, neither `.` nor `..`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Bytes);

impl Name {
    pub fn new(bytes: impl Into<Bytes>) -> Result<Name> {
        let bytes = bytes.into();
        if bytes.len() > NAME_MAX {
            return Err(Error::new(
                ErrorKind::NameTooLong,
                "check name of",
                format!("{} bytes", bytes.len()),
            ));
        }
        let bad = bytes.is_empty()
            || bytes.as_ref() == b"."
            || bytes.as_ref() == b".."
            || bytes.iter().any(|b| matches!(b, b'/' | 0));
        if bad {
            return Err(Error::new(ErrorKind::InvalidArgument, "check name", bytes.escape_ascii()));
        }
        Ok(Name(bytes))
    }

    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.escape_ascii().fmt(f)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Name({self})")
    }
}
