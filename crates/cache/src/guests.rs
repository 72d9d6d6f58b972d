//! Bytes of stripes that other nodes are to keep. They are guests: few of them stay, and they go first.
//!
//! The cast: [`Source::keeps`] says whether this node is to keep a stripe; [`GuestLedger`] (`ledger.rs`, pure) knows which blocks
//! on disk are guests and which of them goes first; [`StripeReads`] (`stripe_reads.rs`, pure) which stripes were read twice.
//!
//! What somebody asks for is passed on at the first read of a stripe, and stored from the second within a minute on. What is
//! fetched ahead has to be stored to be of use; it leaves once it was read to its end, unless its stripe was read twice. Guests
//! have `guests_max` bytes; what is fetched ahead may have two windows even if that is more. Over it the oldest guest goes, and
//! where nothing may go, what comes is passed on.
//!
//! Invariants: storing a guest evicts guests only. Room for what is kept is made of guests before anything else. A stripe is a
//! guest or kept as a whole. It is labelled anew when it is next used: one that this node is to keep since the map changed
//! stays as it is and is no guest any more; one that it is to keep no more becomes a guest with all that is here of it, and the
//! worker then sees to it that guests are in their share. The labels are in memory only: after a restart all that is on disk
//! counts as kept until it is next used, and so does what this node itself wrote (`rebase.rs`). A pinned file has no guests. A
//! warm-up has guests fetched where they are kept, and stores nothing here.
//!
//! Locks: the ledger's comes last of all, under it no other one is taken.

mod ledger;
mod stripe_reads;

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use types::range::bytes_of_blocks;
use types::{BLOCK_SIZE, ByteRange, FileId, Result, Version};

use crate::block_bits::{BlockSet, runs};
use crate::disk_usage::room_of_blocks;
use crate::extent::Piece;
use crate::file::CachedFile;
use crate::space::RoomFor;
use crate::{Cache, CacheKey, Source};
use ledger::{AddedBlocks, Departure, GuestLedger, StripeId};
use stripe_reads::StripeReads;

/// The unit in which bytes are guests or kept.
pub const STRIPE_BYTES: u64 = STRIPE_BLOCKS * BLOCK_SIZE;
const STRIPE_BLOCKS: u64 = 1024;
/// Most of what was read and is about to leave; at most a quarter of what guests may have counts.
const READ_MAX: u64 = 8 << 20;
/// Guests that leave in a row before others have their turn.
const DEPARTURES_MAX: usize = 4096;
/// Of these, guests in use that stay.
const IN_USE_MAX: usize = 64;

#[derive(Default)]
pub struct Guests {
    books: Mutex<GuestBooks>,
    /// There are any. Where there are none, nobody takes the lock.
    any: AtomicBool,
}

#[derive(Default)]
struct GuestBooks {
    ledger: GuestLedger,
    reads: StripeReads,
}

impl Guests {
    pub fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }
}

/// How a read treats those stripes in its range that are guests.
pub struct GuestRead {
    /// With the blocks of the range.
    stripes: Vec<(StripeId, Range<u64>)>,
    /// Some of what is fetched of the range is stored: it is kept, its stripe was read twice, or it is the tail.
    stores: bool,
    /// A block that was read from its beginning and not to its end. Its rest counts as fetched ahead, since a reader in small
    /// steps would fetch it again for each of them.
    tail: Option<u64>,
}

impl GuestRead {
    pub fn stores(&self) -> bool {
        self.stores
    }

    pub fn tail(&self) -> Option<u64> {
        self.tail
    }
}

/// What becomes of blocks that were fetched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stay {
    Kept,
    Guest,
    /// As a guest that nobody has asked for yet.
    GuestAhead,
    PassedOn,
}

/// Room among the guests for what is fetched ahead; 0 bytes for what is kept.
pub struct GuestPromise {
    cache: Arc<Cache>,
    bytes: u64,
}

impl GuestPromise {
    /// The room is taken, or given up.
    fn end(&mut self, ledger: &mut GuestLedger) {
        ledger.promise_is_over(std::mem::take(&mut self.bytes));
    }
}

