//! Taking in an origin's description of an object: the one place where knowledge of objects enters.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use origin::{Identity, Object};
use types::{Error, ErrorKind, FileId, JunctionId, Result, Timestamp};

use crate::freshness;
use crate::node::{KnownNode, Remembered};
use crate::order::InOrder;
use crate::record::Record;
use crate::store::StoreChange;
use crate::{Grafted, Namespace};

/// The moment at which a question was asked, by all clocks and counters that say whether its answer still counts.
#[derive(Clone, Copy, Debug)]
pub struct QueryStamp {
    /// The moment by our time line.
    pub ms: u64,
    /// The moment by the wall clock.
    wall_ms: u64,
    /// The number of changes of our own that had been taken in: the answer may be from before the next one.
    own: u64,
    /// The number of descriptions that had been taken in.
    pub learnt: u64,
    /// The number of notices of other nodes that had been taken in.
    heard: u64,
    /// The answer tells of a change of our own.
    by_us: bool,
}

/// Where an object was seen.
#[derive(Clone, Copy)]
pub struct SeenAt<'a> {
    pub parent: FileId,
    /// Empty for the root of a junction.
    pub name: &'a Bytes,
}

impl QueryStamp {
    /// Whether an object that changed at that time had been left alone long enough when the question was asked.
    pub fn is_settled(&self, changed: Timestamp) -> bool {
        freshness::is_settled(changed, self.ms, self.wall_ms)
    }

    pub fn own(&self) -> u64 {
        self.own
    }

    pub fn heard(&self) -> u64 {
        self.heard
    }

    /// The stamp of the answer to a change of ours that was `asked` for then.
    pub fn as_answer_to(self, asked: QueryStamp) -> QueryStamp {
        QueryStamp { heard: asked.heard, ..self }
    }
}

impl Namespace {
    /// The id of the object with this identity: the one under which it is known already, otherwise computed.
    pub fn id_of(&self, junction: JunctionId, identity: &Identity) -> FileId {
        let computed = FileId::derive(junction, &identity.0);
        let aliases = self.aliases.read().unwrap_or_else(PoisonError::into_inner);
        aliases.get(&computed).copied().unwrap_or(computed)
    }

    /// The object, from memory or else from the database. `Stale` if this id was never given out or is gone.
    ///
    /// Reads the database on the caller's thread: a B-tree look-up in pages that are nearly always in memory
    /// costs less than moving to another thread.
    pub(crate) fn load(&self, id: FileId) -> Result<Arc<KnownNode>> {
        self.load_near(id, None)
    }

    /// The same, of an object that is probably in the directory `near`.
    pub(crate) fn load_near(&self, id: FileId, near: Option<FileId>) -> Result<Arc<KnownNode>> {
        let stale = || Error::new(ErrorKind::Stale, "find object", id);
        // In one step, so that news which come meanwhile are not overwritten with the store's record.
        let known = self.nodes.get_or_insert_with(&id, || {
            let record = self.store.node(id, near)?.ok_or_else(stale)?;
            let node = KnownNode::new(id, record);
            node.notice(self.last_notice(id));
            Ok::<_, Error>(Remembered::Node(Arc::new(node)))
        })?;
        match known {
            Remembered::Node(node) if self.grafts.load().gone.contains(&node.junction()) => Err(stale()),
            Remembered::Node(node) => Ok(node),
            Remembered::Gone { .. } => Err(stale()),
        }
    }

    /// Whether a change of our own removed the object after this question was asked.
    fn is_removed_since(&self, id: FileId, asked: QueryStamp) -> bool {
        !asked.by_us && matches!(self.nodes.get(&id), Some(Remembered::Gone { own }) if own > asked.own)
    }

    pub(crate) fn keep(&self, node: &Arc<KnownNode>) {
        node.notice(self.last_notice(node.id));
        self.nodes.insert(node.id, Remembered::Node(node.clone()));
    }

    /// Commits the changes; they are durable when this returns. The order is given up as soon as they have their place in
    /// the queue.
    pub(crate) async fn commit_in(&self, order: InOrder, changes: Vec<StoreChange>) -> Result<()> {
        let committing = self.store.begin_commit(changes).await?;
        drop(order);
        committing.wait().await
    }

