//! The journal as its users see it: append, wait until it is durable, read back, say that it is done.
//!
//! One thread commits (one fdatasync for all that wait), another gives room back. Work on the disk is done off the
//! runtime's threads, but for small writes into the kernel's memory. Waiting has a deadline or ends with its future; an
//! append that nobody waits for any more is taken back.

use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use types::{ByteRange, Error, ErrorKind, Result, Timeline};

use crate::bond::BondFile;
use crate::crash_points::Hook;
use crate::disk::{Disk, RealDisk};
use crate::index::Position;
use crate::log::{Append, Compacted, Full, Log, LogOptions};
use crate::metrics::Metrics;
use crate::quota;
use crate::recovery::Damage;
use crate::replica::{Feeder, Replica};
use crate::sabotage::Sabotage;
use crate::{DATA_MAX, SEGMENT_SIZE_MAX};

/// Appends that write at the same time. They take turns anyway; more would only hold threads.
const APPENDS_MAX: usize = 64;
/// Bytes of an entry that is written on a thread of the runtime. A thread that has nothing else to do (FUSE has several) writes
/// any: the journal lets one at a time, so that the others go on whatever the disk does.
const AT_ONCE_MAX: usize = 32 << 10;
/// A write into the kernel's memory that takes longer than this was made to wait...
const AT_ONCE_PATIENCE: Duration = Duration::from_millis(1);
/// ...or longer than this where it is larger than `AT_ONCE_MAX`...
const LARGE_PATIENCE: Duration = Duration::from_millis(10);
/// ...and so may others be, for as long as this.
const AT_ONCE_PAUSE: Duration = Duration::from_secs(1);
/// Written and not synced: beyond this a commit begins although nobody waits, so that the one at the end of a segment
/// has little left to do and the disk is never idle under a stream.
const UNSYNCED_MAX: u64 = 8 << 20;
/// A file system that takes nothing is asked again after this; nobody tells us when others have made room.
const FULL_RETRY: Duration = Duration::from_secs(1);
/// While writers wait for room, the log says so this often.
const SAY_FULL_EVERY: Duration = Duration::from_secs(60);
/// The age of what waits grows while nothing happens; it is shown as of so long ago at most.
const NOTE_EVERY: Duration = Duration::from_secs(5);

pub struct Config {
    /// Ours alone; made if need be.
    pub dir: PathBuf,
    /// Bytes that the journal may take on the disk, with a segment in reserve.
    pub size_max: u64,
    pub segment_size: u64,
    /// Told each step; [`crate::abort_at`] makes one that kills the process.
    pub hook: Option<Hook>,
    /// Keeps copies on other nodes. Needs a runtime at `open`.
    pub replica: Option<Arc<dyn Replica>>,
    /// Stamps the entries.
    pub timeline: Timeline,
    /// The file, on another disk, that says which journal belongs there; made if need be.
    pub bond: Option<PathBuf>,
    /// A journal that is missing or another one is given up, and a new one begins.
    pub accept_other: bool,
}

impl Config {
    pub fn new(dir: impl Into<PathBuf>) -> Config {
        // 64 MiB: an unlink every few seconds under a stream at disk speed, and little held up by one stuck entry.
        Config {
            dir: dir.into(),
            size_max: 10 << 30,
            segment_size: 64 << 20,
            hook: None,
            replica: None,
            bond: None,
            timeline: Timeline::default(),
            accept_other: false,
        }
    }

    fn check(&self) -> Result<()> {
        let wrong = |message: String| Err(Error::new(ErrorKind::Config, "journal:", message));
        // The largest entry with its frame and the segment's header.
        let least = u64::from(DATA_MAX) + (128 << 10);
        if self.segment_size < least || self.segment_size > SEGMENT_SIZE_MAX.into() {
            return wrong(format!(
                "a segment has {least} to {SEGMENT_SIZE_MAX} bytes, not {}",
                self.segment_size
            ));
        }
        if self.size_max < 4 * self.segment_size {
            let least = 4 * self.segment_size;
            return wrong(format!("give it {least} bytes (four segments) or more, not {}", self.size_max));
        }
        Ok(())
    }
}

