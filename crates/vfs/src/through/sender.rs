//! The sender of one file: does what `state.rs` of the crate `write-buffer` says is next, many parts at a time, and ends when nothing is pending.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cache::CacheKey;
use fetch::{at_origin, key_of};
use namespace::{Found, QueryStamp};
use origin::{Committed, Origin, Reference, Written};
use tokio::task::JoinSet;
use tracing::{debug, error, warn};
use types::{ByteRange, Distance, Error, ErrorKind, FileId, Result, Stability, Version};
use write_buffer::BufferedFile;
use write_buffer::{BufferPart, Lay};
use write_buffer::{SendLimits, SendStep, State};
use write_buffer::{WriteAck, WriteVerdict, detect_foreign_write};

use super::buffer::WriteBuffer;

/// Bytes of one file on their way to an origin of which nobody knows how far it is: 2.4 Gbit/s at 221 ms.
const WINDOW_UNKNOWN: u64 = 64 << 20;
/// Parts at a time at least, so that a slow answer does not stop the others.
const PARTS_MIN: u64 = 4;
/// An object that we learnt the state of this lately is not looked at before it is written to: the shortest time for
/// which NFS clients believe attributes.
const LOOKED_LATELY_MS: u64 = 3_000;

/// What became of a step.
enum SendOutcome {
    /// What it is, where that is in the cache, and whether it was asked for.
    Looked(Result<(Version, CacheKey, bool)>),
    Sent {
        number: u64,
        stability: Stability,
        answer: Result<Written>,
    },
    Committed {
        arrivals: u64,
        answer: Result<Committed>,
    },
    Laid(Result<CacheKey>, Vec<WriteAck>),
}

impl SendOutcome {
    /// What becomes of a step that panics: nobody knows what it did, and it is done again.
    fn failed(step: &SendStep) -> SendOutcome {
        let e = Error::new(ErrorKind::OutcomeUnknown, "write to the origin:", "a fault in this program");
        match step {
            SendStep::Look => SendOutcome::Looked(Err(e)),
            SendStep::Send(part) => {
                SendOutcome::Sent { number: part.number, stability: part.stability, answer: Err(e) }
            }
            SendStep::Commit { arrivals } => SendOutcome::Committed { arrivals: *arrivals, answer: Err(e) },
            _ => SendOutcome::Laid(Err(e), Vec::new()),
        }
    }
}

/// Parts of one file that are sent to this origin at a time: twice what fits on the line, so that one half is on the way
/// while the other is answered.
pub fn parts_in_flight(origin: &dyn Origin, part: u64) -> usize {
    let on_the_line = |distance: Distance| distance.bytes_in(distance.latency).saturating_mul(2);
    let window = origin.distance().map_or(WINDOW_UNKNOWN, on_the_line);
    let parts = window.div_ceil(part.max(1)).max(PARTS_MIN);
    usize::try_from(parts).unwrap_or(usize::MAX).min(super::buffer::PARTS_MAX)
}

pub fn start(buffer: &Arc<WriteBuffer>, file: &Arc<BufferedFile>) {
    let (buffer, file) = (buffer.clone(), file.clone());
    tokio::spawn(async move { run(&buffer, &file).await });
}

async fn run(buffer: &Arc<WriteBuffer>, file: &Arc<BufferedFile>) {
    let mut tasks = JoinSet::new();
    // Before what answers that are not laid tell.
    let mut asked = buffer.namespace.asking();
    loop {
        let limits = buffer.limits(file);
        let step = {
            let mut state = file.lock();
            if state.is_exact() && state.is_quiet() {
                asked = buffer.namespace.asking();
            }
            state.next_step(&limits)
        };
        let wait = match step {
            SendStep::Over if buffer.close(file) => return,
            SendStep::Over => continue,
            SendStep::Granted => {
                file.progress.send_replace(());
                continue;
            }
            SendStep::Wait(wait) => wait,
            other => {
                let failed = SendOutcome::failed(&other);
                let task = {
                    let (buffer, file) = (buffer.clone(), file.clone());
                    tokio::spawn(async move { buffer.act(&file, asked, other).await })
                };
                let id = file.id;
                tasks.spawn(async move {
                    task.await.unwrap_or_else(|e| {
                        error!(file = %id, "a step of writing to the origin failed: {e}");
                        failed
                    })
                });
                continue;
            }
        };
        let timer = tokio::time::sleep(Duration::from_millis(wait.unwrap_or(u64::from(u32::MAX))));
        tokio::select! {
            Some(done) = tasks.join_next() => match done {
                Ok(done) => buffer.note(file, done),
                Err(e) => error!(file = %file.id, "what became of a step of writing is not known: {e}"),
            },
            () = file.wake.notified() => {}
            () = timer => {}
        }
    }
}

impl WriteBuffer {
    fn limits(&self, file: &BufferedFile) -> SendLimits {
        let pressed = self.pressed.load(Ordering::SeqCst) > 0;
        let stopping = self.stopping.load(Ordering::SeqCst) || self.settling().contains(&file.junction);
        let parts_max = self.parts_of_one(file);
        SendLimits { now_ms: self.now_ms(), parts_max, pressed, stopping, unstable_max: self.bytes_max / 4 }
    }

