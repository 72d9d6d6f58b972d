//! What an operator decides about the disk cache.

use std::path::PathBuf;
use std::time::Duration;

use types::{Error, ErrorKind, Result};

use crate::file::pages::FolioRule;

/// Smallest quota: below it the read-ahead of a few readers would evict itself.
pub const CACHE_SIZE_MIN: u64 = 64 << 20;

#[derive(Clone, Debug)]
pub struct Config {
    /// Created if missing. One tier per directory.
    pub dir: PathBuf,
    /// Quota in bytes of disk.
    pub size_max: u64,
    /// Of these, bytes of stripes that other nodes are to keep ([`Source::keeps`](crate::Source::keeps)); a tenth of the quota
    /// if nothing is said. What is read ahead of those may have two windows (`readahead_max`) even if that is more.
    pub guests_max: Option<u64>,
    /// Bytes to leave free in the file system that holds `dir`, whoever uses them.
    pub free_floor: u64,
    /// Bytes on their way from the origin at any time, over all files; at most a quarter of the quota counts.
    /// Bounds memory.
    pub inflight_max: u64,
    /// Farthest read-ahead of one reader in bytes, at most an eighth of the quota counts; 0 switches it off. How far it
    /// goes is measured (latency x rate of the origin, twice); this is the bound. 256 MiB is 4.6 Gbit/s at 221 ms.
    pub readahead_max: u64,
    /// Descriptors kept for cached files (each file has two).
    pub open_files_max: usize,
    /// Reads of a file closer together than this are one visit when it comes to eviction, unless they read more
    /// than is there: one pass over a large file must not look like many uses.
    pub same_visit: Duration,
    /// Keep nothing: pass every read to the origin. The directory is not used.
    pub bypass: bool,
    /// Reads may be lent pages ([`Lend`](crate::Lend)), as servers need it. Without it all are copied, and the kernel may keep cached files in
    /// memory as it likes best.
    pub lends: bool,
}

/// At most this part of the cache may be in flight, and ahead of one reader.
pub const IN_FLIGHT_SHARE: u64 = 4;
pub const READAHEAD_SHARE: u64 = 8;
/// This part of the cache is for guests, unless the operator says otherwise.
pub const GUESTS_SHARE: u64 = 10;

impl Default for Config {
    fn default() -> Config {
        Config {
            dir: PathBuf::from("forebay-cache"),
            size_max: 20 << 30,
            guests_max: None,
            free_floor: 1 << 30,
            inflight_max: 128 << 20,
            readahead_max: 256 << 20,
            open_files_max: 512,
            same_visit: Duration::from_secs(2),
            bypass: false,
            lends: true,
        }
    }
}

impl Config {
    pub(crate) fn folios(&self) -> FolioRule {
        if self.lends { FolioRule::OneBlock } else { FolioRule::AnySize }
    }

    pub(crate) fn validate(&self) -> Result<()> {
        let refuse = |message: String| Err(Error::new(ErrorKind::Config, "cache:", message));
        if !self.bypass && self.size_max < CACHE_SIZE_MIN {
            return refuse(format!(
                "size of {} bytes is below the floor of {} MiB; give it more, for example 20GiB",
                self.size_max,
                CACHE_SIZE_MIN >> 20
            ));
        }
        if self.inflight_max < 4 << 20 {
            return refuse("less than 4 MiB in flight cannot hold a few reads".to_owned());
        }
        Ok(())
    }
}