/// An entry that was written. Not durable before [`Journal::synced`] says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    pub sequence: u64,
    pub position: Position,
}

/// Dropping it waits for the sync that is under way, and is an unclean end: [`Journal::close`] makes a clean one.
pub struct Journal {
    log: Arc<Log>,
    committer: JournalThread,
    keeper: JournalThread,
    /// Up to where somebody wants a commit.
    wanted: Arc<AtomicU64>,
    appends: Arc<Semaphore>,
    room: Arc<Notify>,
    /// When the kernel last made a writer wait who was not to.
    waited: Mutex<Option<Instant>>,
    /// When it was last said that it is full.
    said_full: Mutex<Option<Instant>>,
    feeder: Option<Feeder>,
}

impl Journal {
    /// Does its work on this thread: read the journal, cut what a crash tore. Call it where blocking is allowed.
    pub fn open(config: Config) -> Result<(Journal, Recovered)> {
        config.check()?;
        let bond = config.bond.as_deref().map(BondFile::read).transpose()?;
        let disk = RealDisk::claim(&config.dir)?;
        if let Some(bond) = &bond {
            bond.check(&disk, &config.dir, config.accept_other)?;
        }
        Journal::open_on(Arc::new(disk), config, bond)
    }

    fn open_on(disk: Arc<dyn Disk>, config: Config, bond: Option<BondFile>) -> Result<(Journal, Recovered)> {
        let options = LogOptions {
            size_max: config.size_max,
            segment_size: config.segment_size,
            fresh: random_id()?,
            hook: config.hook.unwrap_or_else(|| Arc::new(|_| {})),
            sabotage: Sabotage::default(),
            timeline: config.timeline,
            bond,
        };
        let log = Arc::new(Log::open(disk, options)?);
        let room = Arc::new(Notify::new());
        let wanted = Arc::new(AtomicU64::new(0));
        let committer = {
            let (log, wanted) = (log.clone(), wanted.clone());
            JournalThread::start("journal-sync", move |bell| commit_on(&bell, &log, &wanted))?
        };
        let keeper = {
            let (log, room) = (log.clone(), room.clone());
            JournalThread::start("journal-room", move |bell| keep_room_on(&bell, &log, &room))?
        };
        let recovered = Recovered { sequences: log.live_sequences().into_iter(), log: log.clone() };
        let feeder = config.replica.map(|replica| Feeder::start(log.clone(), replica));
        let appends = Arc::new(Semaphore::new(APPENDS_MAX));
        let (waited, said_full) = (Mutex::default(), Mutex::default());
        Ok((Journal { log, committer, keeper, wanted, appends, room, waited, said_full, feeder }, recovered))
    }

    pub fn metrics(&self) -> &Metrics {
        &self.log.metrics
    }

    /// Stays the same until an open that follows an unclean end: what was written and not synced may be lost.
    pub fn verifier(&self) -> [u8; 8] {
        self.log.verifier()
    }

    /// Places where the journal is not what it was, until that is accepted. While there are any, everything can be read
    /// and nothing written.
    pub fn damage(&self) -> &[Damage] {
        self.log.damage()
    }

    /// Go on with what is readable, knowing that entries may be missing. On this thread, as the opening.
    pub fn accept_damage(&self) -> Result<()> {
        self.log.accept_damage()
    }

    /// A write or a sync failed: nothing is accepted before the journal is opened anew.
    pub fn is_latched(&self) -> bool {
        self.log.is_latched()
    }

