//! A rank of a run: what the bench sees of the fleet.
//!
//! All ranks must call the same steps in the same order; one that does not ends the run with a line that says so. A
//! step is not to be cancelled half way. A run of one process has the same interface, and no sockets or threads.

use std::future::Future;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, oneshot, watch};
use types::{Error, ErrorKind, Result};

use crate::agent::{MemberRequest, RunEnded, StepOutcome};
use crate::clock::{FleetClock, FleetInstant, Skew, nanoseconds};
use crate::frame;
use crate::protocol::{Collective, PAYLOAD_MAX, RankPlace};

/// The last part of the wait for a barrier's end is slept by the thread itself: the runtime's timer counts
/// milliseconds, and rounds up.
const FINE_WAIT: Duration = Duration::from_millis(2);
/// The thread ends by itself; this is for one that cannot.
const THREAD_END: Duration = Duration::from_secs(6);
const BARRIER_NAME_MAX: usize = 200;

pub struct Member {
    pub(crate) roster: Vec<RankPlace>,
    pub(crate) rank: u32,
    pub(crate) clock: Arc<FleetClock>,
    /// None if the run is this process alone.
    pub(crate) fleet: Option<AgentHandle>,
}

pub(crate) struct AgentHandle {
    pub requests: mpsc::Sender<MemberRequest>,
    pub ending: watch::Receiver<Option<RunEnded>>,
    pub thread: JoinHandle<()>,
}

/// The scheduled start of a phase.
#[derive(Clone, Debug)]
pub struct Barrier {
    pub name: String,
    /// When all ranks were to go on, of this process's clock.
    pub start: Instant,
    /// When this rank did, in the fleet's time.
    pub woke: FleetInstant,
}

pub(crate) fn run_ended(reason: &str) -> Error {
    error_of(RunEnded::because(reason, false))
}

fn error_of(ended: RunEnded) -> Error {
    Error::new(ErrorKind::Io, "the run on many processes ended", "").with_source(ended)
}

/// Whether rank 0 reports this error, so that another rank that prints it only says it again.
pub fn said_by_rank_0(error: &Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<RunEnded>());
    source.is_some_and(|ended| ended.said_by_rank_0)
}

impl Member {
    pub(crate) fn alone(place: RankPlace) -> Member {
        let clock = Arc::new(FleetClock::exact(Instant::now()));
        Member { roster: vec![place], rank: 0, clock, fleet: None }
    }

    pub fn rank(&self) -> u32 {
        self.rank
    }

    pub fn size(&self) -> u32 {
        u32::try_from(self.roster.len()).unwrap_or(u32::MAX)
    }

    /// Rank 0: the one that prints, and writes result files.
    pub fn is_root(&self) -> bool {
        self.rank == 0
    }

    /// All ranks in order, and where they are.
    pub fn roster(&self) -> &[RankPlace] {
        &self.roster
    }

    /// `instant` in the fleet's time, which is comparable between ranks within the bounds of the errors.
    pub fn stamp(&self, instant: Instant) -> FleetInstant {
        self.clock.stamp(instant)
    }

    /// When this process's clock shows what the fleet's does at `at`: the reverse of [`Member::stamp`].
    pub fn instant(&self, at: Duration) -> Instant {
        self.clock.instant_of(nanoseconds(at), Instant::now())
    }

    /// Wait for all ranks, then return at one scheduled instant on all.
    pub async fn barrier(&self, name: &str) -> Result<Barrier> {
        let name: String = name.chars().take(BARRIER_NAME_MAX).collect();
        let start = self.step(Collective::Barrier { name: name.clone() }, Bytes::new()).await?.start;
        let woke = wait_until(start).await;
        Ok(Barrier { name, start, woke: self.stamp(woke) })
    }

    /// How far apart the ranks left a barrier: a step of all ranks, for after the phase.
    pub async fn skew(&self, barrier: &Barrier) -> Result<Skew> {
        let woke = self.gather(&barrier.woke).await?;
        self.broadcast(Some(&Skew::of(&barrier.name, &woke))).await
    }

