//! Operations that are in the journal's file, are shown, and may not be on its disk yet.
//!
//! The flush gets them when they are: an origin that had what a power cut took from the journal would look as if others
//! had changed it. Whoever asks for a sync asks for all of them, since the journal is one sequence; what nobody asks for is
//! synced within [`SYNC_AFTER`], so that a power cut takes no more than that.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use types::{Error, Result};

/// A sync begins so long after the first operation that nobody has asked to be synced. Below the 5 s of ext4: an fdatasync
/// in each second is nothing to a disk, and a second is what people accept.
pub const SYNC_AFTER: Duration = Duration::from_secs(1);

/// By their sequences.
pub struct Unsynced<T> {
    waiting: Mutex<BTreeMap<u64, (Instant, T)>>,
    bell: Notify,
}

impl<T> Unsynced<T> {
    pub fn new() -> Unsynced<T> {
        Unsynced { waiting: Mutex::default(), bell: Notify::new() }
    }

    fn waiting(&self) -> MutexGuard<'_, BTreeMap<u64, (Instant, T)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One more, which `show` shows to clients. Nobody is given it before it is shown.
    pub fn add<R>(&self, sequence: u64, show: impl FnOnce() -> (T, R)) -> R {
        self.add_at(Instant::now(), sequence, show)
    }

    fn add_at<R>(&self, now: Instant, sequence: u64, show: impl FnOnce() -> (T, R)) -> R {
        let mut waiting = self.waiting();
        let (operation, shown) = show();
        let first = waiting.is_empty();
        waiting.insert(sequence, (now, operation));
        drop(waiting);
        if first {
            self.bell.notify_one();
        }
        shown
    }

    /// All up to there are on the disk: they are given away, in order, with the time that each has waited.
    pub fn pass(&self, sequence: u64, mut give: impl FnMut(u64, T, Duration)) {
        // Held while they are given, so that they come in order.
        let mut waiting = self.waiting();
        let later = waiting.split_off(&sequence.saturating_add(1));
        for (sequence, (since, operation)) in std::mem::replace(&mut *waiting, later) {
            give(sequence, operation, since.elapsed());
        }
    }

    pub fn last(&self) -> Option<u64> {
        self.waiting().last_key_value().map(|(sequence, _)| *sequence)
    }

    /// What nobody has asked for until now.
    fn due(&self, now: Instant) -> Due {
        let waiting = self.waiting();
        let (Some((oldest, _)), Some((last, _))) = (waiting.values().next(), waiting.last_key_value()) else {
            return Due::Nothing;
        };
        let due = *oldest + SYNC_AFTER;
        if now < due { Due::Later(due) } else { Due::Now(*last) }
    }

    /// Has `sync` sync, and pass, what has waited for [`SYNC_AFTER`], with all that waits by then. Returns when that fails.
    pub async fn sync_in_time<S: Future<Output = Result<()>>>(&self, sync: impl Fn(u64) -> S) -> Error {
        loop {
            match self.due(Instant::now()) {
                Due::Nothing => self.bell.notified().await,
                Due::Later(due) => tokio::time::sleep_until(due).await, // somebody may ask meanwhile
                Due::Now(last) => {
                    if let Err(e) = sync(last).await {
                        return e;
                    }
                }
            }
        }
    }
}

/// When the next sync is due that nobody asks for.
#[derive(Debug, PartialEq, Eq)]
enum Due {
    /// Nothing waits.
    Nothing,
    Later(Instant),
    /// Up to this sequence.
    Now(u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn what_nobody_asks_to_be_synced_is_synced_after_a_second_at_the_latest() {
        let (unsynced, begun) = (Unsynced::new(), Instant::now());
        assert_eq!(unsynced.due(begun), Due::Nothing);
        unsynced.add_at(begun, 1, || ((), ()));
        unsynced.add_at(begun + 600 * MS, 2, || ((), ()));
        assert_eq!(unsynced.due(begun + 999 * MS), Due::Later(begun + 1000 * MS));
        assert_eq!(unsynced.due(begun + 1000 * MS), Due::Now(2), "with all that waits");
        // The second of what comes while that sync is under way begins then, and not when the sync ends.
        unsynced.add_at(begun + 1100 * MS, 3, || ((), ()));
        unsynced.pass(2, |_, (), _| {});
        assert_eq!(unsynced.due(begun + 1500 * MS), Due::Later(begun + 2100 * MS));
        assert_eq!(unsynced.due(begun + 2100 * MS), Due::Now(3));
    }

    #[test]
    fn what_somebody_had_synced_is_not_synced_again() {
        let (unsynced, begun) = (Unsynced::new(), Instant::now());
        unsynced.add_at(begun, 1, || ((), ()));
        unsynced.pass(1, |_, (), _| {});
        assert_eq!(unsynced.due(begun + 5000 * MS), Due::Nothing);
    }

    #[test]
    fn they_are_given_away_in_order_and_none_beyond_what_is_synced() {
        let unsynced = Unsynced::new();
        for sequence in [3, 1, 2, 5] {
            unsynced.add(sequence, || (sequence * 10, ()));
        }
        let mut given = Vec::new();
        unsynced.pass(3, |sequence, operation, _| given.push((sequence, operation)));
        assert_eq!(given, [(1, 10), (2, 20), (3, 30)]);
        assert_eq!(unsynced.last(), Some(5));
    }
}
