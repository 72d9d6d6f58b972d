//! The embedded database (redb): objects, entries and listings, so that handles outlive a restart.
//!
//! One thread commits, and gathers all that waits into one commit (one fsync): a handle is durable before a
//! client sees it, at the price of one local fsync per group of new objects. Readers see the last commit.

mod checksummed_file;
mod committer;
mod found;
mod junctions;
mod keeper;
mod objects;
mod origins;

use std::fmt;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use redb::{
    Database, MultimapTableDefinition, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction,
};
use tokio::sync::{mpsc, oneshot};
use tracing::{error, warn};
use types::{Error, ErrorKind, FileId, JunctionId, Result};

use crate::cookie;
use crate::record::{Record, StoredListing};
use committer::Committer;
use found::FoundEntries;
use keeper::{DatabaseFailure, Keeper};
use origins::Origins;

/// (directory, cookie big-endian) -> child FileId (zero: not known yet), then the name.
const ENTRIES: TableDefinition<[u8; 24], &[u8]> = TableDefinition::new("entries");
/// File with several names -> directory, then the name, of each that was seen. Goes with its entry, and not with its
/// node: a file that was lost sight of may be seen again, under one name first.
const NAMES: MultimapTableDefinition<[u8; 16], &[u8]> = MultimapTableDefinition::new("names");
/// Directory -> [`StoredListing`].
const LISTINGS: TableDefinition<[u8; 16], &[u8]> = TableDefinition::new("listings");
/// Id computed from an identity -> the id under which that object is known already.
const ALIASES: TableDefinition<[u8; 16], [u8; 16]> = TableDefinition::new("aliases");
/// FileId -> what `vfs` keeps of an object; opaque here.
const NOTES: TableDefinition<[u8; 16], &[u8]> = TableDefinition::new("notes");
/// "path NUL url" -> junction id. Never deleted, so that no id is ever used for another origin.
const JUNCTIONS: TableDefinition<&[u8], u32> = TableDefinition::new("junctions");

/// [`OPEN`] is there while a process has the database.
const STATE: TableDefinition<&str, u64> = TableDefinition::new("state");
const OPEN: &str = "open";

/// File name of the database inside its directory.
pub const FILE_NAME: &str = "namespace.redb";

/// The most names of one file that are looked at.
const NAMES_MAX: usize = 1000;
/// Batches that may wait for the committer. When it is full, callers wait: the origin is then asked slower.
const QUEUE_MAX: usize = 256;
/// How often a waiter for a commit checks whether the disk takes anything at all.
pub const LOOK: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub enum StoreChange {
    PutNode(FileId, Record),
    RemoveNode(FileId),
    /// `child` is absent for a name listed without its object.
    PutEntry {
        dir: FileId,
        name: Bytes,
        child: Option<FileId>,
    },
    /// One of the names of a file that has several.
    PutName {
        file: FileId,
        dir: FileId,
        name: Bytes,
    },
    RemoveEntry {
        dir: FileId,
        cookie: u64,
    },
    RemoveName {
        dir: FileId,
        name: Bytes,
    },
    PutListing(FileId, StoredListing),
    RemoveListing(FileId),
    PutAlias {
        computed: FileId,
        known: FileId,
    },
    AlterNote(FileId, NoteChange),
}

/// A change of the bytes that are kept with an object: a function of the bytes that all earlier changes left. `None`:
/// nothing is kept.
pub struct NoteChange(pub Box<AlterNote>);

type AlterNote = dyn Fn(Option<&[u8]>) -> Option<Bytes> + Send;

impl fmt::Debug for NoteChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NoteChange")
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredEntry {
    pub cookie: u64,
    pub name: Bytes,
    pub child: Option<FileId>,
}

struct CommitRequest {
    changes: Vec<StoreChange>,
    done: Option<oneshot::Sender<Result<()>>>,
}

/// A commit under way.
pub struct Committing(Option<(oneshot::Receiver<Result<()>>, Arc<Keeper>)>);

impl Committing {
    /// Waits until it is durable. A retryable error while the disk takes nothing; the changes keep their place all the same.
    pub async fn wait(self) -> Result<()> {
        self.wait_through(Duration::ZERO).await
    }