impl Drop for GuestPromise {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let cache = self.cache.clone();
            cache.with_guests(|books| self.end(&mut books.ledger));
        }
    }
}

impl Cache {
    fn with_guests<T>(&self, act: impl FnOnce(&mut GuestBooks) -> T) -> T {
        let mut books = self.guests.books.lock().unwrap_or_else(PoisonError::into_inner);
        let result = act(&mut books);
        self.guests.any.store(!books.ledger.is_empty(), Ordering::Release);
        self.metrics.guest_bytes.set(i64::try_from(books.ledger.bytes()).unwrap_or(i64::MAX));
        result
    }

    /// Most bytes of guests, with what is fetched ahead.
    fn guests_most(&self) -> u64 {
        let windows = self.config.readahead_max.saturating_mul(2);
        self.limits.guests_max().max(windows).min(self.limits.size_max())
    }

    /// This node is to keep all of it. Not under the lock of a file's state: it takes that of the books.
    pub(crate) fn keeps(&self, key: &CacheKey, range: ByteRange, source: &Arc<dyn Source>) -> bool {
        source.keeps(key, range) || self.space().pins().contains(&key.file)
    }

    /// Somebody reads `range`. Returns how its guests are to be treated; `None`: there are none.
    pub(crate) fn guests_in(
        &self,
        key: &CacheKey,
        range: ByteRange,
        source: &Arc<dyn Source>,
    ) -> Option<GuestRead> {
        if self.keeps(key, range, source) {
            self.forget_guests(key.file, key.version, stripes_around(range.blocks()));
            return None;
        }
        let (mut stripes, mut stores) = (Vec::new(), false);
        let (may_stay, now) = (self.limits.guests_max() > 0, self.now_ms());
        for (number, blocks) in stripes_of(range.blocks()) {
            if blocks != range.blocks() && self.keeps(key, bytes_of_blocks(blocks.clone(), key.size), source)
            {
                self.forget_guests(key.file, key.version, stripes_around(blocks));
                stores = true;
                continue;
            }
            let stripe = (key.file, key.version, number);
            let start = number * STRIPE_BYTES;
            let in_stripe = |at: u64| (at.max(start) - start).min(STRIPE_BYTES) as u32;
            let (from, to) = (in_stripe(range.offset), in_stripe(range.end()));
            stores |= may_stay && self.with_guests(|books| books.reads.note(stripe, from, to, now));
            stripes.push((stripe, blocks));
        }
        let last = range.end() / BLOCK_SIZE;
        let is_tail = range.end() < key.size
            && !range.end().is_multiple_of(BLOCK_SIZE)
            && range.offset <= last * BLOCK_SIZE;
        Some(GuestRead { stripes, stores: stores || is_tail, tail: is_tail.then_some(last) })
    }

    /// The read has ended. `from_disk`: some of its bytes were here.
    pub(crate) fn guests_were_read(
        &self,
        file: &CachedFile,
        range: ByteRange,
        read: &GuestRead,
        from_disk: bool,
    ) {
        let (key, now, most) = (&file.key, self.now_ms(), self.limits.guests_max());
        let finished = if range.end() >= key.size { u64::MAX } else { range.end() / BLOCK_SIZE };
        for (stripe, blocks) in &read.stripes {
            if from_disk {
                self.label(file, *stripe, now);
            }
            let start = stripe.2 * STRIPE_BLOCKS;
            let set = |end: u64| BlockSet::of(blocks.start - start..end.max(blocks.start) - start);
            let (touched, done) = (set(blocks.end), set(blocks.end.min(finished)));
            self.with_guests(|books| {
                let stays = books.reads.was_read_twice(*stripe, now);
                books.ledger.was_read(*stripe, &touched, &done, stays, most, now);
            });
        }
        self.pressure.notify_one();
    }

