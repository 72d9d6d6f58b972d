//! Runs a job: phases one after the other, each a crowd of workers that begin together and are measured until the
//! last of them is done.
//!
//! A run always ends: workers stop at the time or byte budget or at too many errors, and
//! calls that do not come back are given up after a grace. What was measured until then is returned. Memory is
//! bounded by workers x block size; nothing is kept per operation.

mod recorder;
mod worker;

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt, TryStreamExt, stream};
use relay::RelayClock;
use serde::{Deserialize, Serialize};
use tokio::sync::{Barrier, SetOnce};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};
use types::{Error, ErrorKind, Result};

use crate::data::{GENERATOR, SeededData};
use crate::locked;
use crate::outcome::{LoadOutcome, PhaseOutcome, Stop, WorkerSpan};
use crate::pace::{ArrivalSchedule, LoadPace};
use crate::process::{self, Threads};
use crate::safety::RunDir;
use crate::shape::{ClientSet, Layout, LoadOperation, LoadWork, TouchUnit, below};
use crate::target::{Client, components};

use recorder::Recorder;

/// Directories that are made at the same time.
const PREPARING_MAX: usize = 32;

/// All that a run does. The same in every process, but for `fleet.first_client`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadJob {
    /// Directory of the data below the target. A job that writes takes the path of a [`RunDir`], or one in it, and
    /// is refused if the marker is missing. Empty: the target itself, to be read.
    pub root: String,
    pub layout: Layout,
    pub content: SeededData,
    pub fleet: ClientSet,
    pub phases: Vec<LoadPhase>,
    pub limits: LoadLimits,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadPhase {
    /// For reports; also what processes meet by, so each phase of a job has another one.
    pub name: String,
    pub work: LoadWork,
    /// Other files than the job's: a render node reads the scene that all share and writes frames of its own.
    pub files: Option<Files>,
    pub pace: LoadPace,
    /// Of the contents that are written, or expected. Default 1.
    pub version: u32,
    /// Share of what is read that is compared with what it should be, percent. Default 100.
    pub verify_percent: u8,
    /// Workers wait for each other before it, and clients forget what they know. Default true: no phase profits from the one
    /// before unknowingly. Without, each worker goes on from the phase before (as sob does), times count from that one's
    /// start, and CPU and calls are counted there.
    pub barrier: bool,
}

/// Files in a directory of the run's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Files {
    /// Below the job's `root`; made if the phase writes. Its name is a letter `c` or `d` and at least five digits
    /// (`d90001`), as cleanup knows them, and none of the job's own layout. Empty: the root itself.
    pub directory: String,
    pub layout: Layout,
}

impl LoadPhase {
    pub fn layout<'a>(&'a self, job: &'a LoadJob) -> &'a Layout {
        self.files.as_ref().map_or(&job.layout, |files| &files.layout)
    }

    /// The directory of its files below the target.
    pub fn root(&self, job: &LoadJob) -> String {
        match &self.files {
            Some(files) if !files.directory.is_empty() => below(&job.root, &files.directory),
            _ => job.root.clone(),
        }
    }
}

