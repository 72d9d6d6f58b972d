//! The database as it is kept: opened, opened again after its disk failed, begun anew when it is damaged.
//!
//! redb refuses everything after one failed call, and believes what it reads. So every page has a checksum (`pagefile`),
//! writes that find no room wait, and what is left, a disk that fails and pages that are not what was written, ends here:
//! the committer opens the database again. It is a cache, but for handles and notes: one that is damaged is set aside,
//! and it is said what is lost with it.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use pagefile::{PageFile, PageFileHealth, WritePatience, contained};
use redb::{Database, ReadTransaction, ReadableDatabase, ReadableTable, WriteTransaction};
use tracing::{error, info};
use types::{Error, ErrorKind, Result};

use super::junctions::{self, Junctions};
use super::objects;
use super::{ALIASES, ENTRIES, FILE_NAME, JUNCTIONS, LISTINGS, NAMES, NOTES, OPEN, STATE};

/// A database that could not be opened again is tried again after this.
const AGAIN: Duration = Duration::from_secs(1);
const KIND: &str = "namespace";

type RedbResult<T> = std::result::Result<T, redb::Error>;

/// Why a call of the database failed.
pub enum DatabaseFailure {
    /// The disk does not return what was written.
    Damaged(String),
    /// The disk failed: the call may be repeated once the database is open again.
    Disk(redb::Error),
    Other(redb::Error),
}

pub struct Keeper {
    dir: PathBuf,
    cache_bytes: usize,
    health: Arc<PageFileHealth>,
    /// `None`: it is being opened again.
    db: RwLock<Option<Database>>,
    /// A call failed, and the committer has to see to it.
    broken: AtomicBool,
    closing: AtomicBool,
    /// Counts databases that were begun anew: what was read from one says nothing of the next.
    generation: AtomicU64,
    /// Why it is not open.
    trouble: Mutex<Option<String>>,
    /// What was lost since the start.
    lost: Mutex<Option<String>>,
}

