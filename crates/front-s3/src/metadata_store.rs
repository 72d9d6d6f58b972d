//! The metadata of objects that a file has no place for: ETag and headers. It is kept in a database beside the
//! cache, by file id, and holds only for the state of the file ([`StateStamp`]) that it was stored for.
//!
//! It may be lost: then an object gets another ETag and its headers are gone, but no byte depends on it. So a PUT is
//! answered before its record is synced, and records are evicted when there are too many.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use pagefile::{PageFile, PageFileHealth, WritePatience, contained};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use redb::{
    Database, Durability, ReadableDatabase, ReadableTableMetadata, TableDefinition, WriteTransaction,
};
use types::{Error, ErrorKind, FileId, Result, Version};
use vfs::Node;

const TABLE: TableDefinition<[u8; 16], &[u8]> = TableDefinition::new("facts");
/// The most records, of about 200 bytes each.
const ENTRIES_MAX: u64 = 1 << 20;
/// The records that are evicted at once when there are too many.
const EVICTED: usize = 1 << 12;
/// The bytes of records that are also kept in memory: of some 30,000 objects with few headers.
const IN_MEMORY: u64 = 8 << 20;
/// The approximate memory of a record without its texts, and of each text besides its bytes.
const ENTRY_BYTES: u64 = 200;
const TEXT_BYTES: u64 = 24;
/// The time between syncs: what a power cut may lose.
const SYNC_EVERY: Duration = Duration::from_secs(5);

/// Headers and user metadata, by name in lower case.
pub type Headers = Vec<(String, String)>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ObjectMetadata {
    /// Without quotes.
    pub etag: String,
    pub headers: Headers,
}

/// The least time between two attempts to reopen a failed database.
const REOPEN_EVERY: Duration = Duration::from_secs(5);

pub(crate) type DbResult<T> = std::result::Result<T, redb::Error>;

pub struct MetadataStore {
    path: PathBuf,
    health: Arc<PageFileHealth>,
    /// `None`: it failed and could not be reopened yet.
    database: RwLock<Option<Database>>,
    /// When it was last opened.
    opened: Mutex<Instant>,
    /// Records that were read or written lately; `None` for files that have no record.
    recent: Cache<FileId, RecentEntry, EntryWeigher>,
    /// Held while a record is written to the database and then to `recent`.
    write_lock: Mutex<()>,
    synced: Mutex<Instant>,
}

type RecentEntry = Option<Arc<(StateStamp, ObjectMetadata)>>;

#[derive(Clone)]
struct EntryWeigher;

impl Weighter<FileId, RecentEntry> for EntryWeigher {
    fn weight(&self, _: &FileId, recent: &RecentEntry) -> u64 {
        let Some(noted) = recent else { return ENTRY_BYTES };
        let texts = noted.1.headers.iter().flat_map(|(name, value)| [name, value]);
        let texts = texts.chain([&noted.1.etag]);
        texts.map(|text| TEXT_BYTES + text.len() as u64).sum::<u64>() + ENTRY_BYTES
    }
}

impl MetadataStore {
    /// Opens the database. One that cannot be read is set aside and replaced by an empty one: its contents are not
    /// worth a tier that does not start.
    pub fn open(path: &Path) -> Result<MetadataStore> {
        let health = Arc::new(PageFileHealth::default());
        let opened = open_database(path, &health).or_else(|e| {
            report_damage(path, &e);
            pagefile::set_aside(path)?;
            health.mended();
            open_database(path, &health)
        });
        let failed = |e| Error::new(ErrorKind::Io, "open", path.display()).with_source(e);
        Ok(MetadataStore {
            path: path.to_owned(),
            health,
            database: RwLock::new(Some(opened.map_err(failed)?)),
            opened: Mutex::new(Instant::now()),
            recent: Cache::with_weighter((IN_MEMORY / ENTRY_BYTES) as usize, IN_MEMORY, EntryWeigher),
            write_lock: Mutex::default(),
            synced: Mutex::new(Instant::now()),
        })
    }

    /// Calls the database. redb refuses everything after a failed call, so it is reopened then; a damaged one is set
    /// aside and replaced.
    pub(crate) fn call<T>(&self, call: impl FnOnce(&Database) -> DbResult<T>) -> DbResult<T> {
        let database = self.database.read().unwrap_or_else(PoisonError::into_inner);
        let done = match &*database {
            Some(database) => checked(|| call(database)),
            None => Err(redb::Error::PreviousIo),
        };
        drop(database);
        done.inspect_err(|e| self.open_again(e))
    }

