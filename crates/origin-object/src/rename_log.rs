//! Lately renamed objects, and the copy that each left under its new key. If a rename had no answer, what is at the
//! new key is recognized as its copy, and not as another's object.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ::origin::{Copied, Reference};
use bytes::Bytes;
use types::Version;

use crate::attributes::{self, version};
use crate::store::ObjectStat;
use crate::url::Dialect;

/// The most objects that are remembered, at some hundred bytes each. A rename in doubt is retried within seconds
/// after an outage; for a directory with more objects below it, the copies are not recognized.
const KEPT_MAX: usize = 50_000;

/// Renames by their new path.
#[derive(Default)]
pub struct RenameLog(Mutex<RenameTable>);

#[derive(Default)]
struct RenameTable {
    last: u64,
    rename_log: HashMap<Bytes, RenameRecord>,
    /// In the order of the renames; a path that was renamed to again is here twice.
    order: VecDeque<(u64, Bytes)>,
}

/// One object of a rename: what was copied, and what came of it.
#[derive(Clone, Debug)]
pub struct RenameRecord {
    number: u64,
    from: Bytes,
    /// The contents of which the last copy was requested. If others change the object meanwhile, it is copied again.
    source: ObjectContents,
    /// The last copy that was answered: its source, and its ETag.
    copy: Option<(ObjectContents, String)>,
    /// Another copy was requested since, without an answer.
    unanswered: bool,
    /// The rename was answered.
    ended: bool,
}

/// What identifies the contents of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectContents {
    etag: String,
    size: u64,
    mark: Option<String>,
}

impl ObjectContents {
    pub fn of(stat: &ObjectStat, dialect: Dialect) -> ObjectContents {
        let mark = attributes::mark(&stat.metadata, dialect).map(str::to_owned);
        ObjectContents { etag: stat.etag.clone(), size: stat.size, mark }
    }

    /// From a listing, which may not have the mark.
    pub fn listed(etag: &str, size: u64) -> ObjectContents {
        ObjectContents { etag: etag.to_owned(), size, mark: None }
    }

    /// Whether the ETags say that both have the same bytes: some stores give a copy the ETag of its source. Empty
    /// objects all have the same one there.
    pub fn have_the_bytes_of(&self, other: &ObjectContents) -> bool {
        self.is_version(other) && self.size > 0
    }

    /// Whether both have the same mark, which a copy keeps. Others' tools may keep it, too, when they replace the
    /// bytes: it says where to look closer, and no more.
    pub fn are_marked_as(&self, other: &ObjectContents) -> bool {
        self.size == other.size && self.mark.is_some() && self.mark == other.mark
    }

    fn is_version(&self, other: &ObjectContents) -> bool {
        self.etag == other.etag && self.size == other.size
    }

    fn version(&self) -> Version {
        version(&self.etag, self.size)
    }
}

impl RenameRecord {
    /// Whether `there` is the copy of this rename, unchanged since.
    pub fn is_left_over(&self, there: &ObjectContents) -> bool {
        let is_copy = |(of, etag): &(ObjectContents, String)| *etag == there.etag && of.size == there.size;
        self.copy.as_ref().is_some_and(is_copy) || self.unanswered && self.source.have_the_bytes_of(there)
    }

    /// Whether it may be: the copy had no answer.
    pub fn may_be_left_over(&self, there: &ObjectContents) -> bool {
        self.unanswered && self.source.are_marked_as(there)
    }

    /// Whether `old` was copied, and not other contents that came to its path since.
    pub fn is_of(&self, old: &ObjectContents) -> bool {
        self.source.is_version(old) || self.copy.as_ref().is_some_and(|(of, _)| of.is_version(old))
    }

    /// The same for a version that the caller knows.
    pub fn is_of_version(&self, was: Version) -> bool {
        self.source.version() == was || self.copy.as_ref().is_some_and(|(of, _)| of.version() == was)
    }

    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// The versions before and after; `None`: they are the same, or there is no copy.
    pub fn copied(&self, to: &Bytes) -> Option<Copied> {
        let (of, copy) = self.copy.as_ref()?;
        let (before, after) = (of.version(), version(copy, of.size));
        (before != after).then(|| Copied { reference: Reference(to.clone()), before, after })
    }
}

