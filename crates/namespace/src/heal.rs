//! Re-resolving a stale reference: the object is looked for under the name and directory where it was last seen.
//!
//! Handles given to clients hold our id, so a NAS that was restored, failed over or exported anew under other
//! handles does not break them as long as the same object still has the same name.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use origin::{Identity, Object, RenameLeftover};
use tracing::info;
use types::{Error, ErrorKind, FileId, JunctionId, Name, Result};

use crate::flights::Join;
use crate::node::KnownNode;
use crate::observe::{DETACHED, SeenAt};
use crate::store::StoreChange;
use crate::taken::NameState;
use crate::{Grafted, Namespace};

/// Directories to climb at most; a deeper chain of stale references is not worth the round trips.
const DEPTH_MAX: usize = 128;

/// How often one object is re-resolved for one question.
pub(crate) const MOVES_MAX: usize = 8;

/// The longest wait for a rename that is in flight: two renames that wait for each other must not do so for ever.
const MOVE_PATIENCE: Duration = Duration::from_secs(5);

impl Namespace {
    /// The object under its new reference, or `Stale` for good.
    pub async fn heal(self: &Arc<Self>, id: FileId) -> Result<Arc<KnownNode>> {
        let this = self.clone();
        self.heal_flights
            .run(id, Join::Running, move || async move { this.find_again(id, DEPTH_MAX).await })
            .await
    }

    /// The answer to a question about an object; under its new reference where that is stale, and again if we move it, or
    /// what is above it, meanwhile.
    pub async fn ask_healed<T, F: Future<Output = Result<T>> + Send>(
        self: &Arc<Self>,
        mut node: Arc<KnownNode>,
        ask: impl Fn(Arc<KnownNode>) -> F,
    ) -> Result<T> {
        for _ in 0..MOVES_MAX {
            match ask(node.clone()).await {
                Err(e) if e.kind() == ErrorKind::Stale => node = self.heal(node.id).await?,
                other => return other,
            }
        }
        Err(keeps_moving(node.id))
    }

    async fn find_again(self: &Arc<Self>, id: FileId, depth: usize) -> Result<Arc<KnownNode>> {
        let stale = || Error::new(ErrorKind::Stale, "find again", id);
        if let Some(junction) = self.junction_rooted_at(id) {
            return self.ask_root(&junction).await;
        }
        let asked = self.asking();
        let old = self.load(id)?;
        if depth == 0 {
            self.forget(old.junction(), id).await?;
            return Err(stale());
        }
        let junction = &*self.junction(old.junction())?;
        let found = match self.look_under_its_names(junction, &old, depth).await? {
            None => self.look_where_it_was_to_go(junction, &old, depth).await?,
            found => found,
        };
        let Some((object, (parent, name))) = found else {
            // A rename of ours is in flight, and its answer will tell where the object is.
            let moving = self.moving().get(&id).cloned();
            if let Some(mut end) = moving
                && tokio::time::timeout(MOVE_PATIENCE, end.changed()).await.is_err()
            {
                return Err(keeps_moving(id));
            }
            let now = self.load(id)?;
            // Also if it went elsewhere and came back meanwhile: it was looked for where it was not at that moment.
            if now.own > asked.own() || !is_in_one_place(&now, &old) {
                return Box::pin(self.find_again(id, depth - 1)).await;
            }
            self.vouch_for(junction).await?;
            self.forget(junction.id, id).await?;
            return Err(stale());
        };
        let place = SeenAt { parent, name: &name };
        let order = self.in_order(junction.id).await;
        let (mut node, change) = self.observe(&order, junction, id, Some(place), &object, asked)?;
        let mut changes: Vec<_> = change.into_iter().collect();
        if node.own > asked.own() && !is_in_one_place(&node, &old) {
            // We moved it since it was seen there, and what that change told of its place is newer.
            return Ok(node);
        }
        if node.record.reference != object.reference {
            // A change of our own was taken in since the question: its answer is newer, except for the place.
            let mut record = node.record.clone();
            (record.parent, record.name) = (place.parent, place.name.clone());
            record.reference = object.reference.clone();
            changes.push(StoreChange::PutNode(id, record.clone()));
            node = Arc::new(KnownNode::as_changed(id, record, node.own));
            self.keep(&node);
        }
        changes.extend(self.moved(junction, &old, &object.identity));
        if !self.is_adopted(junction.id, id, &object.identity) {
            changes.extend(self.name_anew(junction.id, &object.identity, id));
        }
        if self.astray().forget_at(id, parent, &name) {
            changes.extend(self.take_in_name(
                parent,
                &Name::new(name.clone())?,
                &NameState::Child(id),
                asked,
            )?);
        }
        self.commit_in(order, changes).await?;
        self.metrics.healed.inc();
        info!(%id, name = %name.escape_ascii(), "found again under a new reference");
        Ok(node)
    }

