//! The clocks of the flush.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use types::Timeline;

use crate::plan::FlushMoment;

pub trait FlushClock: Send + Sync + 'static {
    fn now(&self) -> FlushMoment;
}

/// The machine's: ages by the tier's time line, times of day by the wall clock as it is, wherever it was set.
pub struct SystemClock {
    timeline: Timeline,
    /// Seconds east of UTC, at a time since 1970: it changes twice a year in many places.
    offset: fn(i64) -> i32,
    /// The offset of one quarter of an hour, for which it is asked once.
    known: Mutex<Option<(i64, i32)>>,
}

impl SystemClock {
    pub fn new(timeline: Timeline, offset: fn(i64) -> i32) -> SystemClock {
        SystemClock { timeline, offset, known: Mutex::default() }
    }

    fn offset(&self, seconds: i64) -> i32 {
        let quarter = seconds.div_euclid(QUARTER);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match *known {
            Some((of, offset)) if of == quarter => offset,
            _ => known.insert((quarter, (self.offset)(seconds))).1,
        }
    }
}

const DAY: i64 = 86_400;
/// Offsets change at times that are whole quarters of an hour.
const QUARTER: i64 = 900;

impl FlushClock for SystemClock {
    fn now(&self) -> FlushMoment {
        let seconds = self.timeline.wall().seconds;
        let of_day = seconds.saturating_add(self.offset(seconds).into()).rem_euclid(DAY);
        FlushMoment { steady: self.timeline.now(), time_of_day: Duration::from_secs(of_day.unsigned_abs()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    /// An hour east of UTC until the millionth second, then two.
    fn summer_begins(at: i64) -> i32 {
        if at < 1_000_000 { 3600 } else { 7200 }
    }

    #[test]
    fn windows_follow_the_wall_clock_and_ages_do_not() {
        let timeline = Timeline::default();
        let clock = SystemClock::new(timeline.clone(), summer_begins);
        let set_to = |seconds: i64| timeline.step_wall((seconds - timeline.wall().seconds) * 1000);
        let before = clock.now();
        for (wall, since_midnight) in [(864_000, HOUR), (864_000 + 7200, 3 * HOUR), (1_036_800, 2 * HOUR)] {
            set_to(wall);
            let now = clock.now();
            assert!(now.time_of_day.abs_diff(since_midnight) < HOUR / 2, "{wall}: {:?}", now.time_of_day);
            assert!(now.steady.saturating_sub(before.steady) < HOUR, "{wall}");
        }
    }
}
