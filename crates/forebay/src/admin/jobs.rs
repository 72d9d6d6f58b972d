//! Work that one request starts and others watch: bounded in number, and told when nobody watches it any more.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;

use super::Problem;

/// Under way at the same time, and finished ones that are remembered.
const RUNNING_MAX: usize = 8;
const REMEMBERED_MAX: usize = 64;
/// Nobody watches what nobody has looked at for so long.
const UNWATCHED_MAX: Duration = Duration::from_secs(10);

/// `P` tells how far a job is.
pub struct Jobs<P> {
    /// What one of them is called.
    name: &'static str,
    kept: Mutex<Kept<P>>,
}

struct Kept<P> {
    next: u64,
    jobs: VecDeque<Arc<Job<P>>>,
}

pub struct Job<P> {
    pub number: u64,
    pub progress: P,
    done: Mutex<bool>,
    looked_at: Mutex<Instant>,
}

impl<P> Jobs<P> {
    pub fn new(name: &'static str) -> Jobs<P> {
        Jobs { name, kept: Mutex::new(Kept { next: 0, jobs: VecDeque::new() }) }
    }

    pub fn begin(&self, progress: P) -> Result<Arc<Job<P>>, Problem> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.jobs.iter().filter(|job| !job.is_done()).count() >= RUNNING_MAX {
            let name = self.name;
            let message = format!("no further {name} while {RUNNING_MAX} are under way; wait for one to end");
            return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, message));
        }
        if kept.jobs.len() >= REMEMBERED_MAX
            && let Some(old) = kept.jobs.iter().position(|job| job.is_done())
        {
            kept.jobs.remove(old);
        }
        kept.next += 1;
        let job = Arc::new(Job {
            number: kept.next,
            progress,
            done: Mutex::new(false),
            looked_at: Mutex::new(Instant::now()),
        });
        kept.jobs.push_back(job.clone());
        Ok(job)
    }

    /// Who asks, watches.
    pub fn look(&self, number: &str) -> Result<Arc<Job<P>>, Problem> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let job = kept.jobs.iter().find(|job| job.number.to_string() == number).cloned();
        let unknown = || Problem::new(StatusCode::NOT_FOUND, format!("no {} has number {number}", self.name));
        let job = job.ok_or_else(unknown)?;
        *job.looked_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        Ok(job)
    }
}

impl<P> Job<P> {
    pub fn is_done(&self) -> bool {
        *self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn end(&self) {
        *self.done.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// Returns when nobody has looked for too long.
    pub async fn unwatched(&self) {
        loop {
            let last = *self.looked_at.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(left) = UNWATCHED_MAX.checked_sub(last.elapsed()) else { return };
            tokio::time::sleep(left).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn not_too_many_run_and_finished_ones_are_forgotten_first() {
        let jobs = Jobs::new("trial");
        let running: Vec<_> = (0..RUNNING_MAX).map(|i| jobs.begin(i).expect("there is room")).collect();
        assert!(jobs.begin(0).is_err());
        running[0].end();
        assert!(jobs.look("1").expect("remembered").is_done());
        for i in 0..2 * REMEMBERED_MAX {
            jobs.begin(i).expect("there is room").end();
        }
        assert!(jobs.look("1").is_err(), "forgotten");
        assert!(!jobs.look("2").expect("still running").is_done());
    }
}
