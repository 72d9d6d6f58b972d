//! What is to be done next for one file with pending bytes, and what its readers see. Pure: who acts on a step says what
//! became of it.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;
use types::{Attr, ByteRange, CacheKey, Error, Stability, Timestamp, Version, WeakAttr};

use crate::extents::{BufferExtents, BufferPart, Due, Lay};
use crate::foreign_write::WriteAck;

/// Room in the budget, shared by all that is left of one write.
pub type BudgetPermit = Arc<OwnedSemaphorePermit>;

/// Bytes that do not fill a part wait this long for others beside them.
const GATHER_MS: u64 = 20;
/// What nobody commits is committed after this: an NFS client may forget it had written, and memory is not for keeping.
const COMMIT_AFTER_MS: u64 = 5_000;
/// Where a commit costs as much as the file is long, it is later by as much again for each so many bytes of it: then all
/// commits of a file that grows cost a few times its length, and not its square.
const COMMIT_LATER_BY: u64 = 64 << 20;
/// So many pieces that were replaced here while the origin had them in memory are enough for a commit.
const SUPERSEDED_MAX: usize = 64;
/// Pause after the first failure, doubled with each; the retry wrapper below has tried for seconds by then.
const PAUSE_FIRST_MS: u64 = 100;
const PAUSE_MAX_MS: u64 = 5_000;

pub struct State {
    pub extents: BufferExtents<BudgetPermit>,
    whole: bool,
    /// The bytes below: in the cache under this key, as far as they are there.
    pub clean: CacheKey,
    /// The version that the origin had when `clean` was that.
    base: Version,
    /// Answers since `clean` was what the origin has.
    acks: Vec<WriteAck>,
    /// Something was carried out, or not, and no answer says so.
    unsure: bool,
    /// Bytes were lost, of which some may be in the cache under `clean`.
    tainted: bool,
    /// It was made sure that `clean` is what the origin has, before the first write since.
    looked: bool,
    /// It was not left to the answers to say so.
    asked_before: bool,
    /// Of the last write.
    sequence: u64,
    /// Writes up to this one are to be stored.
    asked: u64,
    /// Likewise, by the commit that is being prepared; later ones wait for the next.
    target: Option<u64>,
    target_done: u64,
    commit_due_ms: Option<u64>,
    committing: bool,
    laying: Option<CacheHandover>,
    /// Readers that want the file left alone at the origin, and those that have it so.
    requests: usize,
    grants: usize,
    /// Counts how often it was granted to those who wanted it.
    epoch: u64,
    /// Something was sent or committed since readers had it last: they do not keep writers away for ever.
    writers_went: bool,
    retry_at_ms: u64,
    pause_ms: u64,
    /// Of bytes that were taken and are lost; told once.
    error: Option<Error>,
    /// Writes whose writers wait, with the error that they are to be told.
    waiting: HashMap<u64, Option<Error>>,
    /// Of the last write, as readers see it. `None`: it is what the origin says.
    time: Option<Timestamp>,
    pub closed: bool,
}

/// What is being given to the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CacheHandover {
    Provisional,
    Exact,
}

/// What the sender has to decide by.
#[derive(Clone, Copy, Debug)]
pub struct SendLimits {
    pub now_ms: u64,
    pub parts_max: usize,
    /// Someone waits for room.
    pub pressed: bool,
    /// The tier stops: have everything stored.
    pub stopping: bool,
    /// Bytes at the origin, not stored, that are enough for a commit.
    pub unstable_max: u64,
}

#[derive(Debug)]
pub enum SendStep {
    /// Make sure that the origin has `clean` still, and put aside what is in the cache of it.
    Look,
    Send(BufferPart),
    /// About all that arrived before.
    Commit {
        arrivals: u64,
    },
    /// Give these to the cache: under a made-up version, or together with what the answers say.
    LayProvisional {
        old: CacheKey,
        size: u64,
        lay: Lay,
    },
    LayExact {
        old: CacheKey,
        base: Version,
        acks: Vec<WriteAck>,
        asked_before: bool,
        unsure: bool,
        lay: Lay,
    },
    /// Readers have the file for themselves now.
    Granted,
    /// At most so many milliseconds.
    Wait(Option<u64>),
    Over,
}

/// What a write left to wait for.
#[derive(Clone, Copy, Debug)]
pub struct BufferedWrite {
    pub sequence: u64,
    pub before: WeakAttr,
    pub after: WeakAttr,
    pub after_version: Version,
}

