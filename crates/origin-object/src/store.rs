//! What a store tells, in words that all dialects share.

use std::collections::BTreeMap;

use bytes::Bytes;
use types::Timestamp;

/// What users store with an object besides its bytes: short texts by lower-case names.
pub type Metadata = BTreeMap<String, String>;

/// An object as a look at it tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    /// Bytes.
    pub size: u64,
    /// The store's word for these contents, with its quotation marks.
    pub etag: String,
    pub modified: Timestamp,
    pub metadata: Metadata,
}

/// An object as a listing tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub key: String,
    pub size: u64,
    pub etag: String,
    pub modified: Timestamp,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    pub objects: Vec<Listed>,
    /// What keys begin with up to the next slash, which is their last byte.
    pub prefixes: Vec<String>,
    /// Where the listing goes on.
    pub next: Option<String>,
}

/// Bytes of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Got {
    pub etag: String,
    /// Of the whole object.
    pub size: u64,
    pub data: Bytes,
}

/// When a change is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition<'a> {
    Always,
    /// Nothing has this key.
    Absent,
    /// The object still is what this names.
    Unchanged(&'a str),
}

/// A part of an upload that the store has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// From 1.
    pub number: u32,
    pub etag: String,
}
