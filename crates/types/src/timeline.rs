//! The tier's own time, by which ages and deadlines are counted: it goes on evenly while the wall clock steps.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use crate::Timestamp;

/// Begins with the time of the wall clock and advances by the clock that counts from the machine's boot, whatever is
/// done to the wall clock meanwhile. For stamps that are compared with each other, also with those of an earlier process:
/// one that continues ([`Timeline::continued`]) has the same time line. Not for what is shown to people or signed.
///
/// Clones are the same time line. Tests own the hands.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Of the time line, when the machine booted: since 1970.
    at_boot: Duration,
    broken: bool,
    hands: Arc<Hands>,
}

#[derive(Debug, Default)]
struct Hands {
    ahead_ms: AtomicU64,
    /// The wall clock only.
    stepped_ms: AtomicI64,
}

impl Default for Timeline {
    fn default() -> Timeline {
        Timeline::starting(wall_clock())
    }
}

impl Timeline {
    /// It is so late now.
    pub fn starting(now: Duration) -> Timeline {
        Timeline::continued(now.saturating_sub(since_boot()))
    }

    /// It was so late when the machine booted, by an earlier time line of the same boot.
    pub fn continued(at_boot: Duration) -> Timeline {
        Timeline { at_boot, broken: false, hands: Arc::default() }
    }

    /// Nobody knows how much time is missing between what an earlier time line stamped and this one.
    pub fn broken(self) -> Timeline {
        Timeline { broken: true, ..self }
    }

    /// What is known from before cannot be told to be young.
    pub fn is_broken(&self) -> bool {
        self.broken
    }

    pub fn at_boot(&self) -> Duration {
        self.at_boot
    }

    /// Since 1970, as far as the wall clock was right when the time line began.
    pub fn now(&self) -> Duration {
        let ahead = Duration::from_millis(self.hands.ahead_ms.load(Ordering::Relaxed));
        self.at_boot.saturating_add(since_boot()).saturating_add(ahead)
    }

    /// Never 0, which means "never" in records.
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.now().as_millis()).unwrap_or(u64::MAX / 2).max(1)
    }

    /// Since this stamp. One of the future is of a time line that was another: its age begins now.
    pub fn age_of(&self, then_ms: u64) -> Duration {
        Duration::from_millis(self.now_ms().saturating_sub(then_ms))
    }

    /// The wall clock, for what is compared with other machines' times.
    pub fn wall(&self) -> Timestamp {
        let ahead = i128::from(self.hands.ahead_ms.load(Ordering::Relaxed))
            + i128::from(self.hands.stepped_ms.load(Ordering::Relaxed));
        let nanos = (wall_clock().as_nanos() as i128).saturating_add(ahead * 1_000_000).max(0);
        Timestamp {
            seconds: i64::try_from(nanos / 1_000_000_000).unwrap_or(i64::MAX),
            nanos: u32::try_from(nanos % 1_000_000_000).unwrap_or(0),
        }
    }

    /// Let time pass without waiting for it.
    pub fn advance(&self, by: Duration) {
        self.hands.ahead_ms.fetch_add(u64::try_from(by.as_millis()).unwrap_or(0), Ordering::Relaxed);
    }

    /// Set the wall clock, without letting time pass.
    pub fn step_wall(&self, by_ms: i64) {
        self.hands.stepped_ms.fetch_add(by_ms, Ordering::Relaxed);
    }
}

/// Unlike the standard library's `Instant` it goes on while the machine sleeps.
pub fn since_boot() -> Duration {
    let since = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(since.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(since.tv_nsec).unwrap_or(0))
}

pub fn wall_clock() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_of_the_wall_clock_is_no_time_that_passes() {
        let line = Timeline::starting(Duration::from_secs(1_000_000));
        let (then, wall) = (line.now_ms(), line.wall());
        for by_ms in [-1000, 1000, -3_600_000, 315_360_000_000, -315_360_000_000] {
            line.step_wall(by_ms);
            assert!(line.age_of(then) < Duration::from_secs(60), "{by_ms}");
        }
        assert!(
            (-3660..=-3540).contains(&(line.wall().seconds - wall.seconds)),
            "the wall clock shows the steps"
        );
        line.advance(Duration::from_secs(100));
        assert!((100..160).contains(&line.age_of(then).as_secs()));
        assert_eq!(line.age_of(u64::MAX), Duration::ZERO, "a stamp of the future is of now");
    }

    #[test]
    fn a_time_line_that_is_continued_is_the_same() {
        let line = Timeline::starting(Duration::from_secs(77));
        let on = Timeline::continued(line.at_boot());
        assert!(on.now() >= line.at_boot() && on.now().saturating_sub(line.now()) < Duration::from_secs(60));
    }
}
