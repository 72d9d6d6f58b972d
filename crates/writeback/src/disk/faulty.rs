//! A disk in memory that forgets at a power cut what a real one may forget, fails a sync, and is full for a while.
//!
//! Pessimistic within what POSIX allows: syncing a file says nothing of its name, and names reach the disk in any
//! order unless `sync_dir` stands between them.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use super::{Disk, DiskFile};
use crate::covered::COVERED_NAME;
use crate::random::TestRandom;

/// The unit that a disk writes whole or not at all.
const SECTOR: usize = 512;

#[derive(Default)]
pub struct FaultyDisk {
    names: Mutex<FaultyNames>,
    pub faults: Arc<Faults>,
}

#[derive(Default)]
pub struct Faults {
    /// The power is off: nothing is done any more.
    pub off: AtomicBool,
    /// Nothing new can be created.
    pub full: AtomicBool,
    /// Files that could not be created for that.
    pub refused: AtomicU64,
    /// While it is full, nothing can be written either: it copies on write.
    pub copies_on_write: AtomicBool,
    /// Syncs of files until one fails; 0: none does.
    pub sync_fails_in: AtomicU64,
    pub syncs: AtomicU64,
    /// Done once, before a file is read.
    pub at_read: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

impl Faults {
    fn powered(&self) -> io::Result<()> {
        if self.off.load(SeqCst) { Err(io::Error::other("the power is off")) } else { Ok(()) }
    }
}

#[derive(Default)]
struct FaultyNames {
    now: BTreeMap<String, Arc<FaultyDiskFile>>,
    durable: BTreeMap<String, Arc<FaultyDiskFile>>,
    pending: Vec<NameChange>,
}

#[derive(Clone)]
enum NameChange {
    Set(String, Arc<FaultyDiskFile>),
    Move(String, String, Arc<FaultyDiskFile>),
    Unset(String),
}

impl NameChange {
    fn is_of(&self, file: &str) -> bool {
        match self {
            NameChange::Set(name, _) | NameChange::Unset(name) => name == file,
            NameChange::Move(from, to, _) => from == file || to == file,
        }
    }

    fn apply(&self, names: &mut BTreeMap<String, Arc<FaultyDiskFile>>) {
        match self {
            NameChange::Set(name, file) => {
                names.insert(name.clone(), file.clone());
            }
            NameChange::Move(from, to, file) => {
                names.remove(from);
                names.insert(to.clone(), file.clone());
            }
            NameChange::Unset(name) => {
                names.remove(name);
            }
        }
    }
}

impl FaultyNames {
    fn change(&mut self, change: NameChange) {
        change.apply(&mut self.now);
        self.pending.push(change);
    }

