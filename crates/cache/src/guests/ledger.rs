//! Which blocks on disk are guests, and which of them goes first. Pure: it knows no disk and no clock.
//!
//! A stripe is a guest as a whole: if it is in the ledger, all its blocks on disk are guests, and if it is not, all of them are
//! kept. Blocks of a guest are *unread* (fetched ahead, and nobody has read them to their end), *read* (they were fetched
//! ahead, and are about to leave) or neither. About 250 bytes of memory for each guest.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use types::{FileId, Version};

use super::STRIPE_BLOCKS;
use crate::block_bits::BlockSet;
use crate::disk_usage::room_of_block;

/// Guests at a time. Beyond, the oldest goes though there is room.
const GUESTS_MAX: usize = 1 << 18;
/// A reader that does not come for what was fetched ahead of it within this time is not expected any more.
const READER_PATIENCE_MS: u64 = 30_000;
/// What was read stays so long, for whoever reads it in pieces or out of order.
const READ_STAYS_MS: u64 = 2_000;
/// Guests that are looked at for one that may go.
const LOOKED_AT_MAX: usize = 4096;

/// A stripe of a version of a file, by its number.
pub type StripeId = (FileId, Version, u64);

#[derive(Default)]
pub struct GuestLedger {
    guests: BTreeMap<StripeId, Guest>,
    /// The one to which nothing was added for longest comes first.
    order: BTreeMap<u64, StripeId>,
    next: u64,
    /// Blocks that are, or were, unread, and since when; oldest first.
    expected: VecDeque<(u64, StripeId, BlockSet)>,
    /// Blocks that are, or were, read, and since when; oldest first.
    leaving: VecDeque<(u64, StripeId, BlockSet)>,
    bytes: u64,
    unread_bytes: u64,
    read_bytes: u64,
    /// Of fetches on their way.
    promised: u64,
}

struct Guest {
    /// Of the file.
    size: u64,
    here: BlockSet,
    unread: BlockSet,
    read: BlockSet,
    /// Its key in the order.
    number: u64,
    /// The pair of files that has its blocks, by the time at which it was opened.
    pair: u64,
}

/// Blocks of a guest that should go. They are on the ledger until [`GuestLedger::forget`] is told that they have gone.
#[derive(Debug, PartialEq, Eq)]
pub struct Departure {
    pub stripe: StripeId,
    pub size: u64,
    /// Counted from the first one of the stripe.
    pub blocks: BlockSet,
    /// The guest has no others.
    pub is_all: bool,
}

/// Blocks that come on the ledger.
#[derive(Clone, Copy)]
pub struct AddedBlocks<'a> {
    /// Of the file.
    pub size: u64,
    /// Counted from the first one of the stripe.
    pub blocks: &'a BlockSet,
    /// When the pair of files that has them was opened.
    pub pair: u64,
}

/// Bytes that blocks of a stripe occupy on disk.
fn room(stripe: StripeId, size: u64, blocks: &BlockSet) -> u64 {
    blocks.blocks().map(|block| room_of_block(stripe.2 * STRIPE_BLOCKS + block, size)).sum()
}

impl GuestLedger {
    pub fn is_empty(&self) -> bool {
        self.guests.is_empty()
    }