    /// The file is handed out as a whole, whoever reads what of it: that is a read of it all.
    pub(crate) fn guests_were_lent(&self, key: &CacheKey) {
        if !self.guests.any() {
            return;
        }
        let (now, most) = (self.now_ms(), self.limits.guests_max());
        for (number, blocks) in stripes_of(ByteRange::new(0, key.size).blocks()) {
            let stripe = (key.file, key.version, number);
            let all = BlockSet::of(0..blocks.end - blocks.start);
            self.with_guests(|books| {
                if books.ledger.contains(stripe) {
                    let twice = books.reads.note(stripe, 0, STRIPE_BYTES as u32, now);
                    books.ledger.was_read(stripe, &all, &all, twice && most > 0, most, now);
                }
            });
        }
    }

    /// All that is here of a stripe is a guest from now on.
    fn label(&self, file: &CachedFile, stripe: StripeId, now_ms: u64) {
        if self.with_guests(|books| books.ledger.contains(stripe)) {
            return;
        }
        let start = stripe.2 * STRIPE_BLOCKS;
        file.with_here(start..start + STRIPE_BLOCKS, |here| {
            let added = AddedBlocks { size: file.key.size, blocks: here, pair: file.opened };
            self.with_guests(|books| books.ledger.add(stripe, &added, false, now_ms));
        });
    }

    /// These blocks are gone, or are kept from now on. Returns the bytes of guests among them.
    pub(crate) fn forget_guests(&self, file: FileId, version: Version, blocks: Range<u64>) -> u64 {
        if !self.guests.any() {
            return 0;
        }
        self.with_guests(|books| books.ledger.forget(file, version, blocks))
    }

    /// These blocks are gone.
    pub(crate) fn guests_have_left(&self, file: FileId, version: Version, blocks: Range<u64>) {
        let bytes = self.forget_guests(file, version, blocks);
        self.metrics.guest_dropped_bytes.inc_by(bytes);
    }

    /// All that is here of the file is kept from now on.
    pub(crate) fn keep_all(&self, file: FileId) {
        if self.guests.any() {
            self.with_guests(|books| books.ledger.forget_file(file));
        }
    }

    /// Room for `range`, which is fetched ahead. `None`: it is not to be kept, and what is here of guests already waits for its
    /// readers. May be asked under the lock of a file's state.
    pub(crate) fn promise_guests(
        self: &Arc<Self>,
        key: &CacheKey,
        range: ByteRange,
        source: &Arc<dyn Source>,
    ) -> Option<GuestPromise> {
        if source.keeps(key, range) {
            return Some(GuestPromise { cache: self.clone(), bytes: 0 });
        }
        let (bytes, most) = (room_of_blocks(range.blocks(), key.size), self.guests_most());
        let has_room = self.with_guests(|books| {
            let has_room = books.ledger.can_have_room(bytes, most);
            if has_room {
                books.ledger.promise(bytes);
            }
            has_room
        });
        has_room.then(|| GuestPromise { cache: self.clone(), bytes })
    }

    /// What becomes of blocks that were fetched, in runs.
    fn stays(
        &self,
        key: &CacheKey,
        blocks: Range<u64>,
        source: &Arc<dyn Source>,
        ahead: bool,
        tail: Option<u64>,
    ) -> Vec<(Range<u64>, Stay)> {
        if self.keeps(key, bytes_of_blocks(blocks.clone(), key.size), source) {
            self.forget_guests(key.file, key.version, stripes_around(blocks.clone()));
            return vec![(blocks, Stay::Kept)];
        }
        let mut stays = Vec::new();
        for (number, part) in stripes_of(blocks.clone()) {
            let (is_all, blocks) = (part == blocks, part);
            let stripe = (key.file, key.version, number);
            if !is_all && self.keeps(key, bytes_of_blocks(blocks.clone(), key.size), source) {
                self.forget_guests(key.file, key.version, stripes_around(blocks.clone()));
                stays.push((blocks, Stay::Kept));
                continue;
            }
            let now = self.now_ms();
            let twice = self.limits.guests_max() > 0
                && self.with_guests(|books| books.reads.was_read_twice(stripe, now));
            match (ahead, twice, tail.filter(|tail| blocks.contains(tail))) {
                (true, ..) => stays.push((blocks, Stay::GuestAhead)),
                (false, true, _) => stays.push((blocks, Stay::Guest)),
                (false, false, None) => stays.push((blocks, Stay::PassedOn)),
                (false, false, Some(tail)) => {
                    stays.push((blocks.start..tail, Stay::PassedOn));
                    stays.push((tail..tail + 1, Stay::GuestAhead));
                    stays.push((tail + 1..blocks.end, Stay::PassedOn));
                }
            }
        }
        stays.retain(|(blocks, _)| !blocks.is_empty());
        stays
    }