impl Default for LoadPhase {
    fn default() -> LoadPhase {
        LoadPhase {
            name: "read".to_owned(),
            work: LoadWork::default(),
            files: None,
            pace: LoadPace::default(),
            version: 1,
            verify_percent: 100,
            barrier: true,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadLimits {
    /// Seconds of a phase (with those that follow it without a barrier). Default an hour.
    pub seconds: f64,
    /// To be over then is what was asked for, and no fault.
    #[serde(default)]
    pub asked: bool,
    /// Bytes that this process moves in both directions, in all phases. Default 1 TiB.
    pub bytes: u64,
    /// A phase ends with more errors than this in one process. Default 8: enough to see what they have in common.
    pub errors: u64,
    /// Seconds after the time is over until calls without an answer are given up. Default 30: longer than an NFS
    /// client's call timeout, so that the reason is told.
    pub grace_s: f64,
    /// Seconds of one interval of the series. Default 0.2.
    pub interval_s: f64,
}

impl Default for LoadLimits {
    fn default() -> LoadLimits {
        LoadLimits {
            seconds: 3600.0,
            asked: false,
            bytes: 1 << 40,
            errors: 8,
            grace_s: 30.0,
            interval_s: 0.2,
        }
    }
}

impl LoadJob {
    pub fn writes(&self) -> bool {
        self.phases.iter().any(|phase| phase.work.operation.writes())
    }

    /// Whether it makes sense, with so many clients in this process; one line that says what would.
    pub fn check(&self, clients_here: usize) -> Result<()> {
        let wrong = |why: String| Err(Error::new(ErrorKind::Config, "job", why));
        self.layout.check()?;
        components(&self.root)?.for_each(drop);
        let ClientSet { clients, first_client, workers } = self.fleet;
        let here = u32::try_from(clients_here).unwrap_or(u32::MAX);
        if first_client.checked_add(here).is_none_or(|end| end > clients) && clients > 0 {
            return wrong(format!(
                "clients {first_client} and {here} more are not among the fleet's {clients}"
            ));
        }
        let limits = self.limits;
        let time = |seconds: f64| (0.001..=31e6).contains(&seconds);
        let times = time(limits.seconds) && time(limits.interval_s) && (0.0..=31e6).contains(&limits.grace_s);
        let compressible = self.content.compressible_percent;
        let refused = [
            // Of a fleet that is smaller than the number of processes some have none, and meet the others all the same.
            (
                clients == 0 || !(1..=65_536).contains(&workers),
                "a run needs 1 client or more, each with 1 to 65536 workers",
            ),
            (!times, "time limits should be 1 ms to a year"),
            (limits.bytes == 0, "a byte budget of 0 allows nothing"),
            (compressible > 99, "compressibility should be 0 to 99 percent"),
            (self.phases.is_empty(), "there are no phases"),
        ];
        if let Some((_, why)) = refused.into_iter().find(|(is_so, _)| *is_so) {
            return wrong(why.to_owned());
        }
        if self.writes() {
            RunDir::around(&self.root)?;
        }
        for phase in &self.phases {
            phase.work.check()?;
            phase.pace.check()?;
            phase.layout(self).check()?;
            let directory = phase.files.as_ref().map_or("", |files| files.directory.as_str());
            if !directory.is_empty() && (directory.starts_with('f') || !Layout::makes_name(directory)) {
                return wrong(format!("a phase's directory is named as d00001, not {directory:?}"));
            }
            if phase.verify_percent > 100 {
                return wrong("the share to verify should be 0 to 100 percent".to_owned());
            }
        }
        Ok(())
    }
}

/// Where workers of all processes meet before a phase. Implemented here for one process, and over a fleet of them by
/// whoever runs one.
#[async_trait]
pub trait PhaseGate: Send + Sync {
    /// Returns when all processes may begin the phase, with the moment, on this process's clock, that all of
    /// them count from. It may lie a little in the past. Fails if the others will not come.
    async fn wait(&self, phase: &str) -> Result<Instant>;
}

/// One process meets itself.
pub struct LocalGate;

#[async_trait]
impl PhaseGate for LocalGate {
    async fn wait(&self, _phase: &str) -> Result<Instant> {
        Ok(Instant::now())
    }
}

/// Sums over all phases of a job so far, of this process. Read them whenever you like.
#[derive(Debug, Default)]
pub struct Progress {
    /// In both directions; they count for the job's budget.
    pub bytes: AtomicU64,
    pub units: AtomicU64,
    pub errors: AtomicU64,
}

/// What all workers of a group of phases share.
struct GroupRun {
    job: Arc<LoadJob>,
    progress: Arc<Progress>,
    /// Of the phases, on this process's clock.
    start: Instant,
    deadline: Instant,
    /// Why it is to end before its work is done. The first reason stands.
    stop: SetOnce<Stop>,
    /// Wakes whoever waits for a scheduled start to some ten microseconds: the runtime's own timer rounds up to the next
    /// millisecond, which would be the largest part of a fast target's response time.
    clock: Option<Arc<RelayClock>>,
    errors: AtomicU64,
    phases: Vec<PhaseRun>,
}

/// One phase while it runs.
struct PhaseRun {
    phase: LoadPhase,
    layout: Layout,
    /// The directory of its files below the target.
    root: String,
    recorder: Recorder,
    /// Of an open loop.
    schedule: Option<ArrivalSchedule>,
    /// Where all workers of the process meet at the end of each epoch, if several write files that need a commit: one of them
    /// commits then, so that the time of the commits is in the measurement, as often as there are files.
    rounds: Option<Barrier>,
    /// For each client of this process, how much of its sequence was taken.
    taken: Vec<AtomicU64>,
    /// For each worker of this process, once it began.
    spans: Vec<Mutex<Option<WorkerSpan>>>,
}

impl GroupRun {
    fn stop(&self, why: Stop) {
        let _ = self.stop.set(why);
    }

    fn stopped(&self) -> Option<Stop> {
        self.stop.get().copied()
    }
}

/// Does the job with these clients, which are the fleet's from `job.fleet.first_client` on. Failing calls and
/// wrong bytes are in the outcome; an error is only what prevents a run: a job that makes no sense, a directory
/// that cannot be made, a gate that does not open.
pub async fn run(
    job: &LoadJob,
    clients: &[Arc<dyn Client>],
    gate: &dyn PhaseGate,
    progress: &Arc<Progress>,
) -> Result<LoadOutcome> {
    job.check(clients.len())?;
    let job = Arc::new(job.clone());
    if let (true, Some(client)) = (job.writes(), clients.first()) {
        let dir = RunDir::around(&job.root)?;
        in_time(&job, dir.must_be_ours(&**client)).await?;
    }
    let in_one_process = clients.len() == job.fleet.clients as usize;
    let of_several = |phase: &&LoadPhase| is_committed(phase, clients) && !phase.layout(&job).private;
    if let (false, Some(phase)) = (in_one_process, job.phases.iter().find(of_several)) {
        let reason = format!(
            "{}: the blocks of an object are put together by one process; start one, which has all the nodes in it",
            phase.name
        );
        return Err(Error::new(ErrorKind::Config, "job", reason));
    }
    let mut phases = Vec::new();
    for group in job.phases.chunk_by(|_, next| !next.barrier) {
        for phase in group.iter().filter(|phase| phase.work.operation.writes()) {
            in_time(&job, make_directories(&job, phase, clients)).await?;
        }
        clients.iter().for_each(|client| client.forget());
        phases.extend(run_group(&job, group, clients, gate, progress).await?);
        // What stopped one phase for good leaves nothing for the next.
        if phases.iter().any(|p| matches!(p.stopped, Some(Stop::Hung | Stop::Errors))) {
            break;
        }
    }
    Ok(LoadOutcome { generator: GENERATOR, phases, rss_max_bytes: process::rss_max_bytes() })
}

/// What comes before a phase ends as a phase does, but it is not worth an outcome.
async fn in_time<T>(job: &LoadJob, work: impl Future<Output = Result<T>>) -> Result<T> {
    let seconds = job.limits.seconds + job.limits.grace_s;
    tokio::time::timeout(Duration::from_secs_f64(seconds), work).await.unwrap_or_else(|_| {
        let reason = format!("the target gave no answer in {seconds} s");
        Err(Error::new(ErrorKind::Unavailable, "prepare", reason))
    })
}

async fn run_group(
    job: &Arc<LoadJob>,
    group: &[LoadPhase],
    clients: &[Arc<dyn Client>],
    gate: &dyn PhaseGate,
    progress: &Arc<Progress>,
) -> Result<Vec<PhaseOutcome>> {
    let name = group.first().map_or("", |phase| phase.name.as_str());
    let start = gate.wait(name).await?;
    let (cpu_before, calls_before) = (process::cpu_seconds(), calls(clients));
    let threads_before = Threads::of_us();
    let clock =
        RelayClock::new().inspect_err(|e| tracing::warn!("an open loop starts up to 1 ms late: {e}")).ok();
    let mut driver = JoinSet::new();
    if let Some(clock) = clock.clone() {
        driver.spawn(async move { clock.run().await });
    }
    let run = Arc::new(GroupRun {
        clock,
        deadline: start + Duration::from_secs_f64(job.limits.seconds),
        job: Arc::clone(job),
        progress: Arc::clone(progress),
        start,
        stop: SetOnce::new(),
        errors: AtomicU64::new(0),
        phases: group.iter().map(|phase| PhaseRun::new(job, phase, clients)).collect(),
    });
    let mut workers = JoinSet::new();
    for (here, client) in clients.iter().enumerate() {
        for worker in 0..job.fleet.workers {
            workers.spawn(worker::work(Arc::clone(&run), Arc::clone(client), here, worker));
        }
    }
    let stopped = wait(&run, workers).await?;
    if let Some(client) = clients.first() {
        client.give_up();
    }
    let end = start.elapsed().as_secs_f64();
    let mut outcomes: Vec<PhaseOutcome> =
        run.phases.iter().map(|phase| phase.outcome(end, stopped)).collect();
    if let Some(first) = outcomes.first_mut() {
        first.cpu_seconds = process::cpu_seconds() - cpu_before;
        first.switches = Threads::of_us().since(&threads_before);
        first.calls = calls(clients);
        for (name, count) in &mut first.calls {
            *count = count.saturating_sub(calls_before.get(name).copied().unwrap_or(0));
        }
        first.calls.retain(|_, count| *count > 0);
    }
    Ok(outcomes)
}

/// Waits until all workers have ended, by themselves or not; why they did not end by themselves.
async fn wait(run: &GroupRun, mut workers: JoinSet<()>) -> Result<Option<Stop>> {
    let all_ended = async |workers: &mut JoinSet<()>| {
        while let Some(ended) = workers.join_next().await {
            if let Err(error) = ended {
                return Err(Error::new(ErrorKind::Io, "run a worker", error));
            }
        }
        Ok(run.stopped())
    };
    if let Ok(ended) = timeout_at(run.deadline, all_ended(&mut workers)).await {
        return ended;
    }
    run.stop(if run.job.limits.asked { Stop::Asked } else { Stop::Time });
    let give_up = run.deadline + Duration::from_secs_f64(run.job.limits.grace_s);
    if let Ok(ended) = timeout_at(give_up, all_ended(&mut workers)).await {
        return ended;
    }
    workers.shutdown().await;
    Ok(Some(Stop::Hung))
}

/// Whether the phase writes files by several workers each, and these files are there only when they are committed.
fn is_committed(phase: &LoadPhase, clients: &[Arc<dyn Client>]) -> bool {
    let shared = phase.work.operation == LoadOperation::Write && phase.work.unit == TouchUnit::Block;
    shared && clients.first().is_some_and(|client| client.commits())
}

impl PhaseRun {
    fn new(job: &LoadJob, phase: &LoadPhase, clients: &[Arc<dyn Client>]) -> PhaseRun {
        let clients_here = clients.len();
        let workers = clients_here.saturating_mul(job.fleet.workers as usize);
        let schedule = match phase.pace {
            LoadPace::Closed { .. } => None,
            LoadPace::Open { .. } if clients_here == 0 => None,
            LoadPace::Open { per_second, arrivals } => {
                let share = clients_here as f64 / f64::from(job.fleet.clients.max(1));
                let seed = phase.work.seed ^ u64::from(job.fleet.first_client);
                Some(ArrivalSchedule::new(per_second * share, arrivals, seed))
            }
        };
        PhaseRun {
            phase: phase.clone(),
            layout: phase.layout(job).clone(),
            root: phase.root(job),
            recorder: Recorder::new(job.limits.interval_s),
            schedule,
            rounds: is_committed(phase, clients).then(|| Barrier::new(workers)),
            taken: (0..clients_here).map(|_| AtomicU64::new(0)).collect(),
            spans: (0..workers).map(|_| Mutex::new(None)).collect(),
        }
    }

    /// Of this process.
    fn clients(&self) -> u32 {
        u32::try_from(self.taken.len()).unwrap_or(u32::MAX)
    }

    /// `end_s` is when everything was over, for those who were cut off.
    fn outcome(&self, end_s: f64, stopped: Option<Stop>) -> PhaseOutcome {
        let take = |span: &Mutex<Option<WorkerSpan>>| {
            let mut span = locked(span).take()?;
            if span.cut {
                span.end_s = end_s;
            }
            Some(span)
        };
        let spans = self.spans.iter().filter_map(take).collect();
        PhaseOutcome { name: self.phase.name.clone(), spans, stopped, ..self.recorder.outcome() }
    }
}

/// Every directory that the layout needs, by all clients side by side. Of shared ones the fleet's first process
/// makes all; the gate lets nobody use them before.
async fn make_directories(job: &LoadJob, phase: &LoadPhase, clients: &[Arc<dyn Client>]) -> Result<()> {
    let (layout, root, first) = (phase.layout(job), phase.root(job), job.fleet.first_client);
    if !layout.private && first > 0 {
        return Ok(());
    }
    if phase.files.as_ref().is_some_and(|files| !files.directory.is_empty()) {
        make_all(std::iter::once(root.clone()), clients).await?;
    }
    let numbers = || (first..).take(if layout.private { clients.len() } else { 1 });
    if layout.private {
        make_all(numbers().map(|number| layout.home(&root, number)), clients).await?;
    }
    if layout.files_per_directory > 0 {
        let root = &root;
        let of = |number| (0..layout.directories()).map(move |at| layout.directory_path(root, number, at));
        make_all(numbers().flat_map(of), clients).await?;
    }
    Ok(())
}

/// None of the paths lies in another.
async fn make_all(paths: impl Iterator<Item = String>, clients: &[Arc<dyn Client>]) -> Result<()> {
    let making = paths.zip(clients.iter().cycle().cloned());
    let making = making.map(|(path, client)| async move { client.mkdir(&path).await });
    stream::iter(making).buffer_unordered(PREPARING_MAX).try_collect().await
}

fn calls(clients: &[Arc<dyn Client>]) -> BTreeMap<String, u64> {
    let mut sum = BTreeMap::new();
    for (name, count) in clients.iter().flat_map(|client| client.calls()) {
        *sum.entry(name.to_owned()).or_default() += count;
    }
    sum
}
