//! How many copies are wanted of which file. A junction has one number; rules, which operators make for files and directories, give
//! some of its files another one.
//!
//! Rules go by paths, and a node that keeps stripes knows ids of files alone. So the rule about a file is found where a client reads
//! it, by the names that lead to it there ([`CopyRuleFinder`]), and travels with the calls about the file (`peer::message::ToldCopies`).
//! What is found and told is remembered here, for a bounded number of files. The last word counts: a file that was renamed is looked
//! up anew at its next read by a client, 5 s after the last look at the earliest, and the nodes that keep it hear of that with the next
//! call about it. What another node told is forgotten after three hours; the walk over the cache then asks the others for the file's names,
//! as it does for what is cached when rules are made ([`PathFinder`](crate::PathFinder)).
//!
//! Rules have a revision. By other rules than this node's what is told means nothing, and new rules make all forgotten that was
//! remembered of their junction.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use peer::message::ToldCopies;
use types::{FileId, JunctionId};

/// A file that clients read here, or that was looked up in vain, is looked up again after this.
const MET_FOR: Duration = Duration::from_secs(5);
/// What is remembered counts for so long.
const KNOWN_FOR: Duration = Duration::from_secs(3 * 3600);
/// Files that are remembered: some 20 MB.
const FILES_MAX: usize = 1 << 18;

/// Finds the rule about a file.
pub trait CopyRuleFinder: Send + Sync {
    /// By the names that this node knows. `None`: it has not met the file, or not all directories that lead to it, or its junction has
    /// no rules.
    fn find(&self, junction: JunctionId, file: FileId) -> Option<ToldCopies>;

    /// By the names from the root of the junction down to the file. `None`: the junction has no rules.
    fn about(&self, junction: JunctionId, names: &[Bytes]) -> Option<ToldCopies>;
}

/// How many copies are wanted of which file, as far as rules say. Part of [`ClusterView`](crate::ClusterView).
pub struct FileCopies {
    begun: Instant,
    finder: OnceLock<Arc<dyn CopyRuleFinder>>,
    /// Any junction has rules. Where none has, nothing is looked up.
    has_rules: AtomicBool,
    files: Mutex<RuledFiles>,
}

impl Default for FileCopies {
    fn default() -> FileCopies {
        FileCopies {
            begun: Instant::now(),
            finder: OnceLock::new(),
            has_rules: AtomicBool::new(false),
            files: Mutex::new(RuledFiles::new(FILES_MAX)),
        }
    }
}

impl FileCopies {
    /// `false`: there is one already.
    pub fn set_finder(&self, finder: Arc<dyn CopyRuleFinder>) -> bool {
        self.finder.set(finder).is_ok()
    }

    /// Goes by rules of these revisions from now on. `false`: that is so already.
    pub fn set_rules(&self, revisions: HashMap<JunctionId, u64>) -> bool {
        let has_rules = !revisions.is_empty();
        let changed = self.files().set_rules(revisions);
        self.has_rules.store(has_rules, Ordering::Release);
        changed
    }

    /// The revision of a junction's rules. `None`: it has none.
    pub fn revision(&self, junction: JunctionId) -> Option<u64> {
        if !self.has_rules.load(Ordering::Acquire) {
            return None;
        }
        self.files().revisions.get(&junction).copied()
    }

    /// What rules say of a file, as far as this node can know by itself. `None`: its junction has no rules, or nobody has told of the
    /// file.
    pub fn of(&self, junction: JunctionId, file: FileId) -> Option<ToldCopies> {
        let revision = self.revision(junction)?;
        let (known, is_missed) = {
            let (mut files, now) = (self.files(), self.begun.elapsed());
            (files.known(file, now), files.is_missed(file, now))
        };
        if known.is_some() || is_missed {
            return known.map(|copies| ToldCopies { revision, copies });
        }
        let found = self.find(junction, file, Word::Told)?;
        (found.revision == revision).then_some(found)
    }

    /// A client of this node reads the file: where it lies now is looked up, unless that was just done.
    pub fn meet(&self, junction: JunctionId, file: FileId) {
        if self.revision(junction).is_none() || self.files().is_met(file, self.begun.elapsed()) {
            return;
        }
        self.find(junction, file, Word::Met);
    }

    /// Looks the file up and remembers the outcome, be it that nothing is known of it. That may read a database, so no lock is held.
    fn find(&self, junction: JunctionId, file: FileId, word: Word) -> Option<ToldCopies> {
        let found = self.finder.get()?.find(junction, file);
        match found {
            Some(found) => self.learn(junction, file, found, word),
            None => self.files().miss(junction, file, word, self.begun.elapsed()),
        }
        found
    }

    /// Another node knows these names of the file. `None`: no node knows any: what was known of it goes on, and where nothing was, no
    /// rule is about it until somebody says otherwise.
    pub fn told_names(&self, junction: JunctionId, file: FileId, names: Option<&[Bytes]>) {
        let Some(revision) = self.revision(junction) else { return };
        let about = match names {
            Some(names) => self.finder.get().and_then(|finder| finder.about(junction, names)),
            None => {
                let copies = self.files().last(file);
                Some(ToldCopies { revision, copies })
            }
        };
        if let Some(told) = about {
            self.learn(junction, file, told, Word::Told);
        }
    }

