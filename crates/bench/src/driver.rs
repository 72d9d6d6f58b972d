//! What experiments do alike: one command on all ranks of a run, and the frame of a measurement on the user's target or on a testbed.
//! What is loaded, and what its figures mean, is each experiment's.

use std::process::ExitCode;
use std::time::Duration;

use bench_load::{Cleanup, ClientSet, Layout, LoadJob, LoadLimits, LoadPhase, PhaseOutcome};
use bench_report::ResultFile;
use types::Result;

use crate::{
    Budget, CommonArgs, LoadBounds, MachineCeiling, Ranks, ResultBuilder, TargetArgs, TargetDir, ceiling,
    publish, ranks, unless_interrupted,
};

/// Rank 0 runs the experiment and publishes what it found; the other ranks carry out its orders. Or only the plan is told.
pub async fn command(
    common: &CommonArgs,
    plan: impl FnOnce() -> String,
    experiment: impl AsyncFnOnce(&Ranks) -> Result<ResultFile>,
) -> Result<ExitCode> {
    if common.dry_run {
        println!("{}", plan());
        return Ok(ExitCode::SUCCESS);
    }
    let result = ranks::run(&common.launch, experiment).await?;
    result.map_or(Ok(ExitCode::SUCCESS), |file| publish(&file, &common.output))
}

/// A load on the user's target.
pub struct TargetLoad<'a> {
    pub ranks: &'a Ranks,
    pub target: &'a TargetArgs,
    pub common: &'a CommonArgs,
    /// The most that will lie on the target at once.
    pub bytes: u64,
}

pub struct RepeatedLoad {
    /// The phases of each repetition.
    pub runs: Vec<Vec<PhaseOutcome>>,
    /// How far apart the processes began a phase at most.
    pub skew: Duration,
}

/// A job on files in the target's directory, by so many nodes of so many workers each.
pub fn job(
    target_dir: &TargetDir,
    (nodes, workers): (u32, u32),
    layout: Layout,
    phases: Vec<LoadPhase>,
    limits: LoadLimits,
) -> LoadJob {
    let fleet = ClientSet { clients: nodes, first_client: 0, workers };
    LoadJob { root: target_dir.root(), layout, content: target_dir.content, fleet, phases, limits }
}

impl TargetLoad<'_> {
    /// The job of each repetition, by number from 0, while there is time. `told` names one, by number from 1, for whoever
    /// watches.
    pub async fn repeat(
        &self,
        target_dir: &TargetDir,
        budget: &Budget,
        repetitions: u32,
        told: impl Fn(u32) -> String,
        job: impl AsyncFn(u32) -> Result<LoadJob>,
    ) -> Result<RepeatedLoad> {
        let (mut runs, mut skew) = (Vec::new(), Duration::ZERO);
        let repeated = budget.repeat(repetitions, "repetitions", async |repetition| {
            let job = job(repetition).await?;
            let loaded = self.ranks.load(&target_dir.url, &job, &told(repetition + 1)).await?;
            skew = skew.max(loaded.skew);
            runs.push(loaded.outcome.phases);
            Ok(())
        });
        repeated.await?;
        Ok(RepeatedLoad { runs, skew })
    }

    /// In a directory that is made there; the result is filled within the bounds of this machine and of the way to the target.
    pub async fn run<T>(
        &self,
        mut draft: ResultBuilder,
        measure: impl AsyncFnOnce(&mut TargetDir, &Budget) -> Result<T>,
        fill: impl FnOnce(&mut ResultBuilder, T, &LoadBounds),
    ) -> Result<ResultFile> {
        self.target.check_ranks(self.ranks)?;
        self.target.tell(&mut draft);
        let target_dir = TargetDir::make(self.target, self.common, self.bytes);
        let fill = async |draft: &mut ResultBuilder, _: &TargetDir, ceiling: &MachineCeiling, measured| {
            let bounds = LoadBounds::of(self.target.url(), ceiling, self.ranks).await;
            fill(draft, measured, &bounds);
        };
        on_stage(Some(self.ranks), self.common, draft, target_dir, measure, fill).await
    }
}

/// The storage of a measurement: a part of the user's, or what the bench has put up.
pub trait MeasuredStorage {
    /// It outlasts the run, so files that other processes are still writing when a run ends early are waited for before it is cleaned
    /// up. What the bench has put up goes at once: a launcher that ends a run leaves a second for that.
    const OUTLASTS_RUN: bool;

    /// Removes what was written; `None` if it is left in place, as was asked for.
    async fn clean_up(self) -> Result<Option<Cleanup>>;
}

/// The frame of a measurement: it has the time that the user gives it, what was written is removed however it ends, and what was
/// measured is filled into the result.
pub async fn on_stage<S: MeasuredStorage, T>(
    ranks: Option<&Ranks>,
    common: &CommonArgs,
    mut draft: ResultBuilder,
    stage: impl Future<Output = Result<S>>,
    measure: impl AsyncFnOnce(&mut S, &Budget) -> Result<T>,
    fill: impl AsyncFnOnce(&mut ResultBuilder, &S, &MachineCeiling, T),
) -> Result<ResultFile> {
    let mut ceiling = ceiling::measure(common.row_time).await?;
    let mut stage = stage.await?;
    let budget = Budget::start(common.time_budget);
    let measured: Result<()> = async {
        let measured = unless_interrupted(measure(&mut stage, &budget)).await?;
        ceiling.confirm(common.row_time).await?;
        fill(&mut draft, &stage, &ceiling, measured).await;
        budget.tell(&mut draft);
        Ok(())
    }
    .await;
    if let (Err(_), true, Some(ranks)) = (&measured, S::OUTLASTS_RUN, ranks) {
        ranks.settle().await;
    }
    draft.cleaned(stage.clean_up().await);
    measured?;
    ceiling.tell(&mut draft.file);
    if let Some(ranks) = ranks {
        ranks.tell(&mut draft);
    }
    Ok(draft.finish())
}
