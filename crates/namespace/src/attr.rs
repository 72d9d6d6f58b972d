//! The state of one object now: known, or asked of the origin once for all callers at the same time.

use std::sync::Arc;

use tracing::debug;
use types::{ErrorKind, FileId, Result};

use crate::config::Freshness;
use crate::flights::Join;
use crate::freshness::{self, Ask};
use crate::node::KnownNode;
use crate::{Found, Grafted, Namespace};

impl Namespace {
    /// The object as far as the junction's rule demands to know it. `Stale` if it is no more.
    pub async fn getattr(self: &Arc<Self>, id: FileId, ask: Ask) -> Result<Found> {
        if let Some(attr) = self.grafts.load().virtual_tree.attr(id) {
            return Ok(Found::Virtual { id, attr });
        }
        self.node(id, ask).await.map(Found::Node)
    }

    /// As `getattr`, for ids that are not virtual.
    pub(crate) async fn node(self: &Arc<Self>, id: FileId, ask: Ask) -> Result<Arc<KnownNode>> {
        let node = match self.load(id) {
            Ok(node) => node,
            Err(e) if e.kind() == ErrorKind::Stale && self.junction_rooted_at(id).is_some() => {
                return self.refresh(id, Join::Running).await; // first contact with this origin
            }
            Err(e) => return Err(e),
        };
        // Every call comes here. It takes no reference of its own to the junction: all cores would change that count.
        let rule = self.grafts.load().junction(node.junction())?.rule_for(&node);
        if self.is_known_fresh(&node, rule, ask) {
            self.metrics.hits.inc();
            return Ok(node);
        }
        let junction = &*self.junction(node.junction())?;
        if junction.is_failing() && self.may_serve_stale(junction, &node) {
            if junction.may_probe(self.clock.now_ms()) {
                self.start_refresh(id);
            }
            self.metrics.stale_served.inc();
            return Ok(node);
        }
        let has_siblings = node.record.parent != id; // the root of a junction is its own parent
        if matches!(rule, Freshness::Ttl(_)) && has_siblings && self.suspect(node.record.parent) {
            // This is the second object of the directory that expired: all of them are asked for at once.
            if self.relist_soon(node.record.parent).await && self.is_known_fresh(&node, rule, ask) {
                return self.load(id);
            }
        }
        let join = if rule == Freshness::Always { Join::StartedAfterAsking } else { Join::Running };
        let mut answer = self.refresh(id, join).await;
        if join == Join::Running && answer.as_ref().is_ok_and(|node| node.is_behind_a_notice()) {
            // The flight may have been joined, and its question asked before the notice that overtook it.
            answer = self.refresh(id, Join::StartedAfterAsking).await;
        }
        match answer {
            Err(e) if e.is_retryable() && self.may_serve_stale(junction, &node) => {
                self.metrics.stale_served.inc();
                Ok(node)
            }
            other => other,
        }
    }

    /// Whether a change of our own left the object's state unknown, and the origin was not asked since.
    pub fn is_doubted(&self, id: FileId) -> bool {
        self.load(id).is_ok_and(|node| node.checked_ms() == freshness::DOUBTED_MS)
    }

    /// Asks the origin, whatever is known.
    pub async fn refresh(self: &Arc<Self>, id: FileId, join: Join) -> Result<Arc<KnownNode>> {
        self.metrics.misses.inc();
        let this = self.clone();
        self.attr_flights.run(id, join, move || this.ask_attr(id)).await
    }

    /// Ask the origin about a file that was found to have changed, after this call began.
    pub async fn refresh_changed(self: &Arc<Self>, id: FileId) -> Result<Found> {
        self.refresh(id, Join::StartedAfterAsking).await.map(Found::Node)
    }

    pub(crate) fn start_refresh(self: &Arc<Self>, id: FileId) {
        let this = self.clone();
        drop(self.attr_flights.start_or_join(id, move || this.ask_attr(id)));
    }

    async fn ask_attr(self: Arc<Self>, id: FileId) -> Result<Arc<KnownNode>> {
        if let Some(junction) = self.junction_rooted_at(id) {
            return self.ask_root(&junction).await;
        }
        let node = self.load(id)?;
        let junction = &*self.junction(node.junction())?;
        let asked = self.asking();
        let answer = junction.rules.origin.getattr(&node.record.reference).await;
        match junction.note(answer, asked.ms) {
            Ok(object) if self.is_known_as(id, junction.id, &object.identity) => {
                let order = self.in_order(junction.id).await;
                let (node, change) = self.observe(&order, junction, id, None, &object, asked)?;
                self.store.enqueue(change.into_iter().collect()).await?;
                Ok(node)
            }
            // Another object answers to the reference, or none: the reference is re-resolved.
            Ok(_) => self.heal(id).await,
            Err(e) if e.kind() == ErrorKind::Stale => {
                debug!(%id, "reference is stale: {e}");
                self.heal(id).await
            }
            Err(e) => Err(e),
        }
    }

    pub(crate) async fn ask_root(self: &Arc<Self>, junction: &Grafted) -> Result<Arc<KnownNode>> {
        let asked = self.asking();
        let object = junction.note(junction.rules.origin.root().await, asked.ms)?;
        let name = bytes::Bytes::new();
        let place = crate::observe::SeenAt { parent: junction.root, name: &name };
        let order = self.in_order(junction.id).await;
        let (node, change) = self.observe(&order, junction, junction.root, Some(place), &object, asked)?;
        self.commit_in(order, change.into_iter().collect()).await?;
        Ok(node)
    }

    /// Whether the object is fresh by its own last check, or by the last listing of its directory.
    pub(crate) fn is_known_fresh(&self, node: &KnownNode, rule: Freshness, ask: Ask) -> bool {
        let now = self.clock.now_ms();
        let Ok(junction) = self.junction(node.junction()) else { return false };
        if junction.is_fresh(rule, ask, node.checked_ms(), now) {
            return true;
        }
        if node.attr().is_dir() || node.checked_ms() <= freshness::DOUBTED_MS {
            return false; // a listing is about the names in a directory; evicted things are asked for
        }
        match self.listing_of(node.record.parent) {
            Ok(Some(listing)) => junction.is_fresh(rule, ask, listing.listed_ms, now) && self.is_listed(node),
            _ => false,
        }
    }

    /// Whether the listing of its directory is about this very object. Its name may be another's by now.
    pub(crate) fn is_listed(&self, node: &KnownNode) -> bool {
        let entry = self.store.find_entry(node.record.parent, &node.record.name);
        entry.is_ok_and(|entry| entry.is_some_and(|entry| entry.child == Some(node.id)))
    }

    pub(crate) fn may_serve_stale(&self, junction: &Grafted, node: &KnownNode) -> bool {
        match junction.rules.stale_if_error {
            // A change that is in flight is no outage.
            None if node.checked_ms() == freshness::DOUBTED_MS => junction.is_failing(),
            None => node.checked_ms() != 0,
            Some(bound) => freshness::within(bound, node.checked_ms(), self.clock.now_ms()),
        }
    }

    /// Milliseconds since the origin last vouched for this object, and the rule it falls under.
    pub fn age(&self, node: &KnownNode) -> Result<(u64, Freshness)> {
        let age = self.clock.now_ms().saturating_sub(self.vouched_for(node));
        Ok((age, self.junction(node.junction())?.rule_for(node)))
    }
}

impl Grafted {
    pub(crate) fn rule_for(&self, node: &KnownNode) -> Freshness {
        if node.attr().is_dir() { self.rules.directories } else { self.rules.files }
    }
}