    /// The stamp of a question that is about to be asked.
    pub fn asking(&self) -> QueryStamp {
        let (own, learnt) = (self.own_changes.load(Ordering::SeqCst), self.learnt.load(Ordering::SeqCst));
        let heard = self.heard.load(Ordering::SeqCst);
        let wall = self.clock.wall();
        let wall_ms = u64::try_from(wall.seconds).unwrap_or(0).saturating_mul(1000);
        let wall_ms = wall_ms.saturating_add(u64::from(wall.nanos / 1_000_000));
        QueryStamp { ms: self.clock.now_ms(), wall_ms, own, learnt, heard, by_us: false }
    }

    /// The stamp of the answer to a change of our own: no answer to an earlier question counts after it.
    pub(crate) fn changing(&self) -> QueryStamp {
        let own = self.own_changes.fetch_add(1, Ordering::SeqCst) + 1;
        QueryStamp { own, by_us: true, ..self.asking() }
    }

    /// Takes in `object` as the origin saw it at `asked`. Older news never overwrite newer ones. Returns the change that has
    /// to be committed before a client may hold a handle to it, in the same order. `Stale` if a change of ours removed the
    /// object since.
    pub(crate) fn observe(
        &self,
        order: &InOrder,
        junction: &Grafted,
        id: FileId,
        place: Option<SeenAt<'_>>,
        object: &Object,
        asked: QueryStamp,
    ) -> Result<(Arc<KnownNode>, Option<StoreChange>)> {
        debug_assert_eq!(
            order.junction(),
            junction.id,
            "the order of the junction that the object belongs to"
        );
        let old = match self.load_near(id, place.map(|place| place.parent)) {
            Ok(node) => Some(node),
            Err(e) if e.kind() == ErrorKind::Stale && !self.is_removed_since(id, asked) => None,
            Err(e) => return Err(e),
        };
        // A check in the future means that the clock was set back since: such knowledge is not newer.
        if let Some(old) = &old
            && !asked.by_us
            && (old.own > asked.own || old.checked_ms() > asked.ms && old.checked_ms() <= self.clock.now_ms())
        {
            return Ok((old.clone(), None));
        }
        let is_overtaken = self.is_overtaken(id, asked);
        let (parent, name) = where_to_find(old.as_deref(), place, object);
        let record = Record {
            junction: junction.id,
            reference: object.reference.clone(),
            parent,
            name,
            attr: object.attr,
            version: object.version,
            checked_ms: if is_overtaken { freshness::DOUBTED_MS } else { asked.ms },
        };
        if let Some(old) = &old
            && !asked.by_us
            && old.record.attr == record.attr
            && !old.record.differs_durably(&record)
        {
            if !is_overtaken {
                old.confirm(asked.ms, self.clock.now_ms());
            }
            old.learn(self.learnt.fetch_add(1, Ordering::SeqCst) + 1);
            return Ok((old.clone(), None));
        }
        if old.as_ref().is_some_and(|old| old.version() != record.version) {
            self.changed.tell(Some(id));
        }
        let own = if asked.by_us { asked.own } else { old.as_ref().map_or(0, |old| old.own) };
        let durable = old.is_none_or(|old| old.record.differs_durably(&record));
        let change = durable.then(|| StoreChange::PutNode(id, record.clone()));
        let node = Arc::new(KnownNode::as_changed(id, record, own));
        node.learn(self.learnt.fetch_add(1, Ordering::SeqCst) + 1);
        self.keep(&node);
        Ok((node, change))
    }

    /// Takes in that the object is gone: its handle is stale from now on.
    pub(crate) async fn forget(&self, junction: JunctionId, id: FileId) -> Result<()> {
        let _order = self.in_order(junction).await;
        self.nodes.insert(id, Remembered::Gone { own: 0 });
        self.astray().forget(id);
        self.changed.tell(Some(id));
        let listing = self.drop_listing(id);
        self.store.enqueue(vec![StoreChange::RemoveNode(id), listing]).await
    }
}

/// A file with several names keeps the first place it was seen in, so that listings of the others do not
/// rewrite its record each time; everything else is where it was seen last.
fn where_to_find(old: Option<&KnownNode>, place: Option<SeenAt<'_>>, object: &Object) -> (FileId, Bytes) {
    let known = old.map(|o| (o.record.parent, o.record.name.clone()));
    let several_names = !object.attr.is_dir() && object.attr.nlink > 1;
    match (known, place) {
        (Some(known), None) => known,
        (Some(known), Some(_)) if several_names && known.0 != DETACHED => known,
        (_, Some(place)) => (place.parent, place.name.clone()),
        (None, None) => (DETACHED, Bytes::new()),
    }
}

/// The parent of an object that is known by its handle only: it vanished from the directory it was in.
pub const DETACHED: FileId = FileId([0; 16]);