impl Keeper {
    /// Opens the database. Also returns whether the process before did not end cleanly.
    pub fn open(dir: &Path, cache_bytes: usize) -> Result<(Keeper, bool)> {
        let keeper = Keeper {
            dir: dir.to_owned(),
            cache_bytes,
            health: Arc::default(),
            db: RwLock::default(),
            broken: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            generation: AtomicU64::new(0),
            trouble: Mutex::default(),
            lost: Mutex::default(),
        };
        let refused = |e: redb::Error| {
            Error::new(ErrorKind::Config, "open database", keeper.path().display()).with_source(e)
        };
        let (db, after_a_crash) = match keeper.open_database() {
            Ok(opened) => opened,
            Err(DatabaseFailure::Damaged(what)) => {
                keeper.set_aside(&what).map_err(|e| refused(redb::Error::Io(e)))?;
                match keeper.open_database() {
                    Ok((db, _)) => (db, true),
                    Err(DatabaseFailure::Damaged(what)) => {
                        return Err(refused(redb::Error::Corrupted(what)));
                    }
                    Err(DatabaseFailure::Disk(e) | DatabaseFailure::Other(e)) => return Err(refused(e)),
                }
            }
            Err(DatabaseFailure::Disk(e) | DatabaseFailure::Other(e)) => return Err(refused(e)),
        };
        *keeper.db.write().unwrap_or_else(PoisonError::into_inner) = Some(db);
        Ok((keeper, after_a_crash))
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn path(&self) -> PathBuf {
        self.dir.join(FILE_NAME)
    }

    fn open_database(&self) -> std::result::Result<(Database, bool), DatabaseFailure> {
        let opened = contained(|| -> RedbResult<(Database, bool)> {
            let file = PageFile::open(&self.path(), KIND, WritePatience::Wait, self.health.clone())?;
            let known = junctions::read(&self.dir).unwrap_or_default();
            let (id, is_new) = (file.id(), file.is_new());
            if !is_new && known.database.is_some_and(|database| database != id) {
                let what = "it is the database of another cache".to_owned();
                self.health.damaged(what.clone());
                return Err(redb::Error::Corrupted(what));
            }
            let db = Database::builder().set_cache_size(self.cache_bytes).create_with_backend(file)?;
            let txn = begin_write(&db)?;
            let after_a_crash = txn.open_table(STATE)?.insert(OPEN, 1)?.is_some();
            objects::take_over(&txn)?;
            txn.open_table(ENTRIES)?;
            txn.open_multimap_table(NAMES)?;
            txn.open_table(LISTINGS)?;
            txn.open_table(ALIASES)?;
            txn.open_table(NOTES)?;
            let mut ids = junctions::Ids::new();
            {
                let mut table = txn.open_table(JUNCTIONS)?;
                for (key, id) in &known.ids {
                    table.insert(key.as_slice(), id)?;
                }
                for item in table.iter()? {
                    let (key, id) = item?;
                    ids.insert(key.value().to_vec(), id.value());
                }
            }
            txn.commit()?;
            let all = Junctions { ids, database: Some(id) };
            if all != known {
                junctions::write(&self.dir, &all)?;
            }
            let is_gone = is_new && known.database.is_some();
            if is_gone && self.lost().is_none() {
                self.tell_lost("the metadata database was not there, and is begun anew".to_owned());
            }
            Ok((db, after_a_crash || is_gone))
        });
        self.outcome(opened)
    }

    fn outcome<T>(
        &self,
        done: std::result::Result<RedbResult<T>, String>,
    ) -> std::result::Result<T, DatabaseFailure> {
        let e = match done {
            Ok(Ok(done)) => return Ok(done),
            Err(panic) => return Err(DatabaseFailure::Damaged(panic)),
            Ok(Err(e)) => e,
        };
        Err(match (self.health.damage(), &e) {
            (Some(what), _) => DatabaseFailure::Damaged(what),
            (None, e) if pagefile::is_damage(e) => DatabaseFailure::Damaged(e.to_string()),
            (None, redb::Error::Io(_) | redb::Error::PreviousIo | redb::Error::LockPoisoned(_)) => {
                DatabaseFailure::Disk(e)
            }
            (None, redb::Error::TransactionPoisoned) => DatabaseFailure::Disk(e),
            _ => DatabaseFailure::Other(e),
        })
    }

    /// Reads what the last commit left.
    pub fn read<T>(
        &self,
        operation: &'static str,
        look: impl FnOnce(&ReadTransaction) -> RedbResult<T>,
    ) -> Result<T> {
        let db = self.db.read().unwrap_or_else(PoisonError::into_inner);
        let Some(open) = &*db else { return Err(self.away(operation)) };
        let done = contained(|| look(&open.begin_read()?));
        let failure = match self.outcome(done) {
            Ok(found) => return Ok(found),
            Err(failure) => failure,
        };
        drop(db);
        Err(self.failed(operation, failure))
    }

    /// Runs and commits one transaction.
    pub fn write<T>(
        &self,
        change: impl FnOnce(&mut WriteTransaction) -> RedbResult<T>,
    ) -> std::result::Result<T, DatabaseFailure> {
        let db = self.db.read().unwrap_or_else(PoisonError::into_inner);
        let Some(open) = &*db else { return Err(DatabaseFailure::Disk(redb::Error::PreviousIo)) };
        let done = contained(|| {
            let mut txn = begin_write(open)?;
            let done = change(&mut txn)?;
            txn.commit()?;
            Ok(done)
        });
        self.outcome(done)
    }

    /// The error for the caller. The committer repairs the database.
    pub fn failed(&self, operation: &'static str, failure: DatabaseFailure) -> Error {
        match failure {
            DatabaseFailure::Other(e) => super::db_error(operation, e),
            DatabaseFailure::Damaged(what) => {
                self.health.damaged(what);
                self.broken.store(true, Ordering::SeqCst);
                self.away(operation)
            }
            DatabaseFailure::Disk(e) => {
                self.note_trouble(&e);
                self.broken.store(true, Ordering::SeqCst);
                self.away(operation)
            }
        }
    }

    fn note_trouble(&self, e: &redb::Error) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if trouble.is_none() {
            error!("the metadata database failed, and is opened again: {e}");
            *trouble = Some(e.to_string());
        }
    }

    /// A retryable error.
    fn away(&self, operation: &'static str) -> Error {
        let why =
            self.trouble().or_else(|| self.health.damage()).unwrap_or_else(|| "it is being opened".into());
        Error::new(ErrorKind::Busy, operation, format!("{FILE_NAME}: {why}"))
    }

    pub fn is_broken(&self) -> bool {
        self.broken.load(Ordering::SeqCst)
    }

    /// Why the database takes nothing now.
    pub fn trouble(&self) -> Option<String> {
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone();
        trouble.or_else(|| self.health.waiting())
    }