    /// What of the fetched `blocks` is to be stored, and whether as guests. Counts what is passed on.
    pub(crate) fn to_store(
        &self,
        key: &CacheKey,
        blocks: Range<u64>,
        source: &Arc<dyn Source>,
        ahead: bool,
        tail: Option<u64>,
    ) -> Vec<ToStore> {
        let stays = self.stays(key, blocks, source, ahead, tail);
        let is_passed_on = |stay: &Stay| *stay == Stay::PassedOn;
        let passed_on = stays.iter().filter(|(_, stay)| is_passed_on(stay));
        let bytes = passed_on.map(|(blocks, _)| bytes_of_blocks(blocks.clone(), key.size).length).sum();
        self.metrics.guest_refused_bytes.inc_by(bytes);
        let stored = stays.into_iter().filter(|(_, stay)| !is_passed_on(stay));
        let guest_ahead = |stay| (stay != Stay::Kept).then_some(stay == Stay::GuestAhead);
        stored.map(|(blocks, stay)| ToStore { blocks, guest_ahead: guest_ahead(stay) }).collect()
    }

    /// Blocks of a guest into the cache file. False if there is no room among the guests, or the disk does not take them.
    pub(crate) fn store_guest(
        &self,
        file: &CachedFile,
        blocks: Range<u64>,
        bytes: &[u8],
        ahead: bool,
        promise: Option<&mut GuestPromise>,
    ) -> bool {
        let (key, now) = (&file.key, self.now_ms());
        let number = blocks.start / STRIPE_BLOCKS;
        let (stripe, start) = ((key.file, key.version, number), number * STRIPE_BLOCKS);
        let set = BlockSet::of(blocks.start - start..blocks.end - start);
        self.label(file, stripe, now);
        let most = if ahead { self.guests_most() } else { self.limits.guests_max() };
        let length = room_of_blocks(blocks.clone(), key.size);
        let added = self.reserve_guests(length, most, ahead, promise, |ledger| {
            let added = AddedBlocks { size: key.size, blocks: &set, pair: file.opened };
            ledger.add(stripe, &added, ahead, now);
        });
        if !added {
            self.metrics.guest_refused_bytes.inc_by(bytes.len() as u64);
            return false;
        }
        // The books have these bytes already, before anybody can read them.
        let stored = self.store_as(file, blocks.clone(), bytes, RoomFor::Guest);
        // A pair that was dropped meanwhile may have been off the ledger before these came on it.
        if !stored || file.is_doomed() {
            self.with_guests(|books| books.ledger.take_back(stripe, &set, file.opened));
        }
        if stored {
            self.metrics.guest_admitted_bytes.inc_by(bytes.len() as u64);
        }
        stored
    }

    /// Takes `length` bytes more in by `add`, after what has to go for them. False if too little may go.
    fn reserve_guests(
        &self,
        length: u64,
        most: u64,
        ahead: bool,
        mut promise: Option<&mut GuestPromise>,
        add: impl FnOnce(&mut GuestLedger),
    ) -> bool {
        let mut add = Some(add);
        let mut try_add = || {
            self.with_guests(|books| {
                // It was for these bytes.
                if let Some(promise) = promise.take() {
                    promise.end(&mut books.ledger);
                }
                let has_room = books.ledger.has_room(length, most);
                if has_room && let Some(add) = add.take() {
                    add(&mut books.ledger);
                }
                has_room
            })
        };
        if try_add() {
            return true;
        }
        let _one = self.reclaiming.lock().unwrap_or_else(PoisonError::into_inner);
        let mut in_use = 0;
        for _ in 0..DEPARTURES_MAX {
            if try_add() {
                return true;
            }
            let now = self.now_ms();
            let next = self.with_guests(|books| {
                let can = ahead || books.ledger.can_have_room(length, most);
                if can { books.ledger.next_to_go(true, now) } else { None }
            });
            let Some(next) = next else { return false };
            if !self.see_off(&next) {
                in_use += 1;
            }
            if in_use > IN_USE_MAX {
                return false;
            }
        }
        false
    }

