//! What one client asked for and was told, kept outside of the tier; and which states a crash may leave: pure.
//!
//! What was *durable* must be there after any crash. What was answered and is not durable, and what was not answered,
//! may be there or not; how much of it depends on the policy:
//!
//! - `InOrder` (policy `back`): there is one journal, so what is there is what was done up to some point, and nothing
//!   beyond it. An operation is there as a whole or not at all; of parts that were written at the same time, any; of a
//!   system call `write`, what lies before a border of pages.
//! - `ByFile` (policy `through`): names and attributes are durable when they are answered. Of the bytes of a file that
//!   were not yet stored each may be there or not, whatever becomes of the others: a write is not atomic.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::crash::look::{Sight, bytes_differ, difference, difference_but_bytes, times_differ};
use crate::crash::model::{Ino, Kind, Op, Part, Tree};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    InOrder,
    ByFile,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Not answered, and not asked again.
    None,
    Done {
        durable: bool,
    },
    /// Asked again after the crash, and done then, or before it.
    DoneAgain,
    /// Asked again after the crash; the answer may speak of what was done before it.
    Doubtful,
}

/// What a crash left.
pub struct Resolved {
    /// Files whose bytes are others than they were said to be.
    pub changed: BTreeSet<Ino>,
    /// The write that was under way was answered before the crash, and the crash took it.
    pub lost: bool,
    /// Operations that were answered and are not there (`InOrder`).
    pub taken: usize,
}

/// A state that a crash may have left.
struct Candidate {
    /// So many entries are done.
    count: usize,
    tree: Tree,
    /// What was asked again after the crash, and what there was before it.
    again: Option<(Op, Tree)>,
}

#[derive(Clone)]
struct Entry {
    id: Ino,
    op: Op,
    answer: Answer,
}

pub struct Ledger {
    loss: Loss,
    /// A write is done page by page, from its front (the kernel's FUSE does that); over NFS it is one call.
    by_page: bool,
    next_id: Ino,
    /// Since the last crash; the first may be a write that was asked again after it, and is not stored yet.
    entries: Vec<Entry>,
    /// `states[n]` is what there is when the first `n` entries are done.
    states: Vec<Tree>,
    /// What may be there of the file of that write without it (`ByFile`: of each byte).
    without: Vec<Arc<Vec<u8>>>,
    /// Of former lives, the last ones, for who reads about a failure.
    former: Vec<String>,
}

const FORMER_MAX: usize = 60;
/// Of parts written at the same time any subset may be there.
const PARTS_MAX: usize = 8;
const PAGE: u64 = 4096;

impl Ledger {
    pub fn new(loss: Loss, by_page: bool) -> Ledger {
        Ledger {
            loss,
            by_page,
            next_id: 1,
            entries: Vec::new(),
            states: vec![Tree::default()],
            without: Vec::new(),
            former: Vec::new(),
        }
    }

    /// What there is if all that was asked for is done.
    pub fn now(&self) -> &Tree {
        self.states.last().expect("never empty")
    }

    /// An operation that the model says can be done.
    pub fn ask(&mut self, op: &Op) -> Ino {
        let id = self.next_id;
        self.next_id += 1;
        let mut next = self.now().clone();
        next.apply(id, op).expect("it was tried on the model first");
        self.states.push(next);
        self.entries.push(Entry { id, op: op.clone(), answer: Answer::None });
        id
    }

    /// To the last one that was asked for.
    pub fn answer(&mut self, answer: Answer) {
        self.entries.last_mut().expect("asked for").answer = answer;
    }

    /// As many entries are there for certain (of their bytes: `InOrder` only).
    fn floor(&self) -> usize {
        let settled = |n: usize| match (self.loss, self.entries[n].answer) {
            (_, Answer::None | Answer::Doubtful | Answer::DoneAgain) => 0,
            (Loss::InOrder, Answer::Done { durable: false }) => 0,
            (Loss::InOrder, Answer::Done { durable: true }) => self.synced_by(n),
            (Loss::ByFile, Answer::Done { .. }) => n + 1,
        };
        (0..self.entries.len()).map(settled).max().unwrap_or(0)
    }

    /// A COMMIT stores what was written to its file, and what was done before that; any other operation that is durable
    /// comes with all before it, fsync of a program too.
    fn synced_by(&self, n: usize) -> usize {
        let Op::Sync { path } = &self.entries[n].op else { return n + 1 };
        if self.by_page {
            return n + 1;
        }
        let Some(ino) = self.states[n].names.get(path) else { return 0 };
        (0..n).rev().find(|m| self.changes_bytes(*m, *ino)).map_or(0, |m| m + 1)
    }

