//! Did anybody else write to a file while several parts of it were sent?
//!
//! The answers to our writes are the alarm: a state of the file just before one of them that no answer of ours left has
//! been made by something else. That need not be another writer, as where the origin is a tier that stores by itself
//! between our parts. So the alarm proves nothing, and what is at the origin decides: the ranges that were sent are read
//! back from one version of the file, a few parts at a time, and compared. Where the answers explain each other nothing is
//! read back.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use types::{ByteRange, Error, ErrorKind, FileId, Result, Version};

use super::Carry;
use super::parts::{part_bytes, together};
use crate::DirtyPiece;
use crate::flush_target::{FlushAnswer, TargetObject, TargetPresence};

/// Versions in a row that end while they are compared, before the file counts as one that somebody else writes to.
const VERSIONS_MAX: u32 = 4;
/// Parts compared at a time. Each is in memory twice.
const COMPARED_TOGETHER: usize = 8;

/// The states of a file that the answers to our writes told.
pub struct StatesTold {
    before: Vec<Version>,
    explained: HashSet<Version>,
}

impl StatesTold {
    /// `base`: the file before the first write.
    pub fn new(base: Version) -> StatesTold {
        StatesTold { before: Vec::new(), explained: HashSet::from([base]) }
    }

    /// Answers to writes that were under way together may come in any order.
    pub fn note(&mut self, answer: &FlushAnswer) {
        self.before.extend(answer.before);
        self.explained.insert(answer.after.version);
    }

    /// The file was in a state that none of our writes left. An origin that does not tell what a file was before a write
    /// tells of none.
    pub fn leave_a_gap(&self) -> bool {
        self.before.iter().any(|before| !self.explained.contains(before))
    }
}

/// A version of a file that was read back after the file was sent, and compared with that.
pub struct ComparedVersion {
    pub found: TargetObject,
    /// All that was sent is there.
    pub is_ours: bool,
}

impl Carry<'_> {
    /// `found`: the file after its commit. `size`: what it must be, if a size of ours is set afterwards, which would take
    /// away what others appended.
    pub(super) async fn read_back(
        &self,
        object: FileId,
        mut found: TargetObject,
        parts: &[Vec<DirtyPiece>],
        size: Option<u64>,
    ) -> Result<ComparedVersion> {
        for _ in 0..VERSIONS_MAX {
            if size.is_some_and(|size| size != found.attr.size) {
                return Ok(ComparedVersion { found, is_ours: false });
            }
            match self.compare(object, &found, parts).await {
                Ok(is_ours) => return Ok(ComparedVersion { found, is_ours }),
                Err(e) if e.kind() == ErrorKind::VersionChanged => {}
                Err(e) => return Err(e),
            }
            let TargetPresence::Found(now) = self.shared.look(object).await? else {
                return Err(Error::new(ErrorKind::Stale, "read back", object));
            };
            found = now;
        }
        Ok(ComparedVersion { found, is_ours: false })
    }

    async fn compare(&self, object: FileId, found: &TargetObject, parts: &[Vec<DirtyPiece>]) -> Result<bool> {
        let shared = self.shared;
        let _turn = shared.turn(self.unit.junction, 2 * parts.len().min(COMPARED_TOGETHER)).await;
        let is_other = AtomicBool::new(false);
        let is_other = &is_other;
        let one = |part| async move {
            // The first difference decides.
            if is_other.load(Ordering::Relaxed) {
                return Ok(());
            }
            let (offset, sent) = part_bytes(shared, part).await?;
            let range = ByteRange::new(offset, sent.len() as u64);
            let is_there = range.end() <= found.attr.size
                && shared.target.read(object, found.version, range).await? == sent;
            if !is_there {
                is_other.store(true, Ordering::Relaxed);
            }
            Ok(())
        };
        together(COMPARED_TOGETHER, parts.iter().map(|part| one(part.as_slice()))).await?;
        Ok(!is_other.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use types::{Attr, FileKind, Timestamp};

    use super::*;

    fn version(n: u8) -> Version {
        Version([n; 16])
    }

    /// 0: not told.
    fn answer((before, after): (u8, u8)) -> FlushAnswer {
        let time = Timestamp { seconds: 5, nanos: 0 };
        let attr = Attr {
            kind: FileKind::Regular,
            mode: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            size: 9,
            used: 9,
            rdev: (0, 0),
            fsid: 0,
            fileid: 1,
            atime: time,
            mtime: time,
            ctime: time,
        };
        let after = TargetObject { id: FileId([1; 16]), version: version(after), attr, target: None };
        FlushAnswer { before: (before > 0).then(|| version(before)), after }
    }

    #[test]
    fn a_state_that_no_answer_left_is_a_gap() {
        for (answers, gap) in [
            (&[(1, 2), (2, 3), (3, 4)][..], false),
            (&[(2, 3), (1, 2), (3, 4)], false),
            (&[(1, 2), (9, 3), (3, 4)], true),
            (&[(9, 2), (2, 3)], true),
            // A server that looks before it writes, and writes side by side.
            (&[(1, 2), (1, 3), (2, 4)], false),
            // An object store shows none of it before the commit.
            (&[(1, 1), (1, 1)], false),
            // A server that does not tell.
            (&[(0, 2), (0, 4)], false),
        ] {
            let mut states = StatesTold::new(version(1));
            answers.iter().for_each(|it| states.note(&answer(*it)));
            assert_eq!(states.leave_a_gap(), gap, "{answers:?}");
        }
    }
}
