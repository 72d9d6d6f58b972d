//! What the kernel knows by number: which file each FUSE inode is, and how it is open. Pure: no clocks, no I/O.
//!
//! The number is the file's own 64 bits, with one exception. Who opened a file that is not being written has *one
//! version* of it until he closes it, and the kernel keeps pages (or the one file behind a passthrough) per inode.
//! So while a version is held open, a later version of the same file is another inode to the kernel, under a
//! number of its own.
//!
//! What is changed through this mount is seen at once by all who have the file open through us, as on a local file
//! system: a change of the bytes makes their opens follow the file. Only who reads the cache file by himself
//! (passthrough) keeps what he opened; the change then goes to a number of its own.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use types::{FileId, Version, WeakAttr};
use vfs::Node;

/// The kernel's number for the root.
pub const ROOT: u64 = 1;

/// How an open file is served. `B` stands for all bytes of a version, held for as long as it is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How<B> {
    /// Being written, here or at the origin: shows what comes, as NFS does.
    Following,
    /// One version, through us, from the cache or the origin.
    Snapshot,
    /// One version, through us, of which we hold all bytes.
    Whole(B),
    /// One version, read by the kernel from the cache file.
    Passed(B),
}

/// The answer to an open.
#[derive(Debug, PartialEq, Eq)]
pub enum Opening<B> {
    /// Through us. `keep`: the pages that the kernel has are of this very version.
    Served {
        keep: bool,
    },
    Passed(B),
    /// Another version of this file is open under this number: the name must be looked up again.
    Superseded,
}

/// What to read for one READ.
pub enum Serving<B> {
    /// This version and no other; where all its bytes are held, from there.
    Pinned(Node, Option<B>),
    /// Whatever is current.
    Current(FileId),
}

/// What to tell of an inode.
pub struct Told {
    pub node: Node,
    /// Not the current version: not to be kept.
    pub superseded: bool,
    /// The pages that the kernel has are of an older version.
    pub moved: bool,
}

/// The number is to be given up: what its name leads to must be looked up again.
#[derive(Debug, PartialEq, Eq)]
pub struct Superseded;

struct Inode<B> {
    file: FileId,
    /// How often the kernel was told of it and has not forgotten.
    lookups: u64,
    /// Where it was looked up last: number of the directory, and name.
    place: Option<(u64, Bytes)>,
    /// Of what version the kernel's pages are, if it has any.
    pages: Option<Pages>,
    held: Option<Held<B>>,
    /// A directory that was removed through this mount: what it is for who has it open.
    removed: Option<Box<Node>>,
    /// Written through this mount, and not all of it asked to be stored since.
    unstored: bool,
}

struct Held<B> {
    opens: u64,
    node: Node,
    how: How<B>,
    /// Somebody wants to change the bytes, which are read past us: whoever looks the name up gets another number.
    retired: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Pages {
    version: Version,
    weak: WeakAttr,
}

impl Pages {
    fn of(node: &Node) -> Pages {
        Pages { version: node.version, weak: node.attr.weak() }
    }
}

pub struct Inodes<B> {
    by_number: HashMap<u64, Inode<B>>,
    /// The number under which the current version is looked up.
    by_file: HashMap<FileId, u64>,
    /// How many opens there are of a file, under all its numbers.
    opens: HashMap<FileId, u64>,
    /// By directory: names that the kernel may hold for absent. When one comes to be there, it must be told.
    absent: HashMap<u64, HashSet<Bytes>>,
    absent_names: usize,
}

/// Names that the kernel may hold for absent; if there are more, it is told to forget them all.
const ABSENT_MAX: usize = 50_000;

/// Absent names of one directory that are looked at one by one when it changes.
const ABSENT_FEW: usize = 32;

/// Names of one directory that the kernel may hold for absent.
#[derive(Debug, PartialEq, Eq)]
pub enum Absent {
    Few(Vec<Bytes>),
    Many(HashSet<Bytes>),
}

impl<B: Clone> Inodes<B> {
    pub fn new(root: FileId) -> Inodes<B> {
        let by_file = HashMap::from([(root, ROOT)]);
        let (by_number, opens, absent) = (HashMap::new(), HashMap::new(), HashMap::new());
        let mut inodes = Inodes { by_number, by_file, opens, absent, absent_names: 0 };
        // One look-up that is never forgotten.
        inodes.by_number.insert(ROOT, Inode::new(root, 1));
        inodes
    }