    fn open_again(&self, e: &redb::Error) {
        let is_damaged = self.health.damage().is_some() || pagefile::is_damage(e);
        if !is_damaged
            && !matches!(e, redb::Error::Io(_) | redb::Error::PreviousIo | redb::Error::TransactionPoisoned)
        {
            return;
        }
        {
            let mut opened = self.opened.lock().unwrap_or_else(PoisonError::into_inner);
            if !is_damaged && opened.elapsed() < REOPEN_EVERY {
                return;
            }
            *opened = Instant::now();
        }
        let mut database = self.database.write().unwrap_or_else(PoisonError::into_inner);
        let before = database.take();
        let _ = contained(|| drop(before));
        if is_damaged {
            report_damage(&self.path, e);
            if let Err(e) = pagefile::set_aside(&self.path) {
                tracing::warn!("set aside {}: {e}", self.path.display());
                return;
            }
            self.health.mended();
        }
        match open_database(&self.path, &self.health) {
            Ok(opened) => *database = Some(opened),
            Err(e) => tracing::warn!("open {} again: {e}", self.path.display()),
        }
    }

    /// The record of this state of the file. `by_content`: the version may have changed by itself while size and
    /// mtime stay (a written-back file gets the origin's version when it is flushed).
    pub fn get(&self, node: &Node, by_content: bool) -> Option<ObjectMetadata> {
        let read = |database: &Database| {
            let transaction = database.begin_read()?;
            let table = transaction.open_table(TABLE)?;
            let found = table.get(node.id.0)?.and_then(|bytes| decode(bytes.value()));
            Ok(found.map(Arc::new))
        };
        match self.recent.get_or_insert_with(&node.id, || self.call(read)) {
            Ok(found) => {
                let found = found?;
                let (stamp, known) = &*found;
                stamp.matches_node(node, by_content).then(|| known.clone())
            }
            Err(e) => {
                tracing::warn!("read what is known of {}: {e}", node.id);
                None
            }
        }
    }

    pub fn put(&self, node: &Node, known: &ObjectMetadata) {
        let stamp = StateStamp::of(node);
        let bytes = encode(&stamp, known);
        let noted = Some(Arc::new((stamp, known.clone())));
        self.apply(node.id, noted, |table| table.insert(node.id.0, bytes.as_slice()).map(|_| ()));
    }

    pub fn forget(&self, id: FileId) {
        self.apply(id, None, |table| table.remove(id.0).map(|_| ()));
    }

    fn apply(
        &self,
        id: FileId,
        noted: RecentEntry,
        change: impl FnOnce(&mut redb::Table<'_, [u8; 16], &'static [u8]>) -> redb::Result<()>,
    ) {
        // Writes are serialized and memory is updated last: a reader that read the database before the change has
        // its entry replaced.
        let _alone = self.write_lock.lock().unwrap_or_else(PoisonError::into_inner);
        match self.write(change) {
            Ok(()) => self.recent.insert(id, noted),
            Err(e) => {
                self.recent.remove(&id);
                tracing::warn!("note what is known of {id}: {e}");
            }
        }
    }

    fn write(
        &self,
        change: impl FnOnce(&mut redb::Table<'_, [u8; 16], &'static [u8]>) -> redb::Result<()>,
    ) -> std::result::Result<(), redb::Error> {
        self.call(|database| self.write_to(database, change))
    }

    fn write_to(
        &self,
        database: &Database,
        change: impl FnOnce(&mut redb::Table<'_, [u8; 16], &'static [u8]>) -> redb::Result<()>,
    ) -> DbResult<()> {
        let mut transaction = database.begin_write()?;
        let is_due = {
            let mut synced = self.synced.lock().unwrap_or_else(PoisonError::into_inner);
            let is_due = synced.elapsed() > SYNC_EVERY;
            if is_due {
                *synced = Instant::now();
            }
            is_due
        };
        if !is_due {
            transaction.set_durability(Durability::None)?;
        }
        {
            let mut table = transaction.open_table(TABLE)?;
            change(&mut table)?;
            if table.len()? > ENTRIES_MAX {
                // Ids are hashes: the first ones are as good as any.
                let mut left = EVICTED;
                table.retain(|_, _| {
                    left = left.saturating_sub(1);
                    left == 0
                })?;
            }
        }
        transaction.commit()?;
        Ok(())
    }

    /// Syncs all records, at the end of the tier.
    pub fn sync(&self) {
        if let Err(e) = self.call(|database| Ok(database.begin_write()?.commit()?)) {
            tracing::warn!("store what is known of objects: {e}");
        }
    }
}

fn open_database(path: &Path, health: &Arc<PageFileHealth>) -> DbResult<Database> {
    checked(|| {
        let file = PageFile::open(path, "s3", WritePatience::Fail, health.clone())?;
        let database = Database::builder().create_with_backend(file)?;
        let transaction: WriteTransaction = database.begin_write()?;
        transaction.open_table(TABLE)?;
        transaction.commit()?;
        Ok(database)
    })
}

