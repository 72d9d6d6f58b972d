//! A file that comes in parts, in any order, over a time in which processes begin and end.

use bytes::Bytes;
use types::Error;

use crate::Reference;

/// A file in parts, as its origin knows it. It outlives the process that began it: whoever has these bytes goes on. They
/// may come from a disk, so the origin checks them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartedFile(pub Bytes);

/// Where the bytes of a part come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartSource {
    /// They travel with the call.
    Given(Bytes),
    /// All bytes of this file, which is at the origin: there they are copied.
    Of(Reference),
}

impl PartSource {
    /// The bytes that travel.
    pub fn bytes(&self) -> u64 {
        match self {
            PartSource::Given(bytes) => bytes.len() as u64,
            PartSource::Of(_) => 0,
        }
    }
}

/// A part that the origin has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartReceipt {
    /// From 1. Parts follow each other by their numbers.
    pub number: u32,
    /// Bytes.
    pub size: u64,
    /// What the origin answered when it was stored. Another part that was stored under the number since has another one.
    /// Empty: it is not known.
    pub receipt: String,
}

impl PartReceipt {
    /// A part of which it is not known whether the origin has it. Nothing can be assembled of it, but it can be found
    /// that it was.
    pub fn unknown(number: u32, size: u64) -> PartReceipt {
        PartReceipt { number, size, receipt: String::new() }
    }
}

/// The error of an origin that has no files in parts.
pub(crate) fn none_here(operation: &'static str) -> Error {
    Error::new(types::ErrorKind::NotSupported, operation, "here: the origin has no files in parts")
}
