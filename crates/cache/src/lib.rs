//! Clean bytes on local disk, keyed by file *and version*; fetched once, checked before served.
//!
//! Knows nothing of names, freshness, clients or dirty data. The version is in the key, so there is no
//! "invalidate because it changed": a changed file is another key.

use async_trait::async_trait;
use bytes::Bytes;
use types::{ByteRange, FileId, Result, Version};

/// What is cached: one version of one file, and how long that version is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CacheKey {
    pub file: FileId,
    pub version: Version,
    /// Bytes in this version.
    pub size: u64,
}

/// Where missing bytes come from. `vfs` implements it by joining the namespace (which reference?) and the
/// origin (the bytes).
#[async_trait]
pub trait Source: Send + Sync {
    /// Exactly the bytes of `range` of the key's version; `VersionChanged` if that version is gone.
    async fn read(&self, key: &CacheKey, range: ByteRange) -> Result<Bytes>;

    /// Most bytes that one `read` should ask for; a multiple of the block size.
    fn read_max(&self) -> u32;
}
