//! One cached version of one file: a sparse data file and its map. Synchronous; callers that may meet a slow disk
//! run it on a blocking thread.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Instant, SystemTime};

use rustix::time::Timespec;
use types::BLOCK_SIZE;
use types::range::bytes_of_blocks;

use crate::CacheKey;
use crate::block_bits::BlockSet;
use crate::disk_usage::room_of_block;
use crate::fetch_in_flight::FetchInFlight;
use crate::format::{self, Label};
use crate::private_files::{PRIVATE_FILE, create_private_dir};
use crate::verified::Verified;
use pages::FolioRule;
pub use reading::ReadBack;
use sent::{ClosedSentFiles, SentRuns};

/// Map entries are loaded and kept in pieces of this many blocks (64 MiB of file), as they are needed.
pub const PIECE: u64 = 1024;
/// Pieces kept in memory for one file: 256 KiB, for 2 GiB of it. Loading one again costs one read of 8 KiB.
const PIECES_MAX: usize = 32;

pub struct CachedFile {
    pub key: CacheKey,
    label: Label,
    /// The time of `OpenFiles::clock` at which it was opened.
    pub opened: u64,
    /// What the kernel has of it in memory: `file/pages.rs`.
    data: File,
    map: File,
    folios: FolioRule,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Of the file.
    blocks: u64,
    pieces: HashMap<u64, Box<[u64]>>,
    /// Blocks that were checked against their checksum since this file was opened.
    verified: Verified,
    /// Running fetches by their first block.
    flights: BTreeMap<u64, Arc<FetchInFlight>>,
    /// Blocks in use by reads; not punched.
    pins: Vec<Range<u64>>,
    /// Handed out as a whole (`whole.rs`) this many times: no block may leave.
    lent: usize,
    /// The kernel reads it by itself, or did since this process was started: nothing is punched, and it leaves by unlinking.
    kernel_reads: bool,
    /// Extents were handed out: sockets may hold some of its pages.
    was_sent: bool,
    /// Which of them: not punched.
    sent_runs: SentRuns,
    /// Unlinked: what is filled now is not counted any more.
    doomed: bool,
    /// Where the next hole is punched, in blocks.
    punch_at: u64,
    /// When we changed the data file last, by its own timestamp; another one means that somebody else did.
    left: Option<SystemTime>,
    /// When `left` was last compared with the file's timestamp, by the coarse clock from which the kernel takes timestamps.
    compared: Option<Timespec>,
}

