//! The time that a run may take (`--time-budget`), for every experiment that repeats: a repetition is begun if there is
//! time for one as long as the longest so far, the first in any case. What is cut off in spite of that is INVALID, by
//! the engine's own word.

use std::cell::Cell;
use std::time::{Duration, Instant};

use bench_load::engine::LoadLimits;
use types::Result;

use crate::ResultBuilder;

/// The least time of a job: it can be begun when the time is over, and be told from one that did nothing.
const SECONDS_MIN: f64 = 1.0;

pub struct Budget {
    begin: Instant,
    time: Duration,
    longest: Cell<Duration>,
    /// When the one under way was begun.
    last: Cell<Option<Instant>>,
}

/// The time was over when so many were done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeCut {
    done: u32,
    of: u32,
}

impl Budget {
    /// Counts from now on.
    pub fn start(time: Duration) -> Budget {
        Budget { begin: Instant::now(), time, longest: Cell::default(), last: Cell::default() }
    }

    pub fn is_over(&self) -> bool {
        self.begin.elapsed() >= self.time
    }

    /// Of a job that is to be done before the time is over. What may be written is checked before a run, and what is
    /// read has no limit.
    pub fn limits(&self) -> LoadLimits {
        let left = self.time.saturating_sub(self.begin.elapsed()).as_secs_f64();
        LoadLimits { seconds: left.max(SECONDS_MIN), bytes: u64::MAX, ..LoadLimits::default() }
    }

    /// `work` for each of `of` repetitions, by number from 0, while there is time; what was cut off, if anything.
    pub async fn repeat(
        &self,
        of: u32,
        mut work: impl AsyncFnMut(u32) -> Result<()>,
    ) -> Result<Option<TimeCut>> {
        self.sweep(&mut [()], of, async |_, (), repetition| work(repetition).await).await
    }

    /// `work` for all rows, by place and repetition, then for all again: what changes meanwhile changes all of them alike. Each row
    /// is measured once in any case.
    pub async fn sweep<R>(
        &self,
        rows: &mut [R],
        repetitions: u32,
        mut work: impl AsyncFnMut(usize, &mut R, u32) -> Result<()>,
    ) -> Result<Option<TimeCut>> {
        let (mut done, of) = (0, u32::try_from(rows.len()).unwrap_or(u32::MAX).saturating_mul(repetitions));
        for repetition in 0..repetitions {
            for (at, row) in rows.iter_mut().enumerate() {
                if let Some(cut) = self.cut(done, of).filter(|_| repetition > 0) {
                    return Ok(Some(cut));
                }
                done += 1;
                work(at, row, repetition).await?;
            }
        }
        Ok(None)
    }

    /// Before each of `of` equal parts of a run, of which so many are done: why no other one is begun.
    pub fn cut(&self, done: u32, of: u32) -> Option<TimeCut> {
        let now = Instant::now();
        if let Some(before) = self.last.replace(Some(now)) {
            self.longest.set(self.longest.get().max(now - before));
        }
        (done > 0 && now - self.begin + self.longest.get() > self.time).then_some(TimeCut { done, of })
    }
}

impl TimeCut {
    /// `what`: the parts' name, as `repetitions`.
    pub fn tell(cut: Option<TimeCut>, draft: &mut ResultBuilder, what: &str) {
        if let Some(TimeCut { done, of }) = cut {
            draft.warning(format!("the time budget ended it after {done} of {of} {what}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_begun_in_any_case_and_another_one_only_if_it_fits() {
        let none = Budget::start(Duration::ZERO);
        assert!(none.is_over());
        assert_eq!(none.cut(0, 3), None);
        assert_eq!(none.cut(1, 3), Some(TimeCut { done: 1, of: 3 }));
        let hour = Budget::start(Duration::from_secs(3600));
        assert_eq!((hour.cut(0, 3), hour.cut(1, 3)), (None, None));
        hour.longest.set(Duration::from_secs(4000));
        assert!(!hour.is_over());
        assert_eq!(hour.cut(2, 3), Some(TimeCut { done: 2, of: 3 }), "it would not be done in time");
    }

    #[test]
    fn what_is_left_gets_less_but_never_nothing() {
        assert_eq!(Budget::start(Duration::ZERO).limits().seconds, SECONDS_MIN);
        let left = Budget::start(Duration::from_secs(3600)).limits().seconds;
        assert!((3000.0..=3600.0).contains(&left), "{left}");
    }
}
