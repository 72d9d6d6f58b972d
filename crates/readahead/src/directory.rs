//! Which files of a directory will be read next? Pure: the files that are read go in, the ones to fetch come out.
//!
//! Jobs read the files of a directory one after the other: by name, in the order in which the directory is listed, or
//! in the order of the job before them. Several read at the same time, at different places. Each order has its
//! walkers; who takes the next file of an order is believed more each time. What is fetched and never read is counted,
//! and too much of it ends the fetching until reads prove the guesses right again.

use std::collections::{HashMap, VecDeque};

use types::FileId;

/// Walkers kept per order.
const WALKERS_MAX: usize = 8;
/// Files a believed walker may be ahead of the one that was expected: several nodes read the same order.
const SKIP_MAX: usize = 8;
/// Files behind a walker that are those of a slower node.
const LAG_MAX: usize = 256;
/// Files fetched ahead of a walker that took the next file once, twice, and more often; and of whoever begins with the
/// first file of a directory: most who do read on.
const DEPTHS: [usize; 4] = [0, 8, 64, 1024];
const DEPTH_AT_START: usize = 16;
/// Files that must have been read before they count as an order.
const LEARNT_MIN: usize = 8;

/// One order of the files of a directory.
#[derive(Debug, Default)]
struct FileOrder {
    files: Vec<FileId>,
    place: HashMap<FileId, usize>,
    walkers: VecDeque<Walker>,
}

#[derive(Clone, Copy, Debug)]
struct Walker {
    at: usize,
    /// How often it took the next one.
    hits: usize,
    /// Files before this one were handed out.
    planned: usize,
}

impl FileOrder {
    fn new(files: Vec<FileId>) -> FileOrder {
        let place = files.iter().enumerate().map(|(at, id)| (*id, at)).collect();
        FileOrder { files, place, walkers: VecDeque::new() }
    }

    /// `file` is read: the places to fetch.
    fn visit(&mut self, file: FileId) -> std::ops::Range<usize> {
        let Some(&at) = self.place.get(&file) else { return 0..0 };
        let known = self.walkers.iter().position(|walker| walker.takes(at) || walker.is_behind(at));
        let mut walker = match known.and_then(|known| self.walkers.remove(known)) {
            Some(walker) if walker.takes(at) => Walker { at, hits: walker.hits + 1, ..walker },
            Some(walker) => walker,
            None => Walker { at, hits: 0, planned: at + 1 },
        };
        let depth = if walker.hits == 0 && walker.at == 0 {
            DEPTH_AT_START
        } else {
            DEPTHS[walker.hits.min(DEPTHS.len() - 1)]
        };
        let from = walker.planned.max(walker.at + 1);
        let to = (walker.at + 1).saturating_add(depth).min(self.files.len());
        walker.planned = from.max(to);
        if self.walkers.len() >= WALKERS_MAX {
            self.walkers.pop_front();
        }
        self.walkers.push_back(walker);
        from..to.max(from)
    }

    /// Of what was handed out last, the places from `reached` on could not be fetched.
    fn stopped_at(&mut self, reached: usize) {
        if let Some(walker) = self.walkers.back_mut() {
            walker.planned = walker.planned.min(reached);
        }
    }
}

impl Walker {
    fn takes(&self, at: usize) -> bool {
        let most = if self.hits < 2 { 1 } else { SKIP_MAX };
        at > self.at && at - self.at <= most
    }

    /// The same file again, or that of a slower node in the same order.
    fn is_behind(&self, at: usize) -> bool {
        at == self.at || (self.hits >= 2 && at < self.at && self.at - at <= LAG_MAX)
    }
}

/// The orders of one directory, and who walks through it.
#[derive(Debug, Default)]
pub struct Directory {
    /// By name, by cookie, and as it was read last.
    orders: [FileOrder; 3],
    history: Vec<FileId>,
    /// Fetched and not read yet, with their bytes.
    pending: HashMap<FileId, u64>,
    pending_bytes: u64,
}

impl Directory {
    /// The files there are, by name and by cookie.
    pub fn set_files(&mut self, by_name: Vec<FileId>, by_cookie: Vec<FileId>) {
        for (order, files) in self.orders.iter_mut().zip([by_name, by_cookie]) {
            if order.files != files {
                *order = FileOrder::new(files);
            }
        }
    }

