//! Objects that were moved lately, and what each left under its new key: where a rename had no answer, what is there is known
//! as its work, and not another's.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ::origin::{Copied, Reference};
use bytes::Bytes;
use types::Version;

use crate::attributes::{self, version};
use crate::store::Stat;
use crate::url::Dialect;

/// Objects that are remembered, at some hundred bytes each. A rename in doubt is asked for again within seconds of an outage's
/// end; of a directory with more below it, it is not known.
const KEPT_MAX: usize = 50_000;

/// By the new path.
#[derive(Default)]
pub struct Moves(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    last: u64,
    moves: HashMap<Bytes, Moved>,
    /// The last one at the end. One that was moved to again is here twice.
    order: VecDeque<(u64, Bytes)>,
}

/// What was copied, and what became of that.
#[derive(Clone, Debug)]
pub struct Moved {
    number: u64,
    from: Bytes,
    /// Of which the last copy was asked for. Others may change it while it is moved: then it is copied again.
    source: Contents,
    /// The last copy that was answered: of what, and its ETag.
    copy: Option<(Contents, String)>,
    /// One was asked for since, and its answer did not come.
    unanswered: bool,
    /// The rename was answered.
    ended: bool,
}

/// What tells the contents of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    etag: String,
    size: u64,
    mark: Option<String>,
}

impl Contents {
    pub fn of(stat: &Stat, dialect: Dialect) -> Contents {
        let mark = attributes::mark(&stat.metadata, dialect).map(str::to_owned);
        Contents { etag: stat.etag.clone(), size: stat.size, mark }
    }

    /// As a listing tells it, which may say nothing of a mark.
    pub fn listed(etag: &str, size: u64) -> Contents {
        Contents { etag: etag.to_owned(), size, mark: None }
    }

    /// Some stores give a copy the ETag of what it is of; all that is empty has the same one there.
    pub fn have_the_bytes_of(&self, other: &Contents) -> bool {
        self.is_version(other) && self.size > 0
    }

    /// What we marked bytes by goes along with a copy. It also stays with an object whose bytes others replace by a program
    /// that keeps what is stored with it: it says where to look closer, and no more.
    pub fn are_marked_as(&self, other: &Contents) -> bool {
        self.size == other.size && self.mark.is_some() && self.mark == other.mark
    }

    fn is_version(&self, other: &Contents) -> bool {
        self.etag == other.etag && self.size == other.size
    }

    fn version(&self) -> Version {
        version(&self.etag, self.size)
    }
}

impl Moved {
    /// That is what the rename put there, and nobody changed it since.
    pub fn left(&self, there: &Contents) -> bool {
        let is_copy = |(of, etag): &(Contents, String)| *etag == there.etag && of.size == there.size;
        self.copy.as_ref().is_some_and(is_copy) || self.unanswered && self.source.have_the_bytes_of(there)
    }

    /// It may be: the copy had no answer.
    pub fn may_have_left(&self, there: &Contents) -> bool {
        self.unanswered && self.source.are_marked_as(there)
    }

    /// That was copied, and no other contents that came to its path since.
    pub fn is_of(&self, old: &Contents) -> bool {
        self.source.is_version(old) || self.copy.as_ref().is_some_and(|(of, _)| of.is_version(old))
    }

    /// The same of the version that its caller knows.
    pub fn is_of_version(&self, was: Version) -> bool {
        self.source.version() == was || self.copy.as_ref().is_some_and(|(of, _)| of.version() == was)
    }

    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// `None`: the copy has the same version, or none is known.
    pub fn copied(&self, to: &Bytes) -> Option<Copied> {
        let (of, copy) = self.copy.as_ref()?;
        let (before, after) = (of.version(), version(copy, of.size));
        (before != after).then(|| Copied { reference: Reference(to.clone()), before, after })
    }
}

impl Moves {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before it is copied. What an attempt before this one left there stays known.
    pub fn begins(&self, from: Bytes, to: &Bytes, source: Contents) {
        let mut kept = self.kept();
        kept.last += 1;
        let number = kept.last;
        let earlier = kept.moves.remove(to).filter(|earlier| !earlier.ended && earlier.from == from);
        let copy = earlier.and_then(|earlier| earlier.copy).filter(|(of, _)| of.is_version(&source));
        kept.moves.insert(to.clone(), Moved { number, from, source, copy, unanswered: true, ended: false });
        kept.order.push_back((number, to.clone()));
        while kept.order.len() > KEPT_MAX
            && let Some((oldest, path)) = kept.order.pop_front()
        {
            if kept.moves.get(&path).is_some_and(|moved| moved.number == oldest) {
                kept.moves.remove(&path);
            }
        }
    }

    /// What is at the old path is copied. That may be another version than at the beginning.
    pub fn copies(&self, to: &Bytes, etag: &str, size: u64) {
        if let Some(moved) = self.kept().moves.get_mut(to) {
            moved.unanswered = true;
            if moved.source.etag != etag {
                moved.source = Contents::listed(etag, size);
            }
        }
    }

    /// With this ETag.
    pub fn copied(&self, to: &Bytes, etag: &str) {
        if let Some(moved) = self.kept().moves.get_mut(to) {
            (moved.copy, moved.unanswered) = (Some((moved.source.clone(), etag.to_owned())), false);
        }
    }

    /// To this path, and what is below it if that is a directory.
    pub fn ended(&self, to: &Bytes) {
        let mut kept = self.kept();
        if !to.ends_with(b"/") {
            kept.moves.get_mut(to).into_iter().for_each(|moved| moved.ended = true);
            return;
        }
        let below = kept.moves.iter_mut().filter(|(path, _)| path.starts_with(to));
        below.for_each(|(_, moved)| moved.ended = true);
    }

