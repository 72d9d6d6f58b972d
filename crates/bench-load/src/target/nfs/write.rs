//! The WRITEs of one open file: a few under way, and a COMMIT when it must be durable.
//!
//! A server that restarts loses what it had taken and not stored, and shows it by another verifier. A kernel
//! client writes it again; here it is an error, because a run in which the server restarted is not worth its
//! numbers.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use origin::Written;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use types::{ByteRange, Error, ErrorKind, Result, Stability, WriteVerifier};

use super::shared::SharedNfsFile;

pub(super) struct Writes {
    shared: Arc<SharedNfsFile>,
    permits: Arc<Semaphore>,
    state: Arc<Mutex<State>>,
    /// Ended with the file, whether or not they were answered.
    tasks: Mutex<JoinSet<()>>,
}

/// The state of the WRITEs since the last COMMIT.
#[derive(Default)]
struct State {
    /// The first that failed; it is told once.
    error: Option<Error>,
    /// Of those that the server has not stored yet.
    verifier: Option<WriteVerifier>,
    /// They did not all come with the same one.
    lost: bool,
}

impl Writes {
    pub fn new(shared: Arc<SharedNfsFile>) -> Writes {
        let permits = Arc::new(Semaphore::new(shared.client.transfer.write_behind.max(1) as usize));
        Writes { shared, permits, state: Arc::default(), tasks: Mutex::default() }
    }

    /// Returns when the last piece is on its way. Fails with the error of an earlier piece.
    pub async fn write(&self, offset: u64, data: Bytes) -> Result<()> {
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let piece = rest.split_to(rest.len().min(self.shared.client.transfer.write_size as usize));
            let length = piece.len() as u64;
            let permit = Arc::clone(&self.permits).acquire_owned().await.map_err(|_| closed())?;
            state(&self.state).failed()?;
            let (shared, told) = (Arc::clone(&self.shared), Arc::clone(&self.state));
            self.shared.client.count("write");
            let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
            while tasks.try_join_next().is_some() {}
            tasks.spawn(async move {
                let origin = &shared.client.origin;
                let done = origin.write(&shared.reference, at, piece, Stability::Unstable).await;
                state(&told).learn(done);
                drop(permit);
            });
            drop(tasks);
            at = at.saturating_add(length);
        }
        Ok(())
    }

    /// Waits for the pieces under way.
    pub async fn settle(&self) -> Result<()> {
        let all = self.shared.client.transfer.write_behind.max(1);
        let _all = self.permits.acquire_many(all).await.map_err(|_| closed())?;
        state(&self.state).failed()
    }

    pub async fn commit(&self) -> Result<()> {
        self.settle().await?;
        let (verifier, lost) = {
            let mut state = state(&self.state);
            (state.verifier.take(), std::mem::take(&mut state.lost))
        };
        let Some(verifier) = verifier else { return Ok(()) };
        self.shared.client.count("commit");
        let committed =
            self.shared.client.origin.commit(&self.shared.reference, ByteRange::new(0, 0)).await?;
        if lost || committed.verifier != verifier {
            let reason = "the server restarted and lost data that it had taken; run again";
            return Err(Error::new(ErrorKind::Io, "commit", reason));
        }
        Ok(())
    }
}

fn state(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn closed() -> Error {
    Error::new(ErrorKind::Io, "write", "the file is closed")
}

impl State {
    fn learn(&mut self, done: Result<Written>) {
        match done {
            Ok(written) if written.stability == Stability::Unstable => {
                let before = self.verifier.replace(written.verifier);
                self.lost |= before.is_some_and(|before| before != written.verifier);
            }
            Ok(_) => {}
            Err(error) => {
                self.error.get_or_insert(error);
            }
        }
    }

    fn failed(&mut self) -> Result<()> {
        self.error.take().map_or(Ok(()), Err)
    }
}
