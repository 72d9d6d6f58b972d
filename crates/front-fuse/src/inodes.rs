//! The inode table: which file and version each FUSE inode number stands for, and how it is open. Pure: no clocks,
//! no I/O.
//!
//! The number is the file's own 64 bits, with one exception. A process that opens a file which is not being written
//! sees *one version* of it until the close, and the kernel keeps pages (or the one file behind a passthrough) per
//! inode. So while a version is held open, a later version of the file gets a number of its own.
//!
//! What is changed through this mount is seen at once by all that have the file open through us, as on a local file
//! system: a change of the bytes makes their opens follow the file. Only a passthrough open keeps its version; the
//! change then goes to a number of its own.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use types::{FileId, Version, WeakAttr};
use vfs::Node;

use crate::asker::{Thread, ToldThreads};

/// The kernel's number for the root.
pub const ROOT: u64 = 1;

/// How an open file is served. `B` stands for all bytes of a version, held for as long as it is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OpenMode<B> {
    /// The file is being written, here or at the origin: reads show its current state, as over NFS.
    Following,
    /// One version, read through us from the cache or the origin.
    Snapshot,
    /// One version, read through us, of which we hold all bytes.
    Whole(B),
    /// One version, read by the kernel from the cached file.
    Passthrough(B),
}

/// The answer to an open.
#[derive(Debug, PartialEq, Eq)]
pub enum OpenReply<B> {
    /// Served through us. `keep`: the kernel's pages are of this version.
    Served {
        keep: bool,
    },
    Passthrough(B),
    /// Another version of the file is open under this number: the name must be looked up again.
    Superseded,
}

/// What one READ reads from.
pub enum ReadSource<B> {
    /// This version and no other; from the held bytes, if there are any.
    Pinned(Node, Option<B>),
    /// The current version.
    Current(FileId),
}

/// The attributes to return for an inode.
pub struct InodeAttributes {
    pub node: Node,
    /// It is not the current version, and the kernel must not cache it.
    pub superseded: bool,
    /// The kernel's pages are of an older version.
    pub pages_stale: bool,
}

/// The number cannot be used any more: its name must be looked up again.
#[derive(Debug, PartialEq, Eq)]
pub struct Superseded;

struct KernelInode<B> {
    file: FileId,
    /// The kernel's lookup count (FORGET subtracts from it).
    lookups: u64,
    /// Where it was looked up last: the directory's number, and the name.
    place: Option<(u64, Bytes)>,
    /// The version of the kernel's pages, if it has any.
    pages: Option<CachedPages>,
    held: Option<OpenFile<B>>,
    /// The last state of a directory that was removed through this mount, for processes that have it open.
    removed: Option<Box<Node>>,
    /// Written through this mount since the last flush.
    dirty: bool,
    /// Of a directory.
    told: ToldThreads,
}

struct OpenFile<B> {
    opens: u64,
    node: Node,
    how: OpenMode<B>,
    /// A passthrough file whose bytes are being changed: the next look-up gets another number.
    retired: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct CachedPages {
    version: Version,
    weak: WeakAttr,
}

impl CachedPages {
    fn of(node: &Node) -> CachedPages {
        CachedPages { version: node.version, weak: node.attr.weak() }
    }
}

pub struct InodeTable<B> {
    by_number: HashMap<u64, KernelInode<B>>,
    /// The number under which the current version is looked up.
    by_file: HashMap<FileId, u64>,
    /// The number of opens of a file, under all its numbers.
    opens: HashMap<FileId, u64>,
    /// The numbers that are open: few beside all that the kernel knows.
    open_numbers: HashSet<u64>,
    /// Negative entries by directory: names that the kernel may cache as absent. When one appears, the kernel must
    /// be told.
    negatives: HashMap<u64, HashSet<Bytes>>,
    negative_count: usize,
}

/// The most negative entries; if there are more, the kernel is told to forget them all.
const NEGATIVE_MAX: usize = 50_000;

/// The most negative entries of a directory that are looked up one by one when it changes.
const NEGATIVE_FEW: usize = 32;

/// The negative entries of one directory.
#[derive(Debug, PartialEq, Eq)]
pub enum NegativeNames {
    Few(Vec<Bytes>),
    Many(HashSet<Bytes>),
}

impl<B: Clone> InodeTable<B> {
    pub fn new(root: FileId) -> InodeTable<B> {
        let by_file = HashMap::from([(root, ROOT)]);
        let mut inodes = InodeTable {
            by_number: HashMap::new(),
            by_file,
            opens: HashMap::new(),
            open_numbers: HashSet::new(),
            negatives: HashMap::new(),
            negative_count: 0,
        };
        // The root's lookup count never falls to zero.
        inodes.by_number.insert(ROOT, KernelInode::new(root, 1));
        inodes
    }

