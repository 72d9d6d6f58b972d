//! What stands beside a file: for whoever fetches the files that will be read next. Nothing here makes a client wait.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use types::{FileId, FileKind};

use crate::Namespace;
use crate::config::Freshness;
use crate::freshness::{self, Ask};
use crate::junction::Grafted;
use crate::listing::LIST_ON_SUSPICION_MAX;
use crate::node::KnownNode;

/// A directory that was never listed is listed for the sake of its neighbours if it says that it is no larger than
/// this: about 10,000 names on ext4. Above it, somebody has to ask twice.
const LIST_EARLY_MAX: u64 = 512 << 10;
/// A directory that says that it is no larger than this is listed instead of looked up in: its names, about 350 on ext4,
/// come in one answer with their attributes, and whoever looks for the next name, there or not, need not ask.
const ONE_CALL_MAX: u64 = 4 << 10;
/// A listing that will be too old in this time is fetched again before it is, while files of it are being read.
const EXPIRES_SOON: Duration = Duration::from_secs(2);

/// The names of a directory that stand for an object, in the order of their cookies.
#[derive(Clone, Debug, Default)]
pub struct Siblings {
    /// When the listing was made; another time means another listing.
    pub listed_ms: u64,
    pub entries: Vec<(Bytes, FileId)>,
}

impl Namespace {
    /// When this directory was listed last; `None`: never, or not in a way that still counts.
    pub fn listed_at(&self, dir: FileId) -> Option<u64> {
        let listing = self.listing_of(dir).ok()??;
        (listing.entries <= LIST_ON_SUSPICION_MAX).then_some(listing.listed_ms)
    }

    /// The names beside a file of `dir`, listed now if need be. `None`: not to be had cheaply.
    pub async fn siblings(self: &Arc<Self>, dir: FileId) -> Option<Siblings> {
        let node = self.load(dir).ok()?;
        if self.listed_at(dir).is_none() && node.attr().size > LIST_EARLY_MAX {
            return None;
        }
        self.ensure_listed(&node, Ask::Use).await.ok()?;
        let listed_ms = self.listed_at(dir)?;
        let most = usize::try_from(LIST_ON_SUSPICION_MAX).unwrap_or(usize::MAX);
        let stored = self.store.entries_after(dir, 0, most).ok()?;
        let entries = stored.into_iter().filter_map(|e| Some((e.name, e.child?))).collect();
        Some(Siblings { listed_ms, entries })
    }

    /// Files of `dir` are being read: if its listing expires soon, fetch it again now, so that nobody has to wait for
    /// that, and so that it is one question and not one for each file.
    pub fn keep_listed(self: &Arc<Self>, dir: FileId) {
        let Ok(node) = self.load(dir) else { return };
        let (Ok(junction), Ok(Some(listing))) = (self.junction(node.junction()), self.listing_of(dir)) else {
            return;
        };
        let (Freshness::Ttl(ttl), false) = (junction.rules.files, junction.is_failing()) else { return };
        let soon = ttl.saturating_sub(EXPIRES_SOON.min(ttl / 4));
        if listing.entries <= LIST_ON_SUSPICION_MAX
            && !freshness::within(soon, listing.listed_ms, self.clock.now_ms())
        {
            drop(self.start_listing(dir));
        }
    }

    /// Was `dir` never listed, and is a listing of it no more than one call?
    pub(crate) fn comes_in_one_call(&self, dir: &KnownNode) -> bool {
        dir.attr().size <= ONE_CALL_MAX && self.is_to_be_listed(dir)
    }

    fn is_to_be_listed(&self, dir: &KnownNode) -> bool {
        let up = self.junction(dir.junction()).is_ok_and(|junction| !junction.is_failing());
        self.list_ahead && up && matches!(self.listing_of(dir.id), Ok(None))
    }

    /// Look at the roots of the junctions, and into the small ones, before a client does: whoever comes first need not
    /// wait for two round trips. Begins it only; an origin that does not answer is everybody's affair later. That it is
    /// another one than before is told at once, also where nobody asks.
    pub fn look_at_roots(self: &Arc<Self>) {
        for junction in self.grafts.load().junctions.values() {
            self.look_at_root(junction);
        }
    }

    pub(crate) fn look_at_root(self: &Arc<Self>, junction: &Grafted) {
        let (id, root) = (junction.id, junction.root);
        let this = self.clone();
        tokio::spawn(async move {
            let _ = this.vouch_for_junction(id).await; // noted with the junction
        });
        if !self.list_ahead {
            return;
        }
        let this = self.clone();
        tokio::spawn(async move {
            if let Ok(root) = this.node(root, Ask::Use).await
                && this.comes_in_one_call(&root)
            {
                drop(this.start_listing(root.id));
            }
        });
    }

    /// Ask each origin about its root, whatever is known of it: who is away is known to be so before a client asks. Begins it only;
    /// the answer is noted as every other one is.
    pub fn look_at_junctions(self: &Arc<Self>) {
        for root in self.grafts.load().junctions.values().map(|junction| junction.root) {
            self.start_refresh(root);
        }
    }

    /// A first name is looked up in a directory: if it is small and was never listed, list it in the meantime.
    pub(crate) fn list_early(self: &Arc<Self>, dir: &KnownNode) {
        if self.is_to_be_listed(dir) && dir.attr().size <= LIST_EARLY_MAX {
            drop(self.start_listing(dir.id));
        }
    }

    /// The file as it is known, if that may be used without asking.
    pub fn known_file(&self, id: FileId) -> Option<Arc<KnownNode>> {
        let node = self.load(id).ok()?;
        let rule = self.grafts.load().junction(node.junction()).ok()?.rule_for(&node);
        let usable = node.attr().kind == FileKind::Regular && self.is_known_fresh(&node, rule, Ask::Use);
        usable.then_some(node)
    }
}
