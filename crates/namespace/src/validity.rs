//! How much longer may what was told be believed? For fronts whose clients keep answers by a timer: with these
//! times, a client's cache never makes an answer older than the junction's rule allows.

use std::sync::Arc;
use std::time::Duration;

use types::{FileId, JunctionId, Name};

use crate::config::Freshness;
use crate::freshness::DOUBTED_MS;
use crate::listing;
use crate::node::KnownNode;
use crate::{Found, Namespace};

/// Told of what changes only when the operator places junctions anew; that is told.
const FOREVER: Duration = Duration::from_secs(24 * 3600);

impl Namespace {
    /// For how long the attributes of this object, and so its version, may be told without asking again. Zero for
    /// what must be asked for at each open, and for what is served although it is too old.
    pub fn fresh_for(self: &Arc<Self>, found: &Found) -> Duration {
        let Found::Node(node) = found else { return FOREVER };
        let Some(rule) = self.grafts.load().junction(node.junction()).ok().map(|it| it.rule_for(node)) else {
            return Duration::ZERO;
        };
        let vouched_ms = self.vouched_for(node);
        if vouched_ms <= DOUBTED_MS {
            return Duration::ZERO;
        }
        left(rule, self.clock.now_ms().saturating_sub(vouched_ms))
    }

    /// For how long attributes may be told that are as if the origin had told them now.
    pub fn rule_holds_for(&self, junction: JunctionId, is_dir: bool) -> Duration {
        let grafts = self.grafts.load();
        let Ok(junction) = grafts.junction(junction) else { return Duration::ZERO };
        left(if is_dir { junction.rules.directories } else { junction.rules.files }, 0)
    }

    /// The same for a name, present or absent.
    pub fn rule_holds_for_names(&self, junction: JunctionId, absent: bool) -> Duration {
        let grafts = self.grafts.load();
        let Ok(junction) = grafts.junction(junction) else { return Duration::ZERO };
        let holds = left(junction.rules.directories, 0);
        if absent { holds.min(junction.rules.negative_ttl) } else { holds }
    }

    /// When the origin last told of this object: by itself, or in a listing of its directory.
    pub(crate) fn vouched_for(&self, node: &KnownNode) -> u64 {
        let checked_ms = node.checked_ms();
        if node.attr().is_dir() || checked_ms <= DOUBTED_MS {
            return checked_ms;
        }
        match self.listing_of(node.record.parent) {
            Ok(Some(listing)) if listing.listed_ms > checked_ms && self.is_listed(node) => listing.listed_ms,
            _ => checked_ms,
        }
    }

    /// For how long it may be told that `name` in `dir` is what it is, present or absent.
    pub fn name_fresh_for(self: &Arc<Self>, dir: FileId, name: &Name, absent: bool) -> Duration {
        if self.is_virtual(dir) {
            return FOREVER;
        }
        let Ok(node) = self.load(dir) else { return Duration::ZERO };
        let grafts = self.grafts.load();
        let Ok(junction) = grafts.junction(node.junction()) else { return Duration::ZERO };
        let rule = junction.rules.directories;
        let Some(proved_ms) = self.name_proved(&node, name, rule) else { return Duration::ZERO };
        let age_ms = self.clock.now_ms().saturating_sub(proved_ms);
        let left = left(rule, age_ms);
        if !absent {
            return left;
        }
        left.min(junction.rules.negative_ttl.saturating_sub(Duration::from_millis(age_ms)))
    }

    /// When the origin last vouched for the name, in milliseconds.
    fn name_proved(&self, dir: &KnownNode, name: &Name, rule: Freshness) -> Option<u64> {
        let single = self.singles.get(&(dir.id, name.clone())).and_then(|single| single.proof(dir, rule));
        let listed =
            self.listing_of(dir.id).ok().flatten().and_then(|listing| self.proof(dir, &listing, rule));
        single.max(listed)
    }
}

fn left(rule: Freshness, age_ms: u64) -> Duration {
    match rule {
        Freshness::Always => Duration::ZERO,
        Freshness::Immutable => FOREVER,
        Freshness::Ttl(ttl) => ttl.saturating_sub(Duration::from_millis(age_ms)),
    }
}

impl crate::lookup::Single {
    /// As of a listing; and no notice has named the directory since the question.
    pub(crate) fn proof(&self, dir: &KnownNode, rule: Freshness) -> Option<u64> {
        if self.heard < dir.noticed() {
            return None;
        }
        listing::proof(dir, self.version, self.settled, self.asked_ms, rule)
    }
}