    /// Another node says so.
    pub fn told(&self, junction: JunctionId, file: FileId, told: ToldCopies) {
        if self.revision(junction).is_some() {
            self.learn(junction, file, told, Word::Told);
        }
    }

    fn learn(&self, junction: JunctionId, file: FileId, told: ToldCopies, word: Word) {
        self.files().learn(junction, file, told, word, self.begun.elapsed());
    }

    fn files(&self) -> MutexGuard<'_, RuledFiles> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// From where a rule is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Word {
    /// A client of this node reads the file.
    Met,
    /// Another node said so, or names that may be old.
    Told,
}

#[derive(Clone, Copy, Debug)]
struct RuledFile {
    junction: JunctionId,
    /// By the last word; meaningless without one.
    copies: Option<u8>,
    /// When the last word was said.
    told: Option<Duration>,
    /// When a client of this node had it looked up.
    met: Option<Duration>,
    /// When this node last looked it up in vain.
    missed: Option<Duration>,
}

/// What is remembered. Pure: the caller brings the time.
#[derive(Debug)]
struct RuledFiles {
    max: usize,
    revisions: HashMap<JunctionId, u64>,
    /// Half as many as may be; then they become the old ones, and the old ones are forgotten.
    young: HashMap<FileId, RuledFile>,
    old: HashMap<FileId, RuledFile>,
}

impl RuledFiles {
    fn new(max: usize) -> RuledFiles {
        RuledFiles { max, revisions: HashMap::new(), young: HashMap::new(), old: HashMap::new() }
    }

    fn set_rules(&mut self, revisions: HashMap<JunctionId, u64>) -> bool {
        if self.revisions == revisions {
            return false;
        }
        let is_same = |junction: &JunctionId| revisions.get(junction) == self.revisions.get(junction);
        self.young.retain(|_, file| is_same(&file.junction));
        self.old.retain(|_, file| is_same(&file.junction));
        self.revisions = revisions;
        true
    }

    fn learn(&mut self, junction: JunctionId, file: FileId, told: ToldCopies, word: Word, now: Duration) {
        if self.revisions.get(&junction) == Some(&told.revision) {
            let met = match word {
                Word::Met => Some(now),
                Word::Told => self.get(file).and_then(|file| file.met),
            };
            let (copies, told) = (told.copies, Some(now));
            self.put(file, RuledFile { junction, copies, told, met, missed: None });
        }
    }

    /// This node looked the file up and does not know it. What others said of it before stays.
    fn miss(&mut self, junction: JunctionId, file: FileId, word: Word, now: Duration) {
        if !self.revisions.contains_key(&junction) {
            return;
        }
        let unknown = RuledFile { junction, copies: None, told: None, met: None, missed: None };
        let known = self.get(file).unwrap_or(unknown);
        let met = if word == Word::Met { Some(now) } else { known.met };
        self.put(file, RuledFile { met, missed: Some(now), ..known });
    }

    fn put(&mut self, id: FileId, file: RuledFile) {
        if self.young.len() >= (self.max / 2).max(1) && !self.young.contains_key(&id) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(id, file);
    }

    fn get(&mut self, id: FileId) -> Option<RuledFile> {
        if let Some(file) = self.young.get(&id) {
            return Some(*file);
        }
        let file = self.old.remove(&id)?;
        self.put(id, file);
        Some(file)
    }

    fn known(&mut self, id: FileId, now: Duration) -> Option<Option<u8>> {
        let file = self.get(id)?;
        file.told.is_some_and(|told| now < told + KNOWN_FOR).then_some(file.copies)
    }

    fn is_missed(&mut self, id: FileId, now: Duration) -> bool {
        self.get(id).and_then(|file| file.missed).is_some_and(|missed| now < missed + MET_FOR)
    }

    fn is_met(&mut self, id: FileId, now: Duration) -> bool {
        self.get(id).and_then(|file| file.met).is_some_and(|met| now < met + MET_FOR)
    }

