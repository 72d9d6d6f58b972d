//! One run on one process or on many: rank 0 thinks, all do. Rank 0 runs the experiment and gives orders; the others
//! carry out what comes, until the order to end. So an experiment is written once, as if it were alone.

use std::process::ExitCode;
use std::sync::{Arc, Mutex, Once, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bench_fleet::{Barrier, Fleet, FleetOptions, LaunchArgs, Member, RankPlace};
use bench_load::{LoadJob, LoadOutcome, PhaseGate, Verification, engine, from_url, target};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::SetOnce;
use tokio::time::Instant;
use types::{Error, ErrorKind, Result};

use crate::ResultBuilder;
use crate::progress::ProgressLine;

/// A process that is told that the run has ended gives up what is under way within about a second.
const SETTLE: Duration = Duration::from_millis(2500);

pub struct Ranks {
    member: Member,
    /// What all loads read that was not written, those too that are not kept.
    wrong: Mutex<Verification>,
}

#[derive(Serialize, Deserialize)]
enum RankOrder {
    /// A job on a target; each process has its share of the job's clients.
    Load {
        target: String,
        job: Box<LoadJob>,
    },
    End,
}

pub struct Loaded {
    pub outcome: LoadOutcome,
    /// The largest distance between two processes at a barrier.
    pub skew: Duration,
}

/// Rank 0 runs the experiment and returns its result; the others follow and return nothing. However it ends, it ends
/// on all.
pub async fn run<T>(
    args: &LaunchArgs,
    experiment: impl AsyncFnOnce(&Ranks) -> Result<T>,
) -> Result<Option<T>> {
    let ranks = Ranks::join(args).await?;
    let done = if ranks.member.is_root() {
        // Not given up when the run has ended: its next order fails then, and it still has to clean up.
        Box::pin(experiment(&ranks)).await.map(Some)
    } else {
        ranks.follow().await.map(|()| None)
    };
    match done {
        Ok(result) => ranks.finish().await.map(|()| result),
        // Alone there is nobody to tell.
        Err(error) if ranks.processes() == 1 => Err(error),
        Err(error) => {
            let root = ranks.member.is_root();
            let ended = ranks.member.abort(&error.to_string()).await;
            // Wrong usage stays wrong usage, with its exit code, on the process that says it.
            Err(if root && error.kind() == ErrorKind::Config { error } else { ended })
        }
    }
}

/// What one process does by itself. Under a launcher that has started several the others wait for it, so that it is done
/// once.
pub async fn alone(work: impl Future<Output = Result<ExitCode>>) -> Result<ExitCode> {
    let work = Box::pin(work);
    let done = run(&LaunchArgs::default(), async |_| work.await).await?;
    Ok(done.unwrap_or(ExitCode::SUCCESS))
}

/// The work, unless somebody ends it from outside: then an error, and time to clean up after it.
pub fn unless_interrupted<T>(work: impl Future<Output = Result<T>>) -> impl Future<Output = Result<T>> {
    let work = Box::pin(work);
    async move {
        tokio::select! {
            done = work => done,
            () = told_to_end() => {
                Err(Error::new(ErrorKind::Io, "measure", "").with_source(std::io::Error::other("interrupted")))
            }
        }
    }
}

/// Returns once the process was told to end, and at once from then on: what is told between two pieces of work counts.
async fn told_to_end() {
    static TOLD: SetOnce<()> = SetOnce::const_new();
    static LISTENING: Once = Once::new();
    LISTENING.call_once(|| {
        tokio::spawn(async {
            match signalled() {
                Ok(signalled) => {
                    signalled.await;
                    let _ = TOLD.set(());
                }
                Err(e) => tracing::warn!("signals are not heard: {e}"),
            }
        });
    });
    TOLD.wait().await;
}

/// Ctrl-C, or SIGTERM, with which batch systems and launchers end a job: heard from the call on, not only while it is waited for.
pub fn signalled() -> Result<impl Future<Output = ()>> {
    let heard = |kind| signal(kind).map_err(|e| Error::io("listen for", "signals", e));
    let (mut interrupt, mut terminate) = (heard(SignalKind::interrupt())?, heard(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

impl Ranks {
    async fn join(args: &LaunchArgs) -> Result<Ranks> {
        let options = FleetOptions { launch: args.clone(), ..FleetOptions::of_this_process()? };
        Ok(Ranks { member: Fleet::join(options).await?, wrong: Mutex::default() })
    }

    pub fn processes(&self) -> u32 {
        self.member.size()
    }

    pub fn places(&self) -> &[RankPlace] {
        self.member.roster()
    }

    /// Into the result of its loads: who took part, and whether a byte was wrong in any of them.
    pub fn tell(&self, draft: &mut ResultBuilder) {
        draft.parameter("processes", self.processes());
        if self.processes() > 1 {
            let names: Vec<String> = self.places().iter().map(RankPlace::to_string).collect();
            draft.file.fingerprint.insert("processes".to_owned(), names.join("; "));
        }
        draft.wrong_bytes(&self.wrong.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// The job, done by all processes together; for rank 0. Of fewer clients than processes each has a process of its own,
    /// and the others wait. `what` is for whoever watches.
    pub async fn load(&self, target: &str, job: &LoadJob, what: &str) -> Result<Loaded> {
        let given = RankOrder::Load { target: target.to_owned(), job: Box::new(job.clone()) };
        self.member.broadcast(Some(&given)).await?;
        let loaded = self.carry_out(target, job, what).await?;
        let loaded = loaded.ok_or_else(|| {
            Error::new(ErrorKind::Io, "gather", "the results did not come to the first process")
        })?;
        let mut wrong = self.wrong.lock().unwrap_or_else(PoisonError::into_inner);
        loaded.outcome.phases.iter().for_each(|phase| wrong.merge(phase.verification.clone()));
        drop(wrong);
        Ok(loaded)
    }

    /// Of a run that has ended early, before what was written is removed: other processes may still finish what they had begun to
    /// write.
    pub async fn settle(&self) {
        if self.processes() > 1 {
            tokio::time::sleep(SETTLE).await;
        }
    }

    async fn follow(&self) -> Result<()> {
        loop {
            match self.member.broadcast(None).await? {
                RankOrder::Load { target, job } => drop(self.carry_out(&target, &job, "").await?),
                RankOrder::End => return Ok(()),
            }
        }
    }

    async fn finish(self) -> Result<()> {
        if self.member.is_root() {
            self.member.broadcast(Some(&RankOrder::End)).await?;
        }
        self.member.finish().await
    }

    /// This process's share; the sum of all on rank 0.
    async fn carry_out(&self, target: &str, job: &LoadJob, what: &str) -> Result<Option<Loaded>> {
        let mut job = job.clone();
        let (first, count) = share(job.fleet.clients, self.member.rank(), self.processes());
        job.fleet.first_client = first;
        let progress = Arc::default();
        let gate = FleetGate { member: &self.member, barriers: Mutex::default() };
        let work = async {
            let clients = target::clients(&from_url(target)?, first, count).await?;
            engine::run(&job, &clients, &gate, &progress).await
        };
        let live =
            self.member.is_root().then(|| ProgressLine::show(what, Arc::clone(&progress), self.processes()));
        let outcome = self.member.guard(Box::pin(work)).await??;
        drop(live);
        let mut parts = self.member.gather(&outcome).await?.into_iter();
        let mut skew = Duration::ZERO;
        for barrier in gate.barriers.into_inner().unwrap_or_else(PoisonError::into_inner) {
            skew = skew.max(self.member.skew(&barrier).await?.spread);
        }
        let Some(mut outcome) = parts.next() else { return Ok(None) };
        for part in parts {
            outcome.merge(part)?;
        }
        Ok(Some(Loaded { outcome, skew }))
    }
}

/// Rank `rank`'s first client and how many it has: all differ by one at most.
fn share(clients: u32, rank: u32, size: u32) -> (u32, u32) {
    let at = |rank: u32| u64::from(clients) * u64::from(rank) / u64::from(size.max(1));
    let (first, end) = (at(rank), at(rank + 1));
    (u32::try_from(first).unwrap_or(u32::MAX), u32::try_from(end - first).unwrap_or(0))
}

/// The engine's gate over the barriers of the fleet.
struct FleetGate<'a> {
    member: &'a Member,
    barriers: Mutex<Vec<Barrier>>,
}

#[async_trait]
impl PhaseGate for FleetGate<'_> {
    async fn wait(&self, phase: &str) -> Result<Instant> {
        let barrier = self.member.barrier(phase).await?;
        let start = Instant::from_std(barrier.start);
        self.barriers.lock().unwrap_or_else(PoisonError::into_inner).push(barrier);
        Ok(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_client_belongs_to_one_process() {
        for (clients, size) in [(1, 1), (8, 3), (500, 7), (4096, 4096), (5, 8), (1, 4096)] {
            let shares: Vec<_> = (0..size).map(|rank| share(clients, rank, size)).collect();
            let mut next = 0;
            for (first, count) in shares {
                assert_eq!(first, next);
                assert!(count >= clients / size && count <= clients / size + 1);
                next += count;
            }
            assert_eq!(next, clients);
        }
    }
}
