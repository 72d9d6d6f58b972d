//! The duplicate request cache: which changes were called before, and what was replied. Pure; used by
//! `change_calls.rs`.
//!
//! A client that hears no reply repeats the call, perhaps over another connection. Executed twice, a change would
//! stumble over its own traces: the name that it made exists, the one that it removed does not.
//!
//! A call is identified by the client's address, its xid, its procedure and a checksum. Not by the client's port,
//! since a client may reconnect from another one; not by the xid alone, since clients count from where they like and
//! reuse numbers for other calls.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallKey {
    pub client: IpAddr,
    pub xid: u32,
    pub procedure: u32,
    /// A checksum of the caller and the arguments.
    pub checksum: u128,
}

#[derive(Clone, Copy, Debug)]
pub struct DuplicateLimits {
    /// The most calls, running or done.
    pub entries: usize,
    /// The most bytes of kept replies, with their bookkeeping.
    pub bytes: usize,
    /// Replies older than this are forgotten.
    pub age: Duration,
}

/// What the cache knows of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallLookup<R> {
    /// The call is new: from now on it counts as running, and `done` must follow.
    New,
    /// A copy is running: wait for its reply.
    Running(R),
    /// A copy was answered with this.
    Done(Bytes),
    /// As many calls are running as can be remembered: this one must not be executed now.
    Full,
}

enum CallState<R> {
    Running(R),
    Done(Bytes),
}

/// `R` receives the reply of a running call.
pub struct DuplicateCache<R> {
    limits: DuplicateLimits,
    entries: HashMap<CallKey, CallState<R>>,
    /// The answered calls in the order of their replies. Each is in `entries`, too.
    done: VecDeque<(CallKey, Instant)>,
    bytes: usize,
}

/// The memory of a kept reply beside its bytes: the entry, its place in the queue, the allocation.
const ENTRY_BYTES: usize = 192;

impl<R: Clone> DuplicateCache<R> {
    pub fn new(limits: DuplicateLimits) -> DuplicateCache<R> {
        DuplicateCache { limits, entries: HashMap::new(), done: VecDeque::new(), bytes: 0 }
    }

    /// Looks up a call, and registers it as running if it is new; `running` receives its reply.
    pub fn begin(&mut self, key: CallKey, running: R, now: Instant) -> CallLookup<R> {
        while self.done.front().is_some_and(|(_, at)| now.saturating_duration_since(*at) > self.limits.age) {
            self.forget_oldest();
        }
        match self.entries.get(&key) {
            Some(CallState::Running(running)) => return CallLookup::Running(running.clone()),
            Some(CallState::Done(reply)) => return CallLookup::Done(reply.clone()),
            None => {}
        }
        if self.entries.len() >= self.limits.entries {
            self.forget_oldest();
        }
        if self.entries.len() >= self.limits.entries {
            return CallLookup::Full; // the running ones are never forgotten
        }
        self.entries.insert(key, CallState::Running(running));
        CallLookup::New
    }

    /// Ends a running call. With `None` it is forgotten, and a copy counts as a new call.
    pub fn done(&mut self, key: CallKey, reply: Option<&[u8]>, now: Instant) {
        let Entry::Occupied(mut entry) = self.entries.entry(key) else { return };
        if !matches!(entry.get(), CallState::Running(_)) {
            return;
        }
        let Some(reply) = reply else {
            entry.remove();
            return;
        };
        // A copy: the buffer of the reply is larger.
        entry.insert(CallState::Done(Bytes::copy_from_slice(reply)));
        self.done.push_back((key, now));
        self.bytes += reply.len() + ENTRY_BYTES;
        while self.bytes > self.limits.bytes {
            self.forget_oldest();
        }
    }

    fn forget_oldest(&mut self) {
        let Some((key, _)) = self.done.pop_front() else { return };
        if let Some(CallState::Done(reply)) = self.entries.remove(&key) {
            self.bytes -= reply.len() + ENTRY_BYTES;
        }
    }
}

#[cfg(test)]
mod tests;
