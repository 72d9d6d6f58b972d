//! The junctions as they stand now. The operator adds some, takes some away and gives others new rules while clients are
//! served; a call that has its junction goes on with what it has.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError};

use types::{Error, ErrorKind, FileId, JunctionId, Result};

use crate::Namespace;
use crate::config::{Junction, JunctionRules};
use crate::junction::Grafted;
use crate::virtual_tree::VirtualTree;

/// The junctions and the directories above them; replaced as a whole.
pub struct Grafts {
    pub junctions: HashMap<JunctionId, Arc<Grafted>>,
    pub virtual_tree: VirtualTree,
    /// Junctions that were taken away since the start: their objects are stale, though they are known.
    pub gone: HashSet<JunctionId>,
}

impl Grafts {
    pub fn new(junctions: HashMap<JunctionId, Arc<Grafted>>) -> Result<Grafts> {
        let roots: Vec<_> = junctions.values().map(|g| (g.rules.path.as_str(), g.root)).collect();
        let virtual_tree = VirtualTree::build(&roots)?;
        Ok(Grafts { junctions, virtual_tree, gone: HashSet::new() })
    }

    /// `Stale` of an object of a junction that is no longer configured: its handles name nothing here.
    pub fn junction(&self, id: JunctionId) -> Result<&Arc<Grafted>> {
        self.junctions.get(&id).ok_or_else(|| Error::new(ErrorKind::Stale, "find junction", id))
    }

    pub fn at(&self, path: &str) -> Option<Arc<Grafted>> {
        self.junctions.values().find(|junction| junction.rules.path == path).cloned()
    }

    /// `None`: it is inside a junction.
    pub fn parent_of(&self, dir: FileId) -> Option<FileId> {
        match self.virtual_tree.get(dir) {
            Some(here) => Some(here.parent),
            None if self.junctions.values().any(|junction| junction.root == dir) => {
                Some(self.virtual_tree.parent_of_junction(dir))
            }
            None => None,
        }
    }

    /// The same with other junctions. The handle of the top, which is mounted, must stay what it is.
    fn with(&self, junctions: HashMap<JunctionId, Arc<Grafted>>) -> Result<Grafts> {
        let mut new = Grafts::new(junctions)?;
        if new.virtual_tree.root() != self.virtual_tree.root() {
            let message =
                "a junction at / comes or goes with a restart only: the top of the tree would be another";
            return Err(Error::new(ErrorKind::Config, "place junctions:", message));
        }
        let missing = self.junctions.keys().filter(|id| !new.junctions.contains_key(*id));
        new.gone = self.gone.iter().chain(missing).copied().collect();
        new.gone.retain(|id| !new.junctions.contains_key(id));
        Ok(new)
    }
}

impl Namespace {
    /// The id under which a junction is served and was ever served.
    pub async fn junction_id(self: &Arc<Self>, junction: &Junction) -> Result<JunctionId> {
        let (this, path, url) = (self.clone(), junction.path.clone(), junction.origin.url());
        let agreed = junction.id;
        let asked = tokio::task::spawn_blocking(move || this.store.junction_id(&path, &url, agreed)).await;
        asked.map_err(|e| Error::new(ErrorKind::Io, "register junction", e))?
    }

    /// Adds a junction under this id. Its origin is looked at as at a start.
    pub fn graft(self: &Arc<Self>, id: JunctionId, junction: Junction) -> Result<()> {
        let path = junction.path.clone();
        let mut grafted = Grafted::new(id, junction, self.doubtful_since_ms, &self.store)?;
        if self.clock.is_broken() {
            grafted.trusted_from_ms = self.clock.now_ms();
        }
        let grafted = Arc::new(grafted);
        self.change_grafts(|junctions| {
            if junctions.values().any(|known| known.rules.path == path) {
                return Err(Error::new(ErrorKind::Exists, "place a junction at", &path));
            }
            junctions.insert(id, grafted.clone());
            Ok(())
        })?;
        self.look_at_root(&grafted);
        Ok(())
    }

    /// Takes a junction away. What is known of it is kept, as of one that is absent at a start; calls in flight go on.
    pub fn ungraft(&self, path: &str) -> Result<()> {
        let root = self.change_grafts(|junctions| {
            let found = junctions.values().find(|known| known.rules.path == path);
            let (id, root) = found.map(|known| (known.id, known.root)).ok_or_else(|| no_junction(path))?;
            junctions.remove(&id);
            Ok(root)
        })?;
        self.tell_changed(root);
        Ok(())
    }

    /// Gives a junction other rules from now on.
    pub fn set_rules(&self, path: &str, rules: JunctionRules) -> Result<()> {
        self.change_grafts(|junctions| {
            let found = junctions.values().find(|known| known.rules.path == path);
            let new = Arc::new(found.ok_or_else(|| no_junction(path))?.under(rules));
            junctions.insert(new.id, new);
            Ok(())
        })?;
        // Clients were told by the old rules for how long an answer holds.
        self.changed.tell(None);
        Ok(())
    }

    fn change_grafts<T>(
        &self,
        change: impl FnOnce(&mut HashMap<JunctionId, Arc<Grafted>>) -> Result<T>,
    ) -> Result<T> {
        let _alone = self.grafting.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.grafts.load_full();
        let mut junctions = old.junctions.clone();
        let done = change(&mut junctions)?;
        let new = Arc::new(old.with(junctions)?);
        self.grafts.store(new.clone());
        old.virtual_tree.differing(&new.virtual_tree).into_iter().for_each(|dir| self.tell_changed(dir));
        Ok(done)
    }
}

fn no_junction(path: &str) -> Error {
    Error::new(ErrorKind::NotFound, "find the junction", path)
}