    pub fn file(&self, number: u64) -> Option<FileId> {
        self.by_number.get(&number).map(|inode| inode.file)
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.by_number.len()
    }

    /// The number of a file, for a listing.
    pub fn number_of(&self, file: FileId) -> u64 {
        self.by_file.get(&file).copied().unwrap_or_else(|| file.fileid64())
    }

    /// The file's number, and where it was looked up last.
    pub fn place_of(&self, file: FileId) -> Option<(u64, Option<(u64, Bytes)>)> {
        let number = *self.by_file.get(&file)?;
        Some((number, self.by_number.get(&number)?.place.clone()))
    }

    pub fn all_files(&self) -> Vec<FileId> {
        self.by_file.keys().copied().collect()
    }

    /// Records that the kernel learns of this object as `name` in `dir`; returns its number.
    pub fn remember(&mut self, node: &Node, dir: u64, name: &Bytes) -> u64 {
        let number = self.remember_number(node);
        if number != ROOT
            && let Some(inode) = self.by_number.get_mut(&number)
        {
            inode.place = Some((dir, name.clone()));
        }
        self.clear_negative(dir, name);
        number
    }

    /// Records that the kernel learns of this object by its number, without a name.
    pub fn remember_number(&mut self, node: &Node) -> u64 {
        let known = self.by_file.get(&node.id).copied();
        let current = known.filter(|number| !self.is_superseded(*number, node.version));
        let number = current.unwrap_or_else(|| self.free_number(node.id));
        let inode = self.by_number.entry(number).or_insert_with(|| KernelInode::new(node.id, 0));
        if number != ROOT {
            inode.lookups += 1;
        }
        self.by_file.insert(node.id, number);
        number
    }

    /// Whether another version than this one is held under the number.
    fn is_superseded(&self, number: u64, version: Version) -> bool {
        let held = self.by_number.get(&number).and_then(|inode| inode.held.as_ref());
        held.is_some_and(|held| {
            held.retired || (held.node.version != version && !matches!(held.how, OpenMode::Following))
        })
    }

    /// Records that the kernel may be told that this name is absent. Returns the negative entries that the kernel
    /// must forget to make room.
    pub fn note_negative(&mut self, dir: u64, name: &Bytes) -> Vec<(u64, HashSet<Bytes>)> {
        let mut left = Vec::new();
        if self.negative_count >= NEGATIVE_MAX {
            self.negative_count = 0;
            left = self.negatives.drain().collect();
        }
        let new = self.negatives.entry(dir).or_default().insert(name.clone());
        self.negative_count += usize::from(new);
        left
    }

    /// Forgets a negative entry.
    pub fn clear_negative(&mut self, dir: u64, name: &Bytes) {
        let Some(names) = self.negatives.get_mut(&dir) else { return };
        self.negative_count -= usize::from(names.remove(name));
        if names.is_empty() {
            self.negatives.remove(&dir);
        }
    }

    /// Whether the negative entry is still there after the look-up: nothing was heard of the directory meanwhile.
    pub fn is_negative(&self, dir: u64, name: &Bytes) -> bool {
        self.negatives.get(&dir).is_some_and(|names| names.contains(name))
    }

    /// The directory changed: returns its negative entries, which must be looked at again. More than a few cost more
    /// to look up than to drop: they are forgotten here, and the kernel must forget them, too.
    pub fn negatives_in(&mut self, dir: u64) -> NegativeNames {
        match self.negatives.get(&dir) {
            None => NegativeNames::Few(Vec::new()),
            Some(names) if names.len() <= NEGATIVE_FEW => NegativeNames::Few(names.iter().cloned().collect()),
            Some(_) => NegativeNames::Many(self.take_negatives(dir)),
        }
    }

