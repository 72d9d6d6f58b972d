//! Objects that this tier never saw, and of which a client holds a handle: another node of the cluster gave it out. Who knows the
//! object there tells its path, and it is looked up under that path. What counts is what the origin says: another object that has
//! the path by now is not the one that was asked for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use types::{ErrorKind, FileId, JunctionId, Name, Result};

use crate::flights::{Flights, Join};
use crate::observe::DETACHED;
use crate::{Found, Namespace};

/// Directories between an object and the root of its junction, at most.
pub const DEPTH_MAX: usize = 512;
/// An object that nobody knew is not asked for again for so long.
const UNKNOWN_MS: u64 = 2_000;
const UNKNOWN_MAX: usize = 1024;

/// Others who may know objects that are unknown here.
#[async_trait]
pub trait KnownElsewhere: Send + Sync {
    /// The names from the root of the junction down to the object; `None` if nobody knows it.
    ///
    /// Errors: a retryable one if somebody who may know it could not be asked.
    async fn path(&self, junction: JunctionId, id: FileId) -> Result<Option<Vec<Name>>>;
}

/// Whom to ask, and of what they knew nothing.
pub struct Elsewhere {
    others: OnceLock<Arc<dyn KnownElsewhere>>,
    flights: Flights<FileId, ()>,
    /// When it was asked for.
    unknown: Mutex<HashMap<FileId, u64>>,
}

impl Elsewhere {
    pub fn new() -> Elsewhere {
        Elsewhere { others: OnceLock::new(), flights: Flights::new(), unknown: Mutex::default() }
    }

    fn is_unknown(&self, id: FileId, now_ms: u64) -> bool {
        let unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        // A time in the future means that the clock was set back.
        unknown.get(&id).is_some_and(|at| *at <= now_ms && now_ms - at < UNKNOWN_MS)
    }

    fn note_unknown(&self, id: FileId, now_ms: u64) {
        let mut unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
        if unknown.len() >= UNKNOWN_MAX {
            unknown.clear();
        }
        unknown.insert(id, now_ms);
    }
}

impl Namespace {
    /// From now on [`Namespace::meet`] asks these. Only the first call counts.
    pub fn ask_elsewhere(&self, others: Arc<dyn KnownElsewhere>) {
        let _ = self.elsewhere.others.set(others);
    }

    /// Before an object is used of which a client holds a handle: one that is unknown here is looked up where others know it.
    /// When it is unknown afterwards, it is so everywhere, or it is another object by now.
    ///
    /// Errors: retryable ones, of the origin or of the others; the object may be there.
    pub async fn meet(self: &Arc<Self>, junction: JunctionId, id: FileId) -> Result<()> {
        let Some(others) = self.elsewhere.others.get() else { return Ok(()) };
        if self.ids_are_own(junction)
            || self.is_met(junction, id)
            || self.elsewhere.is_unknown(id, self.clock.now_ms())
        {
            return Ok(());
        }
        let (this, others) = (self.clone(), others.clone());
        self.elsewhere
            .flights
            .run(id, Join::Running, move || async move { this.look_up_elsewhere(others, junction, id).await })
            .await
    }

    /// Whether objects of the junction may have other ids at other nodes: where an object's identity is its place, one that was renamed
    /// keeps its id at the node that renamed it, and the id that follows from its old place is another object's at the others.
    pub fn ids_are_own(&self, junction: JunctionId) -> bool {
        let grafts = self.grafts.load();
        grafts.junction(junction).is_ok_and(|junction| junction.rules.origin.traits().identity_is_place)
    }

    fn is_met(&self, junction: JunctionId, id: FileId) -> bool {
        // The root of a junction is met with the first question about it.
        junction == JunctionId::VIRTUAL || self.load(id).is_ok() || self.junction_rooted_at(id).is_some()
    }

    async fn look_up_elsewhere(
        self: Arc<Self>,
        others: Arc<dyn KnownElsewhere>,
        junction: JunctionId,
        id: FileId,
    ) -> Result<()> {
        let Ok(root) = self.root_of(junction) else { return Ok(()) };
        let found = match others.path(junction, id).await? {
            Some(path) => self.look_up_path(root, &path, id).await?,
            None => false,
        };
        if !found {
            self.elsewhere.note_unknown(id, self.clock.now_ms());
        }
        if found { &self.metrics.met } else { &self.metrics.unmet }.inc();
        Ok(())
    }

    /// Whether the object that has this path is that one.
    async fn look_up_path(self: &Arc<Self>, root: FileId, path: &[Name], id: FileId) -> Result<bool> {
        let Some((last, above)) = path.split_last() else { return Ok(false) };
        let mut dir = root;
        for name in above {
            match self.look_up_step(dir, name, |_| true).await? {
                Some(next) => dir = next,
                None => return Ok(false),
            }
        }
        // What is known here of the name may be older than what the others know.
        self.look_up_step(dir, last, |found| found == id).await.map(|found| found.is_some())
    }

    /// What has the name: as it is known if that is `right`, or else as the origin says now.
    async fn look_up_step(
        self: &Arc<Self>,
        dir: FileId,
        name: &Name,
        right: impl Fn(FileId) -> bool,
    ) -> Result<Option<FileId>> {
        let absent = |kind| matches!(kind, ErrorKind::NotFound | ErrorKind::Stale | ErrorKind::NotADirectory);
        let known = match self.lookup(dir, name).await {
            Ok(found) => Some(found.id()).filter(|found| right(*found)),
            Err(e) if absent(e.kind()) => None,
            Err(e) => return Err(e),
        };
        if known.is_some() {
            return Ok(known);
        }
        match self.lookup_now(dir, name).await {
            Ok(found) => Ok(found.map(|node| node.id).filter(|found| right(*found))),
            Err(e) if absent(e.kind()) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The names from the root of the junction down to an object of it, as they are known here, without asking the origin; for
    /// another node. `None`: the object, or its way, is unknown.
    pub fn path_in_junction(&self, junction: JunctionId, id: FileId) -> Option<Vec<Bytes>> {
        let root = self.root_of(junction).ok()?;
        let (mut at, mut names) = (id, Vec::new());
        while at != root {
            let Ok(Found::Node(node)) = self.getattr_known(at) else { return None };
            let parent = node.parent();
            if node.junction() != junction || parent == DETACHED || parent == at || names.len() >= DEPTH_MAX {
                return None;
            }
            names.push(node.name().clone());
            at = parent;
        }
        names.reverse();
        Some(names)
    }
}
