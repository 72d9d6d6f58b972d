//! What all connections of a relay share: the clock, the bandwidth of each direction, the bound on bytes in flight, and
//! the list of connections that can be cut.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::bucket::TokenBucket;
use crate::clock::RelayClock;
use crate::config::Config;
use crate::jitter::SplitMix;
use crate::window::Total;

/// Most bytes taken off a socket at a time.
pub const CHUNK: usize = 64 * 1024;

pub struct RelayLine {
    pub config: Config,
    pub clock: Arc<RelayClock>,
    pub one_way: Duration,
    /// From the listening side to the target, and back.
    pub up: Option<TokenBucket>,
    pub down: Option<TokenBucket>,
    pub total: Arc<Total>,
    pub counters: Arc<LineCounters>,
    pub cuts: Arc<Cuts>,
    /// What a read goes into first; used between two awaits only.
    scratch: Mutex<Box<[u8]>>,
}

impl RelayLine {
    /// In the runtime of the relay.
    pub fn new(config: Config, counters: Arc<LineCounters>, cuts: Arc<Cuts>) -> io::Result<RelayLine> {
        Ok(RelayLine {
            clock: RelayClock::new()?,
            one_way: config.rtt / 2,
            up: config.rate.map(|r| TokenBucket::new(r.0)),
            down: config.rate.map(|r| TokenBucket::new(r.0)),
            total: Arc::new(Total::new(config.in_flight_max)),
            counters,
            cuts,
            scratch: Mutex::new(vec![0; CHUNK].into_boxed_slice()),
            config,
        })
    }

    pub fn scratch(&self) -> MutexGuard<'_, Box<[u8]>> {
        self.scratch.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug, Default)]
pub struct LineCounters {
    pub bytes_up: AtomicU64,
    pub bytes_down: AtomicU64,
    pub connections: AtomicU64,
    pub cut: AtomicU64,
    pub refused: AtomicU64,
    pub unreachable: AtomicU64,
    /// Where the search for a privileged port goes on.
    pub privileged: AtomicU64,
}

/// What a relay has carried since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// From the listening side to the target.
    pub bytes_up: u64,
    pub bytes_down: u64,
    /// Accepted, those that failed included.
    pub connections: u64,
    /// Open now.
    pub open: u64,
    /// Cut by the relay on purpose.
    pub cut: u64,
    /// Turned away at the limit on connections.
    pub refused: u64,
    /// The target could not be connected to.
    pub unreachable: u64,
}

impl LineCounters {
    pub fn read(&self, open: usize) -> Counts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            bytes_up: get(&self.bytes_up),
            bytes_down: get(&self.bytes_down),
            connections: get(&self.connections),
            open: open as u64,
            cut: get(&self.cut),
            refused: get(&self.refused),
            unreachable: get(&self.unreachable),
        }
    }
}

/// The running connections, each with what cuts it.
#[derive(Default)]
pub struct Cuts {
    running: Mutex<BTreeMap<u64, Arc<Notify>>>,
}

impl Cuts {
    pub fn add(&self, id: u64) -> Arc<Notify> {
        let cut = Arc::new(Notify::new());
        self.lock().insert(id, Arc::clone(&cut));
        cut
    }

    pub fn remove(&self, id: u64) {
        self.lock().remove(&id);
    }

    pub fn len(&self) -> usize {
        self.lock().len()
    }

    /// How many there were.
    pub fn cut_all(&self) -> usize {
        let running = self.lock();
        running.values().for_each(|cut| cut.notify_one());
        running.len()
    }

    pub fn cut_one(&self, random: &mut SplitMix) {
        let running = self.lock();
        let chosen = random.draw().checked_rem(running.len() as u64).unwrap_or(0);
        if let Some(cut) = running.values().nth(usize::try_from(chosen).unwrap_or(0)) {
            cut.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Notify>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