    /// Write an entry behind all others. While the journal is full, waits for room until the deadline: then `NoSpace`
    /// if it is the quota that is used up, `Busy` if the file system is full below it.
    ///
    /// If the future is dropped, the entry is taken back or was never written.
    pub async fn append(&self, head: Bytes, data: Bytes, deadline: Instant) -> Result<Ticket> {
        self.log.usable()?;
        let bytes = (head.len() + data.len()) as u64;
        let delay = quota::delay(self.log.used_bytes(), self.log.entries_max(), bytes);
        if !delay.is_zero() {
            tokio::time::sleep_until((Instant::now() + delay).min(deadline)).await;
        }
        let mut waited = false;
        loop {
            let mut room = pin!(self.room.notified());
            room.as_mut().enable();
            let full = match self.write(head.clone(), data.clone()).await? {
                Append::Written(position) => {
                    let ticket = Ticket { sequence: position.sequence, position };
                    if let Some(feeder) = &self.feeder {
                        feeder.appended(ticket.sequence);
                    }
                    return Ok(ticket);
                }
                Append::Full(full) => full,
            };
            if Instant::now() >= deadline {
                return Err(no_room(full));
            }
            if !std::mem::replace(&mut waited, true) {
                self.log.metrics.waited_for_room.inc();
                self.say_full(full);
            }
            self.keeper.ring();
            let again = (Instant::now() + FULL_RETRY).min(deadline);
            let _ = tokio::time::timeout_at(again, room).await;
        }
    }

    fn say_full(&self, full: Full) {
        let mut said = self.said_full.lock().unwrap_or_else(PoisonError::into_inner);
        if said.is_none_or(|said| said.elapsed() >= SAY_FULL_EVERY) {
            *said = Some(Instant::now());
            let why = match full {
                Full::Quota => "has used up its size",
                Full::Disk => "is on a file system that is full or read-only, or no file descriptor is free",
            };
            tracing::warn!("writers wait: the journal {why}; what is flushed makes room");
        }
    }

