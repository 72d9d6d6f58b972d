//! Any load, put together by hand: which files, who touches what in which order, and when. What the presets do not ask,
//! this can.

mod answer;
mod args;
mod words;

use std::process::ExitCode;

use bench_load::{Dataset, LoadOperation};
use bench_report::ResultFile;
use serde_json::json;
use types::Result;

use crate::{
    Budget, KneeResult, KneeStep, Ranks, RepeatedLoad, ResultBuilder, TargetDir, TargetLoad, driver, knee,
    refuse,
};
pub use args::LoadArgs;

pub async fn command(args: LoadArgs) -> Result<ExitCode> {
    args.target.check()?;
    args.layout().check()?;
    args.work().check()?;
    args.pace().check()?;
    if args.common.faithful {
        return refuse("load: there is no original to be faithful to; leave --faithful out");
    }
    let plan = || {
        let LoadArgs { nodes, workers, files, operation, order, .. } = args;
        let (bytes, url) = (bench_report::format::bytes(args.bytes()), args.target.url());
        let repetitions = args.common.repetitions(1);
        format!(
            "load: {nodes} nodes x {workers} workers, {operation}, {order}, on {files} files, {bytes} on {url}; \
             {repetitions} repetitions"
        )
    };
    driver::command(&args.common, plan, async |ranks| measure(ranks, &args).await).await
}

async fn measure(ranks: &Ranks, args: &LoadArgs) -> Result<ResultFile> {
    let mut draft =
        ResultBuilder::new("load", "A load of your own", &args.common, args.common.repetitions(1));
    draft.parameters([
        ("operation", json!(args.operation.to_string())),
        ("order", json!(args.order.to_string())),
        ("unit", json!(args.unit)),
        ("share", json!(args.share)),
        ("pace", json!(words::pace(args.pace()))),
        ("file_bytes", json!(args.file_size.to_string())),
        ("files", json!(args.files)),
        ("block_bytes", json!(args.block)),
        ("nodes", json!(args.nodes)),
    ]);
    if !args.knee.knee {
        draft.parameter("workers", args.workers);
    }
    let load = TargetLoad { ranks, target: &args.target, common: &args.common, bytes: args.bytes() };
    let measure = async |target_dir: &mut TargetDir, budget: &Budget| {
        target_dir.content.compressible_percent = args.compressible;
        all(&load, args, target_dir, budget).await
    };
    load.run(draft, measure, |draft, measured, bounds| match measured {
        LoadRuns::Runs(RepeatedLoad { runs, .. }) => {
            answer::fill(draft, args, &runs.into_iter().flatten().collect::<Vec<_>>(), bounds);
        }
        LoadRuns::Knee(found) => {
            knee::fill(draft, &args.knee, &found, "touches");
            bounds.tell(draft, "the last step", &[&found.last]);
        }
    })
    .await
}

enum LoadRuns {
    Runs(RepeatedLoad),
    Knee(Box<KneeResult>),
}

async fn all(
    load: &TargetLoad<'_>,
    args: &LoadArgs,
    target_dir: &TargetDir,
    budget: &Budget,
) -> Result<LoadRuns> {
    let only_writes = matches!(args.operation, LoadOperation::Write);
    let trees = if args.private { args.nodes } else { 1 };
    // Who only writes makes a new version each time; a mixture goes on with the one that lies there.
    let job = |number: u32| args.job(target_dir, if only_writes { number + 1 } else { 1 }, budget);
    target_dir.check(&job(0), args.bytes()).await?;
    if !only_writes {
        let dataset = Dataset { layout: args.layout(), content: target_dir.content, version: 1, trees };
        target_dir.lay_out(&dataset, "").await?;
    }
    // There is no study.
    let repetitions = args.common.repetitions(1);
    if !args.knee.knee {
        let told = |number: u32| format!("load {number}/{repetitions}");
        let job = async |repetition: u32| Ok(job(repetition));
        return load.repeat(target_dir, budget, repetitions, told, job).await.map(LoadRuns::Runs);
    }
    let step = async |step: KneeStep, what: &str| {
        let job = step.of(job(step.number));
        load.ranks.load(&target_dir.url, &job, what).await?.outcome.into_first()
    };
    let found = knee::find(&args.knee, repetitions, args.nodes, budget, step).await?;
    Ok(LoadRuns::Knee(Box::new(found)))
}
