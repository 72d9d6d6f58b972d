//! When an operation may be flushed: its age, the time of day, how many bytes the line may carry, and whether clients write
//! meanwhile.

use std::time::Duration;

use crate::conflict::ConflictPolicy;

/// Local times of day between which flushing is allowed; the end may lie behind midnight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushWindow {
    /// Since midnight.
    pub from: Duration,
    pub to: Duration,
}

impl FlushWindow {
    fn contains(&self, time_of_day: Duration) -> bool {
        let (begun, over) = (time_of_day >= self.from, time_of_day >= self.to);
        if self.from <= self.to { begun && !over } else { begun || !over }
    }
}

/// How one junction's operations are flushed.
#[derive(Clone, Debug, Default)]
pub struct FlushPolicy {
    /// An operation is at least this old, so that what is done over within it never travels.
    pub delay: Duration,
    pub bytes_per_second: Option<u64>,
    /// None: at any time.
    pub windows: Vec<FlushWindow>,
    pub conflict: ConflictPolicy,
    /// The origin commits whole files: each flush of some bytes costs as much as the file is long.
    pub whole_files: bool,
}

/// The clocks, read once per decision.
#[derive(Clone, Copy, Debug)]
pub struct FlushMoment {
    /// The tier's time line, which never steps; operations are acknowledged by it.
    pub steady: Duration,
    /// Local, since midnight, by the wall clock as it is now.
    pub time_of_day: Duration,
}

impl FlushPolicy {
    pub fn is_open(&self, now: FlushMoment) -> bool {
        self.windows.is_empty() || self.windows.iter().any(|window| window.contains(now.time_of_day))
    }

    pub fn is_old_enough(&self, acknowledged: Duration, now: FlushMoment) -> bool {
        self.age_left(acknowledged, now).is_zero()
    }

    pub fn age_left(&self, acknowledged: Duration, now: FlushMoment) -> Duration {
        self.delay.saturating_sub(now.steady.saturating_sub(acknowledged))
    }
}

/// A token bucket: what is sent may run into debt once, and the next waits until it is paid. So a large unit needs no
/// large bucket, and the average holds.
#[derive(Clone, Copy, Debug)]
pub struct FlushRateBucket {
    per_second: u64,
    /// Until then the bucket is empty.
    empty_until: Duration,
}

impl FlushRateBucket {
    pub fn new(per_second: u64) -> FlushRateBucket {
        FlushRateBucket { per_second: per_second.max(1), empty_until: Duration::ZERO }
    }

    /// When something may be sent.
    pub fn opens(&self) -> Duration {
        self.empty_until
    }

    pub fn take(&mut self, bytes: u64, now: Duration) {
        let cost = u128::from(bytes) * 1_000_000_000 / u128::from(self.per_second);
        let cost = Duration::from_nanos(u64::try_from(cost).unwrap_or(u64::MAX));
        self.empty_until = self.empty_until.max(now).saturating_add(cost);
    }
}

/// Clients write: the last operation is no older. The flush hears of what a mount writes when it is synced, which may be after a second.
const CLIENTS_WRITE: Duration = Duration::from_secs(2);
/// From the begin of a unit to that of the next one while clients write. At an origin that takes 200 ms for each that is a third of
/// what is carried otherwise (64 at once).
const BETWEEN_UNITS: Duration = Duration::from_millis(10);
/// An operation that has been due for so long gives way to nobody. So clients that write without an end delay by this what is
/// flushed, and do not slow it down.
const GIVES_WAY: Duration = Duration::from_secs(60);

/// The flush gives way to clients that write. Both need the journal's disk, and where the origin is near, its disk and processors:
/// `tar x` of 5,000 files took five times as long while 64 units were carried to a directory on the same disk.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClientPriority {
    /// When the last operation was acknowledged.
    written: Option<Duration>,
    /// When the last unit was begun.
    begun: Option<Duration>,
}

