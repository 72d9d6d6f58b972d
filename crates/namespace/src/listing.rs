//! Whole directories with attributes: how names, absences and attributes are learnt many at a time.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use origin::{DirCursor, DirPage, Reference};
use tokio::task::JoinSet;
use types::{Error, ErrorKind, FileId, JunctionId, Result};

use crate::config::Freshness;
use crate::cookie;
use crate::endless::{Course, GivenUpListings};
use crate::flights::{Join, wait};
use crate::freshness::Ask;
use crate::node::{KnownNode, Remembered};
use crate::observe::{DETACHED, QueryStamp, SeenAt};
use crate::order::InOrder;
use crate::record::StoredListing;
use crate::store::{StoreChange, StoredEntry};
use crate::{Found, Grafted, Namespace};

/// A question about one name or one file waits this long for a listing of its directory that is under way,
/// then asks for itself: a huge directory must not delay a single look-up.
const LISTING_PATIENCE: Duration = Duration::from_secs(1);
/// Above this many names, single questions are cheaper than fetching the directory.
pub(crate) const LIST_ON_SUSPICION_MAX: u64 = 20_000;
/// How often a listing begins anew because an operator's evict came between.
const UNDISTURBED_TRIES: usize = 4;
/// Names listed without their object that are looked up at the same time.
const RESOLVE_TOGETHER: usize = 32;
/// Names that are looked at in one piece where a listing is taken back.
const TAKEN_BACK_TOGETHER: usize = 4096;
/// The most names of a path in a message.
const SHOWN_MAX: usize = 64;
/// How long a listing waits for such look-ups: an unreachable submount must not hold up its neighbours.
const RESOLVE_PATIENCE: Duration = Duration::from_secs(2);

/// One name of a listing.
#[derive(Clone, Debug)]
pub struct ListedEntry {
    pub name: Bytes,
    pub cookie: u64,
    /// Inode number to show.
    pub fileid: u64,
    /// Absent where the object cannot be reached.
    pub child: Option<Found>,
}

/// A piece of a directory, in the order of the cookies.
#[derive(Clone, Debug)]
pub struct ListingPage {
    pub dir: Found,
    pub entries: Vec<ListedEntry>,
    pub eof: bool,
}

/// Directories in which single objects had to be asked for lately.
#[derive(Default)]
pub struct Suspects {
    seen: HashMap<FileId, (u32, u64)>,
}

impl Suspects {
    /// Directories remembered; when full, all are forgotten: the next ones are counted afresh.
    const MAX: usize = 4096;
    /// Two questions further apart than this have nothing to do with each other.
    const WINDOW_MS: u64 = 60_000;

    /// Note one more; true from the second on.
    fn note(&mut self, dir: FileId, now_ms: u64) -> bool {
        if self.seen.len() >= Suspects::MAX {
            self.seen.clear();
        }
        let (count, first) = self.seen.entry(dir).or_insert((0, now_ms));
        if now_ms.saturating_sub(*first) > Suspects::WINDOW_MS {
            (*count, *first) = (0, now_ms);
        }
        *count += 1;
        *count >= 2
    }
}

impl Namespace {
    /// Entries after cookie `after` (0 = all), `max` at most; fetches the directory where the rule demands it.
    pub async fn readdir(self: &Arc<Self>, dir: FileId, after: u64, max: usize) -> Result<ListingPage> {
        let above = self.grafts.load().virtual_tree.children(dir);
        if let Some(children) = above {
            return self.read_virtual(dir, children, after, max).await;
        }
        let ask = if after == 0 { Ask::Open } else { Ask::Use };
        let node = self.node(dir, ask).await?;
        if !node.attr().is_dir() {
            return Err(Error::new(ErrorKind::NotADirectory, "list", dir));
        }
        if after == 0 {
            self.walk_on(dir, node.parent());
        }
        let generation = self.store.generation();
        self.ensure_listed(&node, ask).await?;
        self.seen(dir).await?;
        let mut stored = self.store.entries_after(dir, after, max.saturating_add(1))?;
        self.same_store(generation, dir)?;
        let eof = stored.len() <= max;
        stored.truncate(max);
        let entries = self.with_children(&node, stored).await?;
        Ok(ListingPage { dir: Found::Node(node), entries, eof })
    }