    /// `file` is read. Returns the files to fetch now, best guess first; say with `stopped_at` where they ended.
    pub fn visit(&mut self, file: FileId) -> Vec<(usize, usize, FileId)> {
        self.learn(file);
        let mut wanted: Vec<(usize, usize, FileId)> = Vec::new();
        for (which, order) in self.orders.iter_mut().enumerate() {
            let range = order.visit(file);
            wanted.extend(range.filter_map(|at| Some((which, at, *order.files.get(at)?))));
        }
        wanted
    }

    pub fn stopped_at(&mut self, which: usize, at: usize) {
        if let Some(order) = self.orders.get_mut(which) {
            order.stopped_at(at);
        }
    }

    /// A pass that begins where the last one began: the order of the last one may be the order of this one.
    fn learn(&mut self, file: FileId) {
        if self.history.first() == Some(&file) && self.history.len() >= LEARNT_MIN {
            let mut seen = std::collections::HashSet::new();
            let history = std::mem::take(&mut self.history);
            let order: Vec<FileId> = history.into_iter().filter(|id| seen.insert(*id)).collect();
            if self.orders[2].files != order {
                self.orders[2] = FileOrder::new(order);
            }
        }
        let known = self.orders[0].files.len().max(LEARNT_MIN);
        if self.history.last() != Some(&file) && self.history.len() < known.saturating_mul(2) {
            self.history.push(file);
        }
    }

    pub fn is_pending(&self, file: FileId) -> bool {
        self.pending.contains_key(&file)
    }

    pub fn fetched(&mut self, file: FileId, bytes: u64) {
        self.pending_bytes += bytes;
        self.pending_bytes -= self.pending.insert(file, bytes).unwrap_or(0);
    }

    /// The bytes that were fetched ahead of this read.
    pub fn used(&mut self, file: FileId) -> u64 {
        let bytes = self.pending.remove(&file).unwrap_or(0);
        self.pending_bytes -= bytes;
        bytes
    }

    pub fn pending_bytes(&self) -> u64 {
        self.pending_bytes
    }
}

/// What fetching ahead of the readers of files has cost and brought, over all directories.
#[derive(Clone, Copy, Debug, Default)]
pub struct PrefetchAccount {
    fetched: u64,
    used: u64,
}

impl PrefetchAccount {
    /// Fetched on trust.
    const START: u64 = 16 << 20;
    /// What was read pays for so many times as much that is not read yet.
    const TRUST: u64 = 3;
    /// Older deeds fade: both are halved at this many bytes.
    const FADE: u64 = 4 << 30;

    pub fn allows(&self, bytes: u64) -> bool {
        let credit =
            PrefetchAccount::START.saturating_add(self.used.saturating_mul(1 + PrefetchAccount::TRUST));
        self.fetched.saturating_add(bytes) <= credit
    }

    pub fn fetched(&mut self, bytes: u64) {
        self.fetched = self.fetched.saturating_add(bytes);
        if self.fetched > PrefetchAccount::FADE {
            (self.fetched, self.used) = (self.fetched / 2, self.used / 2);
        }
    }

    pub fn used(&mut self, bytes: u64) {
        self.used = self.used.saturating_add(bytes).min(self.fetched);
    }
}

/// Where a name stands among others as people count: `f9` before `f10`.
pub fn natural_order(name: &[u8]) -> Vec<(u8, u64, &[u8])> {
    let mut pieces = Vec::new();
    let mut rest = name;
    while let Some(first) = rest.first() {
        let digits = first.is_ascii_digit();
        let end = rest.iter().position(|b| b.is_ascii_digit() != digits).unwrap_or(rest.len());
        let (piece, after) = rest.split_at(end);
        let number = piece.iter().fold(0_u64, |n, b| {
            if digits { n.saturating_mul(10).saturating_add(u64::from(b - b'0')) } else { 0 }
        });
        pieces.push((u8::from(!digits), number, piece));
        rest = after;
    }
    pieces
}

#[cfg(test)]
mod tests;
