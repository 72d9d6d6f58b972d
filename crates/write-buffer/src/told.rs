//! What clients were told last of files that this tier has stored by itself since.
//!
//! Storing gives a file the origin's times. Whoever writes it in parts would take that for a change by somebody else between two of
//! them: a client drops what it has cached, and a tier in front of this one reads back what it sent. So a file keeps the times of
//! the last write for a while after its bytes were stored, unless the writer has asked for them to be stored and was told what the
//! origin says.
//!
//! Invariant: they are told of the version that we left, and of no other. A client that guards a change with such a time is right
//! ([`ToldTimes::time`]).

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use types::{Attr, FileId, Timestamp, Version};

/// How long after its bytes were stored a file has the times of the last write. Of a flush of many large files some wait for minutes
/// between their first part and the next.
const KEPT_MS: u64 = 300_000;
/// Files remembered; of more, those that are over go, and if none is, all.
const FILES_MAX: usize = 16_384;

#[derive(Default)]
pub struct ToldTimes(Mutex<HashMap<FileId, ToldTime>>);

#[derive(Clone, Copy)]
struct ToldTime {
    /// As we left the file at the origin.
    left: Version,
    /// Of the last write, as its answer told.
    time: Timestamp,
    until_ms: u64,
}

impl ToldTimes {
    /// The bytes of a file were stored by us alone, which left it at this version.
    pub fn note(&self, id: FileId, left: Version, time: Timestamp, now_ms: u64) {
        let mut told = self.lock();
        if told.len() >= FILES_MAX {
            told.retain(|_, told| now_ms < told.until_ms);
        }
        if told.len() >= FILES_MAX {
            told.clear();
        }
        told.insert(id, ToldTime { left, time, until_ms: now_ms + KEPT_MS });
    }

    /// The attributes as they are told, of a file that has this version and of which nothing is pending.
    pub fn view(&self, id: FileId, version: Version, attr: &mut Attr, now_ms: u64) {
        if let Some(time) = self.time(id, version, now_ms) {
            (attr.mtime, attr.ctime) = (time, time);
        }
    }

    /// The time that is told of this version in place of the origin's.
    pub fn time(&self, id: FileId, version: Version, now_ms: u64) -> Option<Timestamp> {
        let told = self.lock().get(&id).copied()?;
        (told.left == version && now_ms < told.until_ms).then_some(told.time)
    }

    /// From now on the file is told as the origin has it.
    pub fn forget(&self, id: FileId) {
        self.lock().remove(&id);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<FileId, ToldTime>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use types::FileKind;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanos: 0 }
    }

    fn shown(told: &ToldTimes, id: u8, version: u8, now_ms: u64) -> i64 {
        let mut attr = Attr {
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
            atime: at(1),
            mtime: at(1),
            ctime: at(1),
        };
        told.view(FileId([id; 16]), Version([version; 16]), &mut attr, now_ms);
        assert_eq!(attr.mtime, attr.ctime);
        attr.mtime.seconds
    }

    #[test]
    fn the_time_of_the_last_write_is_told_until_it_is_over_or_another_version_is_there() {
        let told = ToldTimes::default();
        let note = |id: u8| told.note(FileId([id; 16]), Version([3; 16]), at(7), 100);
        (1..=3).for_each(note);
        assert_eq!((shown(&told, 1, 3, 100), shown(&told, 1, 3, 99 + KEPT_MS)), (7, 7));
        assert_eq!(shown(&told, 1, 3, 100 + KEPT_MS), 1);
        assert_eq!(shown(&told, 2, 4, 100), 1, "somebody else's");
        assert_eq!(told.time(FileId([1; 16]), Version([3; 16]), 100), Some(at(7)));
        assert_eq!(shown(&told, 1, 3, 100), 7, "until it is forgotten");
        assert_eq!(told.time(FileId([2; 16]), Version([4; 16]), 100), None, "of another version");
        told.forget(FileId([3; 16]));
        assert_eq!(shown(&told, 3, 3, 100), 1);
    }

    #[test]
    fn the_number_of_files_is_bounded() {
        let told = ToldTimes::default();
        for number in 0..3 * FILES_MAX as u128 {
            told.note(FileId(number.to_be_bytes()), Version([3; 16]), at(7), 100);
            assert!(told.lock().len() <= FILES_MAX);
        }
    }
}