    pub fn lost(&self) -> Option<String> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::SeqCst)
    }

    /// An error if a commit would wait for the disk now.
    pub fn usable(&self, operation: &'static str) -> Result<()> {
        if self.trouble().is_some() || self.is_broken() { Err(self.away(operation)) } else { Ok(()) }
    }

    /// Open the database again, whatever became of it. On the committer's thread; returns when it is open, or the end is
    /// near. True: it was begun anew, and `before_use` was called before anybody reads it. `forget` is called as soon as
    /// what was read before counts no more.
    pub fn mend(&self, forget: impl Fn(), mut before_use: impl FnMut()) -> bool {
        let mut anew = false;
        while !self.closing.load(Ordering::SeqCst) {
            let what = self.health.damage();
            if what.is_some() {
                // First of all: nobody is to go on with what the damaged one said.
                self.generation.fetch_add(1, Ordering::SeqCst);
                forget();
            }
            let before = self.db.write().unwrap_or_else(PoisonError::into_inner).take();
            let _ = contained(|| drop(before));
            if let Some(what) = what {
                match self.set_aside(&what) {
                    Ok(()) => anew = true,
                    Err(e) => self.note_trouble(&redb::Error::Io(e)),
                }
            }
            // It may wait for the disk, and nobody is to wait for that: until it is there, all are told to ask again.
            match self.open_database() {
                Ok((opened, _)) => {
                    if anew {
                        before_use();
                    }
                    *self.db.write().unwrap_or_else(PoisonError::into_inner) = Some(opened);
                    self.broken.store(false, Ordering::SeqCst);
                    *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = None;
                    info!("the metadata database is open again");
                    return anew;
                }
                Err(DatabaseFailure::Damaged(what)) => self.health.damaged(what),
                Err(DatabaseFailure::Disk(e) | DatabaseFailure::Other(e)) => self.note_trouble(&e),
            }
            std::thread::sleep(AGAIN);
        }
        anew
    }

    fn set_aside(&self, what: &str) -> std::io::Result<()> {
        let aside = pagefile::set_aside(&self.path())?;
        self.health.mended();
        self.tell_lost(format!(
            "the metadata database was damaged ({what}) and is begun anew; the damaged one is {}",
            aside.display()
        ));
        Ok(())
    }

    fn tell_lost(&self, what: String) {
        let lost = format!(
            "{what}. Lost: handles that clients hold of files that nobody looks up again (they get \"stale file handle\"), and \
             notes of what an interrupted flush had begun. Names and attributes are asked for again"
        );
        error!("{lost}");
        *self.lost.lock().unwrap_or_else(PoisonError::into_inner) = Some(lost);
    }

    /// Nothing waits for the disk any more.
    pub fn stop(&self) {
        self.closing.store(true, Ordering::SeqCst);
        self.health.close();
    }
}

/// Every commit keeps the allocator's state, the one of a start too: it is of the last commit before a crash that the next start
/// looks for it, and without it that start reads the whole file: seconds for a million objects. The price is a slightly
/// larger commit.
fn begin_write(db: &Database) -> RedbResult<WriteTransaction> {
    let mut txn = db.begin_write()?;
    txn.set_quick_repair(true);
    Ok(txn)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that is killed leaves what it had written by then.
    fn reads_the_whole_file_after_a_kill(dir: &Path) -> bool {
        let left = tempfile::tempdir().expect("a directory");
        let path = left.path().join(FILE_NAME);
        std::fs::copy(dir.join(FILE_NAME), &path).expect("copied");
        let file = PageFile::open(&path, KIND, WritePatience::Fail, Arc::default()).expect("opened");
        let repaired = Arc::new(AtomicBool::new(false));
        let note = repaired.clone();
        let mut builder = Database::builder();
        builder.set_repair_callback(move |_| note.store(true, Ordering::SeqCst));
        drop(builder.create_with_backend(file).expect("opened"));
        repaired.load(Ordering::SeqCst)
    }

    #[test]
    fn a_start_after_a_kill_does_not_read_the_whole_database_whatever_was_committed_last() {
        let dir = tempfile::tempdir().expect("a directory");
        for start in 0..3 {
            let Ok((keeper, _)) = Keeper::open(dir.path(), 1 << 20) else { panic!("it was not opened") };
            assert!(!reads_the_whole_file_after_a_kill(dir.path()), "killed at once after start {start}");
            let put = keeper.write(|txn| {
                txn.open_table(ALIASES)?.insert([start; 16], [2; 16])?;
                Ok(())
            });
            assert!(put.is_ok());
            assert!(!reads_the_whole_file_after_a_kill(dir.path()), "killed after a commit");
        }
    }

    #[test]
    fn a_database_whose_disk_failed_is_opened_again_with_what_it_had() {
        let dir = tempfile::tempdir().expect("a directory");
        let Ok((keeper, after_a_crash)) = Keeper::open(dir.path(), 1 << 20) else {
            panic!("it was not opened")
        };
        assert!(!after_a_crash);
        let put = |txn: &mut WriteTransaction| {
            txn.open_table(ALIASES)?.insert([1; 16], [2; 16])?;
            Ok(())
        };
        assert!(keeper.write(put).is_ok());
        let told = keeper.failed("commit metadata", DatabaseFailure::Disk(redb::Error::PreviousIo));
        assert!(told.is_retryable() && keeper.trouble().is_some() && keeper.usable("make").is_err());
        assert!(!keeper.mend(|| panic!("nothing is damaged"), || panic!("it is not begun anew")));
        assert_eq!((keeper.trouble(), keeper.lost(), keeper.generation()), (None, None, 0));
        let known = keeper.read("read aliases", |txn| {
            Ok(txn.open_table(ALIASES)?.get([1; 16])?.map(|known| known.value()))
        });
        assert_eq!(known.expect("read"), Some([2; 16]));
        assert!(keeper.write(put).is_ok(), "and takes more");
    }
}