    /// Whether the object was adopted, and so has two ids. Its identity, from which the first id was derived, leads to the
    /// id as which it was adopted, whichever of the two is re-resolved.
    fn is_adopted(&self, junction: JunctionId, first: FileId, identity: &Identity) -> bool {
        FileId::derive(junction, &identity.0) == first && self.id_of(junction, identity).is_made_here()
    }

    /// From now on this identity means the object that clients know as `id`.
    pub(crate) fn name_anew(
        &self,
        junction: JunctionId,
        identity: &Identity,
        id: FileId,
    ) -> Option<StoreChange> {
        let computed = FileId::derive(junction, &identity.0);
        if self.id_of(junction, identity) == id {
            return None;
        }
        self.aliases.write().unwrap_or_else(PoisonError::into_inner).insert(computed, id);
        Some(StoreChange::PutAlias { computed, known: id })
    }

    /// Where an object's identity is its place, an object that moved keeps its id: the new place leads to that id from now
    /// on, and the old place, if another object comes to be there, to another id.
    pub(crate) fn moved(&self, junction: &Grafted, old: &KnownNode, now: &Identity) -> Vec<StoreChange> {
        let before = Identity(old.record.reference.0.clone());
        if !junction.rules.origin.traits().identity_is_place || before == *now {
            return Vec::new();
        }
        let mut changes = Vec::new();
        if self.id_of(junction.id, &before) == old.id {
            let mut unlike = before.0.to_vec();
            unlike.push(0); // in no path
            unlike.extend_from_slice(&old.id.0);
            unlike.extend_from_slice(&self.changing().own().to_le_bytes());
            unlike.extend_from_slice(&self.clock.now_ms().to_le_bytes());
            changes.extend(self.name_anew(junction.id, &before, FileId::derive(junction.id, &unlike)));
        }
        changes.extend(self.name_anew(junction.id, now, old.id));
        changes
    }

    /// Makes `id` one more id of the object known as `known`, to which its identity and its names lead from now on. Handles
    /// with the other id stay good.
    pub async fn adopt(self: &Arc<Self>, id: FileId, known: FileId) -> Result<Arc<KnownNode>> {
        let old = self.load(known)?;
        let junction = &*self.junction(old.junction())?;
        let asked = self.asking();
        let answer = junction.rules.origin.getattr(&old.record.reference).await;
        let object = junction.note(answer, asked.ms)?;
        let order = self.in_order(junction.id).await;
        let mut changes: Vec<_> = self.name_anew(junction.id, &object.identity, id).into_iter().collect();
        let last = (old.record.parent, old.record.name.clone());
        let others = self.other_names(&old, (last.0, &last.1))?;
        let place = SeenAt { parent: last.0, name: &last.1 };
        let (node, change) = self.observe(&order, junction, id, Some(place), &object, asked)?;
        changes.extend(change);
        let dirs: Vec<_> = others.iter().map(|(dir, _)| *dir).chain([last.0]).collect();
        for (dir, name) in others.into_iter().chain([last]).filter(|(dir, _)| *dir != DETACHED) {
            let at = Name::new(name.clone())?;
            if self.child_of(dir, &at)? == Some(known) {
                changes.extend(self.take_in_name(dir, &at, &NameState::Child(id), asked)?);
                changes.extend(self.named(id, (dir, &name), None));
            }
        }
        // Later changes of the object are not noted under the other id.
        let mut record = old.record.clone();
        record.checked_ms = 0;
        changes.push(self.replace(known, record));
        self.finish(order, &dirs, changes).await?;
        Ok(node)
    }

