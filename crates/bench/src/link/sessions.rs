//! Which streams an agent waits for: those of tests that it has been told of as a rank.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::net::TcpStream;
use tokio::sync::mpsc;

type ArrivingStreams = mpsc::Sender<(u32, TcpStream)>;

/// The tests whose streams this agent waits for.
#[derive(Default)]
pub struct Sessions(Mutex<BTreeMap<u64, ArrivingStreams>>);

/// A test whose streams are let in; they are refused again when this is dropped.
pub struct Session<'a> {
    sessions: &'a Sessions,
    id: u64,
    pub arrived: mpsc::Receiver<(u32, TcpStream)>,
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, ArrivingStreams>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where a stream of that test goes, if it is expected and there is room for one more.
    pub fn place_in(&self, id: u64) -> Option<mpsc::OwnedPermit<(u32, TcpStream)>> {
        self.lock().get(&id).and_then(|arriving| arriving.clone().try_reserve_owned().ok())
    }

    pub fn open(&self, id: u64, streams: usize) -> Session<'_> {
        let (sender, arrived) = mpsc::channel(streams.max(1));
        self.lock().insert(id, sender);
        Session { sessions: self, id, arrived }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.sessions.lock().remove(&self.id);
    }
}
