//! Which junction each file here belongs to, and which version of it was asked for last.
//!
//! A cache knows ids of files and nothing else, and an id does not tell its junction; how many copies are wanted, and where, is the
//! junction's affair. So each node remembers it of the files that pass through it, over a restart, too: after a power cut of a whole
//! cluster no other node would know. The versions are of this run of the node alone.
//!
//! On disk it is a file of records of 24 bytes: file id (16), junction (4, little-endian), CRC-32C of both (4). A record that is
//! damaged is passed over: the file's junction is learnt again from its next reader. The file is written anew at each start, and
//! after a walk over the cache if most of its records are of files that are gone.

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use peer::message::OtherVersion;
use peer::message::checksum::block_checksum;
use types::{FileId, JunctionId, Version};

const RECORD: usize = 24;
/// Of a file that is read. A longer one is not of ours.
const INDEX_MAX: u64 = 256 << 20;
/// What another node tells is taken to be no older than this when it is here: a call is given up after half of it. Where calls wait for
/// each other it may be older.
const TOLD_LATE: Duration = Duration::from_secs(10);

/// Parts of what is known, each with a lock of its own.
const SHARDS: usize = 256;

/// Shared by all that learn of files or ask for them. What takes time, as a walk's end or an index that is written whole, goes over
/// one shard after the other and belongs on a thread that may block: whoever asks for a file meanwhile waits for one shard at most,
/// a 256th of all.
#[derive(Debug)]
pub struct KnownFiles {
    max: usize,
    shards: Vec<Mutex<KnownShard>>,
    /// Files that are known.
    count: AtomicUsize,
    /// Counts walks over the cache.
    round: AtomicU32,
    /// Records on disk.
    records: AtomicUsize,
}

#[derive(Debug, Default)]
struct KnownShard {
    files: HashMap<FileId, KnownFile>,
    /// Not yet on disk.
    fresh: Vec<(FileId, JunctionId)>,
}

#[derive(Clone, Copy, Debug)]
struct KnownFile {
    junction: JunctionId,
    /// The walk at which the file was met last. One that was just learnt may land behind the walk under way: it counts as met
    /// by the next one.
    round: u32,
    /// The version that was asked for last since the node was started, and when.
    read: Option<(Version, Duration)>,
    /// Until then words of others may be older than what was read here.
    doubted_until: Duration,
}

/// What is to be written.
#[derive(Debug, PartialEq, Eq)]
pub enum IndexChange {
    /// Behind what is there.
    Append(Vec<u8>),
    /// In place of what is there.
    Replace(Vec<u8>),
}

impl KnownFiles {
    /// `stored`: what the file on disk says. About `max` files are known at most; a walk makes room.
    pub fn new(max: usize, stored: &[u8]) -> KnownFiles {
        let known = KnownFiles {
            max,
            shards: std::iter::repeat_with(Mutex::default).take(SHARDS).collect(),
            count: AtomicUsize::new(0),
            round: AtomicU32::new(1),
            // More than there are: the first change writes it whole.
            records: AtomicUsize::new(usize::MAX),
        };
        for (file, junction) in stored.chunks_exact(RECORD).filter_map(read_record).take(max) {
            let before = known
                .shard(file)
                .files
                .insert(file, KnownFile { junction, round: 0, read: None, doubted_until: Duration::ZERO });
            known.count.fetch_add(usize::from(before.is_none()), Ordering::Relaxed);
        }
        known
    }