    /// The same, for a caller that rather waits for the disk for this long.
    pub async fn wait_through(self, patience: Duration) -> Result<()> {
        let Some((mut durable, keeper)) = self.0 else { return Ok(()) };
        let begun = Instant::now();
        loop {
            match tokio::time::timeout(LOOK, &mut durable).await {
                Ok(done) => return done.map_err(|_| stopped())?,
                Err(_) if begun.elapsed() < patience => {}
                Err(_) => keeper.usable("store metadata")?,
            }
        }
    }
}

pub struct Store {
    keeper: Arc<Keeper>,
    origins: std::sync::Mutex<Origins>,
    found: Arc<FoundEntries>,
    /// The process before did not end cleanly: changes that were in its queue are not in the database.
    pub after_a_crash: bool,
    jobs: std::sync::Mutex<Option<mpsc::Sender<CommitRequest>>>,
    committer: std::sync::Mutex<Option<JoinHandle<bool>>>,
}

fn db_error(operation: &'static str, error: impl Into<redb::Error>) -> Error {
    Error::new(ErrorKind::Io, operation, FILE_NAME).with_source(error.into())
}

impl Store {
    pub fn open(dir: &Path, cache_bytes: usize) -> Result<Store> {
        let mut options = std::fs::DirBuilder::new();
        let made = std::os::unix::fs::DirBuilderExt::mode(&mut options, 0o700).recursive(true).create(dir);
        made.map_err(|e| Error::io("create directory", dir.display(), e))?;
        let (keeper, after_a_crash) = Keeper::open(dir, cache_bytes)?;
        let keeper = Arc::new(keeper);
        let served = junctions::read(dir).unwrap_or_default();
        let origins = Origins::open(dir, served.ids.into_values())
            .map_err(|e| Error::io("note the origins in", dir.display(), e))?;
        let (jobs, queue) = mpsc::channel(QUEUE_MAX);
        let found = Arc::new(FoundEntries::default());
        let committer = std::thread::Builder::new()
            .name("namespace-commit".into())
            .spawn({
                let committer = Committer { keeper: keeper.clone(), found: found.clone() };
                move || committer.run(queue)
            })
            .map_err(|e| Error::io("start thread", "namespace-commit", e))?;
        Ok(Store {
            keeper,
            origins: std::sync::Mutex::new(origins),
            found,
            after_a_crash,
            jobs: std::sync::Mutex::new(Some(jobs)),
            committer: std::sync::Mutex::new(Some(committer)),
        })
    }

    /// Why the database takes nothing now, and what was lost since the start.
    pub fn trouble(&self) -> (Option<String>, Option<String>) {
        (self.keeper.trouble(), self.keeper.lost())
    }

    /// An error while commits would wait for the disk: nothing that needs one is begun then.
    pub fn usable(&self) -> Result<()> {
        self.keeper.usable("store metadata")
    }

    /// The number of databases that were begun anew: what was read from one is not in the next.
    pub fn generation(&self) -> u64 {
        self.keeper.generation()
    }

    fn read<T>(
        &self,
        operation: &'static str,
        look: impl FnOnce(&redb::ReadTransaction) -> std::result::Result<T, redb::Error>,
    ) -> Result<T> {
        self.keeper.read(operation, look).inspect_err(|_| {
            if self.keeper.is_broken() {
                self.wake();
            }
        })
    }

    /// Wakes the committer, which repairs a database that failed.
    fn wake(&self) {
        if let Ok(jobs) = self.jobs.lock()
            && let Some(jobs) = &*jobs
        {
            let _ = jobs.try_send(CommitRequest { changes: Vec::new(), done: None }); // full: it looks anyway
        }
    }

