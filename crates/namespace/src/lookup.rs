//! Which object has this name? From a listing, from an earlier look-up, or from the origin; and the same for
//! names that do not exist.

use std::sync::Arc;

use bytes::Bytes;
use origin::Object;
use types::{Error, ErrorKind, FileId, Name, Result, Version};

use crate::config::Freshness;
use crate::flights::Join;
use crate::freshness::{self, Ask};
use crate::node::KnownNode;
use crate::observe::{QueryStamp, SeenAt};
use crate::order::InOrder;
use crate::store::StoreChange;
use crate::{Found, Namespace};

/// How often a question is asked anew because changes of our own came between.
const UNDISTURBED_TRIES: usize = 16;

/// A name that was looked up singly: what the origin said, and about which state of the directory.
#[derive(Clone, Copy, Debug)]
pub struct Single {
    pub version: Version,
    pub settled: bool,
    pub asked_ms: u64,
    /// The number of notices of other nodes that had been taken in when it was asked for.
    pub heard: u64,
    /// `None`: the origin said that there is no such name.
    child: Option<FileId>,
}

/// The answer to a question about one name.
#[derive(Clone)]
pub struct Heard {
    answer: Result<Arc<KnownNode>>,
    /// The count of names that changes of ours had touched when it was taken in: later touches are not in the answer.
    touches: u64,
    /// The number of notices that had been taken in when it was asked for: what later ones tell of may not be in the answer.
    heard: u64,
}

/// What is known of a name without asking.
enum KnownName {
    Present(FileId),
    Absent,
    /// Known once, but not fresh any more.
    Outdated(FileId),
    Unknown,
}

impl Single {
    /// The state of a name that a change of ours left.
    pub fn new(version: Version, asked_ms: u64, asked: QueryStamp, child: Option<FileId>) -> Single {
        Single { version, settled: false, asked_ms, heard: asked.heard(), child }
    }
}

impl Namespace {
    /// `NotFound` only if the origin said so, no longer ago than the rules allow.
    pub async fn lookup(self: &Arc<Self>, dir: FileId, name: &Name) -> Result<Found> {
        let above =
            self.grafts.load().virtual_tree.get(dir).map(|here| here.children.get(name.as_bytes()).copied());
        if let Some(child) = above {
            return match child {
                Some(id) => self.getattr(id, Ask::Open).await,
                None => Err(not_found(name)),
            };
        }
        let parent = self.node(dir, Ask::Open).await?;
        if !parent.attr().is_dir() {
            return Err(Error::new(ErrorKind::NotADirectory, "look up in", dir));
        }
        if let Some(answer) = self.lookup_known(&parent, name).await? {
            return answer;
        }
        let small = self.comes_in_one_call(&parent);
        if (self.suspect(dir) || small) && self.relist_soon(dir).await {
            // A small directory, or the second name asked for in it: now all of them are known.
            let parent = self.load(dir)?;
            if let Some(answer) = self.lookup_known(&parent, name).await? {
                return answer;
            }
        } else {
            self.list_early(&parent);
        }
        match self.lookup_at_origin(&parent, Bytes::copy_from_slice(name.as_bytes())).await {
            Err(e) if e.is_retryable() => self.lookup_outdated(&parent, name)?.ok_or(e),
            // A notice overtook the answer.
            Ok(node) if node.is_behind_a_notice() => {
                Ok(Found::Node(self.node(node.id, Ask::Open).await.unwrap_or(node)))
            }
            other => other.map(Found::Node),
        }
    }

    /// What had this name when the origin was last asked, if that may be served while it cannot be.
    fn lookup_outdated(&self, dir: &KnownNode, name: &Name) -> Result<Option<Found>> {
        let (KnownName::Present(child) | KnownName::Outdated(child)) = self.known(dir, name)? else {
            return Ok(None);
        };
        let junction = &*self.junction(dir.junction())?;
        let node =
            self.load_near(child, Some(dir.id)).ok().filter(|node| self.may_serve_stale(junction, node));
        if node.is_some() {
            self.metrics.stale_served.inc();
        }
        Ok(node.map(Found::Node))
    }

