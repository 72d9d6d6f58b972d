//! What experiments do alike: one command on all ranks of a run, and a load in a directory of its own on the user's target.
//! What is loaded, and what its figures mean, is each experiment's.

use std::process::ExitCode;

use bench_report::model::ResultFile;
use types::Result;

use crate::args::CommonArgs;
use crate::ceiling;
use crate::limit::LoadBounds;
use crate::ranks::{self, Ranks, unless_interrupted};
use crate::results::{ResultBuilder, publish};
use crate::target_dir::{TargetArgs, TargetDir};

/// Rank 0 runs the experiment and publishes what it found; the other ranks carry out its orders.
pub async fn command(
    common: &CommonArgs,
    experiment: impl AsyncFnOnce(&Ranks) -> Result<ResultFile>,
) -> Result<ExitCode> {
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

impl TargetLoad<'_> {
    /// Makes the directory, measures in it, and removes it however that ends. What was measured is then filled into the result,
    /// within the bounds of this machine and of the way to the target.
    pub async fn run<T>(
        &self,
        mut draft: ResultBuilder,
        measure: impl AsyncFnOnce(&mut TargetDir) -> Result<T>,
        fill: impl FnOnce(&mut ResultBuilder, T, &LoadBounds),
    ) -> Result<ResultFile> {
        self.target.check_ranks(self.ranks)?;
        self.target.tell(&mut draft);
        let ceiling = ceiling::measure().await?;
        let mut target_dir = TargetDir::make(self.target, self.common, self.bytes).await?;
        let measured = unless_interrupted(measure(&mut target_dir)).await;
        self.ranks.settle(&measured).await;
        draft.cleaned(target_dir.clean_up().await);
        let measured = measured?;
        let bounds = LoadBounds::of(self.target.url(), &ceiling, self.ranks).await;
        fill(&mut draft, measured, &bounds);
        ceiling.tell(&mut draft.file);
        self.ranks.tell(&mut draft);
        Ok(draft.finish())
    }
}