impl RenameLog {
    fn table(&self) -> MutexGuard<'_, RenameTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a rename before the copy. The copy of an earlier attempt stays known.
    pub fn begin(&self, from: Bytes, to: &Bytes, source: ObjectContents) {
        let mut kept = self.table();
        kept.last += 1;
        let number = kept.last;
        let earlier = kept.rename_log.remove(to).filter(|earlier| !earlier.ended && earlier.from == from);
        let copy = earlier.and_then(|earlier| earlier.copy).filter(|(of, _)| of.is_version(&source));
        kept.rename_log
            .insert(to.clone(), RenameRecord { number, from, source, copy, unanswered: true, ended: false });
        kept.order.push_back((number, to.clone()));
        while kept.order.len() > KEPT_MAX
            && let Some((oldest, path)) = kept.order.pop_front()
        {
            if kept.rename_log.get(&path).is_some_and(|moved| moved.number == oldest) {
                kept.rename_log.remove(&path);
            }
        }
    }

    /// Records that a copy is requested; its source may have changed since the rename began.
    pub fn copy_started(&self, to: &Bytes, etag: &str, size: u64) {
        if let Some(moved) = self.table().rename_log.get_mut(to) {
            moved.unanswered = true;
            if moved.source.etag != etag {
                moved.source = ObjectContents::listed(etag, size);
            }
        }
    }

    /// Records the ETag of the copy.
    pub fn copy_done(&self, to: &Bytes, etag: &str) {
        if let Some(moved) = self.table().rename_log.get_mut(to) {
            (moved.copy, moved.unanswered) = (Some((moved.source.clone(), etag.to_owned())), false);
        }
    }

    /// Records the end of a rename to this path, or of all below it if it is a directory.
    pub fn finish(&self, to: &Bytes) {
        let mut kept = self.table();
        if !to.ends_with(b"/") {
            kept.rename_log.get_mut(to).into_iter().for_each(|moved| moved.ended = true);
            return;
        }
        let below = kept.rename_log.iter_mut().filter(|(path, _)| path.starts_with(to));
        below.for_each(|(_, moved)| moved.ended = true);
    }

    /// The last rename between these paths.
    pub fn find(&self, from: &[u8], to: &[u8]) -> Option<RenameRecord> {
        self.table().rename_log.get(to).filter(|moved| moved.from == from).cloned()
    }