    /// The persisted id of a junction, given once and for ever to this pair of path and URL. `agreed`: the id that it has in a
    /// cluster.
    ///
    /// Errors: `Config` when this database has another junction under the agreed id, or this junction under another id.
    pub fn junction_id(&self, path: &str, url: &str, agreed: Option<JunctionId>) -> Result<JunctionId> {
        let key = junction_key(path, url);
        let run = |txn: &mut WriteTransaction| -> std::result::Result<_, redb::Error> {
            let mut all = junctions::Ids::new();
            let id = {
                let mut table = txn.open_table(JUNCTIONS)?;
                let known = table.get(key.as_slice())?.map(|v| v.value());
                for item in table.iter()? {
                    let (key, id) = item?;
                    all.insert(key.value().to_vec(), id.value());
                }
                let next = || all.values().max().map_or(1, |highest| highest + 1);
                let id = agreed.map_or_else(|| known.unwrap_or_else(next), |agreed| agreed.0);
                if known.unwrap_or(id) != id || all.iter().any(|(other, taken)| *taken == id && *other != key)
                {
                    return Ok(Err(all));
                }
                match known {
                    Some(_) => all.clear(),
                    None => {
                        table.insert(key.as_slice(), id)?;
                        all.insert(key.clone(), id);
                    }
                }
                id
            };
            Ok(Ok((id, all)))
        };
        let registered = self.keeper.write(run).map_err(|e| self.keeper.failed("register junction", e))?;
        let (id, new) = registered.map_err(|known| refused_id(path, agreed, &known))?;
        if !new.is_empty() {
            let failed = |e| Error::io("note the junction in", self.keeper.dir().display(), e);
            let database = junctions::read(self.keeper.dir()).and_then(|known| known.database);
            junctions::write(self.keeper.dir(), &junctions::Junctions { ids: new, database })
                .map_err(failed)?;
        }
        Ok(JunctionId(id))
    }

    /// The kept identity of a junction's origin, which outlives the database. Empty: it cannot be read any more.
    pub fn origin_of(&self, junction: JunctionId) -> Option<Bytes> {
        self.origins.lock().unwrap_or_else(PoisonError::into_inner).of(junction).cloned()
    }

    /// Keeps the identity of a junction's origin; durable when this returns.
    pub fn keep_origin(&self, junction: JunctionId, bytes: Bytes) -> Result<()> {
        let mut origins = self.origins.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = origins.keep(self.keeper.dir(), junction, bytes);
        kept.map_err(|e| Error::io("note the origin in", self.keeper.dir().display(), e))
    }

    pub fn aliases(&self) -> Result<Vec<(FileId, FileId)>> {
        let run = |txn: &redb::ReadTransaction| -> std::result::Result<_, redb::Error> {
            let table = txn.open_table(ALIASES)?;
            let mut aliases = Vec::new();
            for item in table.iter()? {
                let (computed, known) = item?;
                aliases.push((FileId(computed.value()), FileId(known.value())));
            }
            Ok(aliases)
        };
        self.read("read aliases", run)
    }

    /// The object with this id. `near`: the directory that it is probably in, where it is found with less effort.
    pub fn node(&self, id: FileId, near: Option<FileId>) -> Result<Option<Record>> {
        self.read("read object", |txn| objects::find(txn, id, near))
    }

    /// The object that clients know by this inode number.
    pub fn find_number(&self, number: u64) -> Result<Option<FileId>> {
        self.read("find an object", |txn| objects::first_of(txn, FileId::of_number(number)))
    }

    pub fn note(&self, id: FileId) -> Result<Option<Bytes>> {
        let run = |txn: &redb::ReadTransaction| -> std::result::Result<_, redb::Error> {
            let table = txn.open_table(NOTES)?;
            Ok(table.get(id.0)?.map(|note| Bytes::copy_from_slice(note.value())))
        };
        self.read("read note", run)
    }

    pub fn listing(&self, dir: FileId) -> Result<Option<StoredListing>> {
        let run = |txn: &redb::ReadTransaction| -> std::result::Result<_, redb::Error> {
            let table = txn.open_table(LISTINGS)?;
            Ok(table.get(dir.0)?.and_then(|v| StoredListing::decode(v.value())))
        };
        self.read("read listing", run)
    }