/// Treats a panic in the database as damage.
fn checked<T>(call: impl FnOnce() -> DbResult<T>) -> DbResult<T> {
    contained(call).unwrap_or_else(|panic| Err(redb::Error::Corrupted(panic)))
}

fn report_damage(path: &Path, e: &redb::Error) {
    tracing::error!(
        "{} is damaged ({e}), set aside and begun anew. Lost: ETags and stored headers of objects; they get others when they \
         are asked for",
        path.display()
    );
}

/// The state of a file that a record holds for.
struct StateStamp {
    version: Version,
    size: u64,
    mtime: (i64, u32),
}

impl StateStamp {
    fn of(node: &Node) -> StateStamp {
        let mtime = (node.attr.mtime.seconds, node.attr.mtime.nanos);
        StateStamp { version: node.version, size: node.attr.size, mtime }
    }

    fn matches_node(&self, node: &Node, by_content: bool) -> bool {
        let now = StateStamp::of(node);
        self.version == now.version || by_content && (self.size, self.mtime) == (now.size, now.mtime)
    }
}

/// A record: version, size, mtime; then strings, each after its length (two bytes, little-endian): the ETag, names
/// and values.
fn encode(stamp: &StateStamp, known: &ObjectMetadata) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(128);
    bytes.extend_from_slice(&stamp.version.0);
    bytes.extend_from_slice(&stamp.size.to_le_bytes());
    bytes.extend_from_slice(&stamp.mtime.0.to_le_bytes());
    bytes.extend_from_slice(&stamp.mtime.1.to_le_bytes());
    let pairs = known.headers.iter().flat_map(|(name, value)| [name, value]);
    encode_texts(std::iter::once(&known.etag).chain(pairs), &mut bytes);
    bytes
}

fn decode(bytes: &[u8]) -> Option<(StateStamp, ObjectMetadata)> {
    let (version, rest) = bytes.split_first_chunk::<16>()?;
    let (size, rest) = rest.split_first_chunk::<8>()?;
    let (seconds, rest) = rest.split_first_chunk::<8>()?;
    let (nanos, rest) = rest.split_first_chunk::<4>()?;
    let mtime = (i64::from_le_bytes(*seconds), u32::from_le_bytes(*nanos));
    let stamp = StateStamp { version: Version(*version), size: u64::from_le_bytes(*size), mtime };
    let mut texts = decode_texts(rest)?.into_iter();
    let etag = texts.next()?;
    Some((stamp, ObjectMetadata { etag, headers: pairs(texts)? }))
}

pub fn pairs(mut texts: impl Iterator<Item = String>) -> Option<Headers> {
    let mut headers = Vec::new();
    while let Some(name) = texts.next() {
        headers.push((name, texts.next()?));
    }
    Some(headers)
}

/// A text that is too long is written empty; the limits for headers are far below.
pub fn encode_texts<'a>(texts: impl Iterator<Item = &'a String>, bytes: &mut Vec<u8>) {
    for text in texts {
        let (length, text) = u16::try_from(text.len()).map_or((0, ""), |length| (length, text.as_str()));
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(text.as_bytes());
    }
}