    /// The answer, if it can be given without looking the name up at the origin.
    async fn lookup_known(
        self: &Arc<Self>,
        dir: &Arc<KnownNode>,
        name: &Name,
    ) -> Result<Option<Result<Found>>> {
        match self.known(dir, name)? {
            KnownName::Present(child) => match self.node(child, Ask::Open).await {
                Ok(node) => Ok(Some(Ok(Found::Node(node)))),
                // Replaced by another object of that name since.
                Err(e) if e.kind() == ErrorKind::Stale => Ok(None),
                Err(e) => Err(e),
            },
            KnownName::Absent => {
                self.metrics.negative_hits.inc();
                Ok(Some(Err(not_found(name))))
            }
            KnownName::Outdated(child) => {
                let junction = &*self.junction(dir.junction())?;
                match self.load_near(child, Some(dir.id)) {
                    Ok(node) if junction.is_failing() && self.may_serve_stale(junction, &node) => {
                        self.metrics.stale_served.inc();
                        Ok(Some(Ok(Found::Node(node))))
                    }
                    _ => Ok(None),
                }
            }
            KnownName::Unknown => Ok(None),
        }
    }

    /// What the name stands for, with all that was announced by now; `None` if that would have to be asked for.
    pub async fn stands_for(self: &Arc<Self>, dir: FileId, name: &Name) -> Option<Option<FileId>> {
        let junction = self.load(dir).ok()?.junction();
        drop(self.in_order(junction).await);
        let dir = self.load(dir).ok()?;
        match self.known(&dir, name).ok()? {
            KnownName::Present(child) => self.load_near(child, Some(dir.id)).is_ok().then_some(Some(child)),
            KnownName::Absent => Some(None),
            KnownName::Outdated(_) | KnownName::Unknown => None,
        }
    }

    fn known(&self, dir: &KnownNode, name: &Name) -> Result<KnownName> {
        let grafts = self.grafts.load();
        let junction = grafts.junction(dir.junction())?;
        let (rules, now) = (&junction.rules, self.clock.now_ms());
        let good = |at: u64| junction.is_fresh(rules.directories, Ask::Use, at, now);
        let absent = |at: u64| freshness::within(rules.negative_ttl, at, now);
        if let Some(single) = self.singles.get(&(dir.id, name.clone()))
            && let Some(at) = single.proof(dir, rules.directories)
        {
            match single.child {
                Some(child) if good(at) => return Ok(KnownName::Present(child)),
                None if good(at) && absent(at) => return Ok(KnownName::Absent),
                _ => {}
            }
        }
        let entry = self.store.find_entry(dir.id, name.as_bytes())?;
        let listed = entry.is_some();
        let child = entry.and_then(|e| e.child);
        let listing = self.listing_of(dir.id)?;
        let proved = listing.and_then(|l| self.proof(dir, &l, rules.directories)).filter(|at| good(*at));
        Ok(match (child, proved) {
            (Some(child), Some(_)) => KnownName::Present(child),
            (None, Some(at)) if absent(at) && !listed => KnownName::Absent,
            (Some(child), None) => KnownName::Outdated(child),
            (None, _) => KnownName::Unknown,
        })
    }

    /// Asks the origin for one name; all callers that want it share the question.
    pub(crate) async fn lookup_at_origin(
        self: &Arc<Self>,
        dir: &Arc<KnownNode>,
        name: Bytes,
    ) -> Result<Arc<KnownNode>> {
        let always = self.junction(dir.junction())?.rules.directories == Freshness::Always;
        let join = if always { Join::StartedAfterAsking } else { Join::Running };
        self.ask_for_name(dir, Name::new(name)?, join).await
    }

    async fn ask_for_name(
        self: &Arc<Self>,
        dir: &Arc<KnownNode>,
        name: Name,
        join: Join,
    ) -> Result<Arc<KnownNode>> {
        self.metrics.misses.inc();
        let (touches, noticed) = (self.ours().touches(), self.last_notice(dir.id));
        let run = |join| {
            let (this, dir, name) = (self.clone(), dir.clone(), name.clone());
            self.lookup_flights.run((dir.id, name.clone()), join, move || this.ask_lookup(dir, name))
        };
        let mut heard = run(join).await?;
        if heard.heard < noticed {
            // The flight that was joined had asked before a notice arrived that the directory was changed.
            heard = run(Join::StartedAfterAsking).await?;
        } else if heard.touches < touches {
            // The flight that was joined had taken in its answer before a change of ours touched a name. The next flight
            // begins after that change.
            heard = run(Join::Running).await?;
        }
        heard.answer
    }