    /// Takes all negative entries of a directory; the kernel must forget them, too.
    pub fn take_negatives(&mut self, dir: u64) -> HashSet<Bytes> {
        let names = self.negatives.remove(&dir).unwrap_or_default();
        self.negative_count -= names.len();
        names
    }

    fn free_number(&self, file: FileId) -> u64 {
        let mut number = file.fileid64();
        while number <= ROOT || self.by_number.contains_key(&number) {
            number = number.wrapping_add(0x9e37_79b9_7f4a_7c15); // odd: comes past every number
        }
        number
    }

    pub fn forget(&mut self, number: u64, lookups: u64) {
        let Some(inode) = self.by_number.get_mut(&number) else { return };
        inode.lookups = inode.lookups.saturating_sub(lookups);
        if number == ROOT {
            inode.lookups = 1;
        }
        self.drop_if_unused(number);
    }

    fn drop_if_unused(&mut self, number: u64) {
        let Some(inode) = self.by_number.get(&number) else { return };
        if inode.lookups > 0 || inode.held.is_some() {
            return;
        }
        if self.by_file.get(&inode.file) == Some(&number) {
            self.by_file.remove(&inode.file);
        }
        self.by_number.remove(&number);
        self.take_negatives(number);
    }

    /// The file is `node` now. `has_bytes_of` tells of a version whether only the tier's own doing, and no other bytes, lie between
    /// it and this one: the kernel's pages of such a version, and who has it open, are of this one from now on.
    pub fn renew(&mut self, node: &Node, has_bytes_of: impl Fn(Version) -> bool) {
        let number = self.by_file.get(&node.id);
        let Some(inode) = number.and_then(|number| self.by_number.get_mut(number)) else { return };
        let is_older = |version: Version| version != node.version && has_bytes_of(version);
        if inode.pages.is_some_and(|pages| is_older(pages.version)) {
            inode.pages = Some(CachedPages::of(node));
        }
        if let Some(held) = &mut inode.held
            && !held.retired
            && is_older(held.node.version)
        {
            held.node = node.clone();
        }
    }

    /// The attributes to return for an inode whose file is `node` now.
    pub fn attributes_of(&mut self, number: u64, node: Node) -> InodeAttributes {
        let superseded = self.is_superseded(number, node.version);
        let Some(inode) = self.by_number.get_mut(&number) else {
            return InodeAttributes { node, superseded, pages_stale: false };
        };
        let Some(held) = &mut inode.held else {
            return InodeAttributes { node, superseded, pages_stale: false };
        };
        if superseded {
            return InodeAttributes { node: held.node.clone(), superseded, pages_stale: false };
        }
        held.node = node.clone();
        let pages = inode.pages.replace(CachedPages::of(&node));
        let pages_stale = pages.is_some_and(|pages| pages.version != node.version);
        InodeAttributes { node, superseded, pages_stale }
    }

    /// Records that this thread is about to be told the attributes of this directory. They count as old only if they were
    /// looked at before this.
    pub fn attributes_told(&mut self, number: u64, thread: Thread) {
        if let Some(inode) = self.by_number.get_mut(&number) {
            inode.told = inode.told.and(thread);
        }
    }

    /// Records that this thread changed names in the directory. True if the kernel must be told: answers to other threads
    /// may be under way.
    pub fn names_changed(&mut self, dir: u64, thread: Thread) -> bool {
        let Some(inode) = self.by_number.get_mut(&dir) else { return false };
        std::mem::take(&mut inode.told).others(thread)
    }

    /// Keeps the last state of a directory that was removed through this mount: no path leads to it, but a process
    /// that has it open may still ask.
    pub fn directory_removed(&mut self, mut directory: Node) {
        let number = self.by_file.get(&directory.id);
        if let Some(inode) = number.and_then(|number| self.by_number.get_mut(number)) {
            directory.attr.nlink = 0;
            inode.removed = Some(Box::new(directory));
        }
    }

    /// The version that is open under this number, if one is held.
    pub fn held_node(&self, number: u64) -> Option<&Node> {
        let inode = self.by_number.get(&number)?;
        if let Some(removed) = &inode.removed {
            return Some(removed);
        }
        let held = inode.held.as_ref()?;
        (!matches!(held.how, OpenMode::Following)).then_some(&held.node)
    }