pub fn decode_texts(mut bytes: &[u8]) -> Option<Vec<String>> {
    let mut texts = Vec::new();
    while !bytes.is_empty() {
        let (length, rest) = bytes.split_first_chunk::<2>()?;
        let (text, rest) = rest.split_at_checked(u16::from_le_bytes(*length).into())?;
        texts.push(String::from_utf8(text.to_vec()).ok()?);
        bytes = rest;
    }
    Some(texts)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use types::{Attr, FileKind, JunctionId, Timestamp};

    use super::*;

    fn node(id: u8, version: u64) -> Node {
        let time = Timestamp { seconds: 1, nanos: 0 };
        let attr = Attr {
            kind: FileKind::Regular,
            mode: 0o600,
            nlink: 1,
            uid: 0,
            gid: 0,
            size: version,
            used: 0,
            rdev: (0, 0),
            fsid: 1,
            fileid: 1,
            atime: time,
            mtime: time,
            ctime: time,
        };
        let mut of = [0; 16];
        of[..8].copy_from_slice(&version.to_le_bytes());
        Node { id: FileId([id; 16]), junction: JunctionId(1), attr, version: Version(of) }
    }

    fn known(n: u64, header: usize) -> ObjectMetadata {
        ObjectMetadata { etag: n.to_string(), headers: vec![("x".into(), "y".repeat(header))] }
    }

    /// Readers put what the database has in memory while it changes.
    #[test]
    fn what_was_noted_last_is_what_is_read_whoever_reads_meanwhile() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = MetadataStore::open(&dir.path().join("facts")).expect("opened");
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        store.get(&node(1, 0), true);
                        store.recent.remove(&FileId([1; 16]));
                    }
                });
            }
            let wrong = (1..2000).find(|n| {
                store.put(&node(1, *n), &known(*n, 1));
                store.get(&node(1, *n), false) != Some(known(*n, 1))
            });
            store.forget(FileId([1; 16]));
            let forgotten = store.get(&node(1, 1999), false);
            over.store(true, Ordering::Relaxed);
            assert_eq!((wrong, forgotten), (None, None));
        });
    }

    #[test]
    fn a_damaged_database_is_set_aside_and_the_next_one_is_used_at_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("facts");
        let store = MetadataStore::open(&path).expect("opened");
        (0..100).for_each(|n| store.put(&node(n, 1), &known(u64::from(n), 500)));
        store.sync();
        drop(store);
        let bytes = std::fs::read(&path).expect("there");
        // The database's own header, and every page but the first ones: at a start and while it is used.
        for (from, to) in [(512, 600), (64 << 10, bytes.len())] {
            let mut damaged = bytes.clone();
            damaged[from..to].iter_mut().for_each(|byte| *byte ^= 4);
            std::fs::write(&path, damaged).expect("written");
            let store = MetadataStore::open(&path).expect("opened");
            for n in 0..100 {
                let found = store.get(&node(n, 1), false);
                assert!(found.is_none() || found == Some(known(u64::from(n), 500)), "another fact");
            }
            store.put(&node(1, 2), &known(7, 1));
            assert_eq!(store.get(&node(1, 2), false), Some(known(7, 1)));
            assert!(dir.path().join("facts.damaged").exists());
            drop(store);
            std::fs::remove_file(dir.path().join("facts.damaged")).expect("removed");
        }
    }

    /// FOREBAY_FLIPS=2000 tries so many; a few always.
    #[test]
    fn a_flipped_bit_of_what_is_known_of_objects_is_never_another_fact() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("facts");
        let store = MetadataStore::open(&path).expect("opened");
        (0..100).for_each(|n| store.put(&node(n, 1), &known(u64::from(n), 100 + 10 * usize::from(n))));
        store.sync();
        drop(store);
        let whole = std::fs::read(&path).expect("there");
        let used: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] != 0).collect();
        let flips = std::env::var("FOREBAY_FLIPS").ok().and_then(|count| count.parse().ok()).unwrap_or(20);
        let (mut seed, mut found) = (9_u64, 0);
        for flip in 0..flips {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let at = used[(seed >> 24) as usize % used.len()];
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << (flip % 8);
            std::fs::write(&path, bytes).expect("written");
            let store = MetadataStore::open(&path).expect("opened");
            for n in 0..100 {
                let fact = store.get(&node(n, 1), false);
                let right = known(u64::from(n), 100 + 10 * usize::from(n));
                assert!(fact.is_none_or(|fact| fact == right), "byte {at}: another fact of {n}");
            }
            store.put(&node(1, 2), &known(7, 1));
            assert_eq!(store.get(&node(1, 2), false), Some(known(7, 1)), "byte {at}: it takes nothing");
            drop(store);
            let aside = dir.path().join("facts.damaged");
            found += usize::from(aside.exists());
            let _ = std::fs::remove_file(aside);
        }
        println!("{flips} flips: {found} found, {} in bytes that nobody reads", flips - found);
        assert!(found > flips / 2, "{found} of {flips}");
    }

    #[test]
    fn what_is_kept_in_memory_is_bounded_by_its_bytes() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = MetadataStore::open(&dir.path().join("facts")).expect("opened");
        for n in 0..200 {
            store.put(&node(n, 1), &known(1, 60_000));
        }
        assert!(store.recent.weight() <= IN_MEMORY, "{} bytes", store.recent.weight());
        assert!(store.recent.len() > 50, "{}", store.recent.len());
        assert!((0..200).all(|n| store.get(&node(n, 1), false).is_some()), "the database has all");
    }

    #[test]
    fn what_was_noted_is_read_back_and_what_is_damaged_is_nothing() {
        let stamp = StateStamp { version: Version([7; 16]), size: 5, mtime: (-3, 999) };
        let header = ("content-type".to_owned(), "text/plain".to_owned());
        let known = ObjectMetadata { etag: "abc".to_owned(), headers: vec![header] };
        let bytes = encode(&stamp, &known);
        let (read, again) = decode(&bytes).expect("whole");
        assert_eq!((read.version, read.size, read.mtime, again), (stamp.version, 5, (-3, 999), known));
        for end in 0..bytes.len() {
            if let Some((_, cut)) = decode(&bytes[..end]) {
                assert!(cut.headers.is_empty(), "cut between two texts at most");
            }
        }
    }
}