    /// As the origin says now, whatever is known. `None`: there is no such name.
    pub async fn lookup_now(self: &Arc<Self>, dir: FileId, name: &Name) -> Result<Option<Arc<KnownNode>>> {
        let dir = self.node_to_list(dir).await?;
        match self.ask_for_name(&dir, name.clone(), Join::StartedAfterAsking).await {
            Ok(node) => Ok(Some(node)),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    async fn ask_lookup(self: Arc<Self>, dir: Arc<KnownNode>, name: Name) -> Result<Heard> {
        for _ in 0..UNDISTURBED_TRIES {
            // The directory may be another one after a change of ours.
            let dir = self.load(dir.id).unwrap_or_else(|_| dir.clone());
            if let Some(heard) = self.ask_lookup_once(dir, &name).await {
                return Ok(heard);
            }
        }
        Err(Error::new(ErrorKind::Busy, "look up a name that we keep changing,", name))
    }

    /// `None`: a change of ours touched the name meanwhile, and the answer may be from before or after it.
    async fn ask_lookup_once(self: &Arc<Self>, dir: Arc<KnownNode>, name: &Name) -> Option<Heard> {
        let bytes = Bytes::copy_from_slice(name.as_bytes());
        self.ours().lookup_begins(dir.id, &bytes);
        let asked = self.asking();
        let answer = self.hear_of_name(&dir, name, asked).await;
        let order = self.in_order(dir.junction()).await;
        let touches = {
            let mut ours = self.ours();
            if !ours.lookup_ends(dir.id, &bytes) {
                return None;
            }
            ours.touches()
        };
        let answer = match self.take_in_lookup(&order, &dir, name, answer, asked) {
            Ok((answer, changes)) => self.commit_in(order, changes).await.and(answer),
            Err(e) => Err(e),
        };
        Some(Heard { answer, touches, heard: asked.heard() })
    }

    async fn hear_of_name(
        self: &Arc<Self>,
        dir: &Arc<KnownNode>,
        name: &Name,
        asked: QueryStamp,
    ) -> Result<Object> {
        let junction = &*self.junction(dir.junction())?;
        let ask = |dir: Arc<KnownNode>| async move {
            junction.rules.origin.lookup(&dir.record.reference, name).await
        };
        let answer = junction.note(self.ask_healed(dir.clone(), ask).await, asked.ms);
        let is_absent = answer.as_ref().is_err_and(|e| e.kind() == ErrorKind::NotFound);
        if is_absent && self.store.find_entry(dir.id, name.as_bytes())?.is_some() {
            self.vouch_for(junction).await?;
        }
        answer
    }

    fn take_in_lookup(
        &self,
        order: &InOrder,
        dir: &Arc<KnownNode>,
        name: &Name,
        answer: Result<Object>,
        asked: QueryStamp,
    ) -> Result<(Result<Arc<KnownNode>>, Vec<StoreChange>)> {
        let junction = &*self.junction(dir.junction())?;
        let shown = junction.rules.origin.traits().directories_show_changes;
        let settled = shown && asked.is_settled(dir.attr().mtime.max(dir.attr().ctime));
        let (version, heard) = (dir.version(), asked.heard());
        let single = |child| Single { version, settled, asked_ms: asked.ms, heard, child };
        Ok(match answer {
            Ok(object) => {
                let id = self.id_of(junction.id, &object.identity);
                let bytes = Bytes::copy_from_slice(name.as_bytes());
                let place = SeenAt { parent: dir.id, name: &bytes };
                let had = self.place_of(id);
                let (node, change) = self.observe(order, junction, id, Some(place), &object, asked)?;
                let known = self.store.find_entry(dir.id, name.as_bytes())?;
                let is_news = known.is_none_or(|known| known.child != Some(id));
                let named = (is_news || change.is_some()).then(|| self.named(id, (dir.id, &bytes), had));
                let mut changes: Vec<_> = change.into_iter().chain(named.into_iter().flatten()).collect();
                if is_news {
                    changes.push(StoreChange::PutEntry { dir: dir.id, name: bytes, child: Some(id) });
                }
                self.singles.insert((dir.id, name.clone()), single(Some(id)));
                (Ok(node), changes)
            }
            Err(e) if e.kind() == ErrorKind::NotFound => {
                let entry = self.store.find_entry(dir.id, name.as_bytes())?;
                let changes = entry.map(|entry| self.unlink(dir.id, &entry)).transpose()?;
                self.singles.insert((dir.id, name.clone()), single(None));
                (Err(e), changes.unwrap_or_default())
            }
            Err(e) => (Err(e), Vec::new()),
        })
    }
}

fn not_found(name: &Name) -> Error {
    Error::new(ErrorKind::NotFound, "look up", name)
}
