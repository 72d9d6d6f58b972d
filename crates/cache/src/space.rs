//! How much is kept, and who must go when it is too much.
//!
//! About 100 bytes of memory for each file on disk, whether it is in use or not. Order of locks: open files, then
//! the books; the state of one file comes last.

mod walk;

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use types::{FileId, Version};

use crate::Cache;
use crate::disk_usage::{DISK_UNIT, room_of_whole};
use crate::eviction::{Policy, Sieve};
use crate::file::CachedFile;

/// The worker begins to make room above this share of the quota, and goes on until a little below it, so that
/// fills seldom have to.
const HIGH_WATER_PERCENT: u64 = 95;
const LOW_WATER_PERCENT: u64 = 92;
/// A file above this share of the quota loses ranges instead of leaving as a whole.
const GIANT_SHARE: u64 = 8;
/// Bytes punched out of a giant file at a time.
const PUNCH: u64 = 4 << 20;
/// Free space of the file system is looked at this often.
const FREE_CHECK: Duration = Duration::from_secs(1);
/// Victims tried in a row before a fill gives up.
const VICTIMS_MAX: usize = 4096;
/// Files in use that are passed over before one of them has to go: there are fewer than this, or everything is in
/// use and somebody has to.
const PASSED_OVER_MAX: usize = 64;

/// For whom room is made, and so who may have to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RoomFor {
    /// Guests go first, then what is kept.
    Kept,
    /// Guests go that do not wait for a reader.
    Guest,
    /// For what may come: as for `Kept`, but guests that wait for a reader stay, and may be above the mark.
    Later,
}

/// The books: what is on disk, in which order it leaves.
pub struct DiskSpace {
    /// By slot; the numbers of `order`.
    kept: Vec<Option<KeptVersion>>,
    free_slots: Vec<u32>,
    /// The slot of a version of the file; the others hang on it.
    first: HashMap<FileId, u32>,
    /// Without what is pinned: that does not leave.
    order: Sieve,
    pins: HashSet<FileId>,
    /// Since they were written to the disk.
    pins_changed: bool,
    files: u64,
    bytes: u64,
    /// Bytes of fills that have been promised room and are not written yet.
    promised: u64,
    same_visit: Duration,
    epoch: Instant,
    /// Room in the file system, as last looked at.
    free: u64,
}

struct KeptVersion {
    file: FileId,
    version: Version,
    bytes: u64,
    /// When it was last read: milliseconds since the epoch; wraps after 49 days, which makes one visit too few.
    touched: u32,
    /// Read since it last counted as a visit, in units of 512 bytes. More than there is: some of it was read again.
    served: u32,
    /// Slot of another version of the same file.
    sibling: Option<u32>,
}

