//! Somebody else changed at the origin what we are about to change there: what is to be done.
//!
//! Pure. What our own flush did is no foreign change: who asks remembers the versions that it left.

use std::fmt;

use types::{FileId, JunctionId, Name, Timestamp, Version};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ConflictPolicy {
    /// Both versions stay: ours beside theirs, under a name of its own.
    #[default]
    KeepBoth,
    /// Ours replaces theirs. What there is nothing left of to replace, and what would have to replace a directory, goes
    /// under a name of its own.
    Ours,
    /// Theirs stays, ours is dropped; with a directory of ours, what was to be in it.
    Theirs,
}

/// What is about to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doing {
    /// New bytes or another size.
    Bytes,
    /// Attributes only: nobody's bytes are lost.
    Attributes,
    /// A name for our object: made, linked or renamed.
    Name,
    /// A name is taken away, and perhaps the object with it.
    Removal,
}

/// What is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForeignState {
    /// The object, in this version.
    Version(Version),
    /// The object, without the other names that clients saw it keep.
    LastName,
    /// Another object has the name.
    Other,
    /// The object, or its name, is not there.
    Gone,
}

/// What we know of our own doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KnownVersions {
    pub base: Option<Version>,
    /// What our last flush of this object left.
    pub own: Option<Version>,
    /// An attempt to change the object began, and nobody knows how far it came.
    pub begun: bool,
    /// It is made by this very change: nobody ever saw it, so there is nothing to compare with.
    pub making: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nobody else was there.
    Proceed,
    /// What is there differs, and our interrupted attempt explains it: go on, and say so.
    Resume,
    /// Ours over theirs.
    TakeOurs,
    /// Ours under a conflict name.
    Beside,
    /// Theirs stays, ours is dropped.
    Drop,
}

impl KnownVersions {
    /// That version is what our change was made on, or our own doing.
    pub fn explains(&self, version: Version) -> bool {
        self.own == Some(version) || self.base == Some(version)
    }

    /// What is there may be our own doing, and nothing tells. So it is also with what our flush made and found changed
    /// by others while it was at it: no version of it is known.
    pub fn is_in_doubt(&self) -> bool {
        self.begun || !self.making && self.base.is_none() && self.own.is_none()
    }

    fn is_nothing(&self) -> bool {
        self.base.is_none() && self.own.is_none() && !self.begun
    }
}

pub fn decide(policy: ConflictPolicy, doing: Doing, known: KnownVersions, theirs: ForeignState) -> Decision {
    match theirs {
        ForeignState::Version(version) if known.explains(version) => return Decision::Proceed,
        ForeignState::Version(_) if known.making && known.is_nothing() => return Decision::Proceed,
        // A removal that began leaves nothing that could be looked at.
        ForeignState::Version(_) if known.is_in_doubt() && doing != Doing::Removal => {
            return Decision::Resume;
        }
        _ => {}
    }
    match (doing, theirs, policy) {
        // What is gone need not be removed.
        (Doing::Removal, ForeignState::Gone, _) => Decision::Proceed,
        // Another object under that name is not the one that was to go, whatever the policy.
        (Doing::Removal, ForeignState::Other, _) => Decision::Drop,
        (Doing::Removal, ForeignState::Version(_) | ForeignState::LastName, ConflictPolicy::KeepBoth) => {
            Decision::Drop
        }
        (Doing::Attributes, ForeignState::Gone, _) => Decision::Drop,
        // There is nothing that ours could replace, and its name may be another object's by now: only under a name that
        // is ours alone it is known again.
        (Doing::Bytes, ForeignState::Gone, ConflictPolicy::KeepBoth | ConflictPolicy::Ours) => {
            Decision::Beside
        }
        (Doing::Attributes, _, ConflictPolicy::KeepBoth) => Decision::TakeOurs,
        (_, _, ConflictPolicy::KeepBoth) => Decision::Beside,
        (_, _, ConflictPolicy::Ours) => Decision::TakeOurs,
        (_, _, ConflictPolicy::Theirs) => Decision::Drop,
    }
}