    pub fn file(&self, number: u64) -> Option<FileId> {
        self.by_number.get(&number).map(|inode| inode.file)
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.by_number.len()
    }

    /// The number to show for a file in a listing.
    pub fn number_of(&self, file: FileId) -> u64 {
        self.by_file.get(&file).copied().unwrap_or_else(|| file.fileid64())
    }

    /// Where the kernel has a file: its number, and where it was looked up last.
    pub fn place_of(&self, file: FileId) -> Option<(u64, Option<(u64, Bytes)>)> {
        let number = *self.by_file.get(&file)?;
        Some((number, self.by_number.get(&number)?.place.clone()))
    }

    pub fn all_files(&self) -> Vec<FileId> {
        self.by_file.keys().copied().collect()
    }

    /// The kernel is told of this object, as `name` in `dir`; its number.
    pub fn remember(&mut self, node: &Node, dir: u64, name: &Bytes) -> u64 {
        let number = self.remember_number(node);
        if number != ROOT
            && let Some(inode) = self.by_number.get_mut(&number)
        {
            inode.place = Some((dir, name.clone()));
        }
        self.not_absent(dir, name);
        number
    }

    /// The kernel is told of this object, which it asked for by its number; nobody said where it is.
    pub fn remember_number(&mut self, node: &Node) -> u64 {
        let known = self.by_file.get(&node.id).copied();
        let current = known.filter(|number| !self.is_superseded(*number, node.version));
        let number = current.unwrap_or_else(|| self.free_number(node.id));
        let inode = self.by_number.entry(number).or_insert_with(|| Inode::new(node.id, 0));
        if number != ROOT {
            inode.lookups += 1;
        }
        self.by_file.insert(node.id, number);
        number
    }

    /// Is another version than this one held under the number?
    fn is_superseded(&self, number: u64, version: Version) -> bool {
        let held = self.by_number.get(&number).and_then(|inode| inode.held.as_ref());
        held.is_some_and(|held| {
            held.retired || (held.node.version != version && !matches!(held.how, How::Following))
        })
    }

    /// This name is asked for, and the kernel may be told that it is absent. Returns the directories and names that the
    /// kernel is to forget to make room.
    pub fn perhaps_absent(&mut self, dir: u64, name: &Bytes) -> Vec<(u64, HashSet<Bytes>)> {
        let mut left = Vec::new();
        if self.absent_names >= ABSENT_MAX {
            self.absent_names = 0;
            left = self.absent.drain().collect();
        }
        let new = self.absent.entry(dir).or_default().insert(name.clone());
        self.absent_names += usize::from(new);
        left
    }

    /// The kernel need not be told if the name comes to be there.
    pub fn not_absent(&mut self, dir: u64, name: &Bytes) {
        let Some(names) = self.absent.get_mut(&dir) else { return };
        self.absent_names -= usize::from(names.remove(name));
        if names.is_empty() {
            self.absent.remove(&dir);
        }
    }

    /// Still, after it was asked for: nothing was heard of its directory meanwhile.
    pub fn is_perhaps_absent(&self, dir: u64, name: &Bytes) -> bool {
        self.absent.get(&dir).is_some_and(|names| names.contains(name))
    }

    /// Something changed in the directory: which of its names that the kernel may hold for absent are looked at again.
    /// More than a few cost more to look at than to ask for again; they are forgotten here, and to be by the kernel.
    pub fn absent_in(&mut self, dir: u64) -> Absent {
        match self.absent.get(&dir) {
            None => Absent::Few(Vec::new()),
            Some(names) if names.len() <= ABSENT_FEW => Absent::Few(names.iter().cloned().collect()),
            Some(_) => Absent::Many(self.take_absent(dir)),
        }
    }

