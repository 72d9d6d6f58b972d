//! A database's file with a checksum for each page, bound to the file and to the page's place in it.
//!
//! redb does not check pages when it reads them: a flipped bit is a wrong size, a listing that is short, or a panic. So it
//! gets its bytes through this file: what it reads is what it wrote, or an error. Bytes on disk:
//! docs/design/disk-format.md, "Databases".
//!
//! Errors that pass (no room, a file system that is read-only or a disk that fails for a while) can be waited out here when
//! something is written, because redb refuses everything after the first error. What it does not survive is told in
//! [`PageFileHealth`], for the owner of the database.

mod guard;
mod layout;

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

pub use guard::contained;
use layout::{GROUP, Group, HEAD, Head, PAGE, SECTOR};

/// A write that found no room is tried again after this.
const AGAIN: Duration = Duration::from_millis(250);
const EIO: i32 = 5;
/// First bytes of a database of an older version, which had no checksums.
const PLAIN: &[u8] = b"redb";

/// How the file does, for the owner of the database.
#[derive(Debug, Default)]
pub struct PageFileHealth {
    /// Why a write waits.
    waiting: Mutex<Option<String>>,
    /// What was read and is not what was written.
    damage: Mutex<Option<String>>,
    /// Nobody waits any more.
    closing: AtomicBool,
}

impl PageFileHealth {
    pub fn waiting(&self) -> Option<String> {
        lock(&self.waiting).clone()
    }

    pub fn damage(&self) -> Option<String> {
        lock(&self.damage).clone()
    }

    pub fn damaged(&self, what: String) {
        lock(&self.damage).get_or_insert(what);
    }

    /// Of the file that follows one that was set aside.
    pub fn mended(&self) {
        *lock(&self.damage) = None;
    }

    /// Writes that wait fail.
    pub fn close(&self) {
        self.closing.store(true, Ordering::SeqCst);
    }
}

