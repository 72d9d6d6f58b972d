//! Names and attributes, with freshness: which *version* of which object is this file now?
//!
//! The cast:
//! - [`Namespace`] answers questions about names and attributes and makes changes at the origins. Its methods are in
//!   `attr.rs` (one object), `lookup.rs` (one name), `listing.rs` (a whole directory, by which most of the other two are
//!   answered), `change.rs` (names and attributes that are changed), `evict.rs`, `validity.rs` and `siblings.rs`.
//! - A [`KnownNode`] (`node.rs`) is one object in memory, a `Record` (`record.rs`) the same in the database (`store.rs`: one
//!   thread commits, readers see the last commit).
//! - A `Grafted` (`junction.rs`) is a junction at work; `Grafts` (`grafts.rs`) are all of them, with the directories above
//!   them (`virtual_tree.rs`). Around each origin lies an `OriginGuard` (`guard.rs`), which makes another storage than the
//!   junction was given an outage; `limits.rs` keeps what the origin can never take.
//! - `Flights` (`flights.rs`) let callers share one question. `observe.rs` takes in an answer, `taken.rs` and `wrote.rs`
//!   the answers to our own changes, under the junction's lock (`order.rs`).
//! - `notices.rs` doubts what other nodes of a cluster say they changed, and tells them of our changes.
//! - `heal.rs` re-resolves stale references, also by `astray.rs`; `ours.rs` knows which of our changes were made while a
//!   question was in flight; `walk.rs` lists ahead of clients that walk a tree; `elsewhere.rs` looks up objects that other nodes of
//!   a cluster know ([`KnownElsewhere`]).
//! - Pure: `freshness.rs` (when the origin is asked), `endless.rs` (how far a listing is followed), `cookie.rs`.
//!
//! The way of an answer: a question is answered from memory or the database while the junction's rule allows. Otherwise one
//! task asks the origin through its guard. The answer is stamped with the moment of its question (`QueryStamp`); in the
//! junction's order it is compared with what is known, put into memory and handed to the store; then all callers get it.
//!
//! Invariants:
//! - An older answer never replaces a newer one, and no answer undoes a change of ours that was made after its question. One
//!   that a notice of another node overtook is asked for again before it is trusted.
//! - Memory and database take in the same things in the same order, junction by junction; no junction waits for another.
//! - An object is in the database before a client gets a handle to it.
//! - An outage never looks like absence, and an absence that matters is vouched for by the guard.
//! - The database is a cache, except for handles and notes: one that is damaged is begun anew.
//!
//! Begin with `attr.rs`, then `lookup.rs`, `listing.rs` and `observe.rs`. Nothing here knows of cached bytes, dirty data,
//! callers and permissions.

mod astray;
mod attr;
mod change;
mod changed;
pub mod config;
mod cookie;
mod elsewhere;
mod endless;
mod evict;
mod flights;
mod freshness;
mod grafts;
mod guard;
mod heal;
mod junction;
mod limits;
mod listing;
mod lookup;
mod metrics;
mod news;
mod node;
mod notices;
mod observe;
mod order;
mod ours;
mod record;
mod siblings;
mod store;
mod taken;
mod validity;
mod virtual_tree;
mod walk;
mod wrote;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, RwLock};

use arc_swap::ArcSwap;
use origin::{Origin, OriginIdentity, Reference};
use types::{Attr, FileId, FsStat, JunctionId, Name, Result, Timeline, Version};

pub use changed::{AlteredObject, MadeObject, Moved, New, Old, Renewed};
pub use config::{Config, Freshness, Junction, JunctionRules};
pub use cookie::first_slot as cookie_of;
pub use elsewhere::{DEPTH_MAX, KnownElsewhere};
pub use freshness::Ask;
pub use junction::{JunctionStatus, Outage};
pub use listing::{ListedEntry, ListingPage};
pub use news::{ChangeListener, ListenerMark};
pub use node::KnownNode;
pub use observe::QueryStamp;
pub use siblings::Siblings;
pub use store::{NoteChange, known_junctions, knows_junction};
pub use wrote::Wrote;

use flights::Flights;
use grafts::Grafts;
use junction::Grafted;
use listing::Suspects;
use lookup::Single;
use metrics::Metrics;
use record::StoredListing;
use store::Store;

/// Directories whose listing state is kept in memory (about 100 bytes each).
const LISTINGS_IN_MEMORY: usize = 50_000;
/// Link targets kept in memory (about 150 bytes each).
const LINKS_IN_MEMORY: usize = 20_000;
/// Names looked up singly that are remembered (about 150 bytes each).
const SINGLES_IN_MEMORY: usize = 50_000;