    async fn write(&self, head: Bytes, data: Bytes) -> Result<Append> {
        if let Some(written) = self.write_at_once(&head, &data)? {
            return Ok(written);
        }
        let permit = self.appends.clone().acquire_owned().await.expect("never closed");
        let log = self.log.clone();
        let written = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let outcome = log.append(&head, &data)?;
            let much = log.unsynced_bytes() > UNSYNCED_MAX;
            Ok::<_, Error>((Undelivered { log, outcome: Some(outcome) }, much))
        });
        let (written, much) = written.await.expect("appending does not panic")?;
        if much {
            self.want(self.log.last_sequence());
        }
        Ok(written.deliver())
    }

    /// On this thread, without waking another: for a small entry that would cost more than the writing. `None`: the entry is too
    /// large for a thread that others need, it might wait, or the kernel has made one wait just now (it does when other
    /// programs fill its memory with what is to be written).
    fn write_at_once(&self, head: &[u8], data: &[u8]) -> Result<Option<Append>> {
        let calm = || self.waited.lock().unwrap_or_else(PoisonError::into_inner).is_none_or(is_over);
        let is_large = head.len() + data.len() > AT_ONCE_MAX;
        if (is_large && !may_wait()) || !calm() {
            return Ok(None);
        }
        let patience = if is_large { LARGE_PATIENCE } else { AT_ONCE_PATIENCE };
        let begun = Instant::now();
        let written = self.log.append_at_once(head, data)?;
        if begun.elapsed() > patience {
            *self.waited.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        let Some((written, unsynced)) = written else { return Ok(None) };
        if unsynced > UNSYNCED_MAX {
            self.want(self.log.last_sequence());
        }
        Ok(Some(written))
    }

    fn want(&self, sequence: u64) {
        self.wanted.fetch_max(sequence, Ordering::SeqCst);
        self.committer.ring();
    }

    /// On this thread, if it may wait and no other does: to wake another, and be woken by it, takes about half as long as
    /// the fdatasync of a good disk. What is no task is polled by a thread that has nothing else to do (FUSE has several).
    fn sync_here(&self) -> bool {
        // A failure is latched.
        may_wait() && self.log.try_commit().is_some()
    }

    /// Returns when an fdatasync covers the entry and all before it, and their copies are kept where they should be.
    pub async fn synced(&self, sequence: u64) -> Result<()> {
        let mut durable = self.log.durable();
        if *durable.borrow_and_update() < sequence {
            if sequence > self.log.last_sequence() {
                let context = format!("{sequence}, which was never given out");
                return Err(Error::new(ErrorKind::InvalidArgument, "wait for journal entry", context));
            }
            if !self.sync_here() {
                self.want(sequence);
            }
        }
        loop {
            // Looked at first: whoever latches after that wakes us.
            let is_durable = *durable.borrow_and_update() >= sequence;
            self.log.usable()?;
            if is_durable {
                break;
            }
            durable.changed().await.expect("the log outlives the journal");
        }
        let Some(feeder) = &self.feeder else { return Ok(()) };
        let mut replicated = feeder.replicated.clone();
        let kept = replicated.wait_for(|kept| *kept >= sequence).await.is_ok();
        self.log.usable()?;
        if kept {
            Ok(())
        } else {
            Err(Error::new(ErrorKind::Io, "wait for copies of journal entry", sequence))
        }
    }

    /// Bytes of an entry's data. `Stale` once it is done: what lay there is at the origin.
    ///
    /// A read of the whole is checked every time; a piece, when the entry was not checked before since the open. Who
    /// flushes reads the whole, so that nothing that went bad on the disk reaches the origin.
    pub async fn read(&self, position: Position, range: ByteRange) -> Result<Bytes> {
        let log = self.log.clone();
        off_runtime(move || log.read(position, range)).await
    }

    /// The encoded operation of an entry.
    pub async fn head(&self, sequence: u64) -> Result<Bytes> {
        let log = self.log.clone();
        off_runtime(move || log.head(sequence)).await.map(|(_, head)| head)
    }

    /// The entries are at the origin; noted in this order. Not durable before [`Journal::done_synced`]: after a crash they
    /// may be there once more, and who flushes must bear that.
    pub async fn done(&self, sequences: &[u64]) -> Result<()> {
        let (log, sequences) = (self.log.clone(), sequences.to_vec());
        off_runtime(move || sequences.into_iter().try_for_each(|sequence| log.done(sequence))).await?;
        self.keeper.ring();
        Ok(())
    }

    /// Returns when all that was called done before stays done, whatever happens: one fdatasync for all who wait here.
    /// `Busy` while the disk is too full to note it.
    pub async fn done_synced(&self) -> Result<()> {
        let log = self.log.clone();
        off_runtime(move || log.sync_done()).await
    }

    /// Move what is live in the oldest segment out of its way. Done by itself when room is scarce and little is live.
    pub async fn compact(&self) -> Result<Compacted> {
        let log = self.log.clone();
        let compacted = off_runtime(move || log.compact()).await;
        self.room.notify_waiters();
        compacted
    }

    /// Bytes in use and the most that entries may use.
    pub fn fill(&self) -> (u64, u64) {
        (self.log.used_bytes(), self.log.entries_max())
    }

    /// Since the oldest entry that is not done was written.
    pub fn oldest_age(&self) -> Option<Duration> {
        self.log.oldest_age()
    }

    /// End cleanly: all is durable, and the verifier will stay. Nothing is accepted afterwards.
    pub async fn close(&self) -> Result<()> {
        let log = self.log.clone();
        off_runtime(move || log.close()).await
    }
}

/// What is no task is polled by a thread that has nothing else to do.
fn may_wait() -> bool {
    tokio::task::try_id().is_none()
}

fn is_over(waited: Instant) -> bool {
    waited.elapsed() > AT_ONCE_PAUSE
}

async fn off_runtime<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.expect("work on the journal does not panic")
}

fn no_room(full: Full) -> Error {
    match full {
        Full::Quota => Error::new(ErrorKind::NoSpace, "append to journal", "which has used up its quota"),
        Full::Disk => {
            Error::new(ErrorKind::Busy, "append to journal", "whose file system is full or read-only")
        }
    }
}