    async fn read_virtual(
        self: &Arc<Self>,
        dir: FileId,
        children: Vec<(Bytes, FileId)>,
        after: u64,
        max: usize,
    ) -> Result<ListingPage> {
        let mut all: Vec<_> =
            children.into_iter().map(|(name, id)| (cookie::first_slot(&name), name, id)).collect();
        all.sort();
        let mut left = all.into_iter().filter(|(cookie, ..)| *cookie > after).peekable();
        let mut entries = Vec::new();
        for (cookie, name, id) in left.by_ref().take(max) {
            let child = match self.getattr(id, Ask::Use).await {
                Ok(found) => Some(found),
                Err(e) => {
                    tracing::debug!(name = %name.escape_ascii(), "listed without its attributes: {e}");
                    None
                }
            };
            entries.push(ListedEntry { name, cookie, fileid: id.fileid64(), child });
        }
        let eof = left.peek().is_none();
        Ok(ListingPage { dir: self.getattr(dir, Ask::Use).await?, entries, eof })
    }

    /// The listing state of a directory, if it was ever listed.
    pub(crate) fn listing_of(&self, dir: FileId) -> Result<Option<StoredListing>> {
        if dir == DETACHED {
            return Ok(None);
        }
        // In one step: a listing that is taken back meanwhile must not come back from the store.
        self.listings.get_or_insert_with(&self.listing_key(dir), || self.store.listing(dir))
    }

    fn listing_key(&self, dir: FileId) -> (u64, FileId) {
        (self.store.generation(), dir)
    }

    pub(crate) fn keep_listing(&self, dir: FileId, listing: Option<StoredListing>) {
        self.listings.insert(self.listing_key(dir), listing);
    }

    /// A count of the events that remove knowledge of a junction from the store (evictions, a new database): an answer to a
    /// question that was asked before one must not be believed after it.
    fn losses(&self, junction: JunctionId) -> u64 {
        self.orders.evictions(junction) + self.store.generation()
    }

    /// A retryable error if the database was begun anew since `generation`: what was read from it may be incomplete.
    fn same_store(&self, generation: u64, dir: FileId) -> Result<()> {
        if self.store.generation() == generation {
            return Ok(());
        }
        Err(Error::new(ErrorKind::Busy, "list while the metadata database is begun anew,", dir))
    }

    /// Invalidates the directory's listing in memory; the caller passes the returned change to the store.
    pub(crate) fn drop_listing(&self, dir: FileId) -> StoreChange {
        self.ours().spoil_listing(dir);
        self.keep_listing(dir, None);
        StoreChange::RemoveListing(dir)
    }

    /// The latest moment at which the listing named exactly what is in the directory; `None` if it is outdated.
    pub(crate) fn proof(&self, dir: &KnownNode, listing: &StoredListing, rule: Freshness) -> Option<u64> {
        proof(dir, listing.version, listing.settled, listing.listed_ms, rule)
    }

    pub(crate) async fn ensure_listed(self: &Arc<Self>, dir: &Arc<KnownNode>, ask: Ask) -> Result<()> {
        let junction = &*self.junction(dir.junction())?;
        let now = self.clock.now_ms();
        let listing = self.listing_of(dir.id)?;
        if listing.is_some_and(|listing| self.will_do(dir, &listing, junction, ask)) {
            self.metrics.hits.inc();
            return Ok(());
        }
        let stale_is_fine = listing.is_some() && self.may_serve_stale(junction, dir);
        if junction.is_failing() && stale_is_fine {
            if junction.may_probe(now) {
                drop(self.start_listing(dir.id));
            }
            self.metrics.stale_served.inc();
            return Ok(());
        }
        let always = Freshness::Always;
        let strict = junction.rules.files == always || junction.rules.directories == always;
        let join = if strict && ask == Ask::Open { Join::StartedAfterAsking } else { Join::Running };
        let id = dir.id;
        let list = |join| {
            let this = self.clone();
            self.listing_flights.run(id, join, move || async move {
                match this.listing_of(id) {
                    // Another listing has ended since the look above.
                    Ok(Some(new))
                        if join == Join::Running
                            && listing != Some(new)
                            && this.still_will_do(id, &new, ask) =>
                    {
                        Ok(new)
                    }
                    _ => this.list(id).await,
                }
            })
        };
        let mut answer = list(join).await;
        // The listing that was joined began so long ago that it is too old already, or a notice overtook it.
        let too_old = |l: &StoredListing| {
            l.is_unproven()
                || l.listed_ms < now
                    && !junction.is_fresh(junction.rules.directories, Ask::Use, l.listed_ms, now)
        };
        if answer.as_ref().is_ok_and(too_old) {
            answer = list(Join::StartedAfterAsking).await;
        }
        match answer {
            Err(e) if e.is_retryable() && stale_is_fine => {
                self.metrics.stale_served.inc();
                Ok(())
            }
            other => other.map(|_| ()),
        }
    }