    fn parts_of_one(&self, file: &BufferedFile) -> usize {
        let Ok((origin, _)) = self.reach(file.id) else { return PARTS_MIN as usize };
        parts_in_flight(&*origin, u64::from(origin.traits().write_max))
    }

    fn reach(&self, id: FileId) -> Result<(Arc<dyn Origin>, Reference)> {
        match self.namespace.getattr_known(id)? {
            Found::Node(node) => self.namespace.origin_of(&node),
            Found::Virtual { id, .. } => Err(Error::new(ErrorKind::ReadOnly, "write to", id)),
        }
    }

    /// Nothing is pending: no trace is left, but for an error that is to be told. False if something came meanwhile.
    fn close(&self, file: &BufferedFile) -> bool {
        let mut files = self.files();
        let mut state = file.lock();
        if !state.is_done() {
            return false;
        }
        state.closed = true;
        files.remove(&file.id);
        if let Some(error) = state.take_error() {
            self.keep_unreported(file.id, error);
        }
        drop((state, files));
        file.progress.send_replace(());
        true
    }

    async fn act(&self, file: &BufferedFile, asked: QueryStamp, step: SendStep) -> SendOutcome {
        match step {
            SendStep::Look => SendOutcome::Looked(self.look(file).await),
            SendStep::Send(part) => {
                let BufferPart { number, offset, data, stability } = part;
                let _turn = self.parts.acquire().await;
                self.metrics.sent_parts.inc();
                self.metrics.sent_bytes.inc_by(data.len() as u64);
                let write = |origin: Arc<dyn Origin>, reference: Reference| {
                    let data = data.clone();
                    async move { origin.write(&reference, offset, data, stability).await }
                };
                let answer = at_origin(&self.namespace, file.id, write).await;
                self.namespace.announce_outcome(&answer, [file.id]);
                SendOutcome::Sent { number, stability, answer }
            }
            SendStep::Commit { arrivals } => {
                let commit = |origin: Arc<dyn Origin>, reference: Reference| async move {
                    origin.commit(&reference, ByteRange::new(0, 0)).await
                };
                let answer = at_origin(&self.namespace, file.id, commit).await;
                self.namespace.announce_outcome(&answer, [file.id]);
                SendOutcome::Committed { arrivals, answer }
            }
            SendStep::LayProvisional { old, size, lay } => {
                let provisional = self.provisional(&old, size);
                self.cache.rebase(old, provisional, lay.written, lay.unknown).await;
                SendOutcome::Laid(Ok(provisional), Vec::new())
            }
            SendStep::LayExact { old, base, acks, asked_before, unsure, lay } => {
                let verdict = (!unsure).then(|| detect_foreign_write(base, &acks, asked_before));
                let laid = self.lay(file, asked, old, verdict, lay).await;
                if laid.as_ref().is_err_and(|e| !may_pass(e)) {
                    // What was stored is not kept here for it, and is not to read as what was before.
                    self.cache.forget(old).await;
                }
                SendOutcome::Laid(laid, acks)
            }
            SendStep::Granted | SendStep::Wait(_) | SendStep::Over => unreachable!("nothing to act on"),
        }
    }

    /// What the origin has now, before it is written to, and where that is in the cache: under a made-up version until our
    /// writes are over. The clock of an origin may stand still between two changes of a file (4 ms and more on Linux
    /// before 6.13): if this tier ends in the middle of a write, what was cached before it must not pass for what is
    /// there after it, under the same version. Whether that is known, or left to what the answers tell, is the third.
    async fn look(&self, file: &BufferedFile) -> Result<(Version, CacheKey, bool)> {
        let clean = file.lock().clean;
        let asked = !self.tells_before(file.junction);
        let now = if asked { key_of(&self.lately(file.id).await?)? } else { clean };
        // Of most files that are written to.
        if !self.cache.has(&now).await {
            return Ok((now.version, now, asked));
        }
        let aside = self.provisional(&now, now.size);
        self.cache.rebase(now, aside, Vec::new(), Vec::new()).await;
        Ok((now.version, aside, asked))
    }

    /// What the origin has now, or had lately: others may have learnt it since the file was taken in.
    async fn lately(&self, id: FileId) -> Result<Found> {
        let known = self.namespace.getattr_known(id)?;
        let age = |node| self.namespace.age(node).map_or(u64::MAX, |(age_ms, _)| age_ms);
        match &known {
            Found::Node(node) if age(node) < LOOKED_LATELY_MS => Ok(known),
            _ => self.namespace.refresh_changed(id).await,
        }
    }

