//! The times of change (ctime) that clients were told of what is at the origin by our doing.
//!
//! An origin moves a file's ctime with each change that the flush makes, and nobody can set it. Clients were told of the
//! change when it was acknowledged; that it came home is none for them. Who compares these times would take it for one: the
//! kernel's NFS client reads the file anew, and `git reset --hard` writes it anew, so that make builds what had not changed.
//! So what the flush left is shown with the ctime that clients know, until the origin tells another one.

use std::collections::{HashMap, VecDeque};

use types::{Attr, FileId, Timestamp};

/// Objects that are remembered, those that were flushed last. Others are shown with the ctime of the origin.
const OBJECTS_MAX: usize = 65_536;

#[derive(Clone, Copy)]
struct Ctime {
    at_origin: Timestamp,
    shown: Timestamp,
}

#[derive(Default)]
pub struct Ctimes {
    known: HashMap<FileId, Ctime>,
    /// Each that was put into `known`, in this order.
    oldest: VecDeque<FileId>,
}

impl Ctimes {
    /// The flush left it as `now`, and nothing is to be done to it any more; clients saw it as `shown` until then.
    pub fn settle(&mut self, id: FileId, now: &Attr, shown: &Attr) {
        let as_shown = |now: &Attr| Attr { ctime: shown.ctime, atime: shown.atime, used: shown.used, ..*now };
        // Where clients see another change with it, its ctime is another one too.
        let is_same = !now.is_dir() && Attr { fsid: now.fsid, fileid: now.fileid, ..*shown } == as_shown(now);
        if !is_same || now.ctime == shown.ctime {
            self.known.remove(&id);
            return;
        }
        let ctime = Ctime { at_origin: now.ctime, shown: shown.ctime };
        if self.known.insert(id, ctime).is_none() {
            self.oldest.push_back(id);
        }
        if self.oldest.len() > OBJECTS_MAX
            && let Some(oldest) = self.oldest.pop_front()
        {
            self.known.remove(&oldest);
        }
    }

    /// As clients see what the origin shows.
    pub fn over(&self, id: FileId, origin: &Attr) -> Attr {
        let known = self.known.get(&id).filter(|known| known.at_origin == origin.ctime);
        Attr { ctime: known.map_or(origin.ctime, |known| known.shown), ..*origin }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::alteration::made;
    use crate::operation::{Attributes, NewObject};

    const FILE: FileId = FileId([1; 16]);

    fn at(seconds: i64) -> Timestamp {
        Timestamp { seconds, nanos: 0 }
    }

    fn file(ctime: i64) -> Attr {
        Attr { ctime: at(ctime), ..made(&NewObject::File, &Attributes::default(), at(1)).attr }
    }

    #[test]
    fn what_is_flushed_keeps_the_ctime_that_was_shown_until_the_origin_tells_another() {
        let mut ctimes = Ctimes::default();
        ctimes.settle(FILE, &file(7), &file(2));
        assert_eq!(ctimes.over(FILE, &file(7)).ctime, at(2));
        assert_eq!(ctimes.over(FILE, &file(8)).ctime, at(8), "others changed it");
        assert_eq!(ctimes.over(FileId([2; 16]), &file(7)).ctime, at(7));
        ctimes.settle(FILE, &file(9), &file(3));
        assert_eq!([7, 9].map(|ctime| ctimes.over(FILE, &file(ctime)).ctime), [at(7), at(3)]);
    }

    #[test]
    fn a_flush_after_which_clients_see_something_else_moves_the_ctime() {
        for altered in
            [Attr { size: 1, ..file(7) }, Attr { mtime: at(3), ..file(7) }, Attr { nlink: 2, ..file(7) }]
        {
            let mut ctimes = Ctimes::default();
            ctimes.settle(FILE, &file(7), &file(2));
            ctimes.settle(FILE, &altered, &file(2));
            assert_eq!(ctimes.over(FILE, &altered).ctime, at(7), "{altered:?}");
        }
    }

    #[test]
    fn no_more_than_so_many_are_remembered_the_oldest_least() {
        let mut ctimes = Ctimes::default();
        let id = |number: usize| FileId((number as u128).to_be_bytes());
        for number in 0..=OBJECTS_MAX {
            ctimes.settle(id(number), &file(7), &file(2));
            ctimes.settle(id(number), &file(7), &file(3));
        }
        assert_eq!((ctimes.known.len(), ctimes.oldest.len()), (OBJECTS_MAX, OBJECTS_MAX));
        let shown = [0, 1, OBJECTS_MAX].map(|number| ctimes.over(id(number), &file(7)).ctime);
        assert_eq!(shown, [at(7), at(3), at(3)]);
    }
}