    /// Whether the identity leads to this id, or the id was derived from it: an object that was adopted has two.
    pub(crate) fn is_known_as(&self, id: FileId, junction: JunctionId, identity: &Identity) -> bool {
        self.id_of(junction, identity) == id || FileId::derive(junction, &identity.0) == id
    }

    /// Looks for the object where it was seen last; for a file that had several names, under the others, too.
    async fn look_under_its_names(
        self: &Arc<Self>,
        junction: &Grafted,
        old: &KnownNode,
        depth: usize,
    ) -> Result<Option<(Object, (FileId, Bytes))>> {
        let last = (old.record.parent, old.record.name.clone());
        let others = self.other_names(old, (last.0, &last.1))?;
        for (dir, name) in std::iter::once(last).chain(others).filter(|(dir, _)| *dir != DETACHED) {
            match self.look_beside(dir, &Name::new(name.clone())?, depth).await {
                Ok(object) if self.is_same(junction, old, &object) => return Ok(Some((object, (dir, name)))),
                Err(e) if !is_absent(&e) => return Err(e),
                _ => {}
            }
        }
        Ok(None)
    }

    /// Looks for the object where a rename without an answer may have brought it, if it has another identity there.
    async fn look_where_it_was_to_go(
        self: &Arc<Self>,
        junction: &Grafted,
        old: &KnownNode,
        depth: usize,
    ) -> Result<Option<(Object, (FileId, Bytes))>> {
        let places = self.astray().places(old.id);
        if !junction.rules.origin.traits().identity_is_place {
            return Ok(None);
        }
        for (dir, name) in places {
            let there = match self.look_beside(dir, &name, depth).await {
                Err(e) if is_absent(&e) => continue,
                there => there?,
            };
            if there.attr.kind != old.attr().kind {
                continue;
            }
            let (from, was) = (&old.record.reference, old.version());
            let left = junction.rules.origin.left_by_rename(from, was, &there.reference).await;
            if junction.note(left, self.clock.now_ms())? != RenameLeftover::Foreign {
                return Ok(Some((there, (dir, Bytes::copy_from_slice(name.as_bytes())))));
            }
        }
        Ok(None)
    }

    /// Look the name up in the parent; a parent that is stale too is found again first, and again if we move it, or what is
    /// above it, meanwhile: what is below must not pass for gone.
    async fn look_beside(self: &Arc<Self>, parent: FileId, name: &Name, depth: usize) -> Result<Object> {
        let mut parent = self.load(parent)?;
        for _ in 0..MOVES_MAX {
            let junction = &*self.junction(parent.junction())?;
            let found = junction.rules.origin.lookup(&parent.record.reference, name).await;
            match junction.note(found, self.clock.now_ms()) {
                Err(e) if e.kind() == ErrorKind::Stale => {
                    parent = Box::pin(self.find_again(parent.id, depth - 1)).await?;
                }
                other => return other,
            }
        }
        Err(keeps_moving(parent.id))
    }

    /// The same object under another handle? By identity; failing that, by inode number and by contents that did not
    /// change. A directory may have changed if its whole file system came back under another id: then the server was
    /// restored or exports anew. A new object under the old name, with the old inode number, must not pass.
    fn is_same(&self, junction: &Grafted, old: &KnownNode, found: &Object) -> bool {
        if self.is_known_as(old.id, junction.id, &found.identity) {
            return true;
        }
        if junction.rules.origin.traits().identity_is_place {
            // The directory that the object is in was moved.
            return found.attr.kind == old.attr().kind && found.version == old.version();
        }
        let same_inode = found.attr.fileid == old.attr().fileid && found.attr.kind == old.attr().kind;
        let exported_anew = found.attr.is_dir() && found.attr.fsid != old.attr().fsid;
        same_inode && (found.version == old.version() || exported_anew)
    }
}

fn is_in_one_place(now: &KnownNode, before: &KnownNode) -> bool {
    (now.record.parent, &now.record.name) == (before.record.parent, &before.record.name)
}

/// A retryable error, which does not say that the object is gone.
pub(crate) fn keeps_moving(id: FileId) -> Error {
    Error::new(ErrorKind::Busy, "ask about what keeps moving,", id)
}

fn is_absent(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Stale | ErrorKind::NotADirectory)
}