/// An append whose caller has not seen it yet. One that goes away without having seen it does not know of the entry
/// and will never call it done: it is done at once.
struct Undelivered {
    log: Arc<Log>,
    outcome: Option<Append>,
}

impl Undelivered {
    fn deliver(mut self) -> Append {
        self.outcome.take().expect("delivered once")
    }
}

impl Drop for Undelivered {
    fn drop(&mut self) {
        if let Some(Append::Written(position)) = self.outcome.take()
            && let Err(error) = self.log.done(position.sequence)
        {
            tracing::warn!("take back journal entry {}: {error}", position.sequence);
        }
    }
}

/// The entries that were there at open and are not done, in the order of their sequences.
pub struct Recovered {
    sequences: std::vec::IntoIter<u64>,
    log: Arc<Log>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredEntry {
    pub sequence: u64,
    pub head: Bytes,
    /// Of its data.
    pub position: Position,
    /// By the tier's time line.
    pub written_ms: u64,
}

impl Iterator for Recovered {
    type Item = Result<RecoveredEntry>;

    /// Reads the head from the disk.
    fn next(&mut self) -> Option<Self::Item> {
        let sequence = self.sequences.next()?;
        let written_ms = self.log.written_ms(sequence).unwrap_or(0);
        let head = self.log.head(sequence);
        Some(head.map(|(position, head)| RecoveredEntry { sequence, head, position, written_ms }))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.sequences.size_hint()
    }
}

/// A thread that works when the bell is rung; rings while it works come to one more round.
struct JournalThread {
    bell: Option<SyncSender<()>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl JournalThread {
    fn start(name: &str, work: impl FnOnce(Receiver<()>) + Send + 'static) -> Result<JournalThread> {
        let (bell, rung) = sync_channel(1);
        let thread = std::thread::Builder::new().name(name.into()).spawn(move || work(rung));
        let thread = thread.map_err(|e| Error::io("start thread", name, e))?;
        Ok(JournalThread { bell: Some(bell), thread: Mutex::new(Some(thread)) })
    }

    fn ring(&self) {
        if let Some(bell) = &self.bell {
            // Full: rung already, and the round is still to come.
            let _ = bell.try_send(());
        }
    }
}

impl Drop for JournalThread {
    /// Waits for the round that is under way: at most one sync or one segment's copies.
    fn drop(&mut self) {
        self.bell = None;
        let thread = self.thread.lock().ok().and_then(|mut thread| thread.take());
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

fn commit_on(bell: &Receiver<()>, log: &Log, wanted: &AtomicU64) {
    while bell.recv().is_ok() {
        if wanted.load(Ordering::SeqCst) <= *log.durable().borrow() {
            continue;
        }
        // A failure is latched, and who waits has been woken by that.
        let _ = log.commit();
        log.note();
    }
}

fn keep_room_on(bell: &Receiver<()>, log: &Log, room: &Notify) {
    loop {
        match bell.recv_timeout(NOTE_EVERY) {
            Ok(()) => {}
            Err(RecvTimeoutError::Timeout) => {
                log.note();
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let mut given_back = false;
        if let Err(error) = keep_room(log, &mut given_back)
            && !log.is_latched()
        {
            tracing::warn!("give back room in the journal: {error}");
        }
        log.note();
        // Who waits rings this bell: woken for nothing, it would ring at once again.
        if given_back {
            room.notify_waiters();
        }
    }
}

fn keep_room(log: &Log, given_back: &mut bool) -> Result<()> {
    *given_back |= log.reclaim()? > 0;
    while log.worth_compacting() {
        if !matches!(log.compact()?, Compacted::Moved(_)) {
            break;
        }
        *given_back = true;
    }
    Ok(())
}

fn random_id() -> Result<[u8; 16]> {
    use std::io::Read;
    let mut id = [0; 16];
    let source = "/dev/urandom";
    let read = std::fs::File::open(source).and_then(|mut file| file.read_exact(&mut id));
    read.map(|()| id).map_err(|e| Error::io("read", source, e))
}

#[cfg(test)]
mod tests;
