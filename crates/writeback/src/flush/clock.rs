//! The clocks of the flush.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use types::Timestamp;

use crate::plan::Moment;

pub trait Clock: Send + Sync + 'static {
    fn now(&self) -> Moment;
}

/// The machine's. Times of day are those of a fixed distance from UTC.
pub struct SystemClock {
    start: Instant,
    /// Seconds east of UTC.
    offset: i32,
}

impl SystemClock {
    pub fn new(offset: i32) -> SystemClock {
        SystemClock { start: Instant::now(), offset }
    }
}

const DAY: i64 = 86_400;

impl Clock for SystemClock {
    fn now(&self) -> Moment {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        let wall = Timestamp { seconds, nanos: since.subsec_nanos() };
        let of_day = seconds.saturating_add(self.offset.into()).rem_euclid(DAY);
        let time_of_day = Duration::from_secs(of_day.unsigned_abs());
        Moment { wall, steady: self.start.elapsed(), time_of_day }
    }
}