impl DiskSpace {
    pub fn new(same_visit: Duration, pins: HashSet<FileId>) -> DiskSpace {
        DiskSpace {
            kept: Vec::new(),
            free_slots: Vec::new(),
            first: HashMap::new(),
            order: Sieve::new(),
            pins,
            pins_changed: false,
            files: 0,
            bytes: 0,
            promised: 0,
            same_visit,
            epoch: Instant::now(),
            free: u64::MAX,
        }
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    pub fn pin(&mut self, file: FileId) {
        if self.pins.insert(file) {
            self.pins_changed = true;
            for slot in self.slots_of(file) {
                self.order.remove(slot);
            }
        }
    }

    pub fn unpin(&mut self, file: FileId) {
        if self.pins.remove(&file) {
            self.pins_changed = true;
            for slot in self.slots_of(file) {
                self.order.insert(slot);
            }
        }
    }

    fn slots_of(&self, file: FileId) -> Vec<u32> {
        self.versions(file).map(|(slot, _)| slot).collect()
    }

    pub fn pins(&self) -> &HashSet<FileId> {
        &self.pins
    }

    /// To be written to the disk, if they are others than there.
    pub fn changed_pins(&mut self) -> Option<HashSet<FileId>> {
        std::mem::take(&mut self.pins_changed).then(|| self.pins.clone())
    }

    pub fn pins_are_changed(&mut self) {
        self.pins_changed = true;
    }

    /// On disk, of what is pinned.
    pub fn pinned_bytes(&self) -> u64 {
        let slots = self.pins.iter().flat_map(|file| self.versions(*file)).map(|(slot, _)| slot);
        slots.filter_map(|slot| Some(self.kept.get(slot as usize)?.as_ref()?.bytes)).sum()
    }

    /// Bytes that could be on disk if nothing else took its room.
    pub fn reachable(&self, free_floor: u64) -> u64 {
        self.bytes.saturating_add(self.free.saturating_sub(free_floor))
    }

    pub fn files(&self) -> u64 {
        self.files
    }

    fn now(&self) -> u32 {
        self.epoch.elapsed().as_millis() as u32
    }

    fn at(&mut self, slot: u32) -> Option<&mut KeptVersion> {
        self.kept.get_mut(slot as usize)?.as_mut()
    }

    /// The slots of a file's versions, with the version.
    fn versions(&self, file: FileId) -> impl Iterator<Item = (u32, Version)> {
        let kept = |slot: u32| self.kept.get(slot as usize).and_then(Option::as_ref);
        let first = self.first.get(&file).copied();
        std::iter::successors(first, move |&slot| kept(slot)?.sibling)
            .filter_map(move |slot| Some((slot, kept(slot)?.version)))
    }

    pub fn versions_of(&self, file: FileId) -> Vec<Version> {
        self.versions(file).map(|(_, version)| version).collect()
    }

    fn slot_of(&self, file: FileId, version: Version) -> Option<u32> {
        self.versions(file).find(|(_, v)| *v == version).map(|(slot, _)| slot)
    }

    /// As much as it can be is on disk of this version.
    pub fn is_whole(&self, file: FileId, version: Version, size: u64) -> bool {
        let kept = self.slot_of(file, version).and_then(|slot| self.kept.get(slot as usize)?.as_ref());
        kept.is_some_and(|kept| kept.bytes >= room_of_whole(size))
    }

    /// `bytes` more are on disk. Returns the versions of the same file that were there before this one came.
    pub fn add(&mut self, file: FileId, version: Version, bytes: u64) -> Vec<Version> {
        if let Some(slot) = self.slot_of(file, version) {
            self.grow(slot, bytes);
            return Vec::new();
        }
        let outdated = self.versions_of(file);
        let slot = self.enter(file, version);
        self.grow(slot, bytes);
        outdated
    }

    /// Found on disk at start, where several versions may be left over. What was filled since is in `bytes`.
    pub fn found(&mut self, file: FileId, version: Version, bytes: u64) {
        let slot = self.slot_of(file, version).unwrap_or_else(|| self.enter(file, version));
        let before = self.at(slot).map_or(0, |kept| kept.bytes);
        // Free space was looked at with these bytes already on disk.
        let free = self.free;
        self.grow(slot, bytes.saturating_sub(before));
        self.free = free;
    }

    fn enter(&mut self, file: FileId, version: Version) -> u32 {
        let sibling = self.first.get(&file).copied();
        let kept = Some(KeptVersion { file, version, bytes: 0, touched: self.now(), served: 0, sibling });
        let slot = match self.free_slots.pop() {
            Some(slot) => {
                self.kept[slot as usize] = kept;
                slot
            }
            None => {
                self.kept.push(kept);
                u32::try_from(self.kept.len() - 1).expect("fewer files than inodes of a file system")
            }
        };
        self.first.insert(file, slot);
        if !self.pins.contains(&file) {
            self.order.insert(slot);
        }
        self.files += 1;
        slot
    }

    fn grow(&mut self, slot: u32, bytes: u64) {
        if let Some(kept) = self.at(slot) {
            kept.bytes += bytes;
            self.bytes += bytes;
            self.free = self.free.saturating_sub(bytes);
        }
    }

    /// `length` bytes of it were read. That is a use when nobody has read the file for a while, or when more was
    /// read than there is; one pass over a file is neither, however long it takes.
    pub fn touch(&mut self, file: FileId, version: Version, length: u64) {
        let Some(slot) = self.slot_of(file, version) else { return };
        let (now, same_visit) = (self.now(), self.same_visit.as_millis());
        let Some(kept) = self.at(slot) else { return };
        let since = now.wrapping_sub(std::mem::replace(&mut kept.touched, now));
        kept.served = kept.served.saturating_add(u32::try_from(length / 512).unwrap_or(u32::MAX));
        if u128::from(since) >= same_visit || u64::from(kept.served) * 512 > kept.bytes {
            kept.served = 0;
            self.order.visit(slot);
        }
    }

    /// What was kept as `old` is `new` from now on, in its place.
    pub fn relabel(&mut self, file: FileId, old: Version, new: Version) {
        if let Some(slot) = self.slot_of(file, old)
            && let Some(kept) = self.at(slot)
        {
            kept.version = new;
        }
    }

    /// Off the books; the bytes it had.
    pub fn remove(&mut self, file: FileId, version: Version) -> u64 {
        let Some(slot) = self.slot_of(file, version) else { return 0 };
        let Some(kept) = self.kept[slot as usize].take() else { return 0 };
        self.order.remove(slot);
        let before = self.versions_before(file, slot);
        match (before, kept.sibling) {
            (Some(before), sibling) => {
                if let Some(before) = self.at(before) {
                    before.sibling = sibling;
                }
            }
            (None, Some(sibling)) => {
                self.first.insert(file, sibling);
            }
            (None, None) => {
                self.first.remove(&file);
            }
        }
        self.free_slots.push(slot);
        self.files -= 1;
        self.give_back(kept.bytes);
        kept.bytes
    }

    /// The version whose sibling `slot` is.
    fn versions_before(&self, file: FileId, slot: u32) -> Option<u32> {
        let mut at = self.first.get(&file).copied()?;
        while at != slot {
            let sibling = self.kept.get(at as usize)?.as_ref()?.sibling?;
            if sibling == slot {
                return Some(at);
            }
            at = sibling;
        }
        None
    }

    /// The file has lost these bytes, and keeps its place.
    pub fn shrink(&mut self, file: FileId, version: Version, bytes: u64) {
        let Some(slot) = self.slot_of(file, version) else { return };
        let Some(kept) = self.at(slot) else { return };
        let bytes = bytes.min(kept.bytes);
        kept.bytes -= bytes;
        // What is lost was read, most likely: one pass must go on looking like one.
        kept.served = kept.served.saturating_sub(u32::try_from(bytes / 512).unwrap_or(u32::MAX));
        self.give_back(bytes);
    }

    fn give_back(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_sub(bytes);
        self.free = self.free.saturating_add(bytes);
    }

    fn victim(&mut self) -> Option<(u32, FileId, Version, u64)> {
        let slot = self.order.candidate()?;
        self.at(slot).map(|kept| (slot, kept.file, kept.version, kept.bytes))
    }

    /// Bytes by which `length` more would exceed `quota`, or go below the free floor.
    fn excess(&self, length: u64, quota: u64, free_floor: u64) -> u64 {
        let more = length.saturating_add(self.promised);
        let over_quota = self.bytes.saturating_add(more).saturating_sub(quota);
        let below_floor = free_floor.saturating_add(more).saturating_sub(self.free);
        over_quota.max(below_floor)
    }
}

/// Room that a fill may use; given back when dropped, for by then the books have the bytes themselves.
pub struct Room<'a> {
    cache: &'a Cache,
    bytes: u64,
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.cache.space().promised -= self.bytes;
    }
}