    /// They are forgotten here, and to be by the kernel.
    pub fn take_absent(&mut self, dir: u64) -> HashSet<Bytes> {
        let names = self.absent.remove(&dir).unwrap_or_default();
        self.absent_names -= names.len();
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
        self.take_absent(number);
    }

    /// `node` is what the file is now; what to tell of this inode?
    pub fn told(&mut self, number: u64, node: Node) -> Told {
        let superseded = self.is_superseded(number, node.version);
        let Some(inode) = self.by_number.get_mut(&number) else {
            return Told { node, superseded, moved: false };
        };
        let Some(held) = &mut inode.held else { return Told { node, superseded, moved: false } };
        if superseded {
            return Told { node: held.node.clone(), superseded, moved: false };
        }
        held.node = node.clone();
        let pages = inode.pages.replace(Pages::of(&node));
        let moved = pages.is_some_and(|pages| pages.version != node.version);
        Told { node, superseded, moved }
    }

    /// The directory was removed through this mount. No path leads to it, and who has it open may still ask.
    pub fn removed(&mut self, mut directory: Node) {
        let number = self.by_file.get(&directory.id);
        if let Some(inode) = number.and_then(|number| self.by_number.get_mut(number)) {
            directory.attr.nlink = 0;
            inode.removed = Some(Box::new(directory));
        }
    }

    /// The version that is open under this number, if one is held.
    pub fn held(&self, number: u64) -> Option<&Node> {
        let inode = self.by_number.get(&number)?;
        if let Some(removed) = &inode.removed {
            return Some(removed);
        }
        let held = inode.held.as_ref()?;
        (!matches!(held.how, How::Following)).then_some(&held.node)
    }

    pub fn serving(&self, number: u64) -> Option<Serving<B>> {
        let inode = self.by_number.get(&number)?;
        let Some(held) = &inode.held else { return Some(Serving::Current(inode.file)) };
        let whole = match &held.how {
            How::Following => return Some(Serving::Current(inode.file)),
            How::Snapshot => None,
            How::Whole(whole) | How::Passed(whole) => Some(whole.clone()),
        };
        Some(Serving::Pinned(held.node.clone(), whole))
    }

    /// The pages that go to the kernel are of this version. True if it may have some of another one.
    pub fn paged(&mut self, number: u64, node: &Node) -> bool {
        let Some(inode) = self.by_number.get_mut(&number) else { return false };
        inode.pages.replace(Pages::of(node)).is_some_and(|pages| pages.version != node.version)
    }

    /// Open the file in its current state `node`. `choose` says how, and is asked only if nobody has it open.
    pub fn open(&mut self, number: u64, node: &Node, choose: impl FnOnce() -> How<B>) -> Option<Opening<B>> {
        if self.is_superseded(number, node.version) {
            return Some(Opening::Superseded);
        }
        let inode = self.by_number.get_mut(&number)?;
        let held = inode.held.get_or_insert_with(|| Held {
            opens: 0,
            node: node.clone(),
            how: choose(),
            retired: false,
        });
        held.opens += 1;
        held.node = node.clone();
        *self.opens.entry(inode.file).or_default() += 1;
        if let How::Passed(backing) = &held.how {
            return Some(Opening::Passed(backing.clone()));
        }
        // Without `keep` the kernel drops its pages.
        let pages = inode.pages.replace(Pages::of(node));
        let keep = pages.is_some_and(|pages| pages.version == node.version);
        Some(Opening::Served { keep })
    }

    /// The bytes are about to be changed under this number: its opens follow the file from now on. `Err` if they
    /// cannot, being passed through; what is then looked up is another number. Returns what is not needed any more,
    /// for the caller to let go of.
    pub fn will_change(&mut self, number: u64) -> Result<Option<How<B>>, Superseded> {
        let held = self.by_number.get_mut(&number).and_then(|inode| inode.held.as_mut());
        let Some(held) = held else { return Ok(None) };
        held.retired |= matches!(held.how, How::Passed(_));
        if held.retired {
            return Err(Superseded);
        }
        Ok(Some(std::mem::replace(&mut held.how, How::Following)))
    }