    fn shard(&self, file: FileId) -> MutexGuard<'_, KnownShard> {
        // Ids are hashes: their last bytes are spread evenly.
        lock(&self.shards[usize::from(file.0[15]) % SHARDS])
    }

    pub fn junction(&self, file: FileId) -> Option<JunctionId> {
        self.shard(file).files.get(&file).map(|known| known.junction)
    }

    /// The version that was asked for last since the node was started.
    pub fn read_version(&self, file: FileId) -> Option<Version> {
        self.shard(file).files.get(&file).and_then(|known| known.read).map(|(version, _)| version)
    }

    pub fn learn(&self, file: FileId, junction: JunctionId) {
        self.learn_in(&mut self.shard(file), file, junction);
    }

    /// As [`KnownFiles::learn`]; `version` was asked for at `asked`, and is there. An answer that came late, to who asked before
    /// another version was asked for, does not take the newer one's place.
    pub fn learn_read(&self, file: FileId, junction: JunctionId, version: Version, asked: Duration) {
        let mut shard = self.shard(file);
        self.learn_in(&mut shard, file, junction);
        if let Some(known) = shard.files.get_mut(&file)
            && known.read.is_none_or(|(_, newest)| asked >= newest)
        {
            known.read = Some((version, asked));
        }
    }

    /// Another node tells at `now` that it filled `version` for a reader. Returns whether that is news of the file's version.
    ///
    /// If another version was asked for here just before, either may be the newer one, as a word can be late. Then no version counts
    /// as asked for last, until the next reader or the next word.
    pub fn learn_filled(&self, file: FileId, junction: JunctionId, version: Version, now: Duration) -> bool {
        let mut shard = self.shard(file);
        self.learn_in(&mut shard, file, junction);
        let Some(known) = shard.files.get_mut(&file) else { return true };
        if known.read.is_some_and(|(read, asked)| read != version && now.saturating_sub(asked) < TOLD_LATE) {
            known.doubted_until = now + TOLD_LATE;
        }
        let is_in_doubt = now < known.doubted_until && known.read.is_none_or(|(read, _)| read != version);
        known.read = (!is_in_doubt).then_some((version, now));
        !is_in_doubt
    }

    fn learn_in(&self, shard: &mut KnownShard, file: FileId, junction: JunctionId) {
        match shard.files.get_mut(&file) {
            // It may have left the cache, and come back behind the walk.
            Some(known) if known.junction == junction => {
                known.round = known.round.max(self.round.load(Ordering::Relaxed) + 1);
                return;
            }
            Some(known) => known.junction = junction,
            None if self.count.load(Ordering::Relaxed) >= self.max => return,
            None => {
                let round = self.round.load(Ordering::Relaxed) + 1;
                shard
                    .files
                    .insert(file, KnownFile { junction, round, read: None, doubted_until: Duration::ZERO });
                self.count.fetch_add(1, Ordering::Relaxed);
            }
        }
        shard.fresh.push((file, junction));
    }

    /// What a node that is asked about `version` says of others that it holds.
    pub fn other_version(&self, file: FileId, version: Version, held: &[Version]) -> OtherVersion {
        match self.read_version(file) {
            Some(read) if read != version => OtherVersion::Read,
            Some(_) => OtherVersion::None,
            None if held.iter().any(|held| *held != version) => OtherVersion::Held,
            None => OtherVersion::None,
        }
    }

    /// The walk has met the file. Returns its junction.
    pub fn met(&self, file: FileId) -> Option<JunctionId> {
        let mut shard = self.shard(file);
        let known = shard.files.get_mut(&file)?;
        known.round = self.round.load(Ordering::Relaxed);
        Some(known.junction)
    }

    /// The walk has met all that is here: files that it did not meet are forgotten. The next one begins. Takes long.
    pub fn end_walk(&self) {
        let round = self.round.load(Ordering::Relaxed);
        for shard in &self.shards {
            let mut shard = lock(shard);
            let before = shard.files.len();
            shard.files.retain(|_, known| known.round >= round);
            self.count.fetch_sub(before - shard.files.len(), Ordering::Relaxed);
        }
        self.round.store(round + 1, Ordering::Relaxed);
    }

    /// What is to be written since the last call, if anything is. Takes long.
    pub fn change(&self) -> Option<IndexChange> {
        let fresh: usize = self.shards.iter().map(|shard| lock(shard).fresh.len()).sum();
        let many = self.count.load(Ordering::Relaxed).saturating_mul(2).saturating_add(1024);
        let is_whole = self.records.load(Ordering::Relaxed).saturating_add(fresh) > many;
        let mut bytes = Vec::new();
        for shard in &self.shards {
            let mut shard = lock(shard);
            // What is learnt of a shard after this is fresh again.
            let fresh = std::mem::take(&mut shard.fresh);
            if is_whole {
                let all = shard.files.iter();
                bytes.extend(all.flat_map(|(file, known)| write_record(*file, known.junction)));
            } else {
                bytes.extend(fresh.into_iter().flat_map(|(file, junction)| write_record(file, junction)));
            }
        }
        let written = bytes.len() / RECORD;
        if is_whole {
            self.records.store(written, Ordering::Relaxed);
            return Some(IndexChange::Replace(bytes));
        }
        self.records.fetch_add(written, Ordering::Relaxed);
        (!bytes.is_empty()).then_some(IndexChange::Append(bytes))
    }

    /// The last change was not written: the next one writes all.
    pub fn not_written(&self) {
        self.records.store(usize::MAX, Ordering::Relaxed);
    }
}

fn lock(shard: &Mutex<KnownShard>) -> MutexGuard<'_, KnownShard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

fn checksum_of(file: FileId, junction: &[u8]) -> u32 {
    block_checksum(file, Version([0; 16]), 0, junction)
}

fn write_record(file: FileId, junction: JunctionId) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    record[..16].copy_from_slice(&file.0);
    record[16..20].copy_from_slice(&junction.0.to_le_bytes());
    let sum = checksum_of(file, &record[16..20]);
    record[20..].copy_from_slice(&sum.to_le_bytes());
    record
}