/// An object: of an origin, or a directory above the junctions.
#[derive(Clone, Debug)]
pub enum Found {
    Node(Arc<KnownNode>),
    Virtual { id: FileId, attr: Attr },
}

impl Found {
    pub fn id(&self) -> FileId {
        match self {
            Found::Node(node) => node.id,
            Found::Virtual { id, .. } => *id,
        }
    }

    pub fn attr(&self) -> &Attr {
        match self {
            Found::Node(node) => node.attr(),
            Found::Virtual { attr, .. } => attr,
        }
    }

    pub fn junction(&self) -> JunctionId {
        match self {
            Found::Node(node) => node.junction(),
            Found::Virtual { .. } => JunctionId::VIRTUAL,
        }
    }
}

pub struct Namespace {
    store: Arc<Store>,
    clock: Timeline,
    /// The junctions. Every call reads them, so they are behind no lock.
    grafts: ArcSwap<Grafts>,
    /// Held while the junctions are replaced.
    grafting: Mutex<()>,
    /// The start of this process, if changes of ours may be missing in what was known before (after a crash).
    doubtful_since_ms: Option<u64>,
    nodes: quick_cache::sync::Cache<FileId, node::Remembered>,
    /// Listings by the generation of the database, so that those of a database that was set aside do not count. `None`: there
    /// is none, though the store may still have one that is being taken back.
    listings: quick_cache::sync::Cache<(u64, FileId), Option<StoredListing>>,
    /// Ids computed from identities that belong to objects known under another id; rare (see `heal`).
    aliases: RwLock<HashMap<FileId, FileId>>,
    /// Names looked up one by one, present or not.
    singles: quick_cache::sync::Cache<(FileId, Name), Single>,
    /// Targets of symbolic links, with the version they were read from.
    links: quick_cache::sync::Cache<FileId, (Version, bytes::Bytes)>,
    suspects: Mutex<Suspects>,
    given_up: Mutex<endless::GivenUpListings>,
    list_ahead: bool,
    walks: Mutex<walk::Walks>,
    /// The number of changes of our own that were taken in: answers to questions that were asked before one may be older.
    own_changes: std::sync::atomic::AtomicU64,
    /// The number of descriptions of objects that were taken in.
    learnt: std::sync::atomic::AtomicU64,
    /// The number of notices of other nodes that were taken in: answers to questions that were asked before one may be older.
    heard: std::sync::atomic::AtomicU64,
    notices: Mutex<notices::NoticeLedger>,
    announce: OnceLock<notices::Announce>,
    ours: Mutex<ours::Ours>,
    /// Objects that are being renamed by us, with the end of the rename to wait for.
    moving: Mutex<HashMap<FileId, tokio::sync::watch::Receiver<()>>>,
    /// Places to which renames without an answer may have brought objects.
    astray: Mutex<astray::Astray>,
    /// A lock for each junction, held from the look at what is known until what follows from it is queued for the store.
    orders: order::LearningOrders,
    name_locks: Vec<tokio::sync::Mutex<()>>,
    /// Permits for listings ahead of clients that walk a tree.
    walk_room: Arc<tokio::sync::Semaphore>,
    attr_flights: Flights<FileId, Arc<KnownNode>>,
    lookup_flights: Flights<(FileId, Name), lookup::Heard>,
    listing_flights: Flights<FileId, StoredListing>,
    heal_flights: Flights<FileId, Arc<KnownNode>>,
    elsewhere: elsewhere::Elsewhere,
    /// Objects that changed, for fronts that notify their clients.
    changed: news::NewsSender,
    metrics: Metrics,
}

impl Namespace {
    /// Open or create the database and graft the junctions. Origins are not contacted; needs a tokio runtime.
    pub fn open(config: Config, junctions: Vec<Junction>) -> Result<Arc<Namespace>> {
        Namespace::open_with_clock(config, junctions, Timeline::default())
    }

