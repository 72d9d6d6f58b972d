//! Single flight: callers that want the same answer at the same time share one question to the origin.

use std::collections::HashMap;
use std::future::Future;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;
use types::{Error, ErrorKind, Result};

/// Which running flight may a caller join?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Join {
    /// Any: the answer is as good as one asked now, within the promised staleness.
    Running,
    /// Only one that starts after the caller asked: what close-to-open means.
    StartedAfterAsking,
}

type FlightAnswer<T> = watch::Receiver<Option<Result<T>>>;
type RunningFlights<K, T> = Arc<Mutex<HashMap<K, FlightAnswer<T>>>>;

/// Each flight is a task of its own: a caller that goes away does not take the answer from the others.
pub struct Flights<K, T> {
    running: RunningFlights<K, T>,
}

impl<K, T> Flights<K, T>
where
    K: Clone + Eq + Hash + Send + 'static,
    T: Clone + Send + Sync + 'static,
{
    pub fn new() -> Flights<K, T> {
        Flights { running: RunningFlights::default() }
    }

    /// The answer of `make`, run by this caller or by one before it.
    pub async fn run<F>(&self, key: K, join: Join, make: impl FnOnce() -> F) -> Result<T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        if join == Join::StartedAfterAsking {
            let running = lock(&self.running).get(&key).cloned();
            if let Some(mut answer) = running {
                let _ = wait(&mut answer).await;
            }
        }
        let mut answer = self.start_or_join(key, make);
        wait(&mut answer).await
    }

    pub fn is_running(&self, key: &K) -> bool {
        lock(&self.running).contains_key(key)
    }

    /// Start the flight if none is running; do not wait for it.
    pub fn start_or_join<F>(&self, key: K, make: impl FnOnce() -> F) -> FlightAnswer<T>
    where
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let mut running = lock(&self.running);
        if let Some(answer) = running.get(&key) {
            return answer.clone();
        }
        let (sender, answer) = watch::channel(None);
        running.insert(key.clone(), answer.clone());
        // A runtime that shuts down drops a task at once, here, and the landing takes the lock.
        drop(running);
        let landing = FlightLanding { running: self.running.clone(), key };
        let flight = make();
        tokio::spawn(async move {
            let result = flight.await;
            drop(landing); // first make room for the next flight, then wake those who waited for this one
            let _ = sender.send(Some(result));
        });
        answer
    }
}

/// Takes the flight off the list, also when it panics.
struct FlightLanding<K: Eq + Hash, T> {
    running: RunningFlights<K, T>,
    key: K,
}

impl<K: Eq + Hash, T> Drop for FlightLanding<K, T> {
    fn drop(&mut self) {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.key);
    }
}

pub async fn wait<T: Clone>(answer: &mut FlightAnswer<T>) -> Result<T> {
    match answer.wait_for(Option::is_some).await {
        Ok(landed) => landed.clone().expect("waited until it is there"),
        Err(_) => Err(Error::new(ErrorKind::Io, "ask the origin", "the task that asked has failed")),
    }
}

fn lock<K, T>(running: &RunningFlights<K, T>) -> std::sync::MutexGuard<'_, HashMap<K, FlightAnswer<T>>> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flight_begun_while_the_runtime_shuts_down_fails_and_blocks_nobody() {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let handle = runtime.handle().clone();
        runtime.shutdown_background();
        let (done, wait_for_it) = std::sync::mpsc::sync_channel(1);
        std::thread::spawn(move || {
            let _in = handle.enter();
            let flights: Flights<u32, ()> = Flights::new();
            let answer = flights.start_or_join(1, || async { Ok(()) });
            let _ = done.send(answer.borrow().is_none());
        });
        let unanswered = wait_for_it.recv_timeout(std::time::Duration::from_secs(20));
        assert_eq!(unanswered, Ok(true), "the lock is held by who waits for it");
    }
}