    /// Whether the names and the attributes of a listing are fresh enough for this use.
    fn will_do(&self, dir: &KnownNode, listing: &StoredListing, junction: &Grafted, ask: Ask) -> bool {
        let (rules, now) = (&junction.rules, self.clock.now_ms());
        let names = self
            .proof(dir, listing, rules.directories)
            .is_some_and(|at| junction.is_fresh(rules.directories, Ask::Use, at, now));
        names && junction.is_fresh(rules.files, ask, listing.listed_ms, now)
    }

    fn still_will_do(&self, dir: FileId, listing: &StoredListing, ask: Ask) -> bool {
        let Ok(node) = self.load(dir) else { return false };
        self.junction(node.junction()).is_ok_and(|junction| self.will_do(&node, listing, &junction, ask))
    }

    pub(crate) fn start_listing(
        self: &Arc<Self>,
        dir: FileId,
    ) -> tokio::sync::watch::Receiver<Option<Result<StoredListing>>> {
        let this = self.clone();
        self.listing_flights.start_or_join(dir, move || this.list(dir))
    }

    /// Note that something in `dir` had to be asked for singly; true if it is time to fetch the directory.
    pub(crate) fn suspect(&self, dir: FileId) -> bool {
        if dir == DETACHED || !self.list_ahead {
            return false;
        }
        let huge = self.listing_of(dir).is_ok_and(|l| l.is_some_and(|l| l.entries > LIST_ON_SUSPICION_MAX));
        let now = self.clock.now_ms();
        !huge && self.suspects.lock().unwrap_or_else(PoisonError::into_inner).note(dir, now)
    }

    /// Fetch the directory, wait a little. True if the listing is there.
    pub(crate) async fn relist_soon(self: &Arc<Self>, dir: FileId) -> bool {
        let mut answer = self.start_listing(dir);
        matches!(tokio::time::timeout(LISTING_PATIENCE, wait(&mut answer)).await, Ok(Ok(_)))
    }

    /// Fetch the directory from the origin page by page; a page is committed while the next one travels.
    /// A listing that was given up is not tried again for a while.
    pub(crate) async fn list(self: Arc<Self>, dir: FileId) -> Result<StoredListing> {
        self.given_up().check(dir, self.clock.now_ms())?;
        let listed = self.list_undisturbed(dir).await;
        match &listed {
            Ok(_) => self.given_up().forget(dir),
            Err(e) if e.kind() == ErrorKind::Corrupt => {
                self.metrics.listings_given_up.inc();
                let seconds = self.given_up().note(dir, e, self.clock.now_ms());
                let place = self.shown(dir);
                tracing::warn!("gave up listing {place}, for {seconds} s; single names are asked for: {e}");
            }
            Err(_) => {}
        }
        listed
    }

    pub(crate) fn given_up(&self) -> std::sync::MutexGuard<'_, GivenUpListings> {
        self.given_up.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The path of a directory as far as it is known, for messages.
    fn shown(&self, dir: FileId) -> String {
        let (mut names, mut at) = (Vec::new(), dir);
        while names.len() < SHOWN_MAX {
            if let Some(junction) = self.junction_rooted_at(at) {
                names.push(junction.rules.path.trim_end_matches('/').to_owned());
                break;
            }
            let Ok(node) = self.load(at) else { break };
            names.push(node.record.name.escape_ascii().to_string());
            at = node.record.parent;
        }
        names.reverse();
        format!("{}/", names.join("/"))
    }