    /// What the origin has now, told to the namespace; and the cache follows if it is ours alone.
    async fn lay(
        &self,
        file: &BufferedFile,
        asked: QueryStamp,
        old: CacheKey,
        verdict: Option<WriteVerdict>,
        lay: Lay,
    ) -> Result<CacheKey> {
        let id = file.id;
        let last = verdict.as_ref().and_then(|verdict| verdict.last.as_ref());
        let known = match last {
            Some(last) => self.namespace.wrote(id, asked, None, last).await?.found,
            None => self.namespace.refresh_changed(id).await?,
        };
        let new = key_of(&known)?;
        if verdict.is_some_and(|verdict| verdict.is_ours(new.version)) {
            self.cache.rebase(old, new, lay.written, lay.unknown).await;
            if let Some(time) = file.lock().time() {
                self.told.note(id, new.version, time, self.now_ms());
            }
        } else {
            debug!(%id, "was changed by another while it was written to: what is cached of it is not kept");
            // Begun by a reader meanwhile, it may be from before our write: an origin may show the version first.
            self.cache.forget(new).await;
        }
        Ok(new)
    }

    fn note(&self, file: &Arc<BufferedFile>, done: SendOutcome) {
        match done {
            SendOutcome::Looked(Ok((base, clean, asked))) => file.lock().looked(base, clean, asked),
            SendOutcome::Looked(Err(e)) => {
                let mut state = file.lock();
                if may_pass(&e) {
                    state.not_looked();
                    self.postpone(&mut state, &e);
                } else {
                    // It will not go better with what is sent: who wrote that is told then.
                    state.looked_in_vain();
                }
            }
            SendOutcome::Sent { number, stability, answer } => {
                self.note_sent(file, number, stability, answer)
            }
            SendOutcome::Committed { arrivals, answer } => self.note_committed(file, arrivals, answer),
            SendOutcome::Laid(Ok(clean), _) => {
                let mut state = file.lock();
                state.laid(clean);
            }
            SendOutcome::Laid(Err(e), acks) => {
                let mut state = file.lock();
                state.not_laid(acks);
                if may_pass(&e) {
                    self.postpone(&mut state, &e);
                } else {
                    // The file is gone, or is not ours to see any more: what was stored of it is for others to tell.
                    state.gone();
                }
            }
        }
        file.progress.send_replace(());
    }

    fn postpone(&self, state: &mut State, error: &Error) {
        debug!("writing to the origin is tried again later: {error}");
        state.later(self.now_ms());
    }

    fn note_sent(&self, file: &BufferedFile, number: u64, asked: Stability, answer: Result<Written>) {
        let mut state = file.lock();
        match answer {
            Ok(written) => {
                let ctime = written.after.as_ref().map(|after| after.attr.ctime);
                self.learn(file.junction, written.before, ctime);
                let stability = written.stability.max(asked);
                if file.whole && stability == Stability::Unstable {
                    state.extents.arrived_to_be_kept(number, written.verifier);
                } else {
                    state.extents.arrived(number, stability, written.verifier);
                }
                let Written { before, after, .. } = written;
                state.note(WriteAck { before, after });
            }
            Err(e) if may_pass(&e) => {
                state.extents.unsent(number);
                state.doubt();
                self.metrics.again_parts.inc();
                self.postpone(&mut state, &e);
            }
            Err(e) => {
                let lost = state.extents.failed(number);
                self.lose(file.id, &mut state, &lost, &e);
            }
        }
    }

    fn note_committed(&self, file: &BufferedFile, arrivals: u64, answer: Result<Committed>) {
        let mut state = file.lock();
        state.commit_is_over();
        match answer {
            Ok(committed) => {
                let lost = state.extents.kept_is_committed(arrivals, committed.verifier);
                if !lost.is_empty() {
                    let e = Error::new(ErrorKind::VersionChanged, "commit what was written to", file.id);
                    self.lose(file.id, &mut state, &lost, &e);
                }
                let (again, lost) = state.extents.committed(arrivals, committed.verifier);
                if !lost.is_empty() {
                    let e = Error::new(
                        ErrorKind::Io,
                        "store what was written over and refused since, in",
                        file.id,
                    );
                    self.lose(file.id, &mut state, &lost, &e);
                }
                if again > 0 {
                    warn!(file = %file.id, "the origin has lost {again} bytes that it had not stored: sending them again");
                    self.metrics.again_bytes.inc_by(again);
                }
                // It changes nothing itself: where the origin does not say what was before, that is what is after.
                let before = committed.before.or(committed.after.as_ref().map(|after| after.version));
                if before.is_some() {
                    state.note(WriteAck { before, after: committed.after });
                }
            }
            Err(e) if may_pass(&e) => self.postpone(&mut state, &e),
            Err(e) => {
                let lost = state.extents.commit_failed(arrivals);
                self.lose(file.id, &mut state, &lost, &e);
            }
        }
    }

    fn lose(&self, id: FileId, state: &mut State, lost: &[(u64, Stability)], e: &Error) {
        self.metrics.lost_writes.inc_by(lost.len() as u64);
        // Of a file that is gone nobody can be told that it is well: every call about it says that it is gone.
        if state.lost(lost, e) && e.kind() != ErrorKind::Stale {
            error!(file = %id, "bytes that were written are lost: {e}");
            self.new_verifier();
        }
    }
}

/// May the same be asked again, with another answer?
fn may_pass(error: &Error) -> bool {
    error.is_retryable() || error.kind() == ErrorKind::OutcomeUnknown
}
