//! Writes to one file that are in flight together share what is known of its size.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use tokio::sync::{Mutex, MutexGuard};
use types::WriteVerifier;

use crate::attributes::FileStat;

/// The write verifier: nothing is ever lost between a write and its commit.
pub const VERIFIER: WriteVerifier = *b"azfile\0\0";
/// The state shared by the writes to one file that are in flight together.
pub struct WriteSession {
    /// The file's stat, by the first of them, and after each extension.
    state: Mutex<Option<FileStat>>,
    /// The ends of the writes in flight.
    ends: std::sync::Mutex<Vec<u64>>,
    /// The number of writes that have joined.
    joined: AtomicU64,
}

impl WriteSession {
    pub async fn state(&self) -> MutexGuard<'_, Option<FileStat>> {
        self.state.lock().await
    }

    /// No other write has joined so far.
    pub fn is_alone(&self) -> bool {
        self.joined.load(Ordering::Relaxed) == 1
    }

    /// Where the last of the writes in flight ends.
    pub fn end_of_all(&self) -> u64 {
        self.ends().iter().copied().max().unwrap_or(0)
    }

    fn ends(&self) -> std::sync::MutexGuard<'_, Vec<u64>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A write's membership in a session, which ends with the last one.
pub struct WriterGuard<'a> {
    table: &'a WriteSessions,
    path: String,
    /// The end of the write.
    end: Option<u64>,
    session: Arc<WriteSession>,
}

impl std::ops::Deref for WriterGuard<'_> {
    type Target = WriteSession;

    fn deref(&self) -> &WriteSession {
        &self.session
    }
}

impl Drop for WriterGuard<'_> {
    fn drop(&mut self) {
        if let Some(end) = self.end {
            let mut ends = self.session.ends();
            if let Some(at) = ends.iter().position(|known| *known == end) {
                ends.swap_remove(at);
            }
        }
        let mut sessions = self.table.lock();
        // The references of the table, and of this guard.
        if Arc::strong_count(&self.session) == 2 {
            sessions.remove(&self.path);
        }
    }
}

/// The sessions of all files that are being written, by path.
#[derive(Default)]
pub struct WriteSessions(std::sync::Mutex<HashMap<String, Arc<WriteSession>>>);

impl WriteSessions {
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Arc<WriteSession>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A write that ends at `end` begins, or another look at the size that must not come between.
    pub fn join(&self, path: &str, end: Option<u64>) -> WriterGuard<'_> {
        let mut sessions = self.lock();
        let session = sessions.entry(path.to_owned()).or_insert_with(|| {
            Arc::new(WriteSession {
                state: Mutex::new(None),
                ends: Default::default(),
                joined: AtomicU64::new(0),
            })
        });
        session.ends().extend(end);
        session.joined.fetch_add(1, Ordering::Relaxed);
        WriterGuard { table: self, path: path.to_owned(), end, session: session.clone() }
    }
}
