//! The order in which answers are taken in: one lock for each junction.
//!
//! A task that learns something of an object holds its junction's lock from its look at what is known until memory has
//! the news and the store has been given it. So both take in the same things in the same order, and an older answer
//! never replaces a newer one. An object belongs to one junction for as long as it exists, so the junctions need no
//! order among themselves, and a slow or busy one makes nobody wait who learns of another. No task holds two of these
//! locks: what concerns several junctions (an operator's evict from above them) takes them one after the other.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::OwnedMutexGuard;
use types::JunctionId;

use crate::Namespace;

/// The locks. One that was made stays: a call goes on with a junction that was taken away, and the junction may come
/// back meanwhile.
#[derive(Default)]
pub struct LearningOrders {
    by_junction: Mutex<HashMap<JunctionId, Arc<JunctionOrder>>>,
}

#[derive(Default)]
struct JunctionOrder {
    learning: Arc<tokio::sync::Mutex<()>>,
    /// Counts the beginnings and ends of evictions.
    evictions: AtomicU64,
}

/// The right to take in what was learnt of one junction's objects. One task has it at a time.
pub struct InOrder {
    junction: JunctionId,
    _held: OwnedMutexGuard<()>,
}

impl InOrder {
    pub fn junction(&self) -> JunctionId {
        self.junction
    }
}

impl LearningOrders {
    fn of(&self, junction: JunctionId) -> Arc<JunctionOrder> {
        let mut all = self.by_junction.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(junction).or_default().clone()
    }

    /// Something of this junction is being evicted, or has been: its listings in flight begin anew.
    pub fn note_eviction(&self, junction: JunctionId) {
        self.of(junction).evictions.fetch_add(1, Ordering::SeqCst);
    }

    /// A count that changes whenever something of this junction is evicted.
    pub fn evictions(&self, junction: JunctionId) -> u64 {
        self.of(junction).evictions.load(Ordering::SeqCst)
    }
}

impl Namespace {
    /// Waits for the other tasks that are taking in something of this junction.
    pub(crate) async fn in_order(&self, junction: JunctionId) -> InOrder {
        let learning = self.orders.of(junction).learning.clone();
        InOrder { junction, _held: learning.lock_owned().await }
    }
}