impl State {
    pub fn new(clean: CacheKey, part_max: u32, whole: bool) -> State {
        State {
            extents: BufferExtents::new(part_max),
            whole,
            clean,
            base: clean.version,
            acks: Vec::new(),
            unsure: false,
            tainted: false,
            looked: false,
            asked_before: false,
            sequence: 0,
            asked: 0,
            target: None,
            target_done: 0,
            commit_due_ms: None,
            committing: false,
            laying: None,
            requests: 0,
            grants: 0,
            epoch: 0,
            writers_went: false,
            retry_at_ms: 0,
            pause_ms: PAUSE_FIRST_MS,
            error: None,
            waiting: HashMap::new(),
            time: None,
            closed: false,
        }
    }

    /// What is in the cache under `clean` is what is below.
    pub fn is_readable(&self) -> bool {
        !self.tainted
    }

    pub fn size(&self) -> u64 {
        self.clean.size.max(self.extents.end())
    }

    /// The file differs from what the origin says of it.
    pub fn is_changing(&self) -> bool {
        self.time.is_some() || !self.extents.is_empty()
    }

    /// Of the last write, if its bytes are not all with the origin yet.
    pub fn time(&self) -> Option<Timestamp> {
        self.time
    }

    /// As readers see the file.
    pub fn view(&self, attr: &Attr) -> Attr {
        let size = self.size();
        // Once it is written to, what the origin says changes with each of our parts, and is nothing to anybody.
        let (mtime, ctime) = self.time.map_or((attr.mtime, attr.ctime), |time| (time, time));
        Attr { size, used: attr.used.max(self.extents.bytes()), mtime, ctime, ..*attr }
    }

    pub fn view_version(&self, view: &Attr) -> Version {
        if self.extents.is_empty() { self.clean.version } else { Version::from_attr(view) }
    }

    /// Bytes are taken in; `now` is the origin's clock, as far as it is known.
    pub fn take(
        &mut self,
        attr: &Attr,
        (offset, data): (u64, &Bytes),
        stability: Stability,
        (now_ms, now): (u64, Option<Timestamp>),
        permit: &BudgetPermit,
    ) -> BufferedWrite {
        let before = self.view(attr);
        // A change later than all that were told before, and not later than what the origin will say. An mtime in the
        // future is no change: somebody set it, and it ends with a write.
        let next = before.ctime.next();
        self.time = Some(now.map_or(next, |now| now.max(next)));
        self.sequence += 1;
        self.extents.write(offset, data, self.sequence, stability, now_ms, permit);
        let later = if self.whole { self.size() / COMMIT_LATER_BY } else { 0 };
        self.commit_due_ms.get_or_insert(now_ms + COMMIT_AFTER_MS * (1 + later));
        let (sequence, after) = (self.sequence, self.view(attr));
        let after_version = self.view_version(&after);
        BufferedWrite { sequence, before: before.weak(), after: after.weak(), after_version }
    }

    pub fn wait_for(&mut self, sequence: u64) {
        self.waiting.insert(sequence, None);
        if self.whole {
            // Of what the origin keeps nobody knows where it was: it may be over this.
            self.asked = self.asked.max(sequence);
        }
    }

    /// What the one who waits for it is told.
    pub fn told(&self, sequence: u64) -> Option<Error> {
        self.waiting.get(&sequence)?.clone()
    }

    pub fn forget_waiter(&mut self, sequence: u64) {
        self.waiting.remove(&sequence);
    }

    /// Somebody wants the file alone; granted to those who have this epoch when it is over.
    pub fn request(&mut self) -> u64 {
        self.requests += 1;
        self.epoch
    }

    pub fn is_granted(&self, epoch: u64) -> bool {
        self.epoch > epoch
    }

    pub fn release(&mut self, epoch: u64) {
        if self.is_granted(epoch) { self.grants -= 1 } else { self.requests -= 1 }
    }

    /// What makes room is being given to the cache.
    pub fn lays_provisional(&self) -> bool {
        self.laying == Some(CacheHandover::Provisional)
    }

    /// Have all that was written until now stored. Returns up to which write that is.
    pub fn ask_commit(&mut self) -> u64 {
        self.asked = self.sequence;
        self.sequence
    }

    pub fn take_error(&mut self) -> Option<Error> {
        self.error.take()
    }

    /// Readers may use `clean` with the origin.
    pub fn is_exact(&self) -> bool {
        self.acks.is_empty() && self.clean.version == self.base && !self.unsure
    }

    /// See [`crate::BufferedFile::over`].
    pub fn is_over(&self, range: ByteRange, sequence: u64) -> bool {
        if self.closed || self.told(sequence).is_some() {
            return true;
        }
        if self.extents.is_unstored(range, sequence) {
            return false;
        }
        !self.extents.is_open(range, sequence) || self.is_writing()
    }

