//! The one semantic file system: names, attributes, permission and bytes, free of any protocol.
//!
//! What is clean comes from `namespace` (which version is this file now?) and `cache` (its bytes), which the crate `fetch` joins.
//! Front ends decode, call one function here, and encode. Permission is asked for here and nowhere else; the crate `permission` decides.
//!
//! - [`Vfs`]: all calls. `attr.rs`, `dir.rs`, `read.rs`, `write.rs`, `change.rs`, `xattr.rs` are those of clients,
//!   `kernel_cache.rs` is for a front whose kernel keeps what it was told, `admin.rs` and `junctions.rs` are for operators
//! - [`Node`] (`node.rs`): an object as clients see it; `view.rs` looks at objects and names, `places.rs` at paths
//! - `JunctionWriter` (`writer.rs`): what a junction's write policy does with changes, and what it lays over the origin's
//!   state: `through.rs`, `back/writer.rs`, or nothing may be changed; `writers.rs`: which junction has which
//! - `parted.rs`: files whose parts lie at the origin before they are assembled
//! - `limits.rs`: what an origin can never take (who may do what is the crate `permission`)
//! - `gather.rs`: dirty and clean bytes of one read; `leaving.rs`: junctions that are about to go
//!
//! The way of a call: look at the object (`view.rs`), ask for permission (crate `permission`), and of a change for the writer of
//! its junction, which does it; of a read for dirty bytes, and else the cache for those of the version that is known.
//!
//! Invariants: what a client is told of an object has the writer's overlay over it. Bytes of one answer are of one
//! version. Which policy a junction has is asked in `writers.rs` alone. Begin with `read.rs`, then `writer.rs`.

mod admin;
mod attr;
mod back;
mod change;
mod change_results;
mod dir;
mod gather;
mod junctions;
mod kernel_cache;
mod leaving;
mod limits;
mod node;
mod parted;
mod places;
mod read;
mod through;
mod view;
mod write;
mod write_policy;
mod writer;
mod writers;
mod xattr;

use std::sync::Arc;

use bytes::Bytes;
use cache::Cache;
use fetch::{Prefetcher, VersionChain};
use namespace::Namespace;
use types::{FileId, Version};

pub use back::{
    Dropping, FlushRequest, JournalLoad, Journaling, JunctionLoad, Raised, StoppedJournal, StoppedTier,
    Unflushed, WaitingFilter, WaitingOperation,
};
pub use cache::WholeFile;
pub use cache::{Extent, Lend, Piece};
pub use change_results::{Altered, AttrsAround, CommitOut, Made, WriteOut};
pub use fetch::{OnlyCopies, WarmMode, WarmOrder, WarmProgress};
pub use junctions::NewJunction;
pub use kernel_cache::made_by;
pub use namespace::{ChangeListener, ListenerMark};
pub use node::Node;
pub use origin::{PartReceipt, PartedFile, Replacing};
pub use permission::{Access, without_privilege};
pub use through::DraftFile;
pub use write_policy::{WritePolicy, Writing};
pub use writeback::{AlarmKind, ConflictPolicy, FlushPolicy, FlushWindow, Hook, abort_at, journal_is_owed};

/// Bytes of one read.
#[derive(Debug)]
pub struct ReadOut {
    /// In order; together they are the answer.
    pub data: Vec<Piece>,
    /// The answer ends at or past the end of the file.
    pub eof: bool,
    pub node: Node,
}

/// One name of a listing. The cookie stays valid over refresh and restart; listing goes on *after* it.
#[derive(Clone, Debug)]
pub struct DirItem {
    pub name: Bytes,
    pub cookie: u64,
    /// The inode number shown to clients.
    pub fileid: u64,
    /// Absent while the object cannot be reached (a submount whose server is away): the name is listed,
    /// a lookup of it answers with the error.
    pub node: Option<Node>,
}

/// A piece of a listing: `.` and `..` first (cookies 1 and 2), then names in the order of their cookies.
#[derive(Clone, Debug)]
pub struct DirListing {
    pub items: Vec<DirItem>,
    pub eof: bool,
    pub dir: Node,
}

/// What `stat` tells the operator of one path.
#[derive(Clone, Debug)]
pub struct StatOut {
    pub node: Node,
    /// Path of the junction, and the URL of its origin; absent for virtual directories.
    pub junction: Option<(String, String)>,
    pub version: Version,
    /// Bytes of this version on the cache disk.
    pub cached_bytes: u64,
    /// Milliseconds since the origin was last asked about this object.
    pub age_ms: u64,
    /// The rule in force: `always`, `ttl 30s`, `immutable`.
    pub freshness: String,
    pub write: WritePolicy,
}

/// What an `evict` gave back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Evicted {
    pub files: u64,
    pub bytes: u64,
}

/// The file system. Cheap to share; every front end holds the same one.
pub struct Vfs {
    namespace: Arc<Namespace>,
    cache: Arc<Cache>,
    prefetcher: Arc<Prefetcher>,
    writers: Arc<writers::Writers>,
    leaving: Arc<leaving::Leaving>,
    version_chain: Arc<VersionChain>,
}

impl Vfs {
    /// Of junctions that are not written `back`.
    pub fn new(namespace: Arc<Namespace>, cache: Arc<Cache>, writing: Writing) -> Arc<Vfs> {
        Vfs::build(namespace, cache, writing)
    }

    fn build(namespace: Arc<Namespace>, cache: Arc<Cache>, writing: Writing) -> Arc<Vfs> {
        let buffer = through::WriteBuffer::new(namespace.clone(), cache.clone(), writing.bytes_max);
        let policies = writing.policies(&namespace.junctions());
        let writers = Arc::new(writers::Writers::new(policies, through::Through { buffer }));
        let prefetcher = Prefetcher::new(namespace.clone(), cache.clone(), writers.clone());
        let (leaving, version_chain) = Default::default();
        Arc::new(Vfs { namespace, cache, prefetcher, writers, leaving, version_chain })
    }

    pub fn register(&self, registry: &mut prometheus_client::registry::Registry) {
        self.prefetcher.register(registry);
        self.writers.through.buffer.register(registry);
        self.register_journal(registry);
    }

    /// Metrics of the journal and its flush, if any junction is written `back`.
    pub fn register_journal(&self, registry: &mut prometheus_client::registry::Registry) {
        if let Some(back) = self.writers.back() {
            back.journal.metrics().register(registry);
            back.flusher.metrics().register(registry);
        }
    }

    /// The root of the served tree.
    pub fn root(&self) -> FileId {
        self.namespace.root()
    }
}