    pub fn contains(&self, stripe: StripeId) -> bool {
        self.guests.contains_key(&stripe)
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Bytes that are neither unread nor read.
    pub fn settled_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.unread_bytes).saturating_sub(self.read_bytes)
    }

    pub fn unread_bytes(&self) -> u64 {
        self.unread_bytes
    }

    /// May so many bytes more come without one that has to go for them?
    pub fn has_room(&self, bytes: u64, most: u64) -> bool {
        let all = self.bytes.saturating_add(self.promised).saturating_add(bytes);
        all <= most && self.guests.len() < GUESTS_MAX
    }

    /// Could they, if all goes that may go for them?
    pub fn can_have_room(&self, bytes: u64, most: u64) -> bool {
        self.unread_bytes.saturating_add(self.promised).saturating_add(bytes) <= most
    }

    /// For bytes on their way.
    pub fn promise(&mut self, bytes: u64) {
        self.promised += bytes;
    }

    pub fn promise_is_over(&mut self, bytes: u64) {
        self.promised = self.promised.saturating_sub(bytes);
    }

    /// Blocks of a stripe that are on disk in this pair, or will be at once. `ahead`: nobody has asked for them yet. Those of a
    /// pair that was dropped, and of which there is another one since, are nobody's.
    pub fn add(&mut self, stripe: StripeId, added: &AddedBlocks<'_>, ahead: bool, now_ms: u64) {
        let AddedBlocks { size, blocks, pair } = *added;
        if self.guests.get(&stripe).is_some_and(|guest| guest.pair > pair) {
            return;
        }
        let number = self.next;
        self.next += 1;
        let unknown = Guest {
            size,
            here: BlockSet::default(),
            unread: BlockSet::default(),
            read: BlockSet::default(),
            number,
            pair,
        };
        let guest = self.guests.entry(stripe).or_insert(unknown);
        guest.pair = pair;
        self.order.remove(&std::mem::replace(&mut guest.number, number));
        self.order.insert(number, stripe);
        let new = blocks.without(&guest.here);
        let bytes = room(stripe, size, &new);
        guest.here.insert(&new);
        self.bytes += bytes;
        if ahead && !new.is_empty() {
            guest.unread.insert(&new);
            self.unread_bytes += bytes;
            self.expected.push_back((now_ms, stripe, new));
        }
    }

    /// Somebody has read the blocks `touched` of this stripe, and those of `finished` to their end. If the guest `stays`, and as
    /// long as no more than `most` bytes do, they stay with it; what was fetched ahead leaves otherwise.
    pub fn was_read(
        &mut self,
        stripe: StripeId,
        touched: &BlockSet,
        finished: &BlockSet,
        stays: bool,
        most: u64,
        now_ms: u64,
    ) {
        let settled = self.settled_bytes();
        let Some(guest) = self.guests.get_mut(&stripe) else { return };
        let (unread, read) = (guest.unread.and(touched), guest.read.and(touched));
        let (unread_bytes, read_bytes) = (room(stripe, guest.size, &unread), room(stripe, guest.size, &read));
        if stays && settled.saturating_add(unread_bytes).saturating_add(read_bytes) <= most {
            guest.unread.remove(&unread);
            guest.read.remove(&read);
            self.unread_bytes -= unread_bytes;
            self.read_bytes -= read_bytes;
            return;
        }
        let done = unread.and(finished);
        if done.is_empty() {
            return;
        }
        let bytes = room(stripe, guest.size, &done);
        guest.unread.remove(&done);
        guest.read.insert(&done);
        self.unread_bytes -= bytes;
        self.read_bytes += bytes;
        self.leaving.push_back((now_ms, stripe, done));
    }

    /// What nobody has come for is as any other guest from now on.
    pub fn expect_no_more(&mut self, now_ms: u64) {
        while let Some((since, ..)) = self.expected.front()
            && since.saturating_add(READER_PATIENCE_MS) <= now_ms
            && let Some((_, stripe, blocks)) = self.expected.pop_front()
        {
            if let Some(guest) = self.guests.get_mut(&stripe) {
                let given_up = guest.unread.and(&blocks);
                guest.unread.remove(&given_up);
                self.unread_bytes -= room(stripe, guest.size, &given_up);
            }
        }
    }

    /// Of what was read the next that has to go: it was read some time ago, or there are more than `most` bytes of it. Nothing
    /// that was read, or put off, at `now_ms` itself: else whoever makes room would get the same again and again.
    pub fn next_read(&mut self, most: u64, now_ms: u64) -> Option<Departure> {
        while let Some((since, ..)) = self.leaving.front()
            && (since.saturating_add(READ_STAYS_MS) <= now_ms || (self.read_bytes > most && *since < now_ms))
            && let Some((_, stripe, blocks)) = self.leaving.pop_front()
        {
            let Some(guest) = self.guests.get(&stripe) else { continue };
            let blocks = guest.read.and(&blocks);
            if !blocks.is_empty() {
                let is_all = guest.here.without(&blocks).is_empty();
                return Some(Departure { stripe, size: guest.size, blocks, is_all });
            }
        }
        None
    }

    /// It could not go now: it was in use.
    pub fn put_off(&mut self, departure: &Departure, now_ms: u64) {
        let Some(guest) = self.guests.get(&departure.stripe) else { return };
        let read = guest.read.and(&departure.blocks);
        if !read.is_empty() {
            self.leaving.push_back((now_ms, departure.stripe, read));
        }
    }

    /// What goes first: what was read, then the oldest guest. `spare_unread`: but for what is unread.
    pub fn next_to_go(&mut self, spare_unread: bool, now_ms: u64) -> Option<Departure> {
        if let Some(read) = self.next_read(0, now_ms) {
            return Some(read);
        }
        if spare_unread && self.bytes == self.unread_bytes {
            return None;
        }
        for _ in 0..self.order.len().min(LOOKED_AT_MAX) {
            let (_, stripe) = self.order.pop_first()?;
            let number = self.next;
            self.next += 1;
            self.order.insert(number, stripe);
            let guest = self.guests.get_mut(&stripe)?;
            guest.number = number;
            let blocks = if spare_unread { guest.here.without(&guest.unread) } else { guest.here.clone() };
            if !blocks.is_empty() {
                let is_all = guest.here.without(&blocks).is_empty();
                return Some(Departure { stripe, size: guest.size, blocks, is_all });
            }
        }
        None
    }

    /// These blocks of a version have gone, or are not guests any more; returns the bytes of those that were.
    pub fn forget(&mut self, file: FileId, version: Version, blocks: Range<u64>) -> u64 {
        if self.guests.is_empty() || blocks.is_empty() {
            return 0;
        }
        let (first, last) = (blocks.start / STRIPE_BLOCKS, (blocks.end - 1) / STRIPE_BLOCKS);
        let stripes = self.guests.range((file, version, first)..=(file, version, last));
        let stripes: Vec<StripeId> = stripes.map(|(stripe, _)| *stripe).collect();
        let within = |number: u64| {
            let start = number * STRIPE_BLOCKS;
            BlockSet::of(blocks.start.max(start) - start..blocks.end.min(start + STRIPE_BLOCKS) - start)
        };
        stripes.into_iter().map(|stripe| self.take_off(stripe, &within(stripe.2))).sum()
    }

    /// These blocks did not come on disk in this pair, or it was dropped.
    pub fn take_back(&mut self, stripe: StripeId, blocks: &BlockSet, pair: u64) {
        if self.guests.get(&stripe).is_some_and(|guest| guest.pair == pair) {
            self.take_off(stripe, blocks);
        }
    }

    /// All versions of a file are kept from now on.
    pub fn forget_file(&mut self, file: FileId) {
        let all = (file, Version([0; 16]), 0)..=(file, Version([u8::MAX; 16]), u64::MAX);
        let stripes: Vec<StripeId> = self.guests.range(all).map(|(stripe, _)| *stripe).collect();
        for stripe in stripes {
            self.take_off(stripe, &BlockSet::of(0..STRIPE_BLOCKS));
        }
    }

    /// These blocks of the stripe are not on disk.
    pub fn are_absent(&mut self, stripe: StripeId, blocks: &BlockSet) {
        self.take_off(stripe, blocks);
    }

    fn take_off(&mut self, stripe: StripeId, blocks: &BlockSet) -> u64 {
        let Some(guest) = self.guests.get_mut(&stripe) else { return 0 };
        let room = |set: &BlockSet| room(stripe, guest.size, &set.and(blocks));
        let (bytes, unread, read) = (room(&guest.here), room(&guest.unread), room(&guest.read));
        self.bytes -= bytes;
        self.unread_bytes -= unread;
        self.read_bytes -= read;
        guest.here.remove(blocks);
        guest.unread.remove(blocks);
        guest.read.remove(blocks);
        if guest.here.is_empty() {
            self.order.remove(&guest.number);
            self.guests.remove(&stripe);
        }
        if self.guests.is_empty() {
            self.expected.clear();
            self.leaving.clear();
        }
        bytes
    }
}

#[cfg(test)]
mod tests;
