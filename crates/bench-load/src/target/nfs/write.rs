//! The WRITEs of one open file: a few under way, and a COMMIT when it must be durable.
//!
//! A server that restarts loses what it had taken and not stored, and shows it by another verifier. A kernel
//! client writes it again; here it is an error, because a run in which the server restarted is not worth its
//! numbers.

use std::sync::Arc;

use bytes::Bytes;
use origin::Written;
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use types::{ByteRange, Error, ErrorKind, Result, Stability, WriteVerifier};

use super::file::SharedNfsFile;

pub(super) struct Writes {
    shared: Arc<SharedNfsFile>,
    state: Mutex<State>,
}

/// The state of the WRITEs since the last COMMIT.
#[derive(Default)]
struct State {
    /// Ended with the file, whether or not they were answered.
    under_way: JoinSet<Result<Written>>,
    /// The first that failed; it is told once.
    error: Option<Error>,
    /// Of those that the server has not stored yet.
    verifier: Option<WriteVerifier>,
    /// They did not all come with the same one.
    lost: bool,
}

impl Writes {
    pub fn new(shared: Arc<SharedNfsFile>) -> Writes {
        Writes { shared, state: Mutex::default() }
    }

    /// Returns when the last piece is on its way. Fails with the error of an earlier piece.
    pub async fn write(&self, offset: u64, data: Bytes) -> Result<()> {
        let transfer = self.shared.client.transfer;
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let piece = rest.split_to(rest.len().min(transfer.write_size as usize));
            let length = piece.len() as u64;
            let mut state = self.state.lock().await;
            state.settle_to(transfer.write_behind.max(1) as usize - 1).await?;
            self.shared.client.calls.count("write");
            let shared = Arc::clone(&self.shared);
            state.under_way.spawn(async move {
                shared.client.origin.write(&shared.reference, at, piece, Stability::Unstable).await
            });
            at = at.saturating_add(length);
        }
        Ok(())
    }

    /// Waits for the pieces under way.
    pub async fn settle(&self) -> Result<()> {
        self.state.lock().await.settle_to(0).await
    }

    pub async fn commit(&self) -> Result<()> {
        let (verifier, lost) = {
            let mut state = self.state.lock().await;
            state.settle_to(0).await?;
            (state.verifier.take(), std::mem::take(&mut state.lost))
        };
        let Some(verifier) = verifier else { return Ok(()) };
        self.shared.client.calls.count("commit");
        let committed =
            self.shared.client.origin.commit(&self.shared.reference, ByteRange::new(0, 0)).await?;
        if lost || committed.verifier != verifier {
            let reason = "the server restarted and lost data that it had taken; run again";
            return Err(Error::new(ErrorKind::Io, "commit", reason));
        }
        Ok(())
    }
}

impl State {
    /// Waits until at most so many are under way; then the error of one that failed.
    async fn settle_to(&mut self, most: usize) -> Result<()> {
        while self.under_way.len() > most
            && let Some(done) = self.under_way.join_next().await
        {
            self.learn(done.unwrap_or_else(|e| Err(Error::new(ErrorKind::Io, "write", e))));
        }
        self.error.take().map_or(Ok(()), Err)
    }

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
}