impl CachedFile {
    pub fn open(
        dir: &Path,
        key: &CacheKey,
        opened: u64,
        create: bool,
        folios: FolioRule,
    ) -> std::io::Result<CachedFile> {
        let stem = dir.join(format::stem(key.file, key.version));
        let (data_path, map_path) = (stem.with_extension("data"), stem.with_extension("map"));
        let mut options = OpenOptions::new();
        options.read(true).write(true).truncate(false).mode(PRIVATE_FILE);
        let open = |options: &OpenOptions| Ok((options.open(&data_path)?, options.open(&map_path)?));
        let pair = match open(&options) {
            Err(e) if create && std::io::Error::kind(&e) == std::io::ErrorKind::NotFound => {
                stem.parent().map_or(Ok(()), create_private_dir)?;
                open(options.create(true))
            }
            opened => opened,
        };
        let (data, map) = pair.inspect_err(|e| {
            // No room for the second of a pair: the first alone is worth nothing.
            if create && e.kind() == std::io::ErrorKind::StorageFull {
                let _ = std::fs::remove_file(&data_path);
                let _ = std::fs::remove_file(&map_path);
            }
        })?;
        let kernel_reads = folios.apply(&data).is_err();
        let mut header = [0; format::HEADER_BYTES as usize];
        let read = map.read_exact_at(&mut header, 0).is_ok();
        let label = if read { format::label_in(&header, key) } else { None };
        let found = data.metadata()?;
        let mut left = found.modified().ok();
        let label = label.filter(|_| found.len() == key.size);
        if label.is_none() && !create {
            return Err(std::io::ErrorKind::NotFound.into());
        }
        if label.is_none() {
            // Never filled, or damaged: begin anew.
            map.set_len(0)?;
            data.set_len(0)?;
            data.set_len(key.size)?;
            map.write_all_at(&format::encode_header(key, &Label::default()), 0)?;
            left = changed_at(&data);
        }
        let blocks = key.size.div_ceil(BLOCK_SIZE);
        let state = State { blocks, left, kernel_reads, ..State::default() };
        let label = label.unwrap_or_default();
        Ok(CachedFile { key: *key, label, opened, data, map, folios, state: Mutex::new(state) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn blocks(&self) -> Range<u64> {
        0..self.key.size.div_ceil(BLOCK_SIZE)
    }

    /// Keep `blocks` from being punched until the pin is dropped.
    pub fn pin(self: &Arc<Self>, blocks: Range<u64>) -> Pin {
        self.lock().pins.push(blocks.clone());
        Pin { file: self.clone(), blocks, is_sent: false }
    }

    /// Were all of these blocks checked, when they were last in memory?
    pub fn are_checked(&self, mut blocks: Range<u64>) -> bool {
        let state = self.lock();
        blocks.all(|block| state.verified.is_set(block))
    }

    /// As `pin`, for blocks that the kernel is to send from its memory: all of them are here and were checked, and nobody has written
    /// into the file since. They are not punched for some time after the pin is dropped, either (`file/sent.rs`).
    pub fn pin_checked(self: &Arc<Self>, blocks: Range<u64>) -> Option<Pin> {
        let mut state = self.lock();
        if !state.flights.is_empty() || !blocks.clone().all(|block| state.verified.is_set(block)) {
            return None;
        }
        self.notice_strangers(&mut state);
        if !blocks.clone().all(|block| state.verified.is_set(block)) {
            return None;
        }
        state.pins.push(blocks.clone());
        state.was_sent = true;
        Some(Pin { file: self.clone(), blocks, is_sent: true })
    }

    /// Join or start fetches for every block of `blocks` that is not here. `start` makes the flight for a run of
    /// missing blocks, `run_max` long at most, and may refuse (`None`): then the rest is left alone too.
    pub fn ensure(
        &self,
        blocks: Range<u64>,
        run_max: u64,
        mut start: impl FnMut(Range<u64>) -> Option<Arc<FetchInFlight>>,
    ) -> Ensured {
        let mut state = self.lock();
        let mut ensured = Ensured { flights: Vec::new(), joined: 0, started: 0, reached: blocks.end };
        let mut at = blocks.start;
        while at < blocks.end {
            if let Some(flight) = state.flight_over(at) {
                at = flight.blocks.end;
                ensured.flights.push(flight);
                ensured.joined += 1;
                continue;
            }
            if state.entry(&self.map, at).is_some() {
                at += 1;
                continue;
            }
            let mut end = at + 1;
            while end < blocks.end
                && end - at < run_max
                && state.flight_over(end).is_none()
                && state.entry(&self.map, end).is_none()
            {
                end += 1;
            }
            let Some(flight) = start(at..end) else {
                ensured.reached = at;
                return ensured;
            };
            state.flights.insert(at, flight.clone());
            ensured.flights.push(flight);
            ensured.started += 1;
            at = end;
        }
        ensured
    }

    /// The flight over these blocks is over.
    pub fn land(&self, first_block: u64) {
        self.lock().flights.remove(&first_block);
    }

    /// Take the flight off the list if nobody waits for it. Who joins it does so under the same lock.
    pub fn abandon(&self, first_block: u64) -> bool {
        let mut state = self.lock();
        let wanted = state.flights.get(&first_block).is_none_or(|flight| Arc::strong_count(flight) > 1);
        if !wanted {
            state.flights.remove(&first_block);
        }
        !wanted
    }

    /// Write fetched blocks: the data first, then the map. Returns by how much that fills the disk.
    pub fn fill(&self, blocks: Range<u64>, bytes: &[u8]) -> std::io::Result<u64> {
        self.folios.write(&self.data, blocks.start, bytes)?;
        let mut entries = Vec::with_capacity(bytes.len() / BLOCK_SIZE as usize + 1);
        for (block, chunk) in blocks.clone().zip(bytes.chunks(BLOCK_SIZE as usize)) {
            entries.push(format::encode_entry(format::checksum(&self.key, &self.label, block, chunk)));
        }
        let encoded: Vec<u8> = entries.iter().flat_map(|e| e.to_le_bytes()).collect();
        let mut state = self.lock();
        // Before the map says otherwise: entries that are not in memory are read from it.
        let mut new = 0;
        for block in blocks.clone() {
            new +=
                if state.entry(&self.map, block).is_none() { room_of_block(block, self.key.size) } else { 0 };
        }
        self.map.write_all_at(&encoded, entry_offset(blocks.start))?;
        state.left = changed_at(&self.data);
        for (block, entry) in blocks.zip(entries) {
            state.set(&self.map, block, entry, true);
        }
        Ok(new)
    }

    /// Bytes on disk. Reads the whole map, and leaves memory as it is.
    pub fn present_bytes(&self) -> u64 {
        let total = self.blocks().end;
        let in_piece = |piece: u64| {
            let start = piece * PIECE;
            (start..(start + PIECE).min(total))
                .zip(load_entries(&self.map, piece, total).iter())
                .filter(|(_, entry)| format::decode_entry(**entry).is_some())
                .map(|(block, _)| bytes_of_blocks(block..block + 1, self.key.size).length)
                .sum::<u64>()
        };
        (0..total.div_ceil(PIECE)).map(in_piece).sum()
    }

    /// Give back about `wanted` bytes by punching holes, round and round from where the last call stopped;
    /// pinned and arriving blocks stay. `gone` is told which. Returns the bytes given back.
    pub fn punch(&self, wanted: u64, mut gone: impl FnMut(Range<u64>)) -> std::io::Result<u64> {
        let total = self.blocks().end;
        let mut freed = 0;
        let mut seen = 0;
        // The lock is taken anew for every run, so that readers of other blocks get their turn.
        while freed < wanted && seen < total {
            let mut state = self.lock();
            if state.lent > 0 || state.kernel_reads || state.doomed {
                break;
            }
            let start = if state.punch_at < total { state.punch_at } else { 0 };
            let end = (start / PIECE * PIECE + PIECE).min(total);
            let most = (wanted - freed).div_ceil(BLOCK_SIZE);
            let mut run = state.evictable_run(&self.map, start..end);
            run.end = run.end.min(run.start.saturating_add(most));
            state.punch_at = run.end;
            seen += run.end - start;
            if !run.is_empty() {
                gone(run.clone());
                freed += self.punch_run(&mut state, run)?;
            }
        }
        Ok(freed)
    }

    /// Give back these blocks, as far as they are here; pinned and arriving blocks stay. `gone` is told which went. Returns
    /// the bytes given back.
    pub fn punch_only(&self, runs: &[Range<u64>], mut gone: impl FnMut(Range<u64>)) -> std::io::Result<u64> {
        let mut freed = 0;
        for run in runs {
            let mut at = run.start;
            while at < run.end {
                let mut state = self.lock();
                if state.lent > 0 || state.kernel_reads || state.doomed {
                    return Ok(freed);
                }
                // The entries of one piece at a time: the lock is taken anew for readers of other blocks.
                let end = run.end.min((at / PIECE + 1) * PIECE);
                let free = state.evictable_run(&self.map, at..end);
                at = free.end;
                if !free.is_empty() {
                    gone(free.clone());
                    freed += self.punch_run(&mut state, free)?;
                }
            }
        }
        Ok(freed)
    }

    /// Tells `here` which of these blocks are here, counted from the first of them, if any are: under the lock, so that none of
    /// them leaves meanwhile. Not of a pair that is unlinked: there may be another one.
    pub fn with_here(&self, blocks: Range<u64>, here: impl FnOnce(&BlockSet)) {
        let mut state = self.lock();
        let start = blocks.start;
        if state.doomed {
            return;
        }
        let is_here = |block: &u64| state.entry(&self.map, *block).is_some();
        let set: BlockSet = blocks.filter(is_here).map(|block| block - start).collect();
        if !set.is_empty() {
            here(&set);
        }
    }

    /// Tells `absent` which of these blocks, counted from the first of them, are neither here nor on their way: under the lock,
    /// so that none of them comes meanwhile. Not of a pair that is unlinked.
    pub fn with_absent(&self, blocks: Range<u64>, absent: impl FnOnce(&BlockSet)) {
        let mut state = self.lock();
        let start = blocks.start;
        if state.doomed {
            return;
        }
        let is_absent =
            |block: &u64| state.flight_over(*block).is_none() && state.entry(&self.map, *block).is_none();
        absent(&blocks.filter(is_absent).map(|block| block - start).collect());
    }

    /// No byte is on disk.
    pub fn is_hollow(&self) -> bool {
        use std::os::unix::fs::MetadataExt;
        self.data.metadata().is_ok_and(|meta| meta.blocks() == 0)
    }

    fn punch_run(&self, state: &mut State, run: Range<u64>) -> std::io::Result<u64> {
        let range = bytes_of_blocks(run.clone(), self.key.size);
        let zeros = vec![0; ((run.end - run.start) * format::ENTRY_BYTES) as usize];
        self.map.write_all_at(&zeros, entry_offset(run.start))?;
        for block in run.clone() {
            state.set(&self.map, block, 0, false);
        }
        pages::punch(&self.data, run)?;
        state.left = changed_at(&self.data);
        Ok(range.length)
    }

    /// Are reads or fills under way?
    pub fn is_busy(&self) -> bool {
        let state = self.lock();
        !state.pins.is_empty() || !state.flights.is_empty() || state.lent > 0
    }

    /// Count one more user of the whole file, if all of it is here and checked. From then on nothing is punched.
    pub fn lend(&self) -> bool {
        let total = self.blocks().end;
        let mut state = self.lock();
        let whole = state.verified.first_missing(total).is_none() && !state.doomed;
        state.lent += usize::from(whole);
        whole
    }

    /// It was closed, and until then sockets may hold any of its pages.
    pub fn restore_sent(&self, until: Option<Instant>) {
        self.lock().sent_runs = SentRuns::of_reopened(until);
    }

    /// It is about to be closed.
    pub fn note_sent_in(&self, closed: &mut ClosedSentFiles, now: Instant) {
        closed.note((self.key.file, self.key.version), &self.lock().sent_runs, now);
    }

    /// When the data file was changed last.
    pub fn changed(&self) -> Option<SystemTime> {
        self.lock().left
    }

    pub fn is_lent(&self) -> bool {
        self.lock().lent > 0
    }

    pub fn take_back(&self) {
        self.lock().lent -= 1;
    }

    /// Of which extents are sent.
    pub fn data(&self) -> &File {
        &self.data
    }

    /// The first run of blocks that are here and were not checked yet, `max` long at most; `None` if the first block
    /// that was not checked is not here.
    pub fn unchecked_run(&self, max: u64) -> Option<Range<u64>> {
        let total = self.blocks().end;
        let mut state = self.lock();
        let start = state.verified.first_missing(total)?;
        let mut end = start;
        while end < total.min(start + max) && state.entry(&self.map, end).is_some() {
            end += 1;
        }
        (start < end).then_some(start..end)
    }

    /// Unlinked: see `is_doomed`.
    pub fn doom(&self) {
        self.lock().doomed = true;
    }

    /// Unlinked: it goes on for those who have it, and is not on the books.
    pub fn is_doomed(&self) -> bool {
        self.lock().doomed
    }
}

impl State {
    /// The entries around `block`.
    fn piece(&mut self, map: &File, block: u64) -> &mut [u64] {
        let piece = block / PIECE;
        if self.pieces.len() >= PIECES_MAX && !self.pieces.contains_key(&piece) {
            // Any other one: what is in memory is also in the map file.
            if let Some(&other) = self.pieces.keys().next() {
                self.pieces.remove(&other);
            }
        }
        let blocks = self.blocks;
        self.pieces.entry(piece).or_insert_with(|| load_entries(map, piece, blocks))
    }

    /// The entry of a block that is here.
    fn entry(&mut self, map: &File, block: u64) -> Option<u64> {
        let entry = *self.piece(map, block).get((block % PIECE) as usize)?;
        format::decode_entry(entry).map(|_| entry)
    }

    fn set(&mut self, map: &File, block: u64, entry: u64, verified: bool) {
        if let Some(known) = self.piece(map, block).get_mut((block % PIECE) as usize) {
            *known = entry;
            self.verified.set(block, verified);
        }
    }

    fn verify(&mut self, map: &File, block: u64, crc: u32) {
        if self.entry(map, block) == Some(format::encode_entry(crc)) {
            self.verified.set(block, true);
        }
    }

    fn flight_over(&self, block: u64) -> Option<Arc<FetchInFlight>> {
        let (_, flight) = self.flights.range(..=block).next_back()?;
        flight.blocks.contains(&block).then(|| flight.clone())
    }

    /// The first run of blocks in `within` that are here and that nobody uses; empty at its end if there is none.
    fn evictable_run(&mut self, map: &File, within: Range<u64>) -> Range<u64> {
        let now = Instant::now();
        let mut free = |block: u64| {
            let used = self.pins.iter().any(|pin| pin.contains(&block))
                || self.flight_over(block).is_some()
                || self.sent_runs.may_be_in_sockets(block, now);
            !used && self.entry(map, block).is_some()
        };
        let Some(start) = within.clone().find(|&block| free(block)) else { return within.end..within.end };
        let end = (start..within.end).find(|&block| !free(block)).unwrap_or(within.end);
        start..end
    }
}

/// What cannot be read counts as absent; it is then fetched again.
pub fn load_entries(map: &File, piece: u64, blocks: u64) -> Box<[u64]> {
    let count = blocks.saturating_sub(piece * PIECE).min(PIECE);
    let mut bytes = vec![0; (count * format::ENTRY_BYTES) as usize];
    let mut done = 0;
    let offset = entry_offset(piece * PIECE);
    while done < bytes.len()
        && let Ok(read @ 1..) = map.read_at(&mut bytes[done..], offset + done as u64)
    {
        done += read;
    }
    let words = bytes.chunks_exact(format::ENTRY_BYTES as usize);
    words.map(|word| u64::from_le_bytes(word.try_into().expect("chunks of eight bytes"))).collect()
}

fn changed_at(data: &File) -> Option<SystemTime> {
    data.metadata().and_then(|metadata| metadata.modified()).ok()
}

fn entry_offset(block: u64) -> u64 {
    format::HEADER_BYTES + block * format::ENTRY_BYTES
}

/// What [`CachedFile::ensure`] did.
pub struct Ensured {
    /// To be waited for.
    pub flights: Vec<Arc<FetchInFlight>>,
    /// Of these, begun by others.
    pub joined: u64,
    pub started: u64,
    /// Blocks before this are here or on their way.
    pub reached: u64,
}

pub struct Pin {
    file: Arc<CachedFile>,
    blocks: Range<u64>,
    /// The kernel sends them.
    is_sent: bool,
}

impl Pin {
    pub fn file(&self) -> &CachedFile {
        &self.file
    }

    pub fn shared_file(&self) -> Arc<CachedFile> {
        self.file.clone()
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let mut state = self.file.lock();
        if let Some(at) = state.pins.iter().position(|pin| *pin == self.blocks) {
            state.pins.swap_remove(at);
        }
        if self.is_sent {
            state.sent_runs.note(&self.blocks, Instant::now());
        }
    }
}

pub mod pages;
mod reading;
mod relabel;
pub mod sent;
#[cfg(test)]
mod tests;
