//! The duplicate request cache: which changes were asked for before, and what was answered. Pure; `changing.rs` asks it.
//!
//! A client that hears no answer sends the same call again, perhaps over another connection. Made twice, a change would
//! tell the client of its own traces: the name it made is there already, the one it removed is not.
//!
//! A call is known by its client's address, its xid, its procedure and a checksum. Not by the client's port: a client
//! that connects again may come from another one. Not by the xid alone: clients count up from where they like, and use
//! the same number for another call one day.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key {
    pub client: IpAddr,
    pub xid: u32,
    pub procedure: u32,
    /// Of the caller and the arguments.
    pub checksum: u128,
}

#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Calls known, running or done.
    pub entries: usize,
    /// Of answers kept, with what it takes to keep them.
    pub bytes: usize,
    /// Answers older than this are forgotten.
    pub age: Duration,
}

/// What is known of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen<R> {
    /// Nothing: from now on it is running, and `done` must follow.
    New,
    /// It came before and is being carried out: wait for that.
    Running(R),
    /// It came before and was answered with this.
    Done(Bytes),
    /// As many calls are running as can be remembered: it must not be carried out now.
    Full,
}

enum State<R> {
    Running(R),
    Done(Bytes),
}

/// `R` is whatever tells of the end of a running call.
pub struct Duplicates<R> {
    limits: Limits,
    entries: HashMap<Key, State<R>>,
    /// The done ones, by the time when they were. Each is in `entries` too.
    done: VecDeque<(Key, Instant)>,
    bytes: usize,
}

/// What keeping an answer takes besides its bytes: the entry, its place in the queue, the allocation.
const ENTRY_BYTES: usize = 192;

impl<R: Clone> Duplicates<R> {
    pub fn new(limits: Limits) -> Duplicates<R> {
        Duplicates { limits, entries: HashMap::new(), done: VecDeque::new(), bytes: 0 }
    }

    /// `running` tells of the end of this call, if it is new.
    pub fn begin(&mut self, key: Key, running: R, now: Instant) -> Seen<R> {
        while self.done.front().is_some_and(|(_, at)| now.saturating_duration_since(*at) > self.limits.age) {
            self.forget_oldest();
        }
        match self.entries.get(&key) {
            Some(State::Running(running)) => return Seen::Running(running.clone()),
            Some(State::Done(reply)) => return Seen::Done(reply.clone()),
            None => {}
        }
        if self.entries.len() >= self.limits.entries {
            self.forget_oldest();
        }
        if self.entries.len() >= self.limits.entries {
            return Seen::Full; // the running ones are never forgotten
        }
        self.entries.insert(key, State::Running(running));
        Seen::New
    }

    /// A running call is over. `None`: a call that is the same is another one from now on.
    pub fn done(&mut self, key: Key, reply: Option<&[u8]>, now: Instant) {
        let Entry::Occupied(mut entry) = self.entries.entry(key) else { return };
        if !matches!(entry.get(), State::Running(_)) {
            return;
        }
        let Some(reply) = reply else {
            entry.remove();
            return;
        };
        // A copy of its own: what it was made in is larger.
        entry.insert(State::Done(Bytes::copy_from_slice(reply)));
        self.done.push_back((key, now));
        self.bytes += reply.len() + ENTRY_BYTES;
        while self.bytes > self.limits.bytes {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some((key, _)) = self.done.pop_front() else { return };
        if let Some(State::Done(reply)) = self.entries.remove(&key) {
            self.bytes -= reply.len() + ENTRY_BYTES;
        }
    }
}

#[cfg(test)]
mod tests;
