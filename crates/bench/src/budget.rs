//! The time that a run may take (`--time-budget`), for every experiment that repeats: a repetition is begun if there is
//! time for one as long as the longest so far, the first in any case. What is cut off in spite of that is INVALID, by
//! the engine's own word.

use std::cell::{Cell, RefCell};
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
    /// What was not done, as the time was over.
    cuts: RefCell<Vec<String>>,
}

impl Budget {
    /// Counts from now on.
    pub fn start(time: Duration) -> Budget {
        Budget {
            begin: Instant::now(),
            time,
            longest: Cell::default(),
            last: Cell::default(),
            cuts: RefCell::default(),
        }
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

    /// `work` for each of `of` repetitions, by number from 0, while there is time. `what`: their name, as `repetitions`.
    pub async fn repeat(
        &self,
        of: u32,
        what: &str,
        mut work: impl AsyncFnMut(u32) -> Result<()>,
    ) -> Result<()> {
        self.sweep(&mut [()], of, what, async |_, (), repetition| work(repetition).await).await.map(drop)
    }

    /// `work` for all rows, by place and repetition, then for all again: what changes meanwhile changes all of them alike. Each row
    /// is measured once in any case. Whether there was time for all.
    pub async fn sweep<R>(
        &self,
        rows: &mut [R],
        repetitions: u32,
        what: &str,
        mut work: impl AsyncFnMut(usize, &mut R, u32) -> Result<()>,
    ) -> Result<bool> {
        let (mut done, of) = (0, u32::try_from(rows.len()).unwrap_or(u32::MAX).saturating_mul(repetitions));
        for repetition in 0..repetitions {
            for (at, row) in rows.iter_mut().enumerate() {
                if !self.has_time(done) && repetition > 0 {
                    let cut = format!("the time budget ended it after {done} of {of} {what}");
                    self.cuts.borrow_mut().push(cut);
                    return Ok(false);
                }
                done += 1;
                work(at, row, repetition).await?;
            }
        }
        Ok(true)
    }

    /// Before each of several equal parts of a run, of which so many are done: whether another one is begun.
    fn has_time(&self, done: u32) -> bool {
        let now = Instant::now();
        if let Some(before) = self.last.replace(Some(now)) {
            self.longest.set(self.longest.get().max(now - before));
        }
        done == 0 || now - self.begin + self.longest.get() <= self.time
    }

    /// Warns of what was not done.
    pub fn tell(self, draft: &mut ResultBuilder) {
        self.cuts.into_inner().into_iter().for_each(|cut| draft.warning(cut));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_begun_in_any_case_and_another_one_only_if_it_fits() {
        let none = Budget::start(Duration::ZERO);
        assert!(none.is_over());
        assert!(none.has_time(0) && !none.has_time(1));
        let hour = Budget::start(Duration::from_secs(3600));
        assert!(hour.has_time(0) && hour.has_time(1));
        hour.longest.set(Duration::from_secs(4000));
        assert!(!hour.is_over());
        assert!(!hour.has_time(2), "it would not be done in time");
    }

    #[test]
    fn what_is_left_gets_less_but_never_nothing() {
        assert_eq!(Budget::start(Duration::ZERO).limits().seconds, SECONDS_MIN);
        let left = Budget::start(Duration::from_secs(3600)).limits().seconds;
        assert!((3000.0..=3600.0).contains(&left), "{left}");
    }
}