    /// Whether the pages that the kernel may have kept are of this version.
    pub fn has_pages_of(&self, number: u64, node: &Node) -> bool {
        let pages = self.by_number.get(&number).and_then(|inode| inode.pages);
        pages.is_some_and(|pages| pages.version == node.version)
    }

    pub fn serving(&self, number: u64) -> Option<ReadSource<B>> {
        let inode = self.by_number.get(&number)?;
        let Some(held) = &inode.held else { return Some(ReadSource::Current(inode.file)) };
        let whole = match &held.how {
            OpenMode::Following => return Some(ReadSource::Current(inode.file)),
            OpenMode::Snapshot => None,
            OpenMode::Whole(whole) | OpenMode::Passthrough(whole) => Some(whole.clone()),
        };
        Some(ReadSource::Pinned(held.node.clone(), whole))
    }

    /// Records that pages of this version go to the kernel. True if it may have some of another one.
    pub fn pages_sent(&mut self, number: u64, node: &Node) -> bool {
        let Some(inode) = self.by_number.get_mut(&number) else { return false };
        inode.pages.replace(CachedPages::of(node)).is_some_and(|pages| pages.version != node.version)
    }

    /// Opens the file in its current state `node`. `choose` says how, and is called only for the first open.
    pub fn open(
        &mut self,
        number: u64,
        node: &Node,
        choose: impl FnOnce() -> OpenMode<B>,
    ) -> Option<OpenReply<B>> {
        if self.is_superseded(number, node.version) {
            return Some(OpenReply::Superseded);
        }
        let inode = self.by_number.get_mut(&number)?;
        let held = inode.held.get_or_insert_with(|| OpenFile {
            opens: 0,
            node: node.clone(),
            how: choose(),
            retired: false,
        });
        held.opens += 1;
        held.node = node.clone();
        self.open_numbers.insert(number);
        *self.opens.entry(inode.file).or_default() += 1;
        if let OpenMode::Passthrough(backing) = &held.how {
            return Some(OpenReply::Passthrough(backing.clone()));
        }
        // Without `keep` the kernel drops its pages.
        let pages = inode.pages.replace(CachedPages::of(node));
        let keep = pages.is_some_and(|pages| pages.version == node.version);
        Some(OpenReply::Served { keep })
    }

    /// Prepares a change of the bytes: the opens of this number follow the file from now on. `Err` if they cannot,
    /// being passed through; the next look-up then gets another number. Returns what is not needed any more, for the
    /// caller to drop.
    pub fn will_change(&mut self, number: u64) -> Result<Option<OpenMode<B>>, Superseded> {
        let held = self.by_number.get_mut(&number).and_then(|inode| inode.held.as_mut());
        let Some(held) = held else { return Ok(None) };
        held.retired |= matches!(held.how, OpenMode::Passthrough(_));
        if held.retired {
            return Err(Superseded);
        }
        Ok(Some(std::mem::replace(&mut held.how, OpenMode::Following)))
    }

    /// The file got a hidden name, so nobody else can change it: its opens need not keep one version any more.
    pub fn orphaned(&mut self, file: FileId) -> Option<OpenMode<B>> {
        let number = *self.by_file.get(&file)?;
        let inode = self.by_number.get_mut(&number)?;
        inode.place = None;
        let held = inode.held.as_mut()?;
        let snapshot = matches!(held.how, OpenMode::Snapshot);
        snapshot.then(|| std::mem::replace(&mut held.how, OpenMode::Following))
    }

    /// Records a change through this mount, from `before`, if known, to `node`. Pages of the state before are valid
    /// for the state after, since the kernel changed them itself. True if they may be of another state.
    pub fn changed(&mut self, file: FileId, before: Option<WeakAttr>, node: &Node) -> bool {
        let number = self.by_file.get(&file);
        let Some(inode) = number.and_then(|number| self.by_number.get_mut(number)) else { return false };
        if let Some(held) = &mut inode.held {
            let same = before.is_some_and(|before| before == held.node.attr.weak());
            if matches!(held.how, OpenMode::Following) || (same && !held.retired) {
                held.node = node.clone();
            }
        }
        let Some(pages) = inode.pages else { return false };
        inode.pages = Some(CachedPages::of(node));
        pages.version != node.version && before != Some(pages.weak)
    }

