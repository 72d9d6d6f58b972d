//! Objects in memory: what the database holds, plus when it was last confirmed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use types::{Attr, FileId, JunctionId, Version};

use crate::freshness::DOUBTED_MS;
use crate::record::Record;

/// One object. Replaced as a whole when anything but the time of its last check changes.
#[derive(Debug)]
pub struct KnownNode {
    pub id: FileId,
    pub record: Record,
    /// The number of the last change of our own that is in here: answers to earlier questions do not count (`observe`).
    pub own: u64,
    /// As `record.checked_ms`, kept current.
    checked_ms: AtomicU64,
    /// The number of the last description of this object that was taken in.
    learnt: AtomicU64,
    /// The number of the last notice that named this object.
    noticed: AtomicU64,
}

/// What is in memory under an id.
#[derive(Clone, Debug)]
pub enum Remembered {
    Node(Arc<KnownNode>),
    /// The object is gone, though the store may still have it. `own`: the number of the change of our own that removed it, if
    /// one did; answers to earlier questions may still describe it, and do not count.
    Gone {
        own: u64,
    },
}

impl KnownNode {
    pub fn new(id: FileId, record: Record) -> KnownNode {
        KnownNode::as_changed(id, record, 0)
    }

    pub fn as_changed(id: FileId, record: Record, own: u64) -> KnownNode {
        let checked_ms = AtomicU64::new(record.checked_ms);
        KnownNode { id, record, own, checked_ms, learnt: AtomicU64::new(0), noticed: AtomicU64::new(0) }
    }

    /// As the origin described it: its own fsid and fileid.
    pub fn attr(&self) -> &Attr {
        &self.record.attr
    }

    /// The directory it was seen in last.
    pub fn parent(&self) -> FileId {
        self.record.parent
    }

    /// Its name there; empty for the root of a junction.
    pub fn name(&self) -> &bytes::Bytes {
        &self.record.name
    }

    pub fn version(&self) -> Version {
        self.record.version
    }

    pub fn junction(&self) -> JunctionId {
        self.record.junction
    }

    pub fn checked_ms(&self) -> u64 {
        self.checked_ms.load(Ordering::Relaxed)
    }

    /// The origin confirmed this state when asked at `at_ms`. A later confirmation stands, unless it is from the
    /// future: the clock was set back since.
    pub fn confirm(&self, at_ms: u64, now_ms: u64) {
        let newer = |known: u64| (known < at_ms || known > now_ms).then_some(at_ms);
        let _ = self.checked_ms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, newer);
    }

    pub fn learnt(&self) -> u64 {
        self.learnt.load(Ordering::Relaxed)
    }

    pub fn learn(&self, number: u64) {
        self.learnt.fetch_max(number, Ordering::Relaxed);
    }

    pub fn noticed(&self) -> u64 {
        self.noticed.load(Ordering::Relaxed)
    }

    pub fn notice(&self, number: u64) {
        self.noticed.fetch_max(number, Ordering::Relaxed);
    }

    /// Whether a notice named it, and nothing that the origin said since the notice is in here.
    pub fn is_behind_a_notice(&self) -> bool {
        self.noticed() > 0 && self.checked_ms() == DOUBTED_MS
    }

    /// Ask the origin before it is trusted again; until that can be done, it is served as what is known is in an outage.
    pub fn doubt(&self) {
        let doubted = |known| (known > DOUBTED_MS).then_some(DOUBTED_MS);
        let _ = self.checked_ms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, doubted);
    }

    /// Trust it no more until the origin was asked, in an outage either.
    pub fn distrust(&self) {
        self.checked_ms.store(0, Ordering::Relaxed);
    }
}