impl ClientPriority {
    pub fn note_written(&mut self, acknowledged: Duration) {
        self.written = self.written.max(Some(acknowledged));
    }

    pub fn note_begun(&mut self, now: Duration) {
        self.begun = Some(now);
    }

    /// When an operation may begin that has been due for `due_for`.
    pub fn opens(&self, due_for: Duration, now: Duration) -> Duration {
        let clients_write = self.written.is_some_and(|written| now.saturating_sub(written) < CLIENTS_WRITE);
        match self.begun {
            Some(begun) if clients_write && due_for < GIVES_WAY => begun + BETWEEN_UNITS,
            _ => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    fn moment(time_of_day: Duration) -> FlushMoment {
        FlushMoment { steady: Duration::from_secs(1000), time_of_day }
    }

    #[test]
    fn a_window_may_reach_over_midnight() {
        let night = FlushWindow { from: 22 * HOUR, to: 6 * HOUR };
        let policy = FlushPolicy { windows: vec![night], ..FlushPolicy::default() };
        for (hour, open) in
            [(21, false), (22, true), (23, true), (0, true), (5, true), (6, false), (12, false)]
        {
            assert_eq!(policy.is_open(moment(hour * HOUR)), open, "{hour}");
        }
        assert!(FlushPolicy::default().is_open(moment(12 * HOUR)));
    }

    #[test]
    fn the_delay_counts_from_the_acknowledgement() {
        let policy = FlushPolicy { delay: Duration::from_secs(30), ..FlushPolicy::default() };
        let at = Duration::from_secs;
        assert!(policy.is_old_enough(at(970), moment(HOUR)));
        assert_eq!(policy.age_left(at(971), moment(HOUR)), Duration::from_secs(1));
        assert_eq!(policy.age_left(at(99_999), moment(HOUR)), Duration::from_secs(30));
    }

    #[test]
    fn the_flush_gives_way_to_clients_that_write_and_not_for_ever() {
        let ms = Duration::from_millis;
        let mut clients = ClientPriority::default();
        let may_begin = |clients: &ClientPriority, due_for, now| clients.opens(due_for, now) <= now;
        clients.note_begun(ms(1000));
        assert!(may_begin(&clients, ms(0), ms(1000)), "nobody writes");
        clients.note_written(ms(1001));
        clients.note_written(ms(900)); // of an operation that took long
        assert!(!may_begin(&clients, ms(0), ms(1009)));
        assert!(may_begin(&clients, ms(0), ms(1010)));
        assert!(may_begin(&clients, Duration::from_secs(60), ms(1002)), "it gave way for long enough");
        let steps = (1001..2001).map(ms);
        let begun = steps.filter(|now| {
            clients.note_written(*now);
            let begins = may_begin(&clients, ms(0), *now);
            if begins {
                clients.note_begun(*now);
            }
            begins
        });
        assert_eq!(begun.count(), 100, "ten milliseconds between two units");
        clients.note_begun(ms(3999));
        assert!(
            !may_begin(&clients, ms(0), ms(3999)) && may_begin(&clients, ms(0), ms(4000)),
            "they have ended"
        );
    }

    #[test]
    fn the_bucket_keeps_the_average_over_units_of_any_size() {
        let mut bucket = FlushRateBucket::new(1_000_000);
        let (mut now, mut sent) = (Duration::from_secs(50), 0);
        while now < Duration::from_secs(60) {
            now = now.max(bucket.opens());
            let unit = if sent % 2 == 0 { 2_500_000 } else { 1001 };
            bucket.take(unit, now);
            sent += unit;
        }
        let (least, most) = (10_000_000, 12_600_000);
        assert!((least..=most).contains(&sent), "{sent}");
        bucket.take(1, Duration::from_secs(1000));
        assert!(bucket.opens() < Duration::from_secs(1001), "what was not used is not saved");
    }
}