    /// As `changed`, for a change of attributes that does not report the state before: if size and mtime are the
    /// same, so are the bytes.
    pub fn attributes_changed(&mut self, file: FileId, node: &Node) -> bool {
        let number = self.by_file.get(&file);
        let inode = number.and_then(|number| self.by_number.get(number));
        let known = inode.and_then(|inode| {
            let held = inode.held.as_ref().map(|held| held.node.attr.weak());
            held.or(inode.pages.map(|pages| pages.weak))
        });
        let before = known.filter(|weak| (weak.size, weak.mtime) == (node.attr.size, node.attr.mtime));
        self.changed(file, before, node)
    }

    /// Records that bytes were written and not flushed.
    pub fn mark_dirty(&mut self, number: u64) {
        if let Some(inode) = self.by_number.get_mut(&number) {
            inode.dirty = true;
        }
    }

    /// Clears the dirty mark. True if it was set.
    pub fn take_dirty(&mut self, number: u64) -> bool {
        let inode = self.by_number.get_mut(&number);
        inode.is_some_and(|inode| std::mem::take(&mut inode.dirty))
    }

    /// Forgets the place of a file that is about to lose this name. True if it was looked up there.
    pub fn forget_place(&mut self, file: FileId, dir: u64, name: &Bytes) -> bool {
        let number = self.by_file.get(&file);
        let Some(inode) = number.and_then(|number| self.by_number.get_mut(number)) else { return false };
        inode.place.take_if(|(place, known_as)| *place == dir && known_as == name).is_some()
    }

    /// Records the file's new name.
    pub fn renamed(&mut self, file: FileId, dir: u64, name: &Bytes) {
        let number = self.by_file.get(&file);
        if let Some(inode) = number.and_then(|number| self.by_number.get_mut(number)) {
            inode.place = Some((dir, name.clone()));
        }
    }

    pub fn is_open_once(&self, number: u64) -> bool {
        let held = self.by_number.get(&number).and_then(|inode| inode.held.as_ref());
        held.is_some_and(|held| held.opens == 1)
    }

    pub fn is_open(&self, file: FileId) -> bool {
        self.opens.contains_key(&file)
    }

    /// Whether a name of this directory may be that of an open file. A file with several names is known by one of
    /// them.
    pub fn may_be_open_in(&self, dir: u64) -> bool {
        self.open_inodes().any(|(_, inode, held)| {
            held.node.attr.nlink > 1 || inode.place.as_ref().is_none_or(|(place, _)| *place == dir)
        })
    }

    /// Counts one open less. After the last one, returns what was held, for the caller to drop.
    pub fn release(&mut self, number: u64) -> Option<OpenMode<B>> {
        let inode = self.by_number.get_mut(&number)?;
        let held = inode.held.as_mut()?;
        if let Some(opens) = self.opens.get_mut(&inode.file) {
            *opens -= 1;
            if *opens == 0 {
                self.opens.remove(&inode.file);
            }
        }
        held.opens = held.opens.saturating_sub(1);
        if held.opens > 0 {
            return None;
        }
        let held = inode.held.take()?;
        self.open_numbers.remove(&number);
        self.drop_if_unused(number);
        Some(held.how)
    }

    /// The open files that follow changes: their numbers and last known state.
    pub fn following(&self) -> Vec<(u64, Node)> {
        self.open_inodes()
            .filter(|(.., held)| matches!(held.how, OpenMode::Following))
            .map(|(number, _, held)| (number, held.node.clone()))
            .collect()
    }

    fn open_inodes(&self) -> impl Iterator<Item = (u64, &KernelInode<B>, &OpenFile<B>)> {
        self.open_numbers.iter().filter_map(|number| {
            let inode = self.by_number.get(number)?;
            Some((*number, inode, inode.held.as_ref()?))
        })
    }
}

impl<B> KernelInode<B> {
    fn new(file: FileId, lookups: u64) -> KernelInode<B> {
        let told = ToldThreads::default();
        KernelInode { file, lookups, place: None, pages: None, held: None, removed: None, dirty: false, told }
    }
}

#[cfg(test)]
mod tests;