    pub fn open_with_clock(
        config: Config,
        junctions: Vec<Junction>,
        clock: Timeline,
    ) -> Result<Arc<Namespace>> {
        let store = Arc::new(Store::open(&config.dir, config.database_cache_bytes)?);
        let now_ms = clock.now_ms();
        let started_ms = store.after_a_crash.then_some(now_ms);
        let mut grafted = HashMap::new();
        for junction in junctions {
            let id = store.junction_id(&junction.path, &junction.origin.url(), junction.id)?;
            let mut junction = Grafted::new(id, junction, started_ms, &store)?;
            if clock.is_broken() {
                junction.trusted_from_ms = now_ms;
            }
            grafted.insert(id, Arc::new(junction));
        }
        let grafts = ArcSwap::from_pointee(Grafts::new(grafted)?);
        let aliases = RwLock::new(store.aliases()?.into_iter().collect());
        Ok(Arc::new(Namespace {
            store,
            clock,
            grafts,
            grafting: Mutex::default(),
            doubtful_since_ms: started_ms,
            nodes: quick_cache::sync::Cache::new(config.nodes_in_memory),
            listings: quick_cache::sync::Cache::new(LISTINGS_IN_MEMORY),
            aliases,
            singles: quick_cache::sync::Cache::new(SINGLES_IN_MEMORY),
            links: quick_cache::sync::Cache::new(LINKS_IN_MEMORY),
            suspects: Mutex::default(),
            given_up: Mutex::default(),
            list_ahead: config.list_ahead,
            walks: Mutex::default(),
            own_changes: Default::default(),
            learnt: Default::default(),
            heard: Default::default(),
            notices: Mutex::default(),
            announce: OnceLock::new(),
            ours: Mutex::default(),
            moving: Mutex::default(),
            astray: Mutex::default(),
            orders: order::LearningOrders::default(),
            name_locks: (0..change::NAME_LOCKS).map(|_| tokio::sync::Mutex::default()).collect(),
            walk_room: Arc::new(tokio::sync::Semaphore::new(walk::AHEAD_MAX)),
            attr_flights: Flights::new(),
            lookup_flights: Flights::new(),
            listing_flights: Flights::new(),
            heal_flights: Flights::new(),
            elsewhere: elsewhere::Elsewhere::new(),
            changed: news::NewsSender::default(),
            metrics: Metrics::default(),
        }))
    }

    /// The time line by which ages are counted here.
    pub fn clock(&self) -> &Timeline {
        &self.clock
    }

    /// The root of the served tree.
    pub fn root(&self) -> FileId {
        self.grafts.load().virtual_tree.root()
    }

    /// The object with this inode number, if it was ever seen.
    pub fn find_number(&self, number: u64) -> Result<Option<FileId>> {
        let above = self.grafts.load().virtual_tree.find_number(number);
        match above {
            Some(id) => Ok(Some(id)),
            None => self.store.find_number(number),
        }
    }

    /// `..` of a directory; the root of the tree is its own parent.
    pub async fn parent(self: &Arc<Self>, dir: FileId) -> Result<Found> {
        let above = self.grafts.load().parent_of(dir);
        let parent = match above {
            Some(parent) => parent,
            None => self.load(dir)?.record.parent,
        };
        self.getattr(parent, Ask::Use).await
    }

    /// The origin and the reference under which it knows this object now.
    pub fn origin_of(&self, node: &KnownNode) -> Result<(Arc<dyn Origin>, Reference)> {
        let origin = self.grafts.load().junction(node.junction())?.rules.origin.clone();
        Ok((origin, node.record.reference.clone()))
    }

    /// The object as it is known, without asking the origin: for a caller that is using it already.
    pub fn getattr_known(&self, id: FileId) -> Result<Found> {
        self.load(id).map(Found::Node)
    }

    /// The note that is kept with this object (`alter_note`).
    pub fn note(&self, id: FileId) -> Result<Option<bytes::Bytes>> {
        self.store.note(id)
    }

    /// Changes the few bytes that are kept with an object; durable when this returns.
    pub async fn alter_note(&self, id: FileId, note: NoteChange) -> Result<()> {
        self.store.commit(vec![store::StoreChange::AlterNote(id, note)]).await
    }

    /// The root directory of a junction.
    pub fn root_of(&self, junction: JunctionId) -> Result<FileId> {
        self.junction(junction).map(|junction| junction.root)
    }

    /// Let the junction learn from a call that was made to its origin elsewhere (a read of bytes).
    pub fn noted<T>(&self, node: &KnownNode, result: Result<T>) -> Result<T> {
        match self.junction(node.junction()) {
            Ok(junction) => junction.note(result, self.clock.now_ms()),
            Err(_) => result,
        }
    }

    /// Fails with an outage unless the storage behind this junction is the right one at some moment after this call began.
    /// Until that is known, an absence proves nothing.
    pub async fn vouch_for_junction(&self, junction: JunctionId) -> Result<()> {
        self.vouch_for(&*self.junction(junction)?).await
    }

    /// The same for the answers that this junction's origin gave so far.
    pub async fn vouch_for_answers_of(&self, junction: JunctionId) -> Result<()> {
        let junction = &*self.junction(junction)?;
        junction.note(junction.guard.vouch_for_answers().await, self.clock.now_ms())
    }