fn read_record(record: &[u8]) -> Option<(FileId, JunctionId)> {
    let file = FileId(record.get(..16)?.try_into().ok()?);
    let junction: [u8; 4] = record.get(16..20)?.try_into().ok()?;
    let sum: [u8; 4] = record.get(20..24)?.try_into().ok()?;
    let is_good = checksum_of(file, &junction) == u32::from_le_bytes(sum);
    is_good.then(|| (file, JunctionId(u32::from_le_bytes(junction))))
}

/// The file of the index. What fails is told by whoever calls; the worst is that junctions have to be learnt again.
#[derive(Clone, Debug)]
pub struct IndexFile {
    path: PathBuf,
    /// Held by the one who writes: what was learnt later is written later.
    writing: Arc<Mutex<()>>,
}

impl IndexFile {
    pub fn new(path: &Path) -> IndexFile {
        IndexFile { path: path.to_owned(), writing: Arc::default() }
    }

    pub fn read(&self) -> std::io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        match File::open(&self.path).and_then(|file| file.take(INDEX_MAX).read_to_end(&mut bytes)) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            read => read.map(|_| bytes),
        }
    }

    /// Writes what was learnt since the last time. Takes long.
    pub fn write_news(&self, known: &KnownFiles) -> std::io::Result<()> {
        let _writing = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(change) = known.change() else { return Ok(()) };
        self.write(&change).inspect_err(|_| known.not_written())
    }

    /// A file that is replaced is there whole, in its old or its new form.
    fn write(&self, change: &IndexChange) -> std::io::Result<()> {
        match change {
            IndexChange::Append(bytes) => {
                let mut file = std::fs::OpenOptions::new().append(true).open(&self.path)?;
                file.write_all(bytes)
            }
            IndexChange::Replace(bytes) => {
                let new = self.path.with_extension("new");
                let mut file = cache::private_file(&new)?;
                file.write_all(bytes)?;
                file.sync_all()?;
                std::fs::rename(new, &self.path)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(n: u8) -> FileId {
        FileId([n; 16])
    }

    const VERSION: Version = Version([7; 16]);
    const ONE: JunctionId = JunctionId(1);
    const TWO: JunctionId = JunctionId(2);

    #[test]
    fn junctions_are_known_after_a_restart_and_a_damaged_record_costs_itself_alone() {
        let dir = tempfile::tempdir().expect("a directory");
        let index = IndexFile::new(&dir.path().join("FILES"));
        let known = KnownFiles::new(100, &index.read().expect("nothing is there yet"));
        (0..10).for_each(|n| known.learn(file(n), if n < 5 { ONE } else { TWO }));
        known.learn_read(file(3), ONE, VERSION, Duration::ZERO);
        index.write(&known.change().expect("there is something")).expect("written");
        known.learn(file(50), TWO);
        known.learn(file(0), TWO);
        let more = known.change().expect("there is something");
        assert!(matches!(&more, IndexChange::Append(bytes) if bytes.len() == 2 * RECORD));
        index.write(&more).expect("written");
        assert_eq!(known.change(), None);
        let mut stored = index.read().expect("read");
        let again = KnownFiles::new(100, &stored);
        for n in (0..10).chain([50]) {
            assert_eq!(again.junction(file(n)), known.junction(file(n)), "{n}");
        }
        assert_eq!(again.junction(file(0)), Some(TWO), "the last word counts");
        assert_eq!(again.read_version(file(3)), None, "that was another run");
        // The last one, of the file that was learnt last in the order of shards.
        stored[11 * RECORD] ^= 1;
        stored.push(9);
        let damaged = KnownFiles::new(100, &stored);
        assert_eq!((damaged.count.load(Ordering::Relaxed), damaged.junction(file(50))), (10, None));
    }

    #[test]
    fn a_record_that_was_cut_short_spoils_none_that_is_written_later() {
        let dir = tempfile::tempdir().expect("a directory");
        let index = IndexFile::new(&dir.path().join("FILES"));
        let whole: Vec<u8> = (0..3).flat_map(|n| write_record(file(n), ONE)).collect();
        std::fs::write(dir.path().join("FILES"), &whole[..2 * RECORD + 5]).expect("written");
        let known = KnownFiles::new(100, &index.read().expect("read"));
        known.learn(file(9), TWO);
        index.write(&known.change().expect("there is something")).expect("written");
        known.learn(file(10), TWO);
        index.write(&known.change().expect("there is something")).expect("written");
        let again = KnownFiles::new(100, &index.read().expect("read"));
        let files: Vec<u8> = (0..=255).filter(|n| again.junction(file(*n)).is_some()).collect();
        assert_eq!(files, [0, 1, 9, 10]);
    }

    #[test]
    fn files_that_a_walk_does_not_meet_are_forgotten_and_make_room() {
        let known = KnownFiles::new(4, &[]);
        (0..9).for_each(|n| known.learn(file(n), ONE));
        assert_eq!(known.junction(file(8)), None, "it is bounded");
        known.end_walk();
        known.end_walk();
        assert_eq!((known.met(file(1)), known.met(file(8))), (Some(ONE), None));
        assert_eq!(known.junction(file(0)), Some(ONE), "it may have landed behind the walk");
        known.end_walk();
        known.learn(file(8), TWO);
        assert_eq!((known.junction(file(0)), known.junction(file(1))), (None, Some(ONE)));
        assert_eq!(known.junction(file(8)), Some(TWO));
    }

    #[test]
    fn an_index_of_files_that_are_gone_is_written_anew() {
        let known = KnownFiles::new(100_000, &[]);
        let id = |n: u32| FileId(u128::from(n).to_be_bytes());
        (0..5000).for_each(|n| known.learn(id(n), ONE));
        assert!(matches!(known.change(), Some(IndexChange::Replace(bytes)) if bytes.len() == 5000 * RECORD));
        for _ in 0..3 {
            (0..100).for_each(|n| assert_eq!(known.met(id(n)), Some(ONE)));
            known.end_walk();
        }
        assert!(matches!(known.change(), Some(IndexChange::Replace(bytes)) if bytes.len() == 100 * RECORD));
        assert_eq!(known.change(), None);
        known.not_written();
        assert!(matches!(known.change(), Some(IndexChange::Replace(_))));
    }

    #[test]
    fn of_versions_the_one_that_was_asked_for_since_the_start_counts() {
        let (other, known) = (Version([8; 16]), KnownFiles::new(9, &[]));
        known.learn(file(1), ONE);
        assert_eq!(known.other_version(file(1), VERSION, &[VERSION]), OtherVersion::None);
        assert_eq!(known.other_version(file(1), VERSION, &[other]), OtherVersion::Held);
        known.learn_read(file(1), ONE, VERSION, Duration::from_secs(5));
        assert_eq!(known.other_version(file(1), VERSION, &[other]), OtherVersion::None);
        assert_eq!(known.other_version(file(1), other, &[]), OtherVersion::Read);
        known.learn_read(file(1), ONE, other, Duration::from_secs(4));
        assert_eq!(known.read_version(file(1)), Some(VERSION), "that answer came late");
        known.learn_read(file(1), ONE, other, Duration::from_secs(5));
        assert_eq!(known.read_version(file(1)), Some(other));
    }

    #[test]
    fn a_late_word_of_an_older_version_does_not_take_the_place_of_the_newer_one() {
        let (newer, known) = (Version([8; 16]), KnownFiles::new(9, &[]));
        let at = Duration::from_secs;
        assert!(known.learn_filled(file(1), ONE, VERSION, at(0)), "nothing was known");
        known.learn_read(file(1), ONE, newer, at(20));
        assert!(!known.learn_filled(file(1), ONE, VERSION, at(25)));
        assert_eq!(known.read_version(file(1)), None, "either may be the newer one");
        assert!(!known.learn_filled(file(1), ONE, VERSION, at(26)), "of another stripe of it");
        assert_eq!(known.read_version(file(1)), None);
        // So a node that was asked for the newer one may have it copied here, whatever is held here.
        assert_eq!(known.other_version(file(1), newer, &[]), OtherVersion::None);
        assert_eq!(known.other_version(file(1), newer, &[VERSION]), OtherVersion::Held);
        known.learn_read(file(1), ONE, newer, at(30));
        assert!(known.learn_filled(file(1), ONE, newer, at(31)));
        assert!(known.learn_filled(file(1), ONE, VERSION, at(41)), "no word is as late as that");
        assert_eq!(known.read_version(file(1)), Some(VERSION));
    }

    #[test]
    fn whoever_asks_waits_for_one_shard_at_most() {
        let known = KnownFiles::new(100_000, &[]);
        (0..200).for_each(|n| known.learn(file(n), ONE));
        // As one that takes long.
        let busy = known.shard(file(250));
        std::thread::scope(|scope| {
            let ends = scope.spawn(|| {
                known.end_walk();
                known.end_walk();
                known.change()
            });
            let (told, hears) = std::sync::mpsc::sync_channel(1);
            let known = &known;
            scope.spawn(move || {
                known.learn_read(file(201), TWO, VERSION, Duration::ZERO);
                told.send(known.read_version(file(201))).expect("somebody hears it");
            });
            let heard = hears.recv_timeout(std::time::Duration::from_secs(10));
            let is_stuck = !ends.is_finished();
            drop(busy);
            assert_eq!(heard, Ok(Some(VERSION)));
            assert!(is_stuck, "the walk's end waits for the shard that is busy");
            assert!(matches!(ends.join(), Ok(Some(IndexChange::Replace(_)))));
        });
    }
}