    /// There is more to send or to commit.
    fn is_writing(&self) -> bool {
        let extents = &self.extents;
        extents.has_waiting()
            || extents.parts_under_way() > 0
            || extents.unstable_bytes() > 0
            || extents.is_kept()
            || self.committing
    }

    /// No step is under way.
    pub fn is_quiet(&self) -> bool {
        self.extents.parts_under_way() == 0 && !self.committing && self.laying.is_none()
    }

    /// Nothing is pending, and nobody is in the middle of anything.
    pub fn is_done(&self) -> bool {
        let left_alone = self.requests == 0 && self.grants == 0;
        left_alone && self.extents.is_empty() && self.is_quiet() && self.is_exact()
    }

    pub fn next_step(&mut self, limits: &SendLimits) -> SendStep {
        let now = limits.now_ms;
        if self.grants > 0 {
            return SendStep::Wait(None);
        }
        if now < self.retry_at_ms {
            return SendStep::Wait(Some(self.retry_at_ms - now));
        }
        let due = self.commit_due_ms.is_some_and(|due| due <= now);
        // What the origin keeps takes no room here.
        if due || limits.stopping || limits.pressed && !self.whole {
            self.ask_commit();
            self.commit_due_ms = None;
        }
        let held_up = self.extents.has_waiting() || self.asked > self.target_done;
        if self.requests > 0 && (self.writers_went || !held_up) {
            return self.step_for_readers();
        }
        if self.laying == Some(CacheHandover::Exact) {
            return SendStep::Wait(None);
        }
        // What arrived so far is enough: the line stays full meanwhile, and does not run empty before each commit.
        let much = self.extents.unstable_bytes() >= limits.unstable_max
            || self.extents.superseded() > SUPERSEDED_MAX;
        if !self.committing && much {
            return self.commit();
        }
        if let Some(commit) = self.step_of_commit() {
            return commit;
        }
        if self.requests > 0 && !self.extents.has_waiting() && self.asked == self.target_done {
            return self.step_for_readers(); // there was nothing to commit
        }
        let due = Due { sequence: self.asked, written_ms: now.saturating_sub(GATHER_MS) };
        if self.extents.parts_under_way() < limits.parts_max {
            if self.extents.has_waiting() && !self.looked {
                return self.step_before_sending();
            }
            if let Some(part) = self.extents.next_part(due) {
                self.writers_went = true;
                return SendStep::Send(part);
            }
        }
        if let Some(lay) = self.step_of_laying(limits) {
            return lay;
        }
        if self.is_done() {
            return SendStep::Over;
        }
        if self.extents.is_empty() && self.is_quiet() {
            return self.lay_exact();
        }
        SendStep::Wait(self.next_due(limits))
    }

    fn step_for_readers(&mut self) -> SendStep {
        if !self.is_quiet() {
            return SendStep::Wait(None);
        }
        if self.extents.is_kept() {
            // What the origin shows is not what is written yet.
            return self.commit();
        }
        if !self.is_exact() {
            return self.lay_exact();
        }
        self.grants = std::mem::take(&mut self.requests);
        self.epoch += 1;
        // They may have it cached under what it is now.
        (self.writers_went, self.looked, self.asked_before) = (false, false, false);
        SendStep::Granted
    }

    /// Nothing was sent since the file was laid last, or left to readers. It was committed, perhaps.
    fn step_before_sending(&mut self) -> SendStep {
        if !self.is_quiet() {
            return SendStep::Wait(None);
        }
        if !self.is_exact() {
            return self.lay_exact();
        }
        self.looked = true;
        self.laying = Some(CacheHandover::Exact);
        SendStep::Look
    }

    fn commit(&mut self) -> SendStep {
        (self.committing, self.writers_went) = (true, true);
        SendStep::Commit { arrivals: self.extents.arrivals() }
    }

    fn step_of_commit(&mut self) -> Option<SendStep> {
        if self.committing {
            return None;
        }
        loop {
            if self.target.is_none() && self.asked > self.target_done {
                self.target = Some(self.asked);
            }
            let target = self.target?;
            if self.extents.is_to_arrive(target) {
                return None;
            }
            if self.extents.is_to_commit(target) {
                return Some(self.commit());
            }
            (self.target, self.target_done) = (None, target);
        }
    }