    /// The file lost its name, and nobody else can change it: its opens need not be of one version any more.
    pub fn was_hidden(&mut self, file: FileId) -> Option<How<B>> {
        let number = *self.by_file.get(&file)?;
        let inode = self.by_number.get_mut(&number)?;
        inode.place = None;
        let held = inode.held.as_mut()?;
        let snapshot = matches!(held.how, How::Snapshot);
        snapshot.then(|| std::mem::replace(&mut held.how, How::Following))
    }

    /// The file was changed through this mount: from `before`, if that is known, to `node`. Pages of the state before
    /// are pages of the state after, since the kernel put the change into them itself. True if they may be of
    /// another one.
    pub fn changed(&mut self, file: FileId, before: Option<WeakAttr>, node: &Node) -> bool {
        let number = self.by_file.get(&file);
        let Some(inode) = number.and_then(|number| self.by_number.get_mut(number)) else { return false };
        if let Some(held) = &mut inode.held {
            let same = before.is_some_and(|before| before == held.node.attr.weak());
            if matches!(held.how, How::Following) || (same && !held.retired) {
                held.node = node.clone();
            }
        }
        let Some(pages) = inode.pages else { return false };
        inode.pages = Some(Pages::of(node));
        pages.version != node.version && before != Some(pages.weak)
    }

    /// As `changed`, of a change that touches no bytes and does not tell what was before: if size and mtime are what
    /// they were, so are the bytes.
    pub fn touched(&mut self, file: FileId, node: &Node) -> bool {
        let number = self.by_file.get(&file);
        let inode = number.and_then(|number| self.by_number.get(number));
        let known = inode.and_then(|inode| {
            let held = inode.held.as_ref().map(|held| held.node.attr.weak());
            held.or(inode.pages.map(|pages| pages.weak))
        });
        let before = known.filter(|weak| (weak.size, weak.mtime) == (node.attr.size, node.attr.mtime));
        self.changed(file, before, node)
    }

    /// Bytes were written under this number and are not stored yet.
    pub fn wrote(&mut self, number: u64) {
        if let Some(inode) = self.by_number.get_mut(&number) {
            inode.unstored = true;
        }
    }

    /// What was written so far is going to be stored. True if there was anything.
    pub fn storing(&mut self, number: u64) -> bool {
        let inode = self.by_number.get_mut(&number);
        inode.is_some_and(|inode| std::mem::take(&mut inode.unstored))
    }

    /// The file is about to lose this name. True if that is where it was looked up.
    pub fn leaves(&mut self, file: FileId, dir: u64, name: &Bytes) -> bool {
        let number = self.by_file.get(&file);
        let Some(inode) = number.and_then(|number| self.by_number.get_mut(number)) else { return false };
        inode.place.take_if(|(place, known_as)| *place == dir && known_as == name).is_some()
    }

    /// It has another name now.
    pub fn moved(&mut self, file: FileId, dir: u64, name: &Bytes) {
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

    /// May a name of this directory be that of an open file? A file with several names is known by one of them.
    pub fn may_be_open_in(&self, dir: u64) -> bool {
        let mut open = self.by_number.values().filter_map(|inode| Some((inode, inode.held.as_ref()?)));
        open.any(|(inode, held)| {
            held.node.attr.nlink > 1 || inode.place.as_ref().is_none_or(|(place, _)| *place == dir)
        })
    }

    /// One open less. Returns what was held, for the caller to let go of.
    pub fn release(&mut self, number: u64) -> Option<How<B>> {
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
        self.drop_if_unused(number);
        Some(held.how)
    }

    /// Open files that show what comes: number and state last told.
    pub fn following(&self) -> Vec<(u64, Node)> {
        let held = self.by_number.iter().filter_map(|(number, inode)| Some((number, inode.held.as_ref()?)));
        held.filter(|(_, held)| matches!(held.how, How::Following))
            .map(|(number, held)| (*number, held.node.clone()))
            .collect()
    }
}

impl<B> Inode<B> {
    fn new(file: FileId, lookups: u64) -> Inode<B> {
        Inode { file, lookups, place: None, pages: None, held: None, removed: None, unstored: false }
    }
}

#[cfg(test)]
mod tests;