/// Something that an operator must know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alarm {
    pub kind: AlarmKind,
    pub junction: JunctionId,
    pub object: FileId,
    /// The directory and the name under which the file is known, if it is.
    pub place: Option<(FileId, Name)>,
    /// Where ours is now, if beside theirs.
    pub beside: Option<Name>,
    /// The operations concerned.
    pub sequences: Vec<u64>,
    pub why: String,
}

/// Raised before what it tells of is done: what a crash interrupts is not begun unsaid, whatever the next attempt finds.
/// Should the attempt fail, and the next one end in another way, that is said too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AlarmKind {
    /// Ours is beside theirs.
    KeptBoth,
    /// Ours replaced theirs.
    TookOurs,
    /// Theirs stays, ours is lost.
    Dropped,
    /// An interrupted flush went on over what it had left: a foreign change at the same moment would not show.
    Resumed,
    /// The origin changed between our look and our write.
    Overtaken,
    /// The origin refuses it; tried again now and then.
    Parked,
}

impl AlarmKind {
    pub(crate) fn of(decision: Decision) -> Option<AlarmKind> {
        match decision {
            Decision::Proceed => None,
            Decision::Resume => Some(AlarmKind::Resumed),
            Decision::TakeOurs => Some(AlarmKind::TookOurs),
            Decision::Beside => Some(AlarmKind::KeptBoth),
            Decision::Drop => Some(AlarmKind::Dropped),
        }
    }
}

impl fmt::Display for Alarm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: file {} of junction {}", self.kind, self.object, self.junction)?;
        if let Some((dir, name)) = &self.place {
            write!(f, ", {name} in directory {dir}")?;
        }
        if let Some(beside) = &self.beside {
            write!(f, ", ours is {beside}")?;
        }
        write!(f, ": {}", self.why)
    }
}

/// `name.conflict-<host>-<time>-<object>`, cut in front if it would be too long for a name.
///
/// Ours alone and always the same: so an interrupted flush finds the copy again. The time tells apart what happened to
/// one file twice, and the object two files that had one name.
pub fn conflict_name(name: &Name, host: &str, since: Timestamp, object: FileId) -> Name {
    let host: String =
        host.chars().filter(|c| c.is_ascii_alphanumeric() || *c == '-').take(HOST_MAX).collect();
    let nanos = since.nanos;
    let when = date(since);
    let mark = object.fileid64() as u32;
    let suffix = format!(".conflict-{host}-{when}.{nanos:09}-{mark:08x}");
    let room = types::name::NAME_MAX - suffix.len();
    let kept = &name.as_bytes()[..name.as_bytes().len().min(room)];
    let bytes = [kept, suffix.as_bytes()].concat();
    Name::new(bytes).expect("a name's first bytes and a suffix without a slash are a name")
}

/// `other` is a name that [`conflict_name`] gave for `name`, some time, to some object.
pub fn is_conflict_name(other: &Name, name: &Name) -> bool {
    let mark = b".conflict-";
    let cut = other.as_bytes().windows(mark.len()).rposition(|part| part == mark);
    cut.is_some_and(|cut| name.as_bytes().starts_with(&other.as_bytes()[..cut]))
}

/// A label of the DNS has 63; half of it tells hosts apart and leaves room for the name.
const HOST_MAX: usize = 32;

/// `20261121T174846Z`, by the calendar that counts in eras of 400 years.
fn date(time: Timestamp) -> String {
    let (day, second) = (time.seconds.div_euclid(86_400), time.seconds.rem_euclid(86_400));
    // Since 0000-03-01.
    let day = day.saturating_add(719_468);
    let (era, day) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let (day, month) = (day - (153 * month + 2) / 5 + 1, if month < 10 { month + 3 } else { month - 9 });
    let year = year + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

#[cfg(test)]
mod tests;