/// For small files beside a database.
pub fn checksum(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What to do about errors that pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritePatience {
    /// Try again until it is done, or the database is closed. Readers go on meanwhile.
    Wait,
    Fail,
}

/// The file, for redb.
#[derive(Debug)]
pub struct PageFile {
    file: File,
    id: [u8; 16],
    is_new: bool,
    patience: WritePatience,
    health: Arc<PageFileHealth>,
    /// Checksums that were read or written.
    groups: RwLock<HashMap<u64, Box<Group>>>,
    /// Held while a page and its checksum are written: in between they do not fit.
    writing: Mutex<Unsynced>,
}

/// What was written since the last sync that succeeded. After one that failed the kernel shows bytes that never reached the
/// disk, and another sync would say nothing of them: they are written again first.
#[derive(Debug, Default)]
struct Unsynced {
    header: Option<Box<[u8; SECTOR]>>,
    pages: BTreeSet<u64>,
}

impl PageFile {
    /// Open the file or create it, readable by our user alone. `kind` tells databases of different contents apart. One of
    /// an older version gets its checksums now. A file that is no such database is damage.
    pub fn open(
        path: &Path,
        kind: &str,
        patience: WritePatience,
        health: Arc<PageFileHealth>,
    ) -> io::Result<PageFile> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(path)?;
        // Whoever had it before may be closing it at this moment.
        file.try_lock()
            .map_err(|_| io::Error::new(io::ErrorKind::ResourceBusy, "in use by another process"))?;
        let mut first = [0; PLAIN.len()];
        if file.read_at(&mut first, 0)? == PLAIN.len() && first == PLAIN {
            file = sum_up(path, &file, kind, &health)?;
        }
        let length = file.metadata()?.len();
        let is_new = length == 0;
        let id = if is_new {
            let mut id = [0; 16];
            File::open("/dev/urandom")?.read_exact(&mut id)?;
            file.set_len(HEAD)?;
            file.write_all_at(&Head { kind: layout::kind(kind), id }.encode(), 0)?;
            file.sync_all()?;
            id
        } else {
            let mut bytes = [0; SECTOR];
            let read = file.read_exact_at(&mut bytes, 0).ok();
            match read.and_then(|()| Head::decode(&bytes)).filter(|head| head.kind == layout::kind(kind)) {
                Some(head) if length >= HEAD => head.id,
                _ => {
                    health.damaged(format!("{}: its head is not that of this database", path.display()));
                    return Err(damaged());
                }
            }
        };
        Ok(PageFile {
            file,
            id,
            is_new,
            patience,
            health,
            groups: RwLock::default(),
            writing: Mutex::default(),
        })
    }

    /// Random, and the same for as long as the file is the same.
    pub fn id(&self) -> [u8; 16] {
        self.id
    }

    /// There was none, or an empty one.
    pub fn is_new(&self) -> bool {
        self.is_new
    }

    /// The checksum that is noted of a page; 0: it was never written.
    fn sum_of(&self, page: u64) -> io::Result<u32> {
        let (group, at) = (page / GROUP, (page % GROUP) as usize);
        let groups = self.groups.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = groups.get(&group) {
            return Ok(known[at]);
        }
        drop(groups);
        let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
        Ok(match groups.entry(group) {
            Entry::Occupied(known) => known.get()[at],
            Entry::Vacant(vacant) => vacant.insert(self.load(group)?)[at],
        })
    }

    fn load(&self, group: u64) -> io::Result<Box<Group>> {
        let mut bytes = vec![0; PAGE as usize];
        let there = self.file.metadata()?.len().saturating_sub(layout::sums_at(group)).min(PAGE);
        self.file.read_exact_at(&mut bytes[..there as usize], layout::sums_at(group))?;
        let mut sums = Box::new([0; GROUP as usize]);
        for (sum, bytes) in sums.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *sum = u32::from_le_bytes(*bytes);
        }
        Ok(sums)
    }

    /// Note checksums of pages that follow each other, in memory and in the file.
    fn note(&self, first: u64, sums: &[u32]) -> io::Result<()> {
        let mut done = 0;
        while done < sums.len() {
            let page = first + done as u64;
            let (group, at) = (page / GROUP, (page % GROUP) as usize);
            let here = &sums[done..sums.len().min(done + GROUP as usize - at)];
            self.sum_of(page)?; // loads the group
            let bytes: Vec<u8> = here.iter().flat_map(|sum| sum.to_le_bytes()).collect();
            self.file.write_all_at(&bytes, layout::sums_at(group) + 4 * at as u64)?;
            let mut groups = self.groups.write().unwrap_or_else(PoisonError::into_inner);
            if let Some(known) = groups.get_mut(&group) {
                known[at..at + here.len()].copy_from_slice(here);
            }
            done += here.len();
        }
        Ok(())
    }

    /// Whole pages, checked.
    fn read_pages(&self, first: u64, bytes: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let page = first + (done / PAGE as usize) as u64;
            let run = ((GROUP - page % GROUP) * PAGE) as usize; // what lies in one piece
            let end = bytes.len().min(done + run);
            self.file.read_exact_at(&mut bytes[done..end], layout::page_at(page))?;
            done = end;
        }
        for (at, bytes) in bytes.chunks(PAGE as usize).enumerate() {
            let page = first + at as u64;
            let sum = self.sum_of(page)?;
            let right = if sum == 0 {
                bytes.iter().all(|byte| *byte == 0)
            } else {
                sum == layout::sum(&self.id, page, bytes)
            };
            if !right {
                return Err(self.found_damage(page));
            }
        }
        Ok(())
    }

    fn read_checked(&self, first: u64, bytes: &mut [u8]) -> io::Result<()> {
        match self.read_pages(first, bytes) {
            Err(e) if e.kind() == io::ErrorKind::InvalidData => {
                // Somebody may be between the page and its checksum.
                let _alone = lock(&self.writing);
                self.read_pages(first, bytes).inspect_err(|e| {
                    if e.kind() == io::ErrorKind::InvalidData {
                        self.health.damaged(format!("page {first} is not what was written"));
                    }
                })
            }
            read => read,
        }
    }

    fn found_damage(&self, page: u64) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, format!("page {page} is not what was written"))
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        if out.is_empty() {
            return Ok(());
        }
        let end = offset + out.len() as u64;
        if end > layout::logical(self.file.metadata()?.len()) {
            self.health.damaged(format!("the file ends before {end}"));
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if offset < PAGE {
            let (mut sector, from) = ([0; SECTOR], offset as usize);
            self.file.read_exact_at(&mut sector, SECTOR as u64)?;
            let header = layout::open_sector(&self.id, &sector).ok_or_else(|| {
                self.health.damaged("the database's header is not what was written".to_owned());
                damaged()
            })?;
            let part = header.get(from..from + out.len()).ok_or_else(damaged)?;
            out.copy_from_slice(part);
            return Ok(());
        }
        if offset.is_multiple_of(PAGE) && end.is_multiple_of(PAGE) {
            return self.read_checked(offset / PAGE, out);
        }
        let first = offset / PAGE;
        let mut whole = vec![0; ((end.div_ceil(PAGE) - first) * PAGE) as usize];
        self.read_checked(first, &mut whole)?;
        let from = (offset - first * PAGE) as usize;
        out.copy_from_slice(&whole[from..from + out.len()]);
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if offset < PAGE {
            // Its one sector is written whole or not at all, so its checksum is in it.
            let sector = layout::close_sector(&self.id, offset as usize, data).ok_or_else(|| {
                io::Error::new(io::ErrorKind::InvalidInput, "more than a header in the first page")
            })?;
            lock(&self.writing).header = Some(Box::new(sector));
            return self.file.write_all_at(&sector, SECTOR as u64);
        }
        let (first, end) = (offset / PAGE, offset + data.len() as u64);
        let mut whole;
        let mut pages = data;
        if !offset.is_multiple_of(PAGE) || !end.is_multiple_of(PAGE) {
            whole = vec![0; ((end.div_ceil(PAGE) - first) * PAGE) as usize];
            self.read_checked(first, &mut whole)?;
            let from = (offset - first * PAGE) as usize;
            whole[from..from + data.len()].copy_from_slice(data);
            pages = &whole;
        }
        let sums: Vec<u32> = (first..)
            .zip(pages.chunks(PAGE as usize))
            .map(|(page, bytes)| layout::sum(&self.id, page, bytes))
            .collect();
        let mut alone = lock(&self.writing);
        alone.pages.extend(first..first + sums.len() as u64);
        let mut done = 0;
        while done < pages.len() {
            let page = first + (done / PAGE as usize) as u64;
            let end = pages.len().min(done + ((GROUP - page % GROUP) * PAGE) as usize);
            self.file.write_all_at(&pages[done..end], layout::page_at(page))?;
            done = end;
        }
        self.note(first, &sums)
    }

    fn resize(&self, length: u64) -> io::Result<()> {
        let mut alone = lock(&self.writing);
        let before = layout::logical(self.file.metadata()?.len());
        self.file.set_len(layout::physical(length))?;
        if length < before {
            drop(alone.pages.split_off(&length.div_ceil(PAGE)));
            // What is added again later is zeros, and their checksums are those of pages that were never written.
            self.groups
                .write()
                .unwrap_or_else(PoisonError::into_inner)
                .retain(|group, _| group * GROUP * PAGE < length);
            let (first, last) = (length.div_ceil(PAGE), before.div_ceil(PAGE));
            let last = last.min(first.next_multiple_of(GROUP));
            if first < last && first % GROUP != 0 {
                self.note(first, &vec![0; (last - first) as usize])?;
            }
        }
        Ok(())
    }

    /// As the disk should have it: once more what the last sync that succeeded did not cover.
    fn sync(&self, again: bool) -> io::Result<()> {
        let covers = {
            let unsynced = lock(&self.writing);
            if again {
                self.write_again(&unsynced)?;
            }
            unsynced.pages.len()
        };
        self.file.sync_data()?;
        let mut unsynced = lock(&self.writing);
        // redb writes nothing while it syncs; if somebody did, that stays for the next time.
        if unsynced.pages.len() == covers {
            *unsynced = Unsynced::default();
        }
        Ok(())
    }

    fn write_again(&self, unsynced: &Unsynced) -> io::Result<()> {
        let mut bytes = [0; PAGE as usize];
        for &page in &unsynced.pages {
            self.read_pages(page, &mut bytes)?;
            self.file.write_all_at(&bytes, layout::page_at(page))?;
            self.note(page, &[self.sum_of(page)?])?;
        }
        match &unsynced.header {
            Some(sector) => self.file.write_all_at(&sector[..], SECTOR as u64),
            None => Ok(()),
        }
    }

    /// Until it is done, if the error is one that passes.
    fn patiently<T>(&self, work: impl Fn() -> io::Result<T>) -> io::Result<T> {
        loop {
            match work() {
                Err(e)
                    if self.patience == WritePatience::Wait
                        && passes(&e)
                        && !self.health.closing.load(Ordering::SeqCst) =>
                {
                    let told = lock(&self.health.waiting).replace(e.to_string());
                    if told.is_none() {
                        tracing::error!("the metadata database waits for its disk: {e}");
                    }
                    std::thread::sleep(AGAIN);
                }
                done => {
                    if done.is_ok() && lock(&self.health.waiting).take().is_some() {
                        tracing::info!("the metadata database goes on");
                    }
                    return done;
                }
            }
        }
    }
}