    /// The unfinished renames between two directories.
    pub fn unfinished_below(&self, from: &Bytes, to: &Bytes) -> Vec<(Bytes, RenameRecord)> {
        let kept = self.table();
        let of_both = |(path, moved): &(&Bytes, &RenameRecord)| {
            let below = path.strip_prefix(&to[..]);
            !moved.ended && below.is_some() && moved.from.strip_prefix(&from[..]) == below
        };
        kept.rename_log.iter().filter(of_both).map(|(path, moved)| (path.clone(), moved.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(etag: &str, size: u64, mark: Option<&str>) -> ObjectContents {
        ObjectContents { etag: etag.into(), size, mark: mark.map(str::to_owned) }
    }

    fn path(number: usize) -> Bytes {
        Bytes::from(format!("d/{number}"))
    }

    #[test]
    fn a_copy_is_known_by_its_etag_and_where_nobody_told_it_may_be_known_by_what_went_along() {
        let (rename_log, from, to) = (RenameLog::default(), path(0), path(1));
        rename_log.begin(from.clone(), &to, contents("\"1\"", 3, Some("mark")));
        let noted = || rename_log.find(&from, &to).expect("noted");
        assert!(
            noted().is_left_over(&contents("\"1\"", 3, None)),
            "as stores do that give a copy the same ETag"
        );
        let marked = contents("\"2\"", 3, Some("mark"));
        assert!(!noted().is_left_over(&marked) && noted().may_be_left_over(&marked));
        for other in [
            contents("\"2\"", 3, Some("another")),
            contents("\"2\"", 3, None),
            contents("\"2\"", 4, Some("mark")),
        ] {
            assert!(!noted().is_left_over(&other) && !noted().may_be_left_over(&other), "{other:?}");
        }
        rename_log.copy_done(&to, "\"2\"");
        assert!(noted().is_left_over(&marked));
        let anew = contents("\"3\"", 3, Some("mark"));
        assert!(!noted().is_left_over(&anew) && !noted().may_be_left_over(&anew), "it was stored anew");
        assert!(rename_log.find(&to, &from).is_none() && rename_log.find(&path(2), &to).is_none());
    }

    #[test]
    fn what_is_copied_again_is_told_as_what_it_was_then() {
        let (rename_log, from, to) = (RenameLog::default(), path(0), path(1));
        rename_log.begin(from.clone(), &to, contents("\"1\"", 3, Some("mark")));
        rename_log.copy_done(&to, "\"2\"");
        rename_log.copy_started(&to, "\"3\"", 4);
        let noted = || rename_log.find(&from, &to).expect("noted");
        for known in [contents("\"1\"", 3, None), contents("\"3\"", 4, None)] {
            assert!(noted().is_of(&known) && noted().is_of_version(known.version()), "{known:?}");
        }
        assert!(noted().is_left_over(&contents("\"2\"", 3, None)), "as long as the next one is not there");
        assert!(!noted().may_be_left_over(&contents("\"4\"", 4, Some("mark"))));
        let told = |before, after| Some(Copied { reference: Reference(to.clone()), before, after });
        assert_eq!(noted().copied(&to), told(version("\"1\"", 3), version("\"2\"", 3)));
        rename_log.copy_done(&to, "\"4\"");
        assert_eq!(noted().copied(&to), told(version("\"3\"", 4), version("\"4\"", 4)));
        assert!(!noted().is_of(&contents("\"1\"", 3, None)));
        // The next attempt begins with another version.
        rename_log.begin(from.clone(), &to, contents("\"5\"", 5, None));
        assert!(!noted().is_left_over(&contents("\"4\"", 4, None)) && noted().copied(&to).is_none());
    }

    #[test]
    fn what_is_below_a_directory_is_known_until_its_rename_was_answered() {
        let rename_log = RenameLog::default();
        let of = |text: &'static str| Bytes::from_static(text.as_bytes());
        for (from, to) in [("a/x", "b/x"), ("a/y/z", "b/y/z"), ("a/x", "b/other"), ("c/x", "b/w"), ("a", "b")]
        {
            rename_log.begin(of(from), &of(to), contents("", 0, None));
        }
        let known = || {
            let mut paths: Vec<_> =
                rename_log.unfinished_below(&of("a/"), &of("b/")).into_iter().map(|(path, _)| path).collect();
            paths.sort();
            paths
        };
        assert_eq!(known(), [of("b/x"), of("b/y/z")]);
        rename_log.finish(&of("b/y/z"));
        assert_eq!(known(), [of("b/x")]);
        rename_log.finish(&of("b/"));
        assert!(known().is_empty());
        assert!(rename_log.find(b"a/x", b"b/x").expect("remembered").is_ended());
        assert!(!rename_log.find(b"a", b"b").expect("remembered").is_ended());
    }

    #[test]
    fn of_many_the_last_ones_are_remembered() {
        let rename_log = RenameLog::default();
        for number in 0..=KEPT_MAX {
            rename_log.begin(path(number), &path(number), contents("", 0, None));
            rename_log.begin(path(0), &path(0), contents("again", 0, None));
        }
        let found = |number| rename_log.find(&path(number), &path(number));
        assert_eq!(found(0).expect("the last").source.etag, "again");
        assert!(found(1).is_none() && found(KEPT_MAX).is_some());
        let kept = rename_log.table();
        assert!(kept.order.len() <= KEPT_MAX && kept.rename_log.len() <= KEPT_MAX);
    }
}
