//! What waits in the journal, told operation by operation.

use std::time::Duration;

use types::{FileId, JunctionId, Name, Timestamp};
use writeback::{Action, Attributes, JournalOperation, NewObject, Position, UnflushedEntry};

use crate::places::Places;

/// An operation that its origin does not have.
#[derive(Clone, Debug)]
pub struct WaitingOperation {
    pub sequence: u64,
    /// Path of the junction in the served tree; of one that is not known any more, its number.
    pub junction: String,
    /// Of the object as clients see it, as far as it is known; bytes that do not print are escaped.
    pub path: String,
    /// One word: `create`, `mkdir`, `symlink`, `mknod`, `write`, `truncate`, `set`, `link`, `remove`, `rmdir`, `rename`.
    pub kind: &'static str,
    /// The rest of it, by name.
    pub details: Vec<(&'static str, String)>,
    /// Of data.
    pub bytes: u64,
    /// When it was acknowledged, by the wall clock of then.
    pub acknowledged: Timestamp,
    /// Why the origin refuses it.
    pub refused: Option<String>,
    /// Operations that come first.
    pub waits_for: Vec<u64>,
    pub(super) position: Position,
}

/// Which operations are listed.
#[derive(Clone, Debug, Default)]
pub struct WaitingFilter {
    /// Only of the junction with this path.
    pub junction: Option<String>,
    /// Only what the origin refuses.
    pub refused: bool,
}

pub fn told(
    places: &Places,
    junction: impl Fn(JunctionId) -> Option<String>,
    listed: &UnflushedEntry,
) -> WaitingOperation {
    let pending = &listed.pending;
    let operation = &pending.operation;
    let (kind, details) = describe(places, operation);
    WaitingOperation {
        sequence: pending.sequence,
        junction: junction(operation.junction)
            .unwrap_or_else(|| format!("junction {}", operation.junction.0)),
        path: path_of(places, operation),
        kind,
        details,
        bytes: pending.position.data_length.into(),
        acknowledged: operation.acknowledged,
        refused: listed.refused.as_ref().map(|refused| refused.error.to_string()),
        waits_for: listed.waits_for.clone(),
        position: pending.position,
    }
}

fn path_of(places: &Places, operation: &JournalOperation) -> String {
    match &operation.action {
        Action::Make { dir, name, .. }
        | Action::Link { dir, name, .. }
        | Action::Remove { dir, name, .. }
        | Action::Rmdir { dir, name, .. } => places.path_in(*dir, name),
        Action::Rename(rename) => places.path_in(rename.from_dir, &rename.from),
        Action::Write { file, .. } | Action::Truncate { file, .. } => places.path_of(*file),
        Action::Set { object, .. } => places.path_of(*object),
    }
}

fn describe(places: &Places, operation: &JournalOperation) -> (&'static str, Vec<(&'static str, String)>) {
    let mut details = vec![("object", operation.object().to_string())];
    let dir = |dir: FileId, name: &Name| places.path_in(dir, name);
    let kind = match &operation.action {
        Action::Make { what, set, .. } => {
            let kind = match what {
                NewObject::File => "create",
                NewObject::Directory => "mkdir",
                NewObject::Symlink(target) => {
                    details.push(("target", target.escape_ascii().to_string()));
                    "symlink"
                }
                NewObject::Special(node) => {
                    details.push(("special", format!("{node:?}")));
                    "mknod"
                }
            };
            attributes(set, &mut details);
            kind
        }
        Action::Write { offset, size_before, .. } => {
            details.extend([("offset", offset.to_string()), ("size_before", size_before.to_string())]);
            "write"
        }
        Action::Truncate { size, size_before, .. } => {
            details.extend([("size", size.to_string()), ("size_before", size_before.to_string())]);
            "truncate"
        }
        Action::Set { set, .. } => {
            attributes(set, &mut details);
            "set"
        }
        Action::Link { links, .. } => {
            details.push(("links", links.to_string()));
            "link"
        }
        Action::Remove { links, .. } => {
            details.push(("links", links.to_string()));
            "remove"
        }
        Action::Rmdir { .. } => "rmdir",
        Action::Rename(rename) => {
            details.push(("to", dir(rename.to_dir, &rename.to)));
            details.extend(rename.replaced.map(|replaced| ("replaces", replaced.object.to_string())));
            "rename"
        }
    };
    (kind, details)
}

fn attributes(set: &Attributes, details: &mut Vec<(&'static str, String)>) {
    let time = |time: Timestamp| {
        let nanos = Duration::from_nanos(u64::from(time.nanos));
        format!("{}.{:09}", time.seconds, nanos.subsec_nanos())
    };
    details.extend(set.mode.map(|mode| ("mode", format!("{mode:04o}"))));
    details.extend(set.uid.map(|uid| ("uid", uid.to_string())));
    details.extend(set.gid.map(|gid| ("gid", gid.to_string())));
    details.extend(set.atime.map(|at| ("atime", time(at))));
    details.extend(set.mtime.map(|at| ("mtime", time(at))));
}
