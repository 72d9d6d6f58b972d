//! Objects that were moved lately, and what each left under its new key: where a rename had no answer, what is there is known
//! as its work, and not another's.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ::origin::{Copied, Reference};
use bytes::Bytes;

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
    source: Contents,
    /// ETag of the copy; `None`: its answer did not come.
    copy: Option<String>,
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

    /// One is a copy of the other. Some stores give a copy the ETag of what it is of (all that is empty has the same one); with
    /// all of them what we marked it by goes along, and nobody else's bytes have that.
    pub fn are_those_of(&self, other: &Contents) -> bool {
        let marked = self.mark.is_some() && self.mark == other.mark;
        self.size == other.size && (marked || self.etag == other.etag && self.size > 0)
    }
}

impl Moved {
    /// That is what the rename put there, and nobody changed it since.
    pub fn left(&self, there: &Contents) -> bool {
        match &self.copy {
            Some(etag) => *etag == there.etag,
            None => self.source.are_those_of(there),
        }
    }

    pub fn is_ended(&self) -> bool {
        self.ended
    }

    /// `None`: the copy has the same version.
    pub fn copied(&self, to: &Bytes) -> Option<Copied> {
        let copy = self.copy.as_ref().unwrap_or(&self.source.etag);
        let (before, after) = (version(&self.source.etag, self.source.size), version(copy, self.source.size));
        (before != after).then(|| Copied { reference: Reference(to.clone()), before, after })
    }
}

impl Moves {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Before it is copied.
    pub fn begins(&self, from: Bytes, to: &Bytes, source: Contents) {
        let mut kept = self.kept();
        kept.last += 1;
        let number = kept.last;
        kept.moves.insert(to.clone(), Moved { number, from, source, copy: None, ended: false });
        kept.order.push_back((number, to.clone()));
        while kept.order.len() > KEPT_MAX
            && let Some((oldest, path)) = kept.order.pop_front()
        {
            if kept.moves.get(&path).is_some_and(|moved| moved.number == oldest) {
                kept.moves.remove(&path);
            }
        }
    }

    /// With this ETag.
    pub fn copied(&self, to: &Bytes, etag: &str) {
        if let Some(moved) = self.kept().moves.get_mut(to) {
            moved.copy = Some(etag.to_owned());
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
    fn a_copy_is_known_by_its_etag_and_where_nobody_told_it_by_what_went_along() {
        let (moves, from, to) = (Moves::default(), path(0), path(1));
        moves.begins(from.clone(), &to, contents("\"1\"", 3, Some("mark")));
        let is_left = |there: &Contents| moves.find(&from, &to).expect("noted").left(there);
        assert!(is_left(&contents("\"2\"", 3, Some("mark"))) && is_left(&contents("\"1\"", 3, None)));
        for other in [
            contents("\"2\"", 3, Some("another")),
            contents("\"2\"", 3, None),
            contents("\"2\"", 4, Some("mark")),
        ] {
            assert!(!is_left(&other), "{other:?}");
        }
        moves.copied(&to, "\"2\"");
        assert!(is_left(&contents("\"2\"", 3, Some("mark"))));
        assert!(!is_left(&contents("\"3\"", 3, Some("mark"))), "it was stored anew");
        assert!(moves.find(&to, &from).is_none() && moves.find(&path(2), &to).is_none());
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
