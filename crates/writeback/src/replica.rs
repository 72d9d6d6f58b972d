//! The border to other nodes: who keeps a second copy of each entry, before anybody is told that it is durable.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use types::{ByteRange, ErrorKind, Result};

use crate::log::Log;

/// An entry on its way to another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalEntry {
    pub sequence: u64,
    pub head: Bytes,
    pub data: Bytes,
}

/// Keeps copies of entries elsewhere. One node alone has none.
#[async_trait]
pub trait Replica: Send + Sync {
    /// Returns when the copy is as durable as the policy asks for. Entries come one at a time, in the order of their
    /// sequences; after an open, all that are not done come once more.
    ///
    /// An implementation that can try again does so before it returns: an error is for good, like a failed sync.
    async fn append(&self, entry: JournalEntry) -> Result<()>;
}

/// Copies what was appended, from the journal itself: nothing is queued, however slow the other node is.
pub struct Feeder {
    /// All live entries up to this sequence have their copies.
    pub replicated: watch::Receiver<u64>,
    appended: watch::Sender<u64>,
    task: JoinHandle<()>,
}

impl Feeder {
    pub fn start(log: Arc<Log>, replica: Arc<dyn Replica>) -> Feeder {
        let (appended, told) = watch::channel(log.last_sequence());
        let (done, replicated) = watch::channel(0);
        let task = tokio::spawn(async move {
            // Dropping `done` wakes who waits; the latch tells them why.
            if let Err(error) = feed(&log, replica.as_ref(), told, &done).await {
                log.latch_with(error);
            }
        });
        Feeder { replicated, appended, task }
    }

    pub fn appended(&self, sequence: u64) {
        self.appended.send_if_modified(|last| {
            let grown = sequence > *last;
            *last = sequence.max(*last);
            grown
        });
    }
}

impl Drop for Feeder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn feed(
    log: &Arc<Log>,
    replica: &dyn Replica,
    mut told: watch::Receiver<u64>,
    done: &watch::Sender<u64>,
) -> Result<()> {
    let mut at = 0;
    loop {
        let last = *told.borrow_and_update();
        while let Some(sequence) = log.next_live(at).filter(|sequence| *sequence <= last) {
            let log = log.clone();
            let read = tokio::task::spawn_blocking(move || read(&log, sequence));
            if let Some(entry) = read.await.expect("reading does not panic")? {
                replica.append(entry).await?;
            }
            at = sequence;
            done.send_replace(at);
        }
        at = at.max(last);
        done.send_replace(at);
        if told.changed().await.is_err() {
            return Ok(());
        }
    }
}

/// `None`: done meanwhile, and needs no copy.
fn read(log: &Log, sequence: u64) -> Result<Option<JournalEntry>> {
    let entry = log.head(sequence).and_then(|(position, head)| {
        let data = log.read(position, ByteRange::new(0, position.data_length.into()))?;
        Ok(JournalEntry { sequence, head, data })
    });
    match entry {
        Err(error) if error.kind() == ErrorKind::Stale => Ok(None),
        entry => entry.map(Some),
    }
}
