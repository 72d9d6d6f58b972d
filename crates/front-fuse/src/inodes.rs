//! What the kernel knows by number: which file each FUSE inode is, and how it is open. Pure: no clocks, no I/O.
//!
//! The number is the file's own 64 bits, with one exception. Who opened a file that is not being written has *one
//! version* of it until he closes it, and the kernel keeps pages (or the one file behind a passthrough) per inode.
//! So while a version is held open, a later version of the same file is another inode to the kernel, under a
//! number of its own.

use std::collections::HashMap;

use bytes::Bytes;
use types::{FileId, Version};
use vfs::Node;

/// The kernel's number for the root.
pub const ROOT: u64 = 1;

/// How an open file is served. `B` stands for all bytes of a version, held for as long as it is open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum How<B> {
    /// Being written at the origin: shows what comes, as NFS does.
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

struct Inode<B> {
    file: FileId,
    /// How often the kernel was told of it and has not forgotten.
    lookups: u64,
    /// Where it was looked up last: number of the directory, and name.
    place: Option<(u64, Bytes)>,
    /// Of what version the kernel's pages are, if it has any.
    pages: Option<Version>,
    held: Option<Held<B>>,
}

struct Held<B> {
    opens: u64,
    node: Node,
    how: How<B>,
}

pub struct Inodes<B> {
    by_number: HashMap<u64, Inode<B>>,
    /// The number under which the current version is looked up.
    by_file: HashMap<FileId, u64>,
}

impl<B: Clone> Inodes<B> {
    pub fn new(root: FileId) -> Inodes<B> {
        let mut inodes = Inodes { by_number: HashMap::new(), by_file: HashMap::from([(root, ROOT)]) };
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

    /// Where the kernel has a file: all its numbers, each with the place where it was looked up.
    pub fn places_of(&self, file: FileId) -> Option<(u64, Option<(u64, Bytes)>)> {
        let number = *self.by_file.get(&file)?;
        Some((number, self.by_number.get(&number)?.place.clone()))
    }

    pub fn all_files(&self) -> Vec<FileId> {
        self.by_file.keys().copied().collect()
    }

    /// The kernel is told of this object, as `name` in `dir`; its number.
    pub fn remember(&mut self, node: &Node, dir: u64, name: &Bytes) -> u64 {
        let known = self.by_file.get(&node.id).copied();
        let current = known.filter(|number| !self.is_superseded(*number, node.version));
        let number = current.unwrap_or_else(|| self.free_number(node.id));
        let inode = self.by_number.entry(number).or_insert_with(|| Inode::new(node.id, 0));
        if number != ROOT {
            inode.lookups += 1;
            inode.place = Some((dir, name.clone()));
        }
        self.by_file.insert(node.id, number);
        number
    }

    /// Is another version than this one held under the number?
    fn is_superseded(&self, number: u64, version: Version) -> bool {
        let held = self.by_number.get(&number).and_then(|inode| inode.held.as_ref());
        held.is_some_and(|held| held.node.version != version && !matches!(held.how, How::Following))
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
        let moved = inode.pages.replace(node.version).is_some_and(|pages| pages != node.version);
        Told { node, superseded, moved }
    }

    /// The version that is open under this number, if one is held.
    pub fn held(&self, number: u64) -> Option<&Node> {
        let held = self.by_number.get(&number)?.held.as_ref()?;
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
    pub fn paged(&mut self, number: u64, version: Version) -> bool {
        let Some(inode) = self.by_number.get_mut(&number) else { return false };
        inode.pages.replace(version).is_some_and(|pages| pages != version)
    }

    /// Open the file in its current state `node`. `choose` says how, and is asked only if nobody has it open.
    pub fn open(&mut self, number: u64, node: &Node, choose: impl FnOnce() -> How<B>) -> Option<Opening<B>> {
        if self.is_superseded(number, node.version) {
            return Some(Opening::Superseded);
        }
        let inode = self.by_number.get_mut(&number)?;
        let held = inode.held.get_or_insert_with(|| Held { opens: 0, node: node.clone(), how: choose() });
        held.opens += 1;
        held.node = node.clone();
        if let How::Passed(backing) = &held.how {
            return Some(Opening::Passed(backing.clone()));
        }
        // Without `keep` the kernel drops its pages.
        let keep = inode.pages.replace(node.version) == Some(node.version);
        Some(Opening::Served { keep })
    }

    /// One open less. Returns what was held, for the caller to let go of.
    pub fn release(&mut self, number: u64) -> Option<How<B>> {
        let inode = self.by_number.get_mut(&number)?;
        let held = inode.held.as_mut()?;
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
        Inode { file, lookups, place: None, pages: None, held: None }
    }
}

#[cfg(test)]
mod tests;