    pub fn find_entry(&self, dir: FileId, name: &[u8]) -> Result<Option<StoredEntry>> {
        let turn = self.found.turn(dir);
        if let Some(found) = self.found.get(turn, dir, name) {
            return Ok(Some(found));
        }
        let first = cookie::first_slot(name);
        let slots = self.entries(dir, first, first + cookie::SLOTS, cookie::SLOTS as usize)?;
        let entry = slots.into_iter().find(|e| e.name == name);
        if let Some(entry) = &entry {
            self.found.keep(turn, dir, entry);
        }
        Ok(entry)
    }

    /// Names of a file that had several when they were seen, with their directories; it may have lost some since.
    pub fn names_of(&self, file: FileId) -> Result<Vec<(FileId, Bytes)>> {
        let run = |txn: &redb::ReadTransaction| -> std::result::Result<_, redb::Error> {
            let table = txn.open_multimap_table(NAMES)?;
            let mut names = Vec::new();
            for item in table.get(file.0)?.take(NAMES_MAX) {
                let place = item?;
                let (dir, name) = place.value().split_at(16);
                names.extend(dir.try_into().ok().map(|dir| (FileId(dir), Bytes::copy_from_slice(name))));
            }
            Ok(names)
        };
        self.read("read names", run)
    }

    /// Entries with cookies after `after`, in the order of their cookies, `max` at most.
    pub fn entries_after(&self, dir: FileId, after: u64, max: usize) -> Result<Vec<StoredEntry>> {
        self.entries(dir, after.saturating_add(1), u64::MAX, max)
    }

    /// Entries with cookies before `before`, the nearest first, `max` at most.
    pub fn entries_before(&self, dir: FileId, before: u64, max: usize) -> Result<Vec<StoredEntry>> {
        let run = |txn: &redb::ReadTransaction| -> std::result::Result<_, redb::Error> {
            let table = txn.open_table(ENTRIES)?;
            let mut entries = Vec::new();
            for item in table.range(entry_key(dir, 0)..entry_key(dir, before))?.rev().take(max) {
                let (key, value) = item?;
                entries.extend(decode_entry(&key.value(), value.value()));
            }
            Ok(entries)
        };
        self.read("read entries", run)
    }

    fn entries(&self, dir: FileId, from: u64, to: u64, max: usize) -> Result<Vec<StoredEntry>> {
        let run = |txn: &redb::ReadTransaction| -> std::result::Result<_, redb::Error> {
            let table = txn.open_table(ENTRIES)?;
            let mut entries = Vec::new();
            for item in table.range(entry_key(dir, from)..entry_key(dir, to))?.take(max) {
                let (key, value) = item?;
                entries.extend(decode_entry(&key.value(), value.value()));
            }
            Ok(entries)
        };
        self.read("read entries", run)
    }

    /// Make the changes durable, and only then return.
    pub async fn commit(&self, changes: Vec<StoreChange>) -> Result<()> {
        self.begin_commit(changes).await?.wait().await
    }

    /// As `commit`, in two steps: when this returns, the changes have their place before all that come later.
    pub async fn begin_commit(&self, changes: Vec<StoreChange>) -> Result<Committing> {
        if changes.is_empty() {
            return Ok(Committing(None));
        }
        let (done, durable) = oneshot::channel();
        self.send(CommitRequest { changes, done: Some(done) }).await?;
        Ok(Committing(Some((durable, self.keeper.clone()))))
    }

    /// Make the changes durable soon; losing them costs a question to the origin, no more.
    pub async fn enqueue(&self, changes: Vec<StoreChange>) -> Result<()> {
        if changes.is_empty() { Ok(()) } else { self.send(CommitRequest { changes, done: None }).await }
    }

    async fn send(&self, job: CommitRequest) -> Result<()> {
        let jobs = self.jobs.lock().map_err(|_| stopped())?.clone().ok_or_else(stopped)?;
        match jobs.try_send(job) {
            Ok(()) => Ok(()),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(stopped()),
            Err(mpsc::error::TrySendError::Full(job)) => {
                // The queue is full: while the disk takes nothing, no further caller waits for it.
                self.usable()?;
                jobs.send(job).await.map_err(|_| stopped())
            }
        }
    }

