//! Fetches the files that will be read next, with their round trip hidden behind the files before them. What will be
//! read next is decided by [`readahead::Directory`]; here the directory is looked at and the fetches are started.
//!
//! Only from what is at hand: nothing here asks the origin for one file's attributes, and no client waits for it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cache::{Cache, Prefetched, Source};
use namespace::{Found, KnownNode, Namespace, Siblings};
use prometheus_client::registry::Registry;
use readahead::{Directory, PrefetchAccount, natural_order};
use types::{ByteRange, Distance, FileId, FileKind};

use crate::metrics::Metrics;
use crate::{DirtyFiles, OriginSource, key_of};

/// Directories whose readers are remembered; the one not used for longest makes room.
const DIRECTORIES_MAX: usize = 1024;
/// Most bytes of the head of a file: smaller ones are fetched whole. Who reads on is read ahead from there.
const HEAD_MAX: u64 = 4 << 20;
/// Bytes fetched for a client that has read nothing but the first file of a directory.
const ON_SUSPICION_MAX: u64 = 1 << 20;

pub struct Prefetcher {
    namespace: Arc<Namespace>,
    cache: Arc<Cache>,
    dirty: Arc<dyn DirtyFiles>,
    state: Mutex<State>,
    metrics: Metrics,
}

#[derive(Default)]
struct State {
    directories: HashMap<FileId, PrefetchedDirectory>,
    account: PrefetchAccount,
    clock: u64,
}

#[derive(Default)]
struct PrefetchedDirectory {
    directory: Directory,
    /// Of the listing that the directory's orders are from; 0: none yet.
    listed_ms: u64,
    loading: bool,
    /// Files read, one after the other.
    visits: u64,
    last: Option<FileId>,
    used: u64,
}

impl Prefetcher {
    pub fn new(namespace: Arc<Namespace>, cache: Arc<Cache>, dirty: Arc<dyn DirtyFiles>) -> Arc<Prefetcher> {
        Arc::new(Prefetcher { namespace, cache, dirty, state: Mutex::default(), metrics: Metrics::default() })
    }

    pub fn register(&self, registry: &mut Registry) {
        self.metrics.register(registry);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client reads this file from its start.
    pub fn visit(self: &Arc<Self>, found: &Found) {
        let Found::Node(node) = found else { return };
        if self.cache.readahead_max() == 0 || node.attr().kind != FileKind::Regular {
            return;
        }
        let (dir, file) = (node.parent(), node.id);
        let listed = self.namespace.listed_at(dir);
        let mut state = self.state();
        let state = &mut *state;
        state.clock += 1;
        self.make_room(state, dir);
        let entry = state.directories.entry(dir).or_default();
        entry.used = state.clock;
        let used = entry.directory.used(file);
        if used > 0 {
            state.account.used(used);
            self.metrics.used_bytes.inc_by(used);
        }
        if entry.last == Some(file) || entry.loading {
            return;
        }
        (entry.last, entry.visits) = (Some(file), entry.visits + 1);
        let this = self.clone();
        if entry.listed_ms != 0 && listed == Some(entry.listed_ms) {
            let wanted = entry.directory.visit(file);
            self.namespace.keep_listed(dir);
            if !wanted.is_empty() {
                tokio::spawn(async move { this.fetch(dir, wanted).await });
            }
            return;
        }
        entry.loading = true;
        tokio::spawn(async move {
            let siblings = this.namespace.siblings(dir).await;
            if let Some(wanted) = this.loaded(dir, file, siblings) {
                this.fetch(dir, wanted).await;
            }
        });
    }

    fn make_room(&self, state: &mut State, dir: FileId) {
        if state.directories.len() < DIRECTORIES_MAX || state.directories.contains_key(&dir) {
            return;
        }
        let oldest = state.directories.iter().min_by_key(|(_, entry)| entry.used).map(|(dir, _)| *dir);
        if let Some(gone) = oldest.and_then(|oldest| state.directories.remove(&oldest)) {
            self.metrics.wasted_bytes.inc_by(gone.directory.pending_bytes());
        }
    }

    fn loaded(
        &self,
        dir: FileId,
        file: FileId,
        siblings: Option<Siblings>,
    ) -> Option<Vec<(usize, usize, FileId)>> {
        let orders = siblings.map(|siblings| {
            let by_cookie = siblings.entries.iter().map(|(_, id)| *id).collect::<Vec<_>>();
            let mut named: Vec<_> =
                siblings.entries.iter().map(|(name, id)| (natural_order(name), *id)).collect();
            named.sort();
            (siblings.listed_ms, named.into_iter().map(|(_, id)| id).collect::<Vec<_>>(), by_cookie)
        });
        let mut state = self.state();
        let entry = state.directories.get_mut(&dir)?;
        entry.loading = false;
        let (listed_ms, by_name, by_cookie) = orders?;
        entry.directory.set_files(by_name, by_cookie);
        entry.listed_ms = listed_ms;
        Some(entry.directory.visit(file))
    }

    /// Start the fetches of `wanted` (order, place in it, file) as far as there is room and credit.
    async fn fetch(self: &Arc<Self>, dir: FileId, wanted: Vec<(usize, usize, FileId)>) {
        let mut stopped = [false; 3];
        for (which, at, file) in wanted {
            if stopped.get(which).is_none_or(|stopped| *stopped) {
                continue;
            }
            // Unknown, or not to be trusted without asking: it is asked about when it is read.
            let Some(node) = self.namespace.known_file(file) else { continue };
            if !self.fetch_one(dir, &node).await {
                stopped[which] = true;
                if let Some(entry) = self.state().directories.get_mut(&dir) {
                    entry.directory.stopped_at(which, at);
                }
            }
            tokio::task::yield_now().await; // most are open, and nothing above waits then
        }
    }

    /// False if there is no room or no credit.
    async fn fetch_one(self: &Arc<Self>, dir: FileId, node: &Arc<KnownNode>) -> bool {
        let found = Found::Node(node.clone());
        let Ok(key) = key_of(&found) else { return true };
        let head = ByteRange::new(0, key.size.min(HEAD_MAX));
        if head.is_empty() || self.dirty.has_dirty_bytes(node.junction(), node.id) {
            return true;
        }
        let origin = self.namespace.origin_of(node).ok().map(|(origin, _)| origin);
        let distance = origin.as_ref().and_then(|origin| origin.distance()).unwrap_or(Distance::UNKNOWN);
        let window = self.cache.ahead_of_one(distance);
        {
            let mut state = self.state();
            let State { directories, account, .. } = &mut *state;
            let Some(entry) = directories.get_mut(&dir) else { return false };
            if entry.directory.is_pending(node.id) {
                return true;
            }
            let most = if entry.visits <= 1 { window.min(ON_SUSPICION_MAX) } else { window };
            let ahead = entry.directory.pending_bytes().saturating_add(head.length);
            if ahead > most || !account.allows(head.length) {
                return false;
            }
            // Before it is begun: others come this way meanwhile.
            entry.directory.fetched(node.id, head.length);
        }
        let source: Arc<dyn Source> = Arc::new(OriginSource::new(self.namespace.clone(), origin));
        let prefetched = self.cache.prefetch(&key, head, &source).await;
        let mut state = self.state();
        if prefetched == Prefetched::Started {
            self.metrics.prefetched_bytes.inc_by(head.length);
            state.account.fetched(head.length);
        } else if let Some(entry) = state.directories.get_mut(&dir) {
            entry.directory.used(node.id);
        }
        prefetched != Prefetched::NoRoom
    }
}