    async fn list_undisturbed(self: &Arc<Self>, dir: FileId) -> Result<StoredListing> {
        self.metrics.listings.inc();
        for _ in 0..UNDISTURBED_TRIES {
            let node = self.node_to_list(dir).await?;
            let ask = |node: Arc<KnownNode>| {
                let this = self.clone();
                async move { this.list_at(&node).await }
            };
            if let Some(listing) = self.ask_healed(node, ask).await? {
                return Ok(listing);
            }
        }
        Err(Error::new(ErrorKind::Busy, "list while it is being evicted,", dir))
    }

    /// All names of the directory with their objects, as the origin says now.
    pub async fn list_now(self: &Arc<Self>, dir: FileId) -> Result<Vec<(Bytes, Option<FileId>)>> {
        let (this, generation) = (self.clone(), self.store.generation());
        self.listing_flights.run(dir, Join::StartedAfterAsking, move || this.list(dir)).await?;
        self.seen(dir).await?;
        let mut all = Vec::new();
        let mut after = 0;
        loop {
            let piece = self.store.entries_after(dir, after, 4096)?;
            self.same_store(generation, dir)?;
            let Some(last) = piece.last() else { return Ok(all) };
            after = last.cookie;
            all.extend(piece.into_iter().map(|entry| (entry.name, entry.child)));
            tokio::task::yield_now().await;
        }
    }

    /// The directory with *some* version that was true before the listing starts; an old one is fine, since a
    /// change after it makes the listing outdated, not wrong.
    pub(crate) async fn node_to_list(self: &Arc<Self>, dir: FileId) -> Result<Arc<KnownNode>> {
        match self.load(dir) {
            Ok(node) => Ok(node),
            Err(_) => self.refresh(dir, Join::Running).await,
        }
    }

    /// `None`: something was evicted meanwhile, and answers to earlier questions must not be believed.
    async fn list_at(self: &Arc<Self>, dir: &Arc<KnownNode>) -> Result<Option<StoredListing>> {
        let dir = {
            let _order = self.in_order(dir.junction()).await;
            let dir = self.load(dir.id)?;
            self.ours().listing_begins(dir.id, dir.version());
            dir
        };
        let listed = self.list_pages(&dir).await;
        self.ours().listing_ends(dir.id);
        listed
    }

    pub(crate) fn ours(&self) -> std::sync::MutexGuard<'_, crate::ours::Ours> {
        self.ours.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn list_pages(self: &Arc<Self>, dir: &Arc<KnownNode>) -> Result<Option<StoredListing>> {
        let asked = self.asking();
        let before = self.slots_of(dir.id).await?;
        match self.follow_pages(dir, asked, &before).await {
            Ok(None) => Ok(None),
            Ok(Some((seen, listing))) => self.finish_listing(dir, before, &seen, (listing, asked)).await,
            Err(e) => {
                if e.kind() == ErrorKind::Corrupt {
                    self.take_back(dir, &before, asked).await?;
                }
                Err(e)
            }
        }
    }