    /// All states that the crash may have left, the fullest first.
    fn candidates(&self) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        let again = self.entries.last().filter(|e| matches!(e.answer, Answer::DoneAgain | Answer::Doubtful));
        let end = self.entries.len();
        for count in (self.floor()..=end).rev() {
            let done = self.entries.get(count);
            let state = &self.states[count];
            let mut with = vec![state.clone()];
            if let Some(Entry { id, op: Op::Write { path, parts, sync }, .. }) = done {
                for some in if self.by_page { fronts(parts) } else { subsets(parts) } {
                    let op = Op::Write { path: path.clone(), parts: some, sync: *sync };
                    let mut partly = state.clone();
                    partly.apply(*id, &op).expect("as the whole of it");
                    with.push(partly);
                }
            }
            for tree in with {
                let Some(again) = again.filter(|_| count < end) else {
                    // Done before the crash and lost by it, or not: it is there.
                    let again = again.map(|again| (again.op.clone(), self.states[end - 1].clone()));
                    candidates.push(Candidate { count, tree, again });
                    continue;
                };
                // Parts that were answered before the crash and not synced are lost, and not asked again.
                let some = match &again.op {
                    Op::Write { path, parts, sync: false } => subsets(parts)
                        .into_iter()
                        .map(|parts| Op::Write { path: path.clone(), parts, sync: false })
                        .collect(),
                    _ => Vec::new(),
                };
                for op in std::iter::once(&again.op).chain(&some) {
                    let mut after = tree.clone();
                    if after.apply(again.id, op).is_ok() {
                        let again = Some((op.clone(), tree.clone()));
                        candidates.push(Candidate { count: end, tree: after, again });
                    }
                }
                // Or all of them are.
                let is_lost = matches!(again.op, Op::Write { sync: false, .. });
                if is_lost || again.answer == Answer::Doubtful {
                    candidates.push(Candidate { count, tree, again: None });
                }
            }
        }
        candidates
    }

    /// After a crash: what is seen must be one of the states that it may have left, and that is what there is from now
    /// on.
    pub fn resolve(&mut self, sight: &Sight) -> Result<Resolved, String> {
        let mut differences = Vec::new();
        let is_answered = self.entries.last().is_some_and(|last| last.answer == Answer::DoneAgain);
        for Candidate { count, tree, again } in self.candidates() {
            let found = match self.loss {
                Loss::InOrder => {
                    match difference(&tree, sight).or_else(|| times_differ(&tree, sight, |_| true)) {
                        None => Ok(tree),
                        Some(told) => Err(told),
                    }
                }
                Loss::ByFile => self.by_file(tree, sight),
            };
            match found {
                Ok(tree) => {
                    let lost = is_answered && again.is_none();
                    let beyond = self.entries.iter().skip(count);
                    let taken = beyond.filter(|it| matches!(it.answer, Answer::Done { .. })).count();
                    return Ok(Resolved { changed: self.begin_again(tree, again), lost, taken });
                }
                Err(told) => differences.push(format!("with the first {count}: {told}")),
            }
        }
        differences.truncate(12);
        Err(format!(
            "no state that the crash may have left is what is there:\n  {}",
            differences.join("\n  ")
        ))
    }

    /// The model with the bytes that are there, if all of these are possible.
    fn by_file(&self, mut tree: Tree, sight: &Sight) -> Result<Tree, String> {
        if let Some(told) = difference_but_bytes(&tree, sight) {
            return Err(told);
        }
        let mut in_doubt = BTreeSet::new();
        for (path, seen) in sight {
            let Kind::File(got) = &seen.kind else { continue };
            let ino = tree.ino(path);
            if tree.bytes(path).is_some_and(|wanted| wanted != got) {
                self.bytes_possible(ino, got).map_err(|told| format!("{path}: {told}"))?;
            }
            if self.doubts(ino).next().is_some() {
                in_doubt.insert(ino);
                let node = tree.nodes.get_mut(&ino).expect("it has a name");
                (node.kind, node.mtime) = (seen.kind.clone(), None);
            }
        }
        let sure = |path: &str| !in_doubt.contains(&tree.ino(path));
        match times_differ(&tree, sight, sure) {
            Some(told) => Err(told),
            None => Ok(tree),
        }
    }

    /// The entries that changed bytes of this file and are not stored for certain.
    fn doubts(&self, ino: Ino) -> impl Iterator<Item = usize> {
        let from = self.stored(ino);
        (from..self.entries.len()).filter(move |n| self.changes_bytes(*n, ino) && !self.is_durable(*n))
    }

    fn is_durable(&self, n: usize) -> bool {
        self.entries[n].answer == Answer::Done { durable: true }
    }

    fn is_of(&self, n: usize, ino: Ino) -> bool {
        self.states[n].names.get(self.entries[n].op.path()) == Some(&ino)
    }

    fn changes_bytes(&self, n: usize, ino: Ino) -> bool {
        matches!(self.entries[n].op, Op::Write { .. } | Op::Truncate { .. }) && self.is_of(n, ino)
    }

    /// All bytes as of this many entries are stored.
    fn stored(&self, ino: Ino) -> usize {
        let synced = |n: &usize| {
            self.is_durable(*n) && matches!(self.entries[*n].op, Op::Sync { .. }) && self.is_of(*n, ino)
        };
        (0..self.entries.len()).rev().find(synced).map_or(0, |n| n + 1)
    }

    fn bytes_of(&self, n: usize, ino: Ino) -> Option<&Arc<Vec<u8>>> {
        match &self.states[n].nodes.get(&ino)?.kind {
            Kind::File(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// All that the file was, from when this many entries were done until that many were.
    fn versions(&self, ino: Ino, from: usize, to: usize) -> impl Iterator<Item = &Arc<Vec<u8>>> {
        let is_late = from == 0 && self.entries.first().is_some_and(|_| self.is_of(0, ino));
        let without = self.without.iter().filter(move |_| is_late);
        without.chain((from..=to).filter_map(move |n| self.bytes_of(n, ino)))
    }

    fn bytes_possible(&self, ino: Ino, got: &[u8]) -> Result<(), String> {
        let (stored, end) = (self.stored(ino), self.entries.len());
        let Some(last) = self.bytes_of(end, ino) else { return Ok(()) };
        if self.doubts(ino).next().is_none() {
            return bytes_differ(last, got).map_or(Ok(()), Err);
        }
        // The last time that the whole size, or the bytes of a range, were told to be stored.
        let durable = (stored..end).filter(|n| self.is_durable(*n) && self.changes_bytes(*n, ino));
        let (mut sized, mut least, mut written) = (stored, 0, Vec::new());
        for n in durable {
            match &self.entries[n].op {
                Op::Truncate { .. } => (sized, least) = (n + 1, 0),
                Op::Write { parts, .. } => {
                    for Part { offset, bytes } in parts {
                        least = least.max(*offset as usize + bytes.len());
                        written.push((n + 1, *offset as usize..*offset as usize + bytes.len()));
                    }
                }
                _ => {}
            }
        }
        let sizes = |from: usize| self.versions(ino, from, end).map(|bytes| bytes.len());
        let (least, most) = (sizes(sized).min().unwrap_or(0).max(least), sizes(sized).max().unwrap_or(0));
        if !(least..=most).contains(&got.len()) {
            return Err(format!("{} bytes and not {least} to {most}", got.len()));
        }
        for (at, byte) in got.iter().enumerate() {
            let from = written.iter().filter(|(_, range)| range.contains(&at)).map(|(n, _)| *n).max();
            let from = from.unwrap_or(stored).max(stored);
            if !self.versions(ino, from, end).any(|bytes| bytes.get(at).copied().unwrap_or_default() == *byte)
            {
                return Err(format!("at {at} it is {byte:02x}, and it never was since it was stored"));
            }
        }
        Ok(())
    }

    fn begin_again(&mut self, tree: Tree, again: Option<(Op, Tree)>) -> BTreeSet<Ino> {
        let changed =
            |ino: &&Ino| self.now().nodes.get(*ino).is_none_or(|node| node.kind != tree.nodes[*ino].kind);
        let changed = tree.nodes.keys().filter(changed).copied().collect();
        self.former.extend(self.entries.iter().map(shown));
        self.former.push("--- crash".to_owned());
        let surplus = self.former.len().saturating_sub(FORMER_MAX);
        self.former.drain(..surplus);
        // Written to the tier that came after the crash, which the next one may take.
        let late = again.filter(|(op, _)| matches!(op, Op::Write { sync: false, .. }));
        let last = self.entries.pop();
        (self.entries, self.states, self.without) = match (late, last) {
            (Some((op, before)), Some(last)) => {
                let (ino, end) = (tree.ino(op.path()), self.states.len() - 1);
                let without = self.versions(ino, self.stored(ino), end).cloned().collect();
                let before = if self.loss == Loss::InOrder { before } else { tree.clone() };
                let entry = Entry { op, answer: Answer::Done { durable: false }, ..last };
                (vec![entry], vec![before, tree], without)
            }
            _ => (Vec::new(), vec![tree], Vec::new()),
        };
        changed
    }

    /// What was asked for and told, oldest first.
    pub fn trace(&self) -> String {
        let now = self.entries.iter().map(shown);
        let lines: Vec<String> = self.former.iter().cloned().chain(now).collect();
        lines[lines.len().saturating_sub(FORMER_MAX)..].join("\n")
    }
}

fn shown(entry: &Entry) -> String {
    let answer = match entry.answer {
        Answer::None => "not answered",
        Answer::Done { durable: true } => "durable",
        Answer::Done { durable: false } => "done",
        Answer::DoneAgain => "asked again, done",
        Answer::Doubtful => "asked again, doubtful",
    };
    format!("{:5} {}: {answer}", entry.id, entry.op)
}

/// Some of them, and not all.
fn subsets(parts: &[Part]) -> Vec<Vec<Part>> {
    let count = parts.len().min(PARTS_MAX);
    let of =
        |chosen: u32| (0..count).filter(move |n| chosen & (1 << n) != 0).map(|n| parts[n].clone()).collect();
    (1..(1u32 << count) - 1).rev().map(of).collect()
}

/// The front of a write, to a border of pages.
fn fronts(parts: &[Part]) -> Vec<Vec<Part>> {
    let [Part { offset, bytes }] = parts else { return Vec::new() };
    let borders = (offset / PAGE + 1) * PAGE..offset + bytes.len() as u64;
    let front = |border: u64| {
        let front = bytes[..(border - offset) as usize].to_vec();
        vec![Part { offset: *offset, bytes: Arc::new(front) }]
    };
    borders.step_by(PAGE as usize).map(front).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::look::Seen;

    /// The last answer of a tier may be read when it is dead already.
    #[test]
    fn a_write_that_was_answered_just_before_a_power_cut_may_be_lost() {
        let mut ledger = Ledger::new(Loss::InOrder, false);
        let path = "c0/a".to_owned();
        ledger.ask(&Op::Create { path: path.clone(), mode: None, exclusive: false });
        ledger.answer(Answer::Done { durable: true });
        let parts = vec![Part { offset: 0, bytes: Arc::new(vec![1; 9]) }];
        ledger.ask(&Op::Write { path: path.clone(), parts, sync: false });
        ledger.answer(Answer::DoneAgain);
        let seen = Seen { kind: Kind::File(Arc::default()), mode: 0, links: 1, mtime: 0, size: 0 };
        let resolved = ledger.resolve(&Sight::from([(path.clone(), seen)])).expect("it was not durable");
        assert!(resolved.lost);
        assert!(ledger.now().bytes(&path).expect("a file").is_empty());
    }

    /// The model itself: it must not take for possible what the promise rules out.
    #[test]
    fn of_what_was_not_synced_a_power_cut_takes_the_last_and_nothing_from_before_an_fsync() {
        let create = |path: &str| Op::Create { path: path.to_owned(), mode: None, exclusive: false };
        let seen = |paths: &[&str]| -> Sight {
            let file = || Seen { kind: Kind::File(Arc::default()), mode: 0, links: 1, mtime: 0, size: 0 };
            paths.iter().map(|path| ((*path).to_owned(), file())).collect()
        };
        let resolved = |left: &[&str]| {
            let mut ledger = Ledger::new(Loss::InOrder, true);
            for path in ["c0/a", "c0/b"] {
                ledger.ask(&create(path));
                ledger.answer(Answer::Done { durable: false });
            }
            ledger.ask(&Op::Sync { path: "c0/a".to_owned() });
            ledger.answer(Answer::Done { durable: true });
            for path in ["c0/c", "c0/d"] {
                ledger.ask(&create(path));
                ledger.answer(Answer::Done { durable: false });
            }
            ledger.resolve(&seen(left)).map(|resolved| resolved.taken).map_err(drop)
        };
        assert_eq!(resolved(&["c0/a", "c0/b", "c0/c", "c0/d"]), Ok(0));
        assert_eq!(resolved(&["c0/a", "c0/b", "c0/c"]), Ok(1));
        assert_eq!(resolved(&["c0/a", "c0/b"]), Ok(2));
        assert_eq!(resolved(&["c0/a", "c0/b", "c0/d"]), Err(()), "a hole");
        assert_eq!(resolved(&["c0/a"]), Err(()), "it was synced with the other");
    }
}
