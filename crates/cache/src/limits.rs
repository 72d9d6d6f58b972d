//! How much of the disk may be taken: the operator may change it while the cache is used.

use std::sync::atomic::{AtomicU64, Ordering};

use types::{Error, ErrorKind, Result};

use crate::config::{GUESTS_SHARE, IN_FLIGHT_SHARE, READAHEAD_SHARE};
use crate::{CACHE_SIZE_MIN, Cache, Config};

pub struct CacheLimits {
    size_max: AtomicU64,
    free_floor: AtomicU64,
    guests_max: AtomicU64,
}

impl CacheLimits {
    pub fn new(config: &Config) -> CacheLimits {
        CacheLimits {
            size_max: AtomicU64::new(config.size_max),
            free_floor: AtomicU64::new(config.free_floor),
            guests_max: AtomicU64::new(share_of_guests(config.size_max, config.guests_max)),
        }
    }

    pub fn size_max(&self) -> u64 {
        self.size_max.load(Ordering::Relaxed)
    }

    pub fn free_floor(&self) -> u64 {
        self.free_floor.load(Ordering::Relaxed)
    }

    pub fn guests_max(&self) -> u64 {
        self.guests_max.load(Ordering::Relaxed)
    }
}

fn share_of_guests(size_max: u64, wanted: Option<u64>) -> u64 {
    wanted.unwrap_or(size_max / GUESTS_SHARE).min(size_max)
}

impl Cache {
    /// From now on; what is above it goes at once. `guests_max`: as in [`Config`]. Refused where what may be in flight or ahead of readers, which stays what
    /// it was at the start, would take too much of it.
    pub fn set_limits(&self, size_max: u64, free_floor: u64, guests_max: Option<u64>) -> Result<()> {
        let (in_flight, ahead) = (self.config.inflight_max, self.config.readahead_max);
        let least = CACHE_SIZE_MIN.max(in_flight * IN_FLIGHT_SHARE).max(ahead * READAHEAD_SHARE);
        if size_max < least {
            let least = least.div_ceil(1 << 20);
            let message =
                format!("with inflight and readahead as they are it needs {least} MiB without a restart");
            return Err(Error::new(ErrorKind::Config, "size of the cache:", message));
        }
        self.limits.size_max.store(size_max, Ordering::Relaxed);
        self.limits.free_floor.store(free_floor, Ordering::Relaxed);
        self.limits.guests_max.store(share_of_guests(size_max, guests_max), Ordering::Relaxed);
        self.tell_limits();
        self.pressure.notify_one();
        Ok(())
    }

    pub(crate) fn tell_limits(&self) {
        self.metrics.max_bytes.set(i64::try_from(self.limits.size_max()).unwrap_or(i64::MAX));
    }
}