    /// Fetches all pages. Returns the hashes of all names, and the listing that they make.
    async fn follow_pages(
        self: &Arc<Self>,
        dir: &Arc<KnownNode>,
        asked: QueryStamp,
        before: &HashSet<u64>,
    ) -> Result<Option<(HashSet<u64>, StoredListing)>> {
        let junction = &*self.junction(dir.junction())?;
        let losses = self.losses(junction.id);
        let changed = dir.attr().mtime.max(dir.attr().ctime);
        let shown = junction.rules.origin.traits().directories_show_changes;
        let settled = shown && asked.is_settled(changed);
        let mut seen = HashSet::with_capacity(before.len());
        let mut course = Course::new(junction.rules.directory_names_max);
        let mut page = self.ask_page(junction, &dir.record.reference, DirCursor::default()).await?;
        let (mut entries, mut news) = (0, false);
        loop {
            if self.losses(junction.id) != losses {
                return Ok(None);
            }
            entries += page.entries.len() as u64;
            let known = seen.len();
            seen.extend(page.entries.iter().map(|e| cookie::first_slot(e.name.as_bytes())));
            if page.next.is_some() || !page.entries.is_empty() {
                course.page(page.entries.len(), seen.len() - known).map_err(|why| {
                    let error =
                        Error::new(ErrorKind::Corrupt, "list a directory of", junction.rules.origin.url());
                    error.with_source(std::io::Error::other(why))
                })?;
            }
            let order = self.in_order(junction.id).await;
            let changes = self.take_in(&order, junction, dir.id, &page, asked)?;
            news |= changes.iter().any(|change| matches!(change, StoreChange::PutEntry { .. }));
            let commit = self.commit_in(order, changes);
            let Some(next) = page.next else {
                commit.await?;
                break;
            };
            let ask = self.ask_page(junction, &dir.record.reference, next);
            let (next_page, committed) = tokio::join!(ask, commit);
            committed?;
            page = next_page?;
        }
        if self.losses(junction.id) != losses {
            return Ok(None);
        }
        if !before.is_subset(&seen) {
            self.vouch_for(junction).await?;
        }
        // If only a listing shows that names came or went, the directory's times must be asked for anew.
        let known = self.listing_of(dir.id)?.is_some();
        if !shown && known && (news || !before.is_subset(&seen)) {
            self.load(dir.id)?.doubt();
        }
        let listing = StoredListing { listed_ms: asked.ms, version: dir.version(), settled, entries };
        Ok(Some((seen, listing)))
    }

    /// Removes the names that a listing brought which was given up, so that the database does not grow with each try. What
    /// was learnt otherwise since the listing began stays.
    async fn take_back(&self, dir: &KnownNode, before: &HashSet<u64>, asked: QueryStamp) -> Result<()> {
        let (dir, junction) = (dir.id, dir.junction());
        let mut after = 0;
        loop {
            let order = self.in_order(junction).await;
            let piece = self.store.entries_after(dir, after, TAKEN_BACK_TOGETHER)?;
            let Some(last) = piece.last() else { return Ok(()) };
            after = last.cookie;
            let mut changes = Vec::new();
            for entry in piece {
                if before.contains(&cookie::first_slot(&entry.name))
                    || self.ours().is_touched(dir, &entry.name)
                {
                    continue;
                }
                let node = entry.child.and_then(|child| self.load_near(child, Some(dir)).ok());
                if node.as_ref().is_some_and(|node| node.checked_ms() > asked.ms) {
                    continue;
                }
                changes.push(StoreChange::RemoveEntry { dir, cookie: entry.cookie });
                let came_with_it = |node: &KnownNode| {
                    node.record.checked_ms == asked.ms
                        && node.record.parent == dir
                        && self.listing_of(node.id).is_ok_and(|listing| listing.is_none())
                };
                if let Some(node) = node.filter(|node| came_with_it(node)) {
                    self.nodes.insert(node.id, Remembered::Gone { own: 0 });
                    changes.push(StoreChange::RemoveNode(node.id));
                }
            }
            self.commit_in(order, changes).await?;
        }
    }

    async fn ask_page(&self, junction: &Grafted, dir: &Reference, cursor: DirCursor) -> Result<DirPage> {
        let answer = junction.rules.origin.readdir(dir, cursor).await;
        junction.note(answer, self.clock.now_ms())
    }

    /// The hashes of the names that are known before a listing: those that it does not name are gone.
    async fn slots_of(&self, dir: FileId) -> Result<HashSet<u64>> {
        let mut slots = HashSet::new();
        let mut after = 0;
        loop {
            let piece = self.store.entries_after(dir, after, 4096)?;
            let Some(last) = piece.last() else { return Ok(slots) };
            after = last.cookie;
            slots.extend(piece.iter().map(|e| cookie::first_slot(&e.name)));
            tokio::task::yield_now().await;
        }
    }

