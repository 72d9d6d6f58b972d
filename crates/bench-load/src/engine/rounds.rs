//! Files that many write and that are there only when somebody commits them: once in each epoch, when all workers of
//! the process are done with theirs. So the time of the commits is in the measurement, as often as there are files.

use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

pub struct Rounds {
    workers: usize,
    arrived: Mutex<usize>,
    /// Rounds that have ended.
    ended: watch::Sender<u64>,
}

impl Rounds {
    pub fn new(workers: usize) -> Rounds {
        Rounds { workers, arrived: Mutex::new(0), ended: watch::Sender::new(0) }
    }

    /// A worker is done with its part of the round. True for the last one: it commits, and then says [`Rounds::end`].
    /// Nobody is in another round meanwhile.
    pub fn arrive(&self) -> bool {
        let mut arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        *arrived += 1;
        let last = *arrived >= self.workers;
        if last {
            *arrived = 0;
        }
        last
    }

    pub fn end(&self) {
        self.ended.send_modify(|ended| *ended += 1);
    }

    /// Until so many rounds have ended.
    pub async fn until(&self, rounds: u64) {
        // The sender is ours: there is no error.
        let _ = self.ended.subscribe().wait_for(|ended| *ended >= rounds).await;
    }
}