    /// Evicts the guest that goes first. `None`: there is none; `Some(false)`: it is in use.
    pub(crate) fn evict_guest(&self, spare_unread: bool) -> Option<bool> {
        if !self.guests.any() {
            return None;
        }
        let now = self.now_ms();
        let next = self.with_guests(|books| books.ledger.next_to_go(spare_unread, now))?;
        Some(self.see_off(&next))
    }

    /// Of all guests.
    pub(crate) fn guest_bytes(&self) -> u64 {
        if self.guests.any() { self.with_guests(|books| books.ledger.bytes()) } else { 0 }
    }

    /// Bytes that wait for their readers.
    pub(crate) fn unread_guest_bytes(&self) -> u64 {
        if !self.guests.any() {
            return 0;
        }
        self.with_guests(|books| books.ledger.unread_bytes())
    }

    /// What was read leaves, and what is over the share. For the worker.
    pub(crate) fn tend_guests(&self) {
        if !self.guests.any() {
            return;
        }
        let _one = self.reclaiming.lock().unwrap_or_else(PoisonError::into_inner);
        let read_most = READ_MAX.min(self.guests_most() / 4);
        self.with_guests(|books| books.ledger.expect_no_more(self.now_ms()));
        let mut in_use = 0;
        for _ in 0..DEPARTURES_MAX {
            let now = self.now_ms();
            let (most, all) = (self.limits.guests_max(), self.guests_most());
            let next = self.with_guests(|books| {
                let ledger = &mut books.ledger;
                let is_over = ledger.settled_bytes() > most || ledger.bytes() > all;
                ledger
                    .next_read(read_most, now)
                    .or_else(|| is_over.then(|| ledger.next_to_go(true, now)).flatten())
            });
            let Some(next) = next else { return };
            if !self.see_off(&next) {
                in_use += 1;
            }
            if in_use > IN_USE_MAX {
                return;
            }
        }
    }

    /// Takes blocks of a guest off the disk. False if none of them could go. (What became kept since it was chosen goes, too, and
    /// is fetched again.)
    fn see_off(&self, departure: &Departure) -> bool {
        let (file, version, number) = departure.stripe;
        let open = self.files.get_open(file, version);
        if departure.is_all && departure.size <= STRIPE_BYTES {
            // One that is handed out as a whole leaves as a whole.
            if open.as_ref().is_some_and(|open| open.is_busy() && !open.is_lent()) {
                self.with_guests(|books| books.ledger.put_off(departure, self.now_ms()));
                return false;
            }
            self.drop_file(file, version);
            return true;
        }
        let Some(open) = open.or_else(|| self.files.open_whatever(file, version)) else {
            self.drop_file(file, version); // nobody can read it either
            return true;
        };
        let start = number * STRIPE_BLOCKS;
        let freed = if departure.is_all {
            self.punch_guests(&open, std::slice::from_ref(&(start..start + STRIPE_BLOCKS)))
        } else {
            self.punch_guests(&open, &runs(departure.blocks.blocks().map(|block| start + block)))
        };
        // Blocks that were bad have gone before.
        open.with_absent(start..start + STRIPE_BLOCKS, |absent| {
            self.with_guests(|books| books.ledger.are_absent(departure.stripe, absent));
        });
        self.with_guests(|books| books.ledger.put_off(departure, self.now_ms()));
        if freed > 0 && open.is_hollow() && !open.is_busy() {
            self.drop_file(file, version);
        }
        freed > 0
    }