/// No room, a file system that takes no writes, or a disk that fails: somebody will see to it.
fn passes(error: &io::Error) -> bool {
    use io::ErrorKind as K;
    matches!(error.kind(), K::StorageFull | K::QuotaExceeded | K::ReadOnlyFilesystem)
        || error.raw_os_error() == Some(EIO)
}

fn damaged() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "not what was written")
}

/// A database of an older version, with checksums: beside it, then in its place.
fn sum_up(path: &Path, plain: &File, kind: &str, health: &Arc<PageFileHealth>) -> io::Result<File> {
    let unfinished = beside(path, "unfinished");
    match std::fs::remove_file(&unfinished) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
        _ => {}
    }
    let new = PageFile::open(&unfinished, kind, WritePatience::Fail, health.clone())?;
    let length = plain.metadata()?.len();
    new.resize(length)?;
    let mut header = [0; layout::HEADER];
    let count = plain.read_at(&mut header, 0)?;
    new.write_at(0, &header[..count])?;
    let mut piece = vec![0; 1 << 20];
    let mut offset = PAGE;
    while offset < length {
        let part = &mut piece[..(length - offset).min(1 << 20) as usize];
        plain.read_exact_at(part, offset)?;
        new.write_at(offset, part)?;
        offset += part.len() as u64;
    }
    new.file.sync_all()?;
    std::fs::rename(&unfinished, path)?;
    let PageFile { file, .. } = new;
    Ok(file) // with its lock
}

