//! Work that one request starts and others watch: bounded in number, and told when nobody watches it any more.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::RawQuery;
use axum::http::StatusCode;
use tokio::sync::watch;

use super::Problem;

/// Under way at the same time, and finished ones that are remembered.
const RUNNING_MAX: usize = 8;
const REMEMBERED_MAX: usize = 64;
/// Nobody watches what nobody has looked at for so long.
const UNWATCHED_MAX: Duration = Duration::from_secs(10);
/// Who looks may wait for the end, but not longer.
const WITHIN_MAX: Duration = Duration::from_secs(5);

/// `P` tells how far a job is.
pub struct Jobs<P> {
    /// What one of them is called.
    name: &'static str,
    numbers: Arc<Numbers>,
    kept: Mutex<VecDeque<Arc<Job<P>>>>,
}

/// Jobs of all kinds are counted together, so that a number names one.
#[derive(Debug, Default)]
pub struct Numbers(AtomicU64);

pub struct Job<P> {
    pub number: u64,
    pub progress: P,
    done: watch::Sender<bool>,
    /// Somebody wants it to end.
    stop: watch::Sender<bool>,
    began: Instant,
    looked_at: Mutex<Instant>,
}

impl<P> Jobs<P> {
    pub fn new(name: &'static str, numbers: Arc<Numbers>) -> Jobs<P> {
        Jobs { name, numbers, kept: Mutex::default() }
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    /// All that are remembered, the oldest first.
    pub fn all(&self) -> Vec<Arc<Job<P>>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    pub fn begin(&self, progress: P) -> Result<Arc<Job<P>>, Problem> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.iter().filter(|job| !job.is_done()).count() >= RUNNING_MAX {
            let name = self.name;
            let message = format!("no further {name} while {RUNNING_MAX} are under way; wait for one to end");
            return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, message));
        }
        if kept.len() >= REMEMBERED_MAX
            && let Some(old) = kept.iter().position(|job| job.is_done())
        {
            kept.remove(old);
        }
        let job = Arc::new(Job {
            number: self.numbers.0.fetch_add(1, Ordering::Relaxed) + 1,
            progress,
            done: watch::Sender::new(false),
            stop: watch::Sender::new(false),
            began: Instant::now(),
            looked_at: Mutex::new(Instant::now()),
        });
        kept.push_back(job.clone());
        Ok(job)
    }

    /// Who asks, watches. Asked with a time, the answer comes when the job is over, or after that time.
    pub async fn look(&self, number: &str, RawQuery(how): RawQuery) -> Result<Arc<Job<P>>, Problem> {
        let job = self.find(number)?;
        let within = how.map_or(Some(0), |how| how.strip_prefix("within_ms=")?.parse().ok());
        let wrong = || Problem::new(StatusCode::BAD_REQUEST, "ask for a job with ?within_ms=250, or without");
        let within = Duration::from_millis(within.ok_or_else(wrong)?).min(WITHIN_MAX);
        job.watched();
        let _ = tokio::time::timeout(within, job.done.subscribe().wait_for(|done| *done)).await;
        job.watched();
        Ok(job)
    }

    pub fn find(&self, number: &str) -> Result<Arc<Job<P>>, Problem> {
        let job = self.all().into_iter().find(|job| job.number.to_string() == number);
        let unknown = || Problem::new(StatusCode::NOT_FOUND, format!("no {} has number {number}", self.name));
        job.ok_or_else(unknown)
    }
}

impl<P> Job<P> {
    pub fn is_done(&self) -> bool {
        *self.done.borrow()
    }

    pub fn end(&self) {
        self.done.send_replace(true);
    }

    pub fn age(&self) -> Duration {
        self.began.elapsed()
    }

    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Returns when somebody wants it to end.
    pub async fn stopped(&self) {
        let _ = self.stop.subscribe().wait_for(|stop| *stop).await;
    }

    fn watched(&self) {
        *self.looked_at.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
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
        let jobs = Jobs::new("trial", Arc::default());
        let running: Vec<_> = (0..RUNNING_MAX).map(|i| jobs.begin(i).expect("there is room")).collect();
        assert!(jobs.begin(0).is_err());
        running[0].end();
        assert!(jobs.find("1").expect("remembered").is_done());
        for i in 0..2 * REMEMBERED_MAX {
            jobs.begin(i).expect("there is room").end();
        }
        assert!(jobs.find("1").is_err(), "forgotten");
        assert!(!jobs.find("2").expect("still running").is_done());
    }

    #[tokio::test]
    async fn who_looks_is_told_of_the_end_at_once() {
        let jobs = Arc::new(Jobs::new("trial", Arc::default()));
        let job = jobs.begin(()).expect("there is room");
        let within = |ms: &str| RawQuery(Some(format!("within_ms={ms}")));
        assert!(!jobs.look("1", within("1")).await.expect("known").is_done());
        assert!(jobs.look("1", within("x")).await.is_err());
        let asked = tokio::spawn(async move { jobs.look("1", within("99999")).await });
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!asked.is_finished());
        let began = Instant::now();
        job.end();
        assert!(asked.await.expect("asked").expect("known").is_done());
        assert!(began.elapsed() < WITHIN_MAX / 2);
    }
}