    fn get(&self, name: &str) -> io::Result<Arc<FaultyDiskFile>> {
        self.now.get(name).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// Which unsynced writes a power cut spares.
#[derive(Clone, Copy)]
enum Mercy {
    None,
    All,
    /// What was done first, up to some point.
    First,
    /// Any subset, sector by sector and name by name.
    Any,
}

impl FaultyDisk {
    /// The disk as it comes back after the power was cut now.
    pub fn after_power_cut(&self, random: &mut TestRandom) -> Arc<FaultyDisk> {
        let mercy = [Mercy::None, Mercy::All, Mercy::First, Mercy::Any][random.below(4) as usize];
        let names = self.names.lock().unwrap();
        let mut left = names.durable.clone();
        // Of a file that says nothing when it is lost: by chances of its own, so that the others' are the same without it.
        let mut apart = TestRandom(names.pending.len() as u64);
        let (of_it, pending): (Vec<_>, Vec<_>) =
            names.pending.iter().partition(|change| change.is_of(COVERED_NAME));
        of_it.iter().filter(|_| apart.below(2) == 0).for_each(|change| change.apply(&mut left));
        let first = random.below(pending.len() as u64 + 1) as usize;
        for (at, change) in pending.into_iter().enumerate() {
            let spared = match mercy {
                Mercy::None => false,
                Mercy::All => true,
                Mercy::First => at < first,
                Mercy::Any => random.below(2) == 0,
            };
            if spared {
                change.apply(&mut left);
            }
        }
        let disk = FaultyDisk::default();
        disk.faults.full.store(self.faults.full.load(SeqCst), SeqCst);
        {
            let mut names = disk.names.lock().unwrap();
            for (name, file) in left {
                let random = if name == COVERED_NAME { &mut apart } else { &mut *random };
                let content = file.content.lock().unwrap().after_power_cut(mercy, random);
                let file =
                    Arc::new(FaultyDiskFile { content: Mutex::new(content), faults: disk.faults.clone() });
                names.now.insert(name.clone(), file.clone());
                names.durable.insert(name, file);
            }
        }
        Arc::new(disk)
    }

    /// The process was killed; the next one finds all that this one wrote.
    pub fn after_kill(self: &Arc<FaultyDisk>) -> Arc<FaultyDisk> {
        self.faults.off.store(false, SeqCst);
        self.clone()
    }

    /// Of all files.
    pub fn bytes(&self) -> u64 {
        let names = self.names.lock().unwrap();
        names.now.values().map(|file| file.content.lock().unwrap().now.len() as u64).sum()
    }

    /// Change a byte behind everybody's back, durably.
    pub fn rot(&self, name: &str, offset: u64) {
        let file = self.names.lock().unwrap().get(name).unwrap();
        let mut content = file.content.lock().unwrap();
        for bytes in [true, false] {
            let bytes = if bytes { &mut content.now } else { &mut content.durable };
            if let Some(byte) = bytes.get_mut(offset as usize) {
                *byte ^= 0x55;
            }
        }
    }
}

impl Disk for FaultyDisk {
    fn list(&self) -> io::Result<Vec<String>> {
        self.faults.powered()?;
        Ok(self.names.lock().unwrap().now.keys().cloned().collect())
    }

    fn create(&self, name: &str, length: u64) -> io::Result<Arc<dyn DiskFile>> {
        self.faults.powered()?;
        if self.faults.full.load(SeqCst) {
            self.faults.refused.fetch_add(1, SeqCst);
            return Err(io::ErrorKind::StorageFull.into());
        }
        let content = FaultyContent {
            now: vec![0; length as usize],
            durable: Vec::new(),
            pending: vec![DiskChange::Length(length as usize)],
        };
        let file = Arc::new(FaultyDiskFile { content: Mutex::new(content), faults: self.faults.clone() });
        self.names.lock().unwrap().change(NameChange::Set(name.into(), file.clone()));
        Ok(Arc::new(Handle(file)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.faults.powered()?;
        Ok(Arc::new(Handle(self.names.lock().unwrap().get(name)?)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        self.faults.powered()?;
        let mut names = self.names.lock().unwrap();
        let file = names.get(from)?;
        names.change(NameChange::Move(from.into(), to.into(), file));
        Ok(())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.faults.powered()?;
        let mut names = self.names.lock().unwrap();
        names.get(name)?;
        names.change(NameChange::Unset(name.into()));
        Ok(())
    }

    fn sync_dir(&self) -> io::Result<()> {
        self.faults.powered()?;
        let mut names = self.names.lock().unwrap();
        names.durable = names.now.clone();
        names.pending.clear();
        Ok(())
    }

    fn place(&self) -> String {
        "disk in memory".into()
    }
}

struct FaultyDiskFile {
    content: Mutex<FaultyContent>,
    faults: Arc<Faults>,
}

#[derive(Clone, Default)]
struct FaultyContent {
    /// What a read sees.
    now: Vec<u8>,
    durable: Vec<u8>,
    /// What was done since the last sync; after a failed one the disk never hears of what was done before it, and
    /// reads show it all the same.
    pending: Vec<DiskChange>,
}

#[derive(Clone)]
enum DiskChange {
    Write(usize, Vec<u8>),
    Length(usize),
}

impl DiskChange {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            DiskChange::Write(at, bytes) => {
                if content.len() < at + bytes.len() {
                    content.resize(at + bytes.len(), 0);
                }
                content[*at..at + bytes.len()].copy_from_slice(bytes);
            }
            DiskChange::Length(length) => content.resize(*length, 0),
        }
    }
}

impl FaultyContent {
    fn change(&mut self, change: DiskChange) {
        change.apply(&mut self.now);
        self.pending.push(change);
    }

    fn sync(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            change.apply(&mut self.durable);
        }
    }

    fn after_power_cut(&self, mercy: Mercy, random: &mut TestRandom) -> FaultyContent {
        let mut states = vec![self.durable.clone()];
        for change in &self.pending {
            let mut next = states[states.len() - 1].clone();
            change.apply(&mut next);
            states.push(next);
        }
        let last = states.len() as u64 - 1;
        let some = random.below(last + 1);
        let left = match mercy {
            Mercy::None => states.swap_remove(0),
            Mercy::All => states.swap_remove(last as usize),
            Mercy::First => states.swap_remove(some as usize),
            // Each sector as it was at some time since the last sync; the length likewise.
            Mercy::Any => {
                let mut left = vec![0; states[some as usize].len()];
                for (at, sector) in left.chunks_mut(SECTOR).enumerate() {
                    let from = &states[random.below(last + 1) as usize];
                    let from = from.get(at * SECTOR..).unwrap_or_default();
                    let length = from.len().min(sector.len());
                    sector[..length].copy_from_slice(&from[..length]);
                }
                left
            }
        };
        FaultyContent { now: left.clone(), durable: left, pending: Vec::new() }
    }
}

/// An open file: who holds one is counted.
struct Handle(Arc<FaultyDiskFile>);

impl DiskFile for Handle {
    fn length(&self) -> io::Result<u64> {
        self.0.faults.powered()?;
        Ok(self.0.content.lock().unwrap().now.len() as u64)
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.faults.powered()?;
        let call = self.0.faults.at_read.lock().unwrap().take();
        call.into_iter().for_each(|call| call());
        let content = self.0.content.lock().unwrap();
        let from = content.now.get(offset as usize..).unwrap_or_default();
        let length = from.len().min(buffer.len());
        buffer[..length].copy_from_slice(&from[..length]);
        Ok(length)
    }

    fn write_at(&self, offset: u64, parts: &[&[u8]]) -> io::Result<()> {
        self.0.faults.powered()?;
        let bytes = parts.concat();
        if self.0.faults.full.load(SeqCst) && self.0.faults.copies_on_write.load(SeqCst) {
            let half = bytes[..bytes.len() / 2].to_vec();
            self.0.content.lock().unwrap().change(DiskChange::Write(offset as usize, half));
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.0.content.lock().unwrap().change(DiskChange::Write(offset as usize, bytes));
        Ok(())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.0.faults.powered()?;
        self.0.content.lock().unwrap().change(DiskChange::Length(length as usize));
        Ok(())
    }

    fn allocate(&self, length: u64) -> io::Result<()> {
        self.0.faults.powered()?;
        let mut content = self.0.content.lock().unwrap();
        let grows = length as usize > content.now.len();
        if grows && self.0.faults.full.load(SeqCst) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        if grows {
            content.change(DiskChange::Length(length as usize));
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.0.faults.powered()?;
        self.0.faults.syncs.fetch_add(1, SeqCst);
        let mut content = self.0.content.lock().unwrap();
        let left = self.0.faults.sync_fails_in.load(SeqCst);
        if left > 0 {
            self.0.faults.sync_fails_in.store(left - 1, SeqCst);
            if left == 1 {
                content.pending.clear();
                return Err(io::Error::from_raw_os_error(5));
            }
        }
        content.sync();
        Ok(())
    }
}