impl Cache {
    /// Room for `length` more bytes, evicting now if the worker has fallen behind.
    pub(crate) fn make_room(&self, length: u64, room_for: RoomFor) -> Result<Room<'_>, String> {
        let length = length.next_multiple_of(DISK_UNIT);
        let make = |more: u64| self.excess(100, more) == 0 || self.reclaim(100, more, room_for);
        // What is promised counts for all who make room, also by evicting what is kept. So a guest gets its promise last.
        let is_guest = room_for == RoomFor::Guest;
        let mut fits = !is_guest || make(length);
        let promised = if fits { length } else { 0 };
        self.space().promised += promised;
        let room = Room { cache: self, bytes: promised };
        fits = fits && (is_guest || make(0));
        self.pressure.notify_one();
        if fits {
            return Ok(room);
        }
        let (dir, space) = (self.config.dir.display(), self.space());
        let (free, floor) = (space.free >> 20, self.limits.free_floor() >> 20);
        Err(format!("no room in {dir}: {free} MiB of the disk are free, {floor} MiB are to stay free"))
    }

    /// Bytes above `percent` of the quota, or below the free floor, if `more` come.
    fn excess(&self, percent: u64, more: u64) -> u64 {
        let quota = self.limits.size_max() / 100 * percent;
        self.space().excess(more, quota, self.limits.free_floor())
    }

    /// Evict until no more than `percent` of the quota is used, or nothing is left that may go. True: all that was promised room by
    /// then has it. What is promised room later is for who promises it to look after.
    fn reclaim(&self, percent: u64, more: u64, room_for: RoomFor) -> bool {
        // One at a time: two at once would both free what either needs.
        let _one = self.reclaiming.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = || match room_for {
            RoomFor::Kept | RoomFor::Guest => self.excess(percent, more),
            RoomFor::Later => self.excess(percent, more).saturating_sub(self.unread_guest_bytes()),
        };
        let (mut passed_over, mut guests_in_use) = (0, 0);
        for _ in 0..VICTIMS_MAX {
            let wanted = wanted();
            if wanted == 0 {
                return true;
            }
            if guests_in_use < PASSED_OVER_MAX
                && let Some(has_gone) = self.evict_guest(room_for != RoomFor::Kept)
            {
                guests_in_use += usize::from(!has_gone);
                continue;
            }
            if room_for == RoomFor::Guest {
                return false;
            }
            let Some((slot, file, version, bytes)) = self.space().victim() else { return false };
            let open = self.files.get_open(file, version);
            // A file that is handed out as a whole leaves as a whole, when its turn has come.
            let whole = open.as_ref().is_some_and(|open| open.is_lent() || open.has_kernel_reads());
            if bytes > self.limits.size_max() / GIANT_SHARE && !whole {
                if self.punch(open, file, version, wanted.max(PUNCH)) > 0 {
                    self.space().order.again(slot);
                }
            } else if open.is_some_and(|open| open.is_busy()) && passed_over < PASSED_OVER_MAX {
                passed_over += 1;
            } else {
                self.drop_file(file, version);
            }
        }
        wanted() == 0
    }

    fn punch(&self, open: Option<Arc<CachedFile>>, file: FileId, version: Version, wanted: u64) -> u64 {
        let Some(open) = open.or_else(|| self.files.open_whatever(file, version)) else {
            return self.drop_file(file, version); // it cannot be opened, so that nobody can read it either
        };
        if open.has_kernel_reads() {
            return self.drop_file(file, version);
        }
        match open.punch(wanted, |blocks| self.blocks_leave(file, version, blocks)) {
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

    /// Takes blocks that leave the disk off what else knows of them.
    pub(crate) fn blocks_leave(&self, file: FileId, version: Version, blocks: Range<u64>) {
        self.metrics.readahead_evicted_bytes.inc_by(self.unread.take(file, version, blocks.clone()));
        self.guests_have_left(file, version, blocks);
    }

    /// Unlink a version; reads that are under way finish. Returns the bytes given back.
    pub(crate) fn drop_file(&self, file: FileId, version: Version) -> u64 {
        // Before there can be another pair of it.
        let forgotten = || {
            self.blocks_leave(file, version, 0..u64::MAX);
            self.space().remove(file, version)
        };
        let bytes = self.files.unlink(file, version, forgotten);
        self.metrics.evicted_bytes.inc_by(bytes);
        self.note_used();
        bytes
    }

    /// Enter what was filled into the books; other versions of the file make room for the one that was asked for
    /// last. The file may have been unlinked meanwhile: then it is nobody's.
    pub(crate) fn book(&self, file: &CachedFile, bytes: u64) {
        let (id, version) = (file.key.file, file.key.version);
        let outdated = {
            let mut space = self.space();
            if file.is_doomed() { Vec::new() } else { space.add(id, version, bytes) }
        };
        self.note_used();
        // A fetch begun before the file changed may land after the first of the new version.
        let later = |old| self.files.get_open(id, old).is_some_and(|old| old.opened > file.opened);
        if outdated.iter().any(|old| later(*old)) {
            self.drop_file(id, version);
            return;
        }
        for old in outdated {
            self.drop_file(id, old);
        }
    }

    pub(crate) fn note_used(&self) {
        self.metrics.used_bytes.set(i64::try_from(self.space().bytes).unwrap_or(i64::MAX));
    }

    fn look_at_free_space(&self) {
        if let Ok(stat) = rustix::fs::statvfs(&self.config.dir) {
            self.space().free = stat.f_bavail.saturating_mul(stat.f_frsize);
        }
    }
}

impl Cache {
    fn make_room_ahead(&self) {
        let is_high = || self.excess(HIGH_WATER_PERCENT, 0) > self.unread_guest_bytes();
        // What is kept is not evicted because of guests.
        if is_high() && !self.reclaim(LOW_WATER_PERCENT, 0, RoomFor::Guest) && is_high() {
            self.reclaim(LOW_WATER_PERCENT, 0, RoomFor::Later);
        }
    }
}

/// Keeps some room ahead of the fills, and an eye on the file system that others fill too.
pub fn start_reclaimer(cache: &Arc<Cache>) -> tokio::task::JoinHandle<()> {
    cache.look_at_free_space();
    let pressure = cache.pressure.clone();
    let cache = Arc::downgrade(cache);
    tokio::spawn(async move {
        loop {
            let Some(held) = cache.upgrade() else { return };
            let work = tokio::task::spawn_blocking(move || {
                held.look_at_free_space();
                held.tend_guests();
                held.make_room_ahead();
            });
            if work.await.is_err() {
                return;
            }
            let _ = tokio::time::timeout(FREE_CHECK, pressure.notified()).await;
            // Fills notify often; this many looks at the free space are enough.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(n: u8) -> FileId {
        FileId([n; 16])
    }

    fn version(n: u8) -> Version {
        Version([n; 16])
    }

    #[test]
    fn versions_of_a_file_are_found_and_removed_in_any_order() {
        let mut order = [1, 2, 3, 4];
        for turn in 0..24 {
            order.swap(turn % 4, (turn * 7 + 1) % 4);
            let mut space = DiskSpace::new(Duration::ZERO, HashSet::new());
            for n in 1..=4 {
                let before = space.add(id(9), version(n), 10);
                assert_eq!(before.len(), usize::from(n) - 1);
                space.add(id(n), version(1), 1);
            }
            for (done, n) in order.into_iter().enumerate() {
                assert_eq!(space.remove(id(9), version(n)), 10);
                assert_eq!(space.remove(id(9), version(n)), 0);
                assert_eq!(space.versions_of(id(9)).len(), 3 - done);
                assert_eq!(space.bytes(), 4 + 10 * (3 - done as u64));
            }
            assert_eq!(space.files(), 4);
        }
    }

    #[test]
    fn what_was_filled_before_the_scan_came_by_is_not_counted_twice() {
        let mut space = DiskSpace::new(Duration::ZERO, HashSet::new());
        space.add(id(1), version(1), 4096);
        space.found(id(1), version(1), 1 << 20);
        assert_eq!((space.bytes(), space.files()), (1 << 20, 1));
        space.found(id(1), version(1), 4096);
        assert_eq!(space.bytes(), 1 << 20);
    }

    #[test]
    fn one_long_pass_is_no_visit_and_reading_again_is() {
        let mut space = DiskSpace::new(Duration::from_secs(3600), HashSet::new());
        space.add(id(1), version(1), 10 << 20);
        space.add(id(2), version(1), 10 << 20);
        for _ in 0..80 {
            space.touch(id(1), version(1), 128 << 10);
        }
        assert_eq!(space.victim().map(|(_, file, ..)| file), Some(id(1)), "read through once");
        space.order.again(0);
        space.touch(id(1), version(1), 128 << 10);
        assert_eq!(space.victim().map(|(_, file, ..)| file), Some(id(2)), "read more than once");
        let mut space = DiskSpace::new(Duration::ZERO, HashSet::new());
        space.add(id(1), version(1), 10 << 20);
        space.add(id(2), version(1), 10 << 20);
        space.touch(id(1), version(1), 1);
        assert_eq!(space.victim().map(|(_, file, ..)| file), Some(id(2)), "read after a while");
    }

    #[test]
    fn what_is_pinned_never_has_to_go_in_any_version_before_it_is_unpinned() {
        let mut space = DiskSpace::new(Duration::ZERO, HashSet::from([id(1)]));
        space.add(id(1), version(1), 100);
        space.add(id(2), version(1), 100);
        space.pin(id(2));
        space.add(id(2), version(2), 50);
        space.add(id(3), version(1), 100);
        assert_eq!(space.pinned_bytes(), 250);
        assert_eq!(space.victim().map(|(_, file, ..)| file), Some(id(3)));
        space.remove(id(3), version(1));
        assert!(space.victim().is_none());
        assert!(space.changed_pins().is_some() && space.changed_pins().is_none(), "told once");
        space.unpin(id(2));
        assert_eq!(space.victim().map(|(_, file, ..)| file), Some(id(2)));
        assert_eq!((space.pinned_bytes(), space.changed_pins()), (100, Some(HashSet::from([id(1)]))));
    }

    #[test]
    fn promised_room_counts_until_it_is_given_back() {
        let mut space = DiskSpace::new(Duration::ZERO, HashSet::new());
        space.free = 1000;
        space.add(id(1), version(1), 600);
        assert_eq!(space.excess(100, 700, 0), 0);
        space.promised = 50;
        assert_eq!(space.excess(100, 700, 0), 50);
        assert_eq!(space.excess(100, 10_000, 300), 50);
    }

    #[test]
    fn the_books_cost_about_a_hundred_bytes_a_file() {
        assert!(size_of::<Option<KeptVersion>>() <= 56, "{}", size_of::<Option<KeptVersion>>());
    }
}