    /// Commit what waits, then stop the committer: a clean end.
    pub fn close(&self) {
        drop(self.jobs.lock().map(|mut jobs| jobs.take()));
        self.keeper.stop();
        let committer = self.committer.lock().ok().and_then(|mut c| c.take());
        let Some(thread) = committer else { return };
        match thread.join() {
            Ok(true) => {
                if let Err(failure) = self.end() {
                    let e = self.keeper.failed("close database", failure);
                    warn!("the next start asks for everything anew: {e}");
                }
            }
            Ok(false) => warn!("the next start asks for everything anew: not all could be kept"),
            Err(_) => error!("the namespace committer has panicked"),
        }
    }

    /// No commit ends before what this returns is dropped.
    #[cfg(test)]
    pub fn hold_commits(&self) -> std::sync::mpsc::SyncSender<()> {
        let (hold, held) = std::sync::mpsc::sync_channel(1);
        let (begin, begun) = std::sync::mpsc::sync_channel(1);
        let keeper = self.keeper.clone();
        std::thread::spawn(move || {
            let written = keeper.write(|_| {
                let _ = begin.send(());
                let _ = held.recv();
                Ok(())
            });
            assert!(written.is_ok());
        });
        begun.recv().expect("it begins");
        hold
    }

    fn end(&self) -> std::result::Result<(), DatabaseFailure> {
        self.keeper.write(|txn| txn.open_table(STATE)?.remove(OPEN).map(drop).map_err(redb::Error::from))
    }
}

/// Ids and paths of all junctions that were ever served with this database; without the ids' file, none.
pub fn known_junctions(dir: &Path) -> Vec<(u32, String)> {
    let all = junctions::read(dir).unwrap_or_default().ids.into_iter();
    let path = |key: Vec<u8>| {
        String::from_utf8_lossy(key.split(|byte| *byte == 0).next().unwrap_or(&[])).into_owned()
    };
    all.map(|(key, id)| (id, path(key))).collect()
}

/// Was this junction served from the database in `dir` before? Used to decide whether an origin that is down at start is an
/// outage (go on) or a typing error (refuse).
pub fn knows_junction(dir: &Path, path: &str, url: &str) -> bool {
    let key = junction_key(path, url);
    if let Some(known) = junctions::read(dir) {
        return known.ids.contains_key(&key);
    }
    // Of an older version, which had the database alone.
    let run = || -> std::result::Result<bool, redb::Error> {
        let db = Database::open(dir.join(FILE_NAME))?;
        let txn = db.begin_read()?;
        let table = txn.open_table(JUNCTIONS)?;
        Ok(table.get(key.as_slice())?.is_some())
    };
    dir.join(FILE_NAME).exists() && matches!(pagefile::contained(run), Ok(Ok(true)))
}

fn stopped() -> Error {
    Error::new(ErrorKind::Unavailable, "store metadata", "the tier is shutting down")
}

/// The database was made by a tier outside of the cluster, or the cluster was made anew since.
fn refused_id(path: &str, agreed: Option<JunctionId>, known: &junctions::Ids) -> Error {
    let agreed = agreed.map_or_else(String::new, |id| id.to_string());
    let what = format!(
        "{path}: its id in the cluster is {agreed}, and this cache directory was used with other ids ({} junctions); give the \
         node a cache directory of its own with --cache, or empty this one",
        known.len()
    );
    Error::new(ErrorKind::Config, "register the junction", what)
}

fn junction_key(path: &str, url: &str) -> Vec<u8> {
    [path.as_bytes(), b"\0", url.as_bytes()].concat()
}

fn entry_key(dir: FileId, cookie: u64) -> [u8; 24] {
    let mut key = [0; 24];
    key[..16].copy_from_slice(&dir.0);
    key[16..].copy_from_slice(&cookie.to_be_bytes());
    key
}

fn decode_entry(key: &[u8; 24], value: &[u8]) -> Option<StoredEntry> {
    let (_, cookie) = key.split_last_chunk::<8>()?;
    let (child, name) = value.split_first_chunk::<16>()?;
    let child = (*child != [0; 16]).then_some(FileId(*child));
    Some(StoredEntry { cookie: u64::from_be_bytes(*cookie), name: Bytes::copy_from_slice(name), child })
}