    fn punch_guests(&self, open: &CachedFile, runs: &[Range<u64>]) -> u64 {
        let (file, version) = (open.key.file, open.key.version);
        match open.punch_only(runs, |blocks| self.blocks_leave(file, version, blocks)) {
            Ok(freed) => {
                self.space().shrink(file, version, freed);
                self.metrics.evicted_bytes.inc_by(freed);
                self.note_used();
                freed
            }
            Err(e) => {
                tracing::warn!("punch holes into a cache file: {e}");
                self.drop_file(file, version)
            }
        }
    }

    /// The pair of a guest that was passed on is not on the books, so that nothing else would take it off the disk.
    pub(crate) fn drop_unused(&self, file: &CachedFile) {
        if self.is_unused(file) && file.is_hollow() && !file.is_busy() {
            self.drop_file(file.key.file, file.key.version);
        }
    }

    /// It is not on the books. (Shortly after the start it may be on disk all the same.)
    pub(crate) fn is_unused(&self, file: &CachedFile) -> bool {
        !self.space().versions_of(file.key.file).contains(&file.key.version)
    }

    /// The bytes of a guest of which nothing is here, and which is not stored. Whole blocks are asked for: others do not travel
    /// between nodes.
    pub(crate) async fn pass_on(
        self: &Arc<Self>,
        key: &CacheKey,
        range: ByteRange,
        source: &Arc<dyn Source>,
    ) -> Result<Vec<Piece>> {
        let wide = bytes_of_blocks(range.blocks(), key.size);
        let parts = self.straight(key, wide, source).await?;
        self.metrics.guest_refused_bytes.inc_by(wide.length);
        let mut at = wide.offset;
        let mut pieces = Vec::with_capacity(parts.len());
        for part in parts {
            let (from, to) = (at.max(range.offset), (at + part.len() as u64).min(range.end()));
            if from < to {
                pieces.push(Piece::Bytes(part.slice((from - at) as usize..(to - at) as usize)));
            }
            at += part.len() as u64;
        }
        self.count(range.length, true);
        Ok(pieces)
    }

    /// Blocks that were fetched, as far as they are to be stored. `true`: all of them are.
    pub(crate) fn store_parts(
        &self,
        file: &CachedFile,
        blocks: &Range<u64>,
        bytes: &Bytes,
        parts: Vec<ToStore>,
        mut ahead: Option<GuestPromise>,
    ) -> bool {
        let key = &file.key;
        let mut stored_blocks = 0;
        for part in parts {
            let range = bytes_of_blocks(part.blocks.clone(), key.size);
            let from = (range.offset - blocks.start * BLOCK_SIZE) as usize;
            let bytes = &bytes[from..from + range.length as usize];
            if ahead.is_some() {
                self.unread.fetched(key, part.blocks.clone());
            }
            let stored = match part.guest_ahead {
                None => self.store(file, part.blocks.clone(), bytes),
                Some(guest_ahead) => {
                    self.store_guest(file, part.blocks.clone(), bytes, guest_ahead, ahead.as_mut())
                }
            };
            if ahead.is_some() && !stored {
                self.unread.take(key.file, key.version, part.blocks.clone());
            }
            stored_blocks += if stored { part.blocks.end - part.blocks.start } else { 0 };
        }
        stored_blocks == blocks.end - blocks.start
    }
}

/// A run of fetched blocks that is to be stored.
pub struct ToStore {
    blocks: Range<u64>,
    /// `None`: to be kept. As a guest: whether nobody has asked for them yet.
    guest_ahead: Option<bool>,
}

/// The stripes over these blocks by their numbers, with the blocks of each.
fn stripes_of(blocks: Range<u64>) -> impl Iterator<Item = (u64, Range<u64>)> {
    let numbers = blocks.start / STRIPE_BLOCKS..blocks.end.div_ceil(STRIPE_BLOCKS);
    numbers.map(move |number| {
        let start = number * STRIPE_BLOCKS;
        (number, blocks.start.max(start)..blocks.end.min(start + STRIPE_BLOCKS))
    })
}

/// These blocks with the rest of their stripes.
pub(crate) fn stripes_around(blocks: Range<u64>) -> Range<u64> {
    blocks.start / STRIPE_BLOCKS * STRIPE_BLOCKS..blocks.end.next_multiple_of(STRIPE_BLOCKS)
}