    async fn vouch_for(&self, junction: &Grafted) -> Result<()> {
        junction.note(junction.guard.vouch().await, self.clock.now_ms())
    }

    /// The operator says that the storage which answers for the junction at `path` is the right one from now on. What is
    /// known of the one before is asked for anew; `file` is called for each file of it that is found.
    pub async fn accept_origin(
        self: &Arc<Self>,
        path: &str,
        file: impl FnMut(FileId),
    ) -> Result<OriginIdentity> {
        let missing = || types::Error::new(types::ErrorKind::NotFound, "accept the origin of", path);
        let junction = &*self.grafts.load().at(path).ok_or_else(missing)?;
        let found = junction.guard.accept().await?;
        self.expire_tree(junction.root, file).await?;
        self.forget_names_in(junction).await?;
        junction.guard.look_again();
        self.vouch_for(junction).await?;
        Ok(found)
    }

    /// Where a symbolic link points. Asked once per version of the link.
    pub async fn link_target(self: &Arc<Self>, node: &Arc<KnownNode>) -> Result<bytes::Bytes> {
        if let Some((version, target)) = self.links.get(&node.id)
            && version == node.version()
        {
            self.metrics.hits.inc();
            return Ok(target);
        }
        let junction = &*self.junction(node.junction())?;
        let ask = |node: Arc<KnownNode>| async move {
            let answer = junction.rules.origin.readlink(&node.record.reference).await;
            junction.note(answer, self.clock.now_ms())
        };
        self.metrics.misses.inc();
        let target = self.ask_healed(node.clone(), ask).await?;
        self.links.insert(node.id, (node.version(), target.clone()));
        Ok(target)
    }

    /// Whether any origin has extended attributes.
    pub fn has_xattrs(&self) -> bool {
        self.grafts.load().junctions.values().any(|junction| junction.rules.origin.traits().has_xattrs)
    }

    /// The extended attributes of an object, as the origin has them now.
    pub async fn xattrs(self: &Arc<Self>, id: FileId) -> Result<Vec<(types::XattrName, bytes::Bytes)>> {
        let Found::Node(node) = self.getattr_known(id)? else {
            return Err(types::Error::new(
                types::ErrorKind::NotSupported,
                "read extended attributes of",
                "no origin's object",
            ));
        };
        let junction = &*self.junction(node.junction())?;
        let ask = |node: Arc<KnownNode>| async move {
            let answer = junction.rules.origin.xattrs(&node.record.reference).await;
            junction.note(answer, self.clock.now_ms())
        };
        self.ask_healed(node, ask).await
    }

    /// Room at the origin; the virtual tree has none of its own.
    pub async fn statfs(self: &Arc<Self>, id: FileId) -> Result<FsStat> {
        match self.getattr(id, Ask::Use).await? {
            Found::Virtual { .. } => Ok(FsStat::default()),
            Found::Node(node) => self.junction(node.junction())?.statfs(&node.record.reference).await,
        }
    }

    /// Changes when the junction's origin answers again after an outage.
    pub fn recoveries(&self, id: JunctionId) -> Result<tokio::sync::watch::Receiver<()>> {
        self.junction(id).map(|junction| junction.recoveries())
    }

    /// Why the database takes nothing now, and what was lost of it since the start; a sentence each.
    pub fn database_trouble(&self) -> (Option<String>, Option<String>) {
        self.store.trouble()
    }

    /// Path, URL, rule and state of every junction, by path.
    pub fn junctions(&self) -> Vec<JunctionStatus> {
        let grafts = self.grafts.load();
        let mut all: Vec<_> = grafts.junctions.values().map(|g| g.status(self.clock.now_ms())).collect();
        all.sort_by(|a, b| a.path.cmp(&b.path));
        all
    }

    pub fn register(&self, registry: &mut prometheus_client::registry::Registry) {
        self.metrics.register(registry);
    }

    /// Commit what is pending and stop.
    pub async fn shutdown(self: &Arc<Self>) {
        let this = self.clone();
        let _ = tokio::task::spawn_blocking(move || this.store.close()).await;
    }

    fn junction(&self, id: JunctionId) -> Result<Arc<Grafted>> {
        self.grafts.load().junction(id).cloned()
    }

    fn junction_rooted_at(&self, id: FileId) -> Option<Arc<Grafted>> {
        self.grafts.load().junctions.values().find(|g| g.root == id).cloned()
    }

    /// Of the directories that lead to the junctions.
    fn is_virtual(&self, id: FileId) -> bool {
        self.grafts.load().virtual_tree.get(id).is_some()
    }
}