    /// What each rank has to tell, in their order, on rank 0; empty on the others. Returns when all ranks have told theirs.
    pub async fn gather<T: Serialize + DeserializeOwned>(&self, own: &T) -> Result<Vec<T>> {
        let parts = self.step(Collective::Gather, frame::encode(own).into()).await?.parts;
        parts.iter().filter(|_| self.is_root()).map(|part| read(part)).collect()
    }

    /// Rank 0's word, on all. What the others give is not looked at.
    pub async fn broadcast<T: Serialize + DeserializeOwned>(&self, given: Option<&T>) -> Result<T> {
        let given = given.filter(|_| self.is_root()).map(frame::encode).unwrap_or_default();
        let parts = self.step(Collective::Broadcast, given.into()).await?.parts;
        read(parts.first().map_or(&[], |part| part))
    }

    async fn step(&self, step: Collective, payload: Bytes) -> Result<StepOutcome> {
        match &self.fleet {
            Some(fleet) => fleet.step(step, payload).await,
            None => Ok(StepOutcome { start: Instant::now(), parts: vec![payload] }),
        }
    }

    /// Do `work` for as long as the run holds: if a rank is lost, `work` is dropped and the error says which.
    pub async fn guard<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        tokio::select! {
            biased;
            done = work => Ok(done),
            error = self.ended() => Err(error),
        }
    }

    /// When the run has ended early: why. For ever otherwise.
    pub async fn ended(&self) -> Error {
        match &self.fleet {
            Some(fleet) => fleet.ended().await,
            None => std::future::pending().await,
        }
    }

    /// End the run on all ranks, with a reason. The error to report, the same on all.
    pub async fn abort(self, reason: &str) -> Error {
        let Some(fleet) = self.fleet else { return run_ended(reason) };
        let _ = fleet.requests.send(MemberRequest::Abort { reason: reason.to_owned() }).await;
        let error = fleet.ended().await;
        fleet.leave().await;
        error
    }

    /// The end of the run, when all ranks have come to it. On rank 0 the processes that it started have ended then.
    pub async fn finish(self) -> Result<()> {
        let Some(fleet) = self.fleet else { return Ok(()) };
        let finished = fleet.step(Collective::Finish, Bytes::new()).await;
        fleet.leave().await;
        finished.map(|_| ())
    }
}

fn read<T: DeserializeOwned>(told: &[u8]) -> Result<T> {
    serde_json::from_slice(told).map_err(|e| Error::new(ErrorKind::Corrupt, "read what another rank told", e))
}

impl AgentHandle {
    async fn step(&self, step: Collective, payload: Bytes) -> Result<StepOutcome> {
        if payload.len() > PAYLOAD_MAX {
            let what = format!("{} bytes of at most {PAYLOAD_MAX}", payload.len());
            return Err(Error::new(ErrorKind::InvalidArgument, "give to the other ranks", what));
        }
        let (answer, answered) = oneshot::channel();
        // If the agent is gone, so is the sender of the answer.
        let _ = self.requests.send(MemberRequest::Enter { step, payload, answer }).await;
        match answered.await {
            Ok(outcome) => Ok(outcome),
            Err(_) => Err(self.ended().await),
        }
    }

    pub async fn ended(&self) -> Error {
        let mut ending = self.ending.clone();
        match ending.wait_for(Option::is_some).await.ok().and_then(|ended| ended.clone()) {
            Some(ended) => error_of(ended),
            None => run_ended("its thread is gone"),
        }
    }

    /// Wait for the thread's end, beside the caller's own tasks.
    async fn leave(self) {
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }
}

/// An end of the process right after this would cut off the last words to the other ranks.
impl Drop for AgentHandle {
    fn drop(&mut self) {
        // The agent takes this for leaving; after the end of the run nobody listens.
        let (closed, _) = mpsc::channel(1);
        self.requests = closed;
        let begun = Instant::now();
        while !self.thread.is_finished() && begun.elapsed() < THREAD_END {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// The instant at which the wait was really over.
async fn wait_until(start: Instant) -> Instant {
    if let Some(coarse) = start.checked_sub(FINE_WAIT) {
        tokio::time::sleep_until(coarse.into()).await;
    }
    let left = start.saturating_duration_since(Instant::now());
    if !left.is_zero() {
        std::thread::sleep(left);
    }
    Instant::now()
}
