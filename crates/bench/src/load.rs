//! Any load, put together by hand: which files, who touches what in which order, and when. What the presets do not ask,
//! this can.

mod answer;
mod args;
mod words;

use std::cell::RefCell;
use std::process::ExitCode;

use bench_load::dataset::Dataset;
use bench_load::outcome::PhaseOutcome;
use bench_load::pace::LoadPace;
use bench_load::shape::LoadOperation;
use bench_report::model::ResultFile;
use types::{Error, ErrorKind, Result};

use crate::args::refuse;
use crate::budget::{Budget, TimeCut};
use crate::driver::{self, TargetLoad};
use crate::knee::{self, KneeResult};
use crate::ranks::Ranks;
use crate::results::ResultBuilder;
use crate::target_dir::TargetDir;
pub use args::LoadArgs;

pub async fn command(args: LoadArgs) -> Result<ExitCode> {
    args.target.check()?;
    args.layout().check()?;
    args.work().check()?;
    args.pace().check()?;
    args.check_knee()?;
    if args.common.faithful {
        return refuse("load: there is no original to be faithful to; leave --faithful out");
    }
    if args.common.dry_run {
        println!(
            "load: {} nodes x {} workers, {}, {}, on {} files, {} on {}; {} repetitions",
            args.nodes,
            args.workers,
            words::operation(args.operation),
            words::order(args.order),
            args.files,
            bench_report::format::bytes(args.bytes()),
            args.target.url(),
            repetitions(&args)
        );
        return Ok(ExitCode::SUCCESS);
    }
    driver::command(&args.common, async |ranks| measure(ranks, &args).await).await
}

/// There is no study.
fn repetitions(args: &LoadArgs) -> u32 {
    args.common.repetitions(1)
}

async fn measure(ranks: &Ranks, args: &LoadArgs) -> Result<ResultFile> {
    let mut draft = ResultBuilder::new("load", "A load of your own", &args.common, repetitions(args));
    for (name, value) in [
        ("operation", words::operation(args.work().operation)),
        ("order", words::order(args.work().order)),
        ("unit", args.unit.name().to_owned()),
        ("share", args.share.name().to_owned()),
        ("pace", words::pace(args.pace())),
        ("file_bytes", words::sizes(args.file_size)),
    ] {
        draft.parameter(name, value);
    }
    draft.parameter("files", args.files);
    draft.parameter("block_bytes", args.block);
    draft.parameter("nodes", args.nodes);
    if !args.knee.knee {
        draft.parameter("workers", args.workers);
    }
    let load = TargetLoad { ranks, target: &args.target, common: &args.common, bytes: args.bytes() };
    let measure = async |target_dir: &mut TargetDir| {
        target_dir.content.compressible_percent = args.compressible;
        all(ranks, args, target_dir).await
    };
    load.run(draft, measure, |draft, measured, bounds| match measured {
        LoadRuns::Runs(runs, cut) => {
            TimeCut::tell(cut, draft, "repetitions");
            answer::fill(draft, args, &runs, bounds);
        }
        LoadRuns::Knee(found, last) => {
            knee::fill(draft, &args.knee, &found, "touches");
            bounds.tell(draft, "the last step", std::slice::from_ref(&*last));
        }
    })
    .await
}

enum LoadRuns {
    /// Repetitions, and whether the time was over before all of them.
    Runs(Vec<PhaseOutcome>, Option<TimeCut>),
    /// With what the most workers did.
    Knee(KneeResult, Box<PhaseOutcome>),
}

async fn all(ranks: &Ranks, args: &LoadArgs, target_dir: &TargetDir) -> Result<LoadRuns> {
    let budget = Budget::start(&args.common);
    let only_writes = matches!(args.operation, LoadOperation::Write);
    let trees = if args.private { args.nodes } else { 1 };
    target_dir.check(&args.job(target_dir, 1, &budget), args.bytes()).await?;
    if !only_writes {
        let dataset = Dataset { layout: args.layout(), content: target_dir.content, version: 1, trees };
        target_dir.lay_out(&dataset, "").await?;
    }
    if args.knee.knee {
        return find_knee(ranks, args, target_dir, &budget).await;
    }
    let mut runs = Vec::new();
    let cut = budget.repeat(repetitions(args), async |repetition| {
        // Who only writes makes a new version each time; a mixture goes on with the one that lies there.
        let version = if only_writes { repetition + 1 } else { 1 };
        let what = format!("load {}/{}", repetition + 1, repetitions(args));
        let loaded = ranks.load(target_dir.url(), &args.job(target_dir, version, &budget), &what).await?;
        runs.extend(loaded.outcome.phases);
        Ok(())
    });
    let cut = cut.await?;
    Ok(LoadRuns::Runs(runs, cut))
}

async fn find_knee(
    ranks: &Ranks,
    args: &LoadArgs,
    target_dir: &TargetDir,
    budget: &Budget,
) -> Result<LoadRuns> {
    let last = RefCell::new(None);
    let found = knee::find(&args.knee, repetitions(args), args.nodes, budget, async |step, what| {
        let version = if matches!(args.operation, LoadOperation::Write) { step.number + 1 } else { 1 };
        let loaded =
            ranks.load(target_dir.url(), &step.of(args.job(target_dir, version, budget)), what).await?;
        let phase = loaded.outcome.phases.into_iter().next();
        let phase = phase.ok_or_else(|| Error::new(ErrorKind::Io, "measure", "no phase came back"))?;
        if matches!(step.pace, LoadPace::Closed { .. }) {
            *last.borrow_mut() = Some(Box::new(phase.clone()));
        }
        Ok(phase)
    })
    .await?;
    let last = last.into_inner();
    last.map(|last| LoadRuns::Knee(found, last))
        .ok_or_else(|| Error::new(ErrorKind::Io, "find the knee", "nothing was run"))
}
