//! What a watch tells, and its consumer's end.

use tokio::sync::mpsc;

use crate::{KeyEntry, PrefixState, Revision};

/// Events that wait for the consumer of one watch. When it is full the watch stops reading, and etcd keeps the rest.
pub const WATCH_QUEUE: usize = 64;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    /// This is all there is: whatever the consumer had of the prefix is replaced by it.
    Reset {
        state: PrefixState,
        /// The keys are of another history than what was told before: etcd was restored from a backup, or wiped. Revisions
        /// that were seen before mean nothing any more, and may be given out again.
        went_back: bool,
    },
    /// All that one transaction, or the end of one lease, changed below the prefix.
    Changed { revision: Revision, changes: Vec<KeyChange> },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyChange {
    Put(KeyEntry),
    Deleted { key: String },
}

impl KeyChange {
    pub fn key(&self) -> &str {
        match self {
            KeyChange::Put(entry) => &entry.key,
            KeyChange::Deleted { key } => key,
        }
    }
}

/// A stream of events about one prefix. It goes on through outages by itself, and ends when it is dropped.
#[derive(Debug)]
pub struct KeyWatch {
    events: mpsc::Receiver<WatchEvent>,
}

impl KeyWatch {
    /// The consumer's end, and the one of the task that keeps the watch going until its channel closes.
    pub(crate) fn channel() -> (mpsc::Sender<WatchEvent>, KeyWatch) {
        let (told, events) = mpsc::channel(WATCH_QUEUE);
        (told, KeyWatch { events })
    }

    /// The next event, however long that takes. `None` only while the runtime ends, which takes the task with it.
    pub async fn next(&mut self) -> Option<WatchEvent> {
        self.events.recv().await
    }
}