    /// Of the rules in force, however old the word is.
    fn last(&mut self, id: FileId) -> Option<u8> {
        self.get(id)?.copies
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: JunctionId = JunctionId(1);
    const TWO: JunctionId = JunctionId(2);

    fn id(n: u32) -> FileId {
        FileId(u128::from(n).to_be_bytes())
    }

    fn told(revision: u64, copies: u8) -> ToldCopies {
        ToldCopies { revision, copies: Some(copies) }
    }

    fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn ruled(max: usize) -> RuledFiles {
        let mut files = RuledFiles::new(max);
        assert!(files.set_rules([(ONE, 7), (TWO, 8)].into()));
        files
    }

    #[test]
    fn what_is_told_by_other_rules_means_nothing_and_new_rules_make_it_forgotten() {
        let mut files = ruled(100);
        files.learn(ONE, id(1), told(6, 3), Word::Told, secs(0));
        files.learn(ONE, id(1), told(8, 3), Word::Met, secs(0));
        assert_eq!(files.known(id(1), secs(0)), None);
        files.learn(ONE, id(1), told(7, 3), Word::Told, secs(0));
        files.learn(TWO, id(2), ToldCopies { revision: 8, copies: None }, Word::Told, secs(0));
        assert_eq!([files.known(id(1), secs(0)), files.known(id(2), secs(0))], [Some(Some(3)), Some(None)]);
        assert!(!files.set_rules([(ONE, 7), (TWO, 8)].into()), "nothing is new");
        assert!(files.set_rules([(ONE, 9), (TWO, 8)].into()));
        assert_eq!([files.known(id(1), secs(0)), files.known(id(2), secs(0))], [None, Some(None)]);
        assert!(files.set_rules(HashMap::new()));
        assert_eq!(files.known(id(2), secs(0)), None);
    }

    #[test]
    fn the_last_word_counts_and_a_client_that_reads_has_it_looked_up_again() {
        let mut files = ruled(100);
        files.learn(ONE, id(1), told(7, 3), Word::Met, secs(10));
        assert!(files.is_met(id(1), secs(14)) && !files.is_met(id(1), secs(15)));
        files.learn(ONE, id(1), told(7, 2), Word::Told, secs(11));
        assert_eq!(files.known(id(1), secs(11)), Some(Some(2)));
        assert!(
            files.is_met(id(1), secs(14)) && !files.is_met(id(1), secs(15)),
            "nor is it looked up more often"
        );
        files.learn(ONE, id(2), told(7, 2), Word::Told, secs(11));
        assert!(!files.is_met(id(2), secs(11)), "another node's word is no look of our own");
        assert_eq!(files.known(id(1), secs(3 * 3600 + 10)), Some(Some(2)));
        assert_eq!(files.known(id(1), secs(3 * 3600 + 11)), None, "a node that is not told again asks");
        assert_eq!(files.last(id(1)), Some(2), "and goes on by that where nobody knows");
    }

    #[test]
    fn a_file_that_nobody_knows_is_looked_up_once_in_five_seconds() {
        let mut files = ruled(100);
        files.miss(ONE, id(1), Word::Told, secs(10));
        assert!(files.is_missed(id(1), secs(14)) && !files.is_missed(id(1), secs(15)));
        assert_eq!(files.known(id(1), secs(11)), None);
        assert!(!files.is_met(id(1), secs(11)), "a client of this node has it looked up at once");
        files.miss(ONE, id(1), Word::Met, secs(11));
        assert!(files.is_met(id(1), secs(15)) && !files.is_met(id(1), secs(16)));
        files.learn(ONE, id(1), told(7, 3), Word::Told, secs(12));
        assert!(!files.is_missed(id(1), secs(12)), "what another node tells ends it");
        files.miss(ONE, id(1), Word::Told, secs(3 * 3600 + 12));
        assert_eq!(files.known(id(1), secs(3 * 3600 + 12)), None);
        assert_eq!(files.last(id(1)), Some(3), "what was said before is not forgotten");
        files.miss(JunctionId(3), id(2), Word::Told, secs(10));
        assert!(!files.is_missed(id(2), secs(10)), "a junction without rules is not remembered");
    }

    #[test]
    fn the_finder_is_not_asked_again_and_again_for_a_file_that_it_does_not_know() {
        struct Nobody(std::sync::atomic::AtomicUsize);
        impl CopyRuleFinder for Nobody {
            fn find(&self, _: JunctionId, _: FileId) -> Option<ToldCopies> {
                self.0.fetch_add(1, Ordering::Relaxed);
                None
            }
            fn about(&self, _: JunctionId, _: &[Bytes]) -> Option<ToldCopies> {
                None
            }
        }
        let (copies, finder) = (FileCopies::default(), Arc::new(Nobody(0.into())));
        assert!(copies.set_finder(Arc::clone(&finder) as Arc<dyn CopyRuleFinder>));
        assert!(copies.set_rules([(ONE, 7)].into()));
        // A clock that stood still for five seconds could not be told apart; this takes microseconds.
        for _ in 0..1000 {
            assert_eq!(copies.of(ONE, id(1)), None);
        }
        assert_eq!(finder.0.load(Ordering::Relaxed), 1);
        copies.told(ONE, id(1), told(7, 4));
        assert_eq!(copies.of(ONE, id(1)).and_then(|told| told.copies), Some(4));
    }

    #[test]
    fn no_more_files_are_remembered_than_may_be_and_those_that_are_used_stay() {
        let mut files = ruled(10);
        for n in 0..1000 {
            files.learn(ONE, id(n), told(7, 2), Word::Told, secs(0));
            assert_eq!(files.known(id(0), secs(0)), Some(Some(2)), "it is asked about all the time, {n}");
            assert!(files.young.len() + files.old.len() <= 10);
        }
        assert_eq!(files.known(id(1), secs(0)), None);
    }
}