    /// The last one from there to here.
    pub fn find(&self, from: &[u8], to: &[u8]) -> Option<Moved> {
        self.kept().moves.get(to).filter(|moved| moved.from == from).cloned()
    }

    /// From one directory to the other, without an answer.
    pub fn interrupted(&self, from: &Bytes, to: &Bytes) -> Vec<(Bytes, Moved)> {
        let kept = self.kept();
        let of_both = |(path, moved): &(&Bytes, &Moved)| {
            let below = path.strip_prefix(&to[..]);
            !moved.ended && below.is_some() && moved.from.strip_prefix(&from[..]) == below
        };
        kept.moves.iter().filter(of_both).map(|(path, moved)| (path.clone(), moved.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(etag: &str, size: u64, mark: Option<&str>) -> Contents {
        Contents { etag: etag.into(), size, mark: mark.map(str::to_owned) }
    }

    fn path(number: usize) -> Bytes {
        Bytes::from(format!("d/{number}"))
    }

    #[test]
    fn a_copy_is_known_by_its_etag_and_where_nobody_told_it_may_be_known_by_what_went_along() {
        let (moves, from, to) = (Moves::default(), path(0), path(1));
        moves.begins(from.clone(), &to, contents("\"1\"", 3, Some("mark")));
        let noted = || moves.find(&from, &to).expect("noted");
        assert!(noted().left(&contents("\"1\"", 3, None)), "as stores do that give a copy the same ETag");
        let marked = contents("\"2\"", 3, Some("mark"));
        assert!(!noted().left(&marked) && noted().may_have_left(&marked));
        for other in [
            contents("\"2\"", 3, Some("another")),
            contents("\"2\"", 3, None),
            contents("\"2\"", 4, Some("mark")),
        ] {
            assert!(!noted().left(&other) && !noted().may_have_left(&other), "{other:?}");
        }
        moves.copied(&to, "\"2\"");
        assert!(noted().left(&marked));
        let anew = contents("\"3\"", 3, Some("mark"));
        assert!(!noted().left(&anew) && !noted().may_have_left(&anew), "it was stored anew");
        assert!(moves.find(&to, &from).is_none() && moves.find(&path(2), &to).is_none());
    }

    #[test]
    fn what_is_copied_again_is_told_as_what_it_was_then() {
        let (moves, from, to) = (Moves::default(), path(0), path(1));
        moves.begins(from.clone(), &to, contents("\"1\"", 3, Some("mark")));
        moves.copied(&to, "\"2\"");
        moves.copies(&to, "\"3\"", 4);
        let noted = || moves.find(&from, &to).expect("noted");
        for known in [contents("\"1\"", 3, None), contents("\"3\"", 4, None)] {
            assert!(noted().is_of(&known) && noted().is_of_version(known.version()), "{known:?}");
        }
        assert!(noted().left(&contents("\"2\"", 3, None)), "as long as the next one is not there");
        assert!(!noted().may_have_left(&contents("\"4\"", 4, Some("mark"))));
        let told = |before, after| Some(Copied { reference: Reference(to.clone()), before, after });
        assert_eq!(noted().copied(&to), told(version("\"1\"", 3), version("\"2\"", 3)));
        moves.copied(&to, "\"4\"");
        assert_eq!(noted().copied(&to), told(version("\"3\"", 4), version("\"4\"", 4)));
        assert!(!noted().is_of(&contents("\"1\"", 3, None)));
        // The next attempt begins with another version.
        moves.begins(from.clone(), &to, contents("\"5\"", 5, None));
        assert!(!noted().left(&contents("\"4\"", 4, None)) && noted().copied(&to).is_none());
    }

    #[test]
    fn what_is_below_a_directory_is_known_until_its_rename_was_answered() {
        let moves = Moves::default();
        let of = |text: &'static str| Bytes::from_static(text.as_bytes());
        for (from, to) in [("a/x", "b/x"), ("a/y/z", "b/y/z"), ("a/x", "b/other"), ("c/x", "b/w"), ("a", "b")]
        {
            moves.begins(of(from), &of(to), contents("", 0, None));
        }
        let known = || {
            let mut paths: Vec<_> =
                moves.interrupted(&of("a/"), &of("b/")).into_iter().map(|(path, _)| path).collect();
            paths.sort();
            paths
        };
        assert_eq!(known(), [of("b/x"), of("b/y/z")]);
        moves.ended(&of("b/y/z"));
        assert_eq!(known(), [of("b/x")]);
        moves.ended(&of("b/"));
        assert!(known().is_empty());
        assert!(moves.find(b"a/x", b"b/x").expect("remembered").is_ended());
        assert!(!moves.find(b"a", b"b").expect("remembered").is_ended());
    }

    #[test]
    fn of_many_the_last_ones_are_remembered() {
        let moves = Moves::default();
        for number in 0..=KEPT_MAX {
            moves.begins(path(number), &path(number), contents("", 0, None));
            moves.begins(path(0), &path(0), contents("again", 0, None));
        }
        let found = |number| moves.find(&path(number), &path(number));
        assert_eq!(found(0).expect("the last").source.etag, "again");
        assert!(found(1).is_none() && found(KEPT_MAX).is_some());
        let kept = moves.kept();
        assert!(kept.order.len() <= KEPT_MAX && kept.moves.len() <= KEPT_MAX);
    }
}
