//! What the nodes of a cluster tell each other: which objects they changed at an origin.
//!
//! A notice is taken for a doubt and never for an answer. The origin is asked before the objects that it names are trusted again:
//! for their attributes and, of a directory, for what it names and does not name. So a node that tells lies costs round trips.
//!
//! A question that was under way when a notice arrived may have been answered from before the change. Notices are numbered, a
//! question carries the number of those that had been taken in before it ([`QueryStamp::heard`]), and an answer that a notice
//! overtook is taken in as doubted. That holds for objects that were not known when the notice came as well, and for the answers to
//! changes of our own, which may lie before the foreign change.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

use types::{Error, FileId, JunctionId, Result};

use crate::Namespace;
use crate::freshness::DOUBTED_MS;
use crate::node::KnownNode;
use crate::observe::QueryStamp;
use crate::record::Record;
use crate::store::StoreChange;

/// Objects whose last notice is remembered one by one (about 50 bytes each).
const REMEMBERED_MAX: usize = 65_536;
/// Objects that are doubted before others get their turn in the junction's order.
const PIECE: usize = 128;

/// Who tells other nodes of changes that were made here. It must not wait.
pub(crate) type Announce = Box<dyn Fn(&[FileId]) + Send + Sync>;

/// The number of the last notice of each object. Pure. When there are too many, all are forgotten, and each object counts as named
/// by the last notice of them: that costs questions.
#[derive(Default)]
pub struct NoticeLedger {
    last: HashMap<FileId, u64>,
    /// The number for the objects that are not in there.
    floor: u64,
}

impl NoticeLedger {
    fn note(&mut self, id: FileId, number: u64) {
        if self.last.len() >= REMEMBERED_MAX && !self.last.contains_key(&id) {
            self.floor = self.last.drain().map(|(_, number)| number).fold(self.floor, u64::max);
        }
        let last = self.last.entry(id).or_insert(number);
        *last = number.max(*last);
    }

    fn last(&self, id: FileId) -> u64 {
        self.last.get(&id).copied().unwrap_or(self.floor)
    }
}

impl Namespace {
    /// Has `announce` called with the objects that calls of this namespace changed at their origins, or may have changed: from now
    /// on, and after each change. It must not wait. A second call changes nothing.
    pub fn announce_to(&self, announce: impl Fn(&[FileId]) + Send + Sync + 'static) {
        let _ = self.announce.set(Box::new(announce)); // it is set once, when the node is built
    }

    /// Whether a notice named the object, now or before a restart, and nothing that the origin said since is known.
    pub fn is_behind_a_notice(&self, node: &KnownNode) -> bool {
        let was_doubted = || self.announce.get().is_some() && node.checked_ms() == DOUBTED_MS;
        node.is_behind_a_notice() || was_doubted()
    }

    /// Announces a change of these objects if it was made, or may have been.
    pub fn announce_outcome<T>(&self, outcome: &Result<T>, ids: impl IntoIterator<Item = FileId>) {
        let Some(announce) = self.announce.get() else { return };
        if outcome.as_ref().err().is_none_or(Error::may_have_happened) {
            announce(&ids.into_iter().collect::<Vec<_>>());
        }
    }

    /// Takes in that another node changed these objects. Those that are not known are passed over; an answer that brings one of
    /// them, to a question that was asked before, is doubted.
    ///
    /// Errors: the database takes nothing. The objects are doubted all the same, until a restart.
    pub async fn take_in_notice(&self, ids: &[FileId]) -> Result<()> {
        let number = self.heard.fetch_add(1, Ordering::SeqCst) + 1;
        {
            let mut notices = self.notices();
            ids.iter().for_each(|id| notices.note(*id, number));
        }
        // An answer that was being taken in before the ledger had the number is known when its junction's order is free.
        let junctions: Vec<JunctionId> = self.grafts.load().junctions.keys().copied().collect();
        for junction in junctions {
            drop(self.in_order(junction).await);
        }
        let mut known: HashMap<JunctionId, Vec<FileId>> = HashMap::new();
        for piece in ids.chunks(PIECE) {
            for id in piece {
                if let Ok(node) = self.load(*id) {
                    known.entry(node.junction()).or_default().push(*id);
                }
            }
            // Each may have read the database, and clients wait for this thread.
            tokio::task::yield_now().await;
        }
        let mut outcome = Ok(());
        for (junction, ids) in known {
            for piece in ids.chunks(PIECE) {
                let order = self.in_order(junction).await;
                let changes = piece.iter().flat_map(|id| self.doubt_noticed(*id, number)).collect();
                outcome = outcome.and(self.store.enqueue(changes).await);
                drop(order);
            }
        }
        outcome
    }

    /// Called in the order of the object's junction. What is doubted already costs no write: whatever number of notices comes, the
    /// database is written to as often as somebody looks.
    fn doubt_noticed(&self, id: FileId, number: u64) -> Vec<StoreChange> {
        let Ok(node) = self.load(id) else { return Vec::new() };
        let mut changes = Vec::new();
        node.notice(number);
        if node.attr().is_dir()
            && let Ok(Some(listing)) = self.listing_of(id)
            && !listing.is_unproven()
        {
            self.keep_listing(id, Some(listing.unproven()));
            changes.push(StoreChange::PutListing(id, listing.unproven()));
        }
        if node.checked_ms() <= DOUBTED_MS {
            return changes;
        }
        if node.record.checked_ms > DOUBTED_MS {
            let record = Record { checked_ms: DOUBTED_MS, ..node.record.clone() };
            let doubted = KnownNode::as_changed(id, record.clone(), node.own);
            doubted.learn(node.learnt());
            self.keep(&Arc::new(doubted));
            changes.push(StoreChange::PutNode(id, record));
        }
        // The old one, too: somebody may hold it.
        node.doubt();
        self.tell_changed(id);
        changes
    }

    pub(crate) fn notices(&self) -> MutexGuard<'_, NoticeLedger> {
        self.notices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of the last notice that named this object.
    pub(crate) fn last_notice(&self, id: FileId) -> u64 {
        self.notices().last(id)
    }

    /// Whether a notice of this object arrived after that question was asked.
    pub(crate) fn is_overtaken(&self, id: FileId, asked: QueryStamp) -> bool {
        self.last_notice(id) > asked.heard()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(number: u64) -> FileId {
        FileId([number.to_be_bytes(); 2].concat().try_into().expect("16 bytes"))
    }

    #[test]
    fn an_object_whose_notice_was_forgotten_counts_as_named_by_the_last_of_those() {
        let mut ledger = NoticeLedger::default();
        assert_eq!(ledger.last(file(7)), 0);
        ledger.note(file(7), 3);
        ledger.note(file(7), 2);
        assert_eq!((ledger.last(file(7)), ledger.last(file(8))), (3, 0), "each by itself");
        for number in 0..REMEMBERED_MAX as u64 {
            ledger.note(file(100 + number), 4 + number);
        }
        let last = 3 + REMEMBERED_MAX as u64;
        assert_eq!(ledger.last(file(100 + REMEMBERED_MAX as u64 - 1)), last);
        assert_eq!(ledger.last(file(7)), last - 1, "no answer from before is believed by mistake");
        assert!(ledger.last.len() <= REMEMBERED_MAX);
    }
}
