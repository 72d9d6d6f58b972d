//! Ids that no client can guess: of requests, staged objects and multipart uploads.

use std::hash::Hasher as _;
use std::io::Read as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use siphasher::sip128::{Hasher128, SipHasher13};
use types::{Error, Result};

use crate::sigv4::hex;

/// Makes ids that are unique and cannot be guessed.
pub struct UniqueIds {
    key: [u8; 16],
    count: AtomicU64,
    /// The time of the last id that was made in order.
    last: AtomicU64,
}

impl UniqueIds {
    pub fn new() -> Result<UniqueIds> {
        let mut key = [0; 16];
        let read = std::fs::File::open("/dev/urandom").and_then(|mut random| random.read_exact(&mut key));
        read.map_err(|e| Error::io("read", "/dev/urandom", e))?;
        Ok(UniqueIds { key, count: AtomicU64::new(0), last: AtomicU64::new(0) })
    }

    /// 32 hexadecimal digits.
    pub fn next(&self) -> String {
        let mut hasher = SipHasher13::new_with_key(&self.key);
        hasher.write_u64(self.count.fetch_add(1, Ordering::Relaxed));
        hex(&hasher.finish128().as_bytes())
    }

    /// 32 hexadecimal digits that sort in the order in which the ids are made. `now`: nanoseconds since 1970.
    pub fn next_in_order(&self, now: u64) -> String {
        let next = |last: u64| Some(now.max(last.saturating_add(1)));
        let (Ok(last) | Err(last)) = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        let rest = self.next();
        format!("{:016x}{}", now.max(last.saturating_add(1)), &rest[..16])
    }
}

/// Nanoseconds since 1970.
pub fn now_nanos() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}