    /// Takes in a page, except for the names that changes of ours touched meanwhile.
    fn take_in(
        &self,
        order: &InOrder,
        junction: &Grafted,
        dir: FileId,
        page: &DirPage,
        asked: QueryStamp,
    ) -> Result<Vec<StoreChange>> {
        let mut changes = Vec::new();
        for entry in &page.entries {
            let name = Bytes::copy_from_slice(entry.name.as_bytes());
            let child = match &entry.object {
                Some(object) => {
                    let id = self.id_of(junction.id, &object.identity);
                    let place = SeenAt { parent: dir, name: &name };
                    let had = (object.attr.nlink > 1).then(|| self.place_of(id)).flatten();
                    let change = match self.observe(order, junction, id, Some(place), object, asked) {
                        Ok((_, change)) => change,
                        // A change of ours removed it since the listing began.
                        Err(e) if e.kind() == ErrorKind::Stale => continue,
                        Err(e) => return Err(e),
                    };
                    if let Some(change) = change {
                        changes.extend([change].into_iter().chain(self.named(id, (dir, &name), had)));
                    }
                    Some(id)
                }
                None => None,
            };
            let known = self.store.find_entry(dir, &name)?;
            let child =
                child.or_else(|| known.as_ref()?.child.filter(|id| self.is_directory_at(*id, dir, &name)));
            if known.is_none_or(|known| known.child != child) {
                changes.extend(child.into_iter().flat_map(|id| self.named(id, (dir, &name), None)));
                changes.push(StoreChange::PutEntry { dir, name, child });
            }
        }
        let ours = self.ours();
        changes.retain(|change| match change {
            StoreChange::PutEntry { name, .. } | StoreChange::PutName { name, .. } => {
                !ours.is_touched(dir, name)
            }
            _ => true,
        });
        Ok(changes)
    }

    /// A name listed without its object keeps the directory that was seen under it last: the far side of a
    /// submount that is away. For anything else the listing would vouch for attributes that it did not bring.
    fn is_directory_at(&self, id: FileId, dir: FileId, name: &Bytes) -> bool {
        self.load_near(id, Some(dir))
            .is_ok_and(|node| node.attr().is_dir() && node.record.parent == dir && node.record.name == *name)
    }

    async fn finish_listing(
        &self,
        dir: &KnownNode,
        before: HashSet<u64>,
        seen: &HashSet<u64>,
        (mut listing, asked): (StoredListing, QueryStamp),
    ) -> Result<Option<StoredListing>> {
        let (dir, junction) = (dir.id, dir.junction());
        let mut changes = Vec::new();
        let order = self.in_order(junction).await;
        if self.ours().is_listing_spoilt(dir) {
            return Ok(None);
        }
        for slot in before.difference(seen) {
            let gone = self.store.entries_after(dir, slot - 1, cookie::SLOTS as usize)?;
            for entry in gone.into_iter().filter(|e| cookie::first_slot(&e.name) == *slot) {
                if !self.ours().is_touched(dir, &entry.name) {
                    changes.extend(self.unlink(dir, &entry)?);
                }
            }
        }
        // Only changes of our own were made since the listing began, and these are in it.
        let now = self.load(dir)?.version();
        if now != listing.version && self.ours().leads(dir, listing.version, now) {
            (listing.version, listing.settled) = (now, false);
        }
        if self.is_overtaken(dir, asked) {
            listing = listing.unproven();
        }
        changes.push(StoreChange::PutListing(dir, listing));
        let known = self.listing_of(dir)?;
        self.commit_in(order, changes).await?;
        // Not before the commit: a reader that finds the listing reads the names from the store.
        let _order = self.in_order(junction).await;
        if self.ours().is_listing_spoilt(dir) {
            return Ok(None); // meanwhile, and the store has taken it back
        }
        if !listing.is_unproven() && self.is_overtaken(dir, asked) {
            listing = listing.unproven(); // meanwhile, and the store has it as proven
            self.keep_listing(dir, Some(listing));
            self.store.enqueue(vec![StoreChange::PutListing(dir, listing)]).await?;
        } else if self.listing_of(dir)? == known {
            self.keep_listing(dir, Some(listing));
        }
        self.suspects.lock().unwrap_or_else(PoisonError::into_inner).seen.remove(&dir);
        Ok(Some(listing))
    }