/// `namespace.redb` -> `namespace.redb.ending`
fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(ending);
    PathBuf::from(name)
}

/// Put a damaged database out of the way, where an operator finds it: the last one only. Where it is now.
pub fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let aside = beside(path, "damaged");
    match std::fs::rename(path, &aside) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(e),
        _ => Ok(aside),
    }
}

/// What does not pass by trying again: the file is to be set aside.
pub fn is_damage(error: &redb::Error) -> bool {
    match error {
        redb::Error::Io(e) => matches!(e.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof),
        redb::Error::Corrupted(_)
        | redb::Error::UpgradeRequired(_)
        | redb::Error::TableTypeMismatch { .. }
        | redb::Error::TableIsMultimap(_)
        | redb::Error::TableIsNotMultimap(_)
        | redb::Error::TypeDefinitionChanged { .. } => true,
        _ => false,
    }
}

impl redb::StorageBackend for PageFile {
    fn len(&self) -> io::Result<u64> {
        Ok(layout::logical(self.file.metadata()?.len()))
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.read_at(offset, out)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.patiently(|| self.resize(length))
    }

    fn sync_data(&self) -> io::Result<()> {
        let failed = AtomicBool::new(false);
        self.patiently(|| {
            let again = failed.swap(true, Ordering::Relaxed);
            self.sync(again)
        })
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.patiently(|| self.write_at(offset, data))
    }
}

#[cfg(test)]
mod tests;
