//! Who sent a request.

use fuser::Request;
use types::{Caller, Durability};

/// A thread of a process, by the number that the kernel gives with each request; 0 says nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread(pub u32);

/// Who asks for a change.
pub struct Asker {
    /// The calling user. The kernel has checked its permission, and has promised what a local file system does.
    pub caller: Caller,
    pub thread: Thread,
}

impl Thread {
    pub fn of(request: &Request) -> Thread {
        Thread(request.pid())
    }
}

impl Asker {
    pub fn of(request: &Request) -> Asker {
        let (uid, gid, groups) = (request.uid(), request.gid(), Vec::new());
        let caller = Caller { uid, gid, groups, trusted: true, durability: Durability::Fsync };
        Asker { caller, thread: Thread::of(request) }
    }
}

/// The threads that were told the attributes of a directory since it was changed last through this mount.
///
/// The kernel drops the attributes of a directory when it takes the answer to a change in it, but not those that another
/// thread was told before the change and has not taken yet: these would then stay, though they are old. A thread takes one
/// answer before it sends its next request; so nothing is under way to the thread that makes the change, and where any other
/// was told, the kernel must be told of the change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToldThreads {
    #[default]
    None,
    One(Thread),
    Several,
}

impl ToldThreads {
    pub fn and(self, thread: Thread) -> ToldThreads {
        match self {
            ToldThreads::None if thread != Thread(0) => ToldThreads::One(thread),
            ToldThreads::One(known) if known == thread => self,
            _ => ToldThreads::Several,
        }
    }

    /// Whether another thread than this one was told.
    pub fn others(self, thread: Thread) -> bool {
        !matches!(self, ToldThreads::None) && self != ToldThreads::One(thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_alone_was_told_is_no_other() {
        let (one, other, unknown) = (Thread(7), Thread(8), Thread(0));
        let nobody = ToldThreads::default();
        assert!(!nobody.others(one) && !nobody.others(unknown));
        let told = nobody.and(one).and(one);
        assert!(!told.others(one) && told.others(other) && told.others(unknown));
        let both = told.and(other);
        assert!(both.others(one) && both.others(other));
        assert!(nobody.and(unknown).others(unknown) && nobody.and(unknown).others(one));
    }
}
