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
use crate::ceiling;
use crate::knee::{self, KneeResult};
use crate::limit::LoadBounds;
use crate::ranks::{self, Ranks, unless_interrupted};
use crate::results::{ResultBuilder, publish};
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
    let result = ranks::run(&args.common.launch, async |ranks| measure(ranks, &args).await).await?;
    result.map_or(Ok(ExitCode::SUCCESS), |file| publish(&file, &args.common.output))
}

/// There is no study.
fn repetitions(args: &LoadArgs) -> u32 {
    args.common.repetitions(1)
}

async fn measure(ranks: &Ranks, args: &LoadArgs) -> Result<ResultFile> {
    args.target.check_ranks(ranks)?;
    let mut draft = ResultBuilder::new("load", "A load of your own", &args.common, repetitions(args));
    let work = args.work();
    args.target.tell(&mut draft);
    for (name, value) in [
        ("operation", words::operation(work.operation)),
        ("order", words::order(work.order)),
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
    let ceiling = ceiling::measure().await?;
    let mut target_dir = TargetDir::make(&args.target, &args.common, args.bytes()).await?;
    target_dir.content.compressible_percent = args.compressible;
    let measured = unless_interrupted(all(ranks, args, &target_dir)).await;
    ranks.settle(&measured).await;
    draft.cleaned(target_dir.clean_up().await);
    let bounds = LoadBounds::of(args.target.url(), &ceiling, ranks).await;
    match measured? {
        LoadRuns::Runs(runs, cut) => {
            TimeCut::tell(cut, &mut draft, "repetitions");
            answer::fill(&mut draft, args, &runs, &bounds);
        }
        LoadRuns::Knee(found, last) => {
            knee::fill(&mut draft, &args.knee, &found, "touches");
            bounds.tell(&mut draft, "the last step", std::slice::from_ref(&*last));
        }
    }
    ceiling.tell(&mut draft.file);
    ranks.tell(&mut draft);
    Ok(draft.finish())
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
    let (mut runs, mut cut) = (Vec::new(), None);
    for repetition in 0..repetitions(args) {
        cut = budget.cut(repetition, repetitions(args));
        if cut.is_some() {
            break;
        }
        // Who only writes makes a new version each time; a mixture goes on with the one that lies there.
        let version = if only_writes { repetition + 1 } else { 1 };
        let what = format!("load {}/{}", repetition + 1, repetitions(args));
        let loaded = ranks.load(target_dir.url(), &args.job(target_dir, version, &budget), &what).await?;
        runs.extend(loaded.outcome.phases);
    }
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