    fn step_of_laying(&mut self, limits: &SendLimits) -> Option<SendStep> {
        if self.laying.is_some() || self.extents.stored_bytes() == 0 {
            return None;
        }
        if !self.is_writing() {
            return Some(self.lay_exact());
        }
        // For a made-up version only what makes room: each costs some system calls, or copies if a reader is in the way.
        if !limits.pressed && self.extents.stored_bytes() < limits.unstable_max {
            return None;
        }
        self.laying = Some(CacheHandover::Provisional);
        let lay = self.extents.lay(false);
        let end = lay.written.last().map_or(0, |(offset, bytes)| offset + bytes.len() as u64);
        Some(SendStep::LayProvisional { old: self.clean, size: self.clean.size.max(end), lay })
    }

    /// What the origin has now is to be known, and the cache to have it. What it has in memory only is part of that.
    fn lay_exact(&mut self) -> SendStep {
        self.laying = Some(CacheHandover::Exact);
        let (acks, unsure) = (std::mem::take(&mut self.acks), std::mem::take(&mut self.unsure));
        let lay = self.extents.lay(true);
        SendStep::LayExact {
            old: self.clean,
            base: self.base,
            acks,
            asked_before: self.asked_before,
            unsure,
            lay,
        }
    }

    /// When something is to be done though nothing happens.
    fn next_due(&self, limits: &SendLimits) -> Option<u64> {
        let gather = if self.extents.parts_under_way() < limits.parts_max {
            // What is due already waits for a part under way to be over, and needs no clock.
            self.extents.waiting_since_ms().map(|since| since + GATHER_MS).filter(|due| *due > limits.now_ms)
        } else {
            None
        };
        let due = gather.into_iter().chain(self.commit_due_ms).min()?;
        Some(due.saturating_sub(limits.now_ms).max(1))
    }

    /// The origin has this version, and what is in the cache of it is under `clean`.
    pub fn looked(&mut self, base: Version, clean: CacheKey, asked: bool) {
        self.laying = None;
        (self.base, self.clean, self.asked_before) = (base, clean, asked);
    }

    pub fn looked_in_vain(&mut self) {
        self.laying = None;
    }

    pub fn not_looked(&mut self) {
        (self.laying, self.looked) = (None, false);
    }

    pub fn note(&mut self, ack: WriteAck) {
        self.acks.push(ack);
        self.pause_ms = PAUSE_FIRST_MS;
    }

    /// A part was sent, and whether the origin has it nobody knows.
    pub fn doubt(&mut self) {
        self.unsure = true;
    }

    /// What is at the origin may be there no more.
    pub fn send_again(&mut self) {
        self.extents.send_again();
        self.commit_due_ms.get_or_insert(0);
    }

    pub fn later(&mut self, now_ms: u64) {
        if now_ms < self.retry_at_ms {
            return; // another of the parts that failed together
        }
        self.retry_at_ms = now_ms + self.pause_ms;
        self.pause_ms = (self.pause_ms * 2).min(PAUSE_MAX_MS);
    }

    pub fn commit_is_over(&mut self) {
        self.committing = false;
    }

    pub fn laid(&mut self, clean: CacheKey) {
        let is_exact = self.laying.take() == Some(CacheHandover::Exact);
        if is_exact {
            (self.base, self.tainted) = (clean.version, false);
            (self.looked, self.asked_before) = (false, false);
        }
        self.extents.laid();
        self.clean = clean;
        if is_exact && self.extents.is_empty() {
            self.time = None;
        }
    }

    /// What the origin has now could not be found out.
    pub fn not_laid(&mut self, acks: Vec<WriteAck>) {
        self.laying = None;
        self.extents.unlaid();
        self.unsure = true;
        self.acks.extend(acks);
    }

    /// There is no file any more that could be anything: what was stored is gone with it.
    pub fn gone(&mut self) {
        (self.unsure, self.tainted, self.base) = (false, false, self.clean.version);
        self.acks.clear();
        self.extents.lay(false);
        self.extents.laid();
    }

    /// It was found, while nothing of ours was under way, that the origin has another version.
    pub fn found(&mut self, clean: CacheKey) {
        (self.clean, self.base) = (clean, clean.version);
        if self.extents.is_empty() {
            self.time = None;
        }
    }

    /// These writes are lost. Returns whether one of them had been answered.
    pub fn lost(&mut self, writes: &[(u64, Stability)], error: &Error) -> bool {
        (self.unsure, self.tainted) = (true, true);
        let mut answered = false;
        for (sequence, _) in writes {
            match self.waiting.get_mut(sequence) {
                Some(told) => *told = Some(error.clone()),
                None => answered = true,
            }
        }
        if answered {
            self.error = Some(error.clone());
        }
        answered
    }
}

#[cfg(test)]
mod tests;