    /// Takes in that the name is no longer in the directory. Its object may live on elsewhere, or for clients that have it
    /// open: it is kept, but the origin is asked before it is trusted again.
    pub(crate) fn unlink(&self, dir: FileId, entry: &StoredEntry) -> Result<Vec<StoreChange>> {
        let mut changes = vec![StoreChange::RemoveEntry { dir, cookie: entry.cookie }];
        if let Some(child) = entry.child
            && let Ok(node) = self.load_near(child, Some(dir))
            && node.record.parent == dir
            && node.record.name == entry.name
        {
            let mut record = node.record.clone();
            (record.parent, record.name, record.checked_ms) = (DETACHED, Bytes::new(), 0);
            self.keep(&Arc::new(KnownNode::as_changed(child, record.clone(), node.own)));
            changes.push(StoreChange::PutNode(child, record));
        }
        Ok(changes)
    }

    /// The entries with their objects; names that came without one are looked up now, a few at a time.
    async fn with_children(
        self: &Arc<Self>,
        dir: &Arc<KnownNode>,
        stored: Vec<StoredEntry>,
    ) -> Result<Vec<ListedEntry>> {
        let mut entries = Vec::with_capacity(stored.len());
        let (mut unknown, mut doubted) = (Vec::new(), Vec::new());
        for entry in stored {
            let child = entry.child.and_then(|id| self.load_near(id, Some(dir.id)).ok());
            match &child {
                None => unknown.push(entries.len()),
                Some(node) if self.is_behind_a_notice(node) => doubted.push((entries.len(), node.id)),
                Some(_) => {}
            }
            let fileid = child.as_ref().map_or(entry.cookie, |node| node.id.fileid64());
            let child = child.map(Found::Node);
            entries.push(ListedEntry { name: entry.name, cookie: entry.cookie, fileid, child });
        }
        for group in unknown.chunks(RESOLVE_TOGETHER) {
            let mut lookups = JoinSet::new();
            for &index in group {
                let (this, dir, name) = (self.clone(), dir.clone(), entries[index].name.clone());
                lookups.spawn(async move { (index, this.lookup_at_origin(&dir, name).await) });
            }
            take_found(&mut entries, lookups).await;
        }
        // Other nodes changed them since the listing. The second one of a directory has all of it listed anew.
        for group in doubted.chunks(RESOLVE_TOGETHER) {
            let mut looks = JoinSet::new();
            for &(index, id) in group {
                let this = self.clone();
                // An old state is served by the rules alone, not because the answer takes its time.
                entries[index].child = None;
                looks.spawn(async move { (index, this.node(id, Ask::Use).await) });
            }
            take_found(&mut entries, looks).await;
        }
        Ok(entries)
    }
}

/// Puts what is found into the entries, as far as it comes in time.
async fn take_found(entries: &mut [ListedEntry], mut asked: JoinSet<(usize, Result<Arc<KnownNode>>)>) {
    let deadline = tokio::time::Instant::now() + RESOLVE_PATIENCE;
    while let Ok(Some(Ok((index, found)))) = tokio::time::timeout_at(deadline, asked.join_next()).await {
        if let Ok(node) = found {
            entries[index].fileid = node.id.fileid64();
            entries[index].child = Some(Found::Node(node));
        }
    }
}

/// The latest moment at which knowledge of a directory's names, learnt at `learnt_ms` while its version was `version`, was
/// proved to be still true. A version that is seen again later proves it anew, if the directory was settled then.
pub fn proof(
    dir: &KnownNode,
    version: types::Version,
    settled: bool,
    learnt_ms: u64,
    rule: Freshness,
) -> Option<u64> {
    if version != dir.version() {
        return None;
    }
    match (settled, rule) {
        (true, _) => Some(learnt_ms.max(dir.checked_ms())),
        (false, Freshness::Always) => None,
        (false, _) => Some(learnt_ms),
    }
}
