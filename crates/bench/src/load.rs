//! Any load, put together by hand: which files, who touches what in which order, and when. What the presets do not ask,
//! this can.

use std::process::ExitCode;
use std::time::Duration;

use bench_load::dataset::Dataset;
use bench_load::engine::{Job, Limits, Phase};
use bench_load::outcome::{PhaseOutcome, Stop};
use bench_load::pace::{Arrivals, Pace, Stagger};
use bench_load::shape::{Amount, Fleet, Layout, Mix, Operation, Order, Share, Sizes, Unit, Work};
use bench_report::bottleneck::{Measured, bottleneck};
use bench_report::histogram::Histogram;
use bench_report::model::{Better, Cell, Measure, ResultFile, Row, Table};
use bench_report::overlap;
use bench_report::sanity;
use bench_report::summary::estimate;
use clap::{Args, ValueEnum};
use types::Result;

use crate::bed::{Bed, TargetArgs};
use crate::ceiling;
use crate::cli::{CommonArgs, refuse};
use crate::crew::{self, Crew, unless_interrupted};
use crate::quantity;
use crate::render::{parse_stagger, table::places};
use crate::results::{Draft, publish};
use crate::spans;

const MIB: f64 = 1_048_576.0;
const TICK_SECONDS: f64 = 1e-6;

#[derive(Args, Clone, Debug)]
pub struct LoadArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// What is done: read, write, stat, walk (list, then ask for the attributes of each file), or a mixture such as
    /// read=70,write=20,stat=8,list=2
    #[arg(long, value_name = "WHAT", default_value = "read", value_parser = parse_operation)]
    operation: Operation,
    /// What one touch is
    #[arg(long, value_name = "UNIT", default_value = "file")]
    unit: UnitArg,
    /// sequential, random (each once per epoch), strided:8, uniform, zipf:0.99, hotspot:10/90 (10 % of the units get
    /// 90 % of the touches)
    #[arg(long, value_name = "ORDER", default_value = "sequential", value_parser = parse_order)]
    order: Order,
    /// Who goes through it: all together in contiguous parts (split) or in turns (interleaved), each client or each worker
    /// by itself
    #[arg(long, value_name = "WHO", default_value = "client")]
    share: ShareArg,
    /// All units so many times
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "draws", value_parser = clap::value_parser!(u64).range(1..))]
    epochs: u64,
    /// So many touches, for orders that repeat
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    draws: Option<u64>,
    /// Files
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    files: u64,
    /// Bytes of each: 16MiB, or 4KiB-1MiB for sizes spread evenly by magnitude
    #[arg(long, value_name = "SIZE", default_value = "16MiB", value_parser = parse_sizes)]
    file_size: Sizes,
    /// Files of one directory; 0: all in one
    #[arg(long, value_name = "N", default_value_t = 0)]
    files_per_directory: u64,
    /// Each node has files of its own
    #[arg(long)]
    private: bool,
    /// Bytes of one read or write
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = quantity::size)]
    block: u64,
    /// Nodes, each with connections of its own
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=4096))]
    nodes: u32,
    /// What each does at the same time
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=65536))]
    workers: u32,
    /// Rest of a worker after each touch
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = quantity::duration)]
    think: Duration,
    /// Nodes that start together, and how long after the ones before, as 5/7s
    #[arg(long, value_name = "N/TIME", value_parser = parse_stagger)]
    stagger: Option<Stagger>,
    /// An open loop: touches a second of all together, whether or not earlier ones are done; latency counts from when a
    /// touch should have begun
    #[arg(long, value_name = "PER SECOND", conflicts_with_all = ["think", "stagger"])]
    open: Option<f64>,
    /// In an open loop: evenly or at random
    #[arg(long, value_name = "ARRIVALS", default_value = "constant")]
    arrivals: ArrivalsArg,
    /// End each repetition after this time
    #[arg(long, value_name = "TIME", value_parser = quantity::duration)]
    seconds: Option<Duration>,
    /// Share of what is read that is compared with what was written
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u8).range(0..=100))]
    verify: u8,
    /// What a compressor would save of the contents
    #[arg(long, value_name = "PERCENT", default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=99))]
    compressible: u8,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum UnitArg {
    File,
    Block,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ShareArg {
    Split,
    Interleaved,
    Client,
    Worker,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ArrivalsArg {
    Constant,
    Poisson,
}

type Parsed<T> = std::result::Result<T, String>;

fn parse_operation(text: &str) -> Parsed<Operation> {
    match text {
        "read" => return Ok(Operation::Read),
        "write" => return Ok(Operation::Write),
        "stat" => return Ok(Operation::Stat),
        "walk" => return Ok(Operation::Walk),
        _ => {}
    }
    let wrong = || {
        format!(
            "\"{text}\" is no operation; write read, write, stat, walk or a mixture such as read=70,write=30"
        )
    };
    let mut mix = Mix::default();
    for part in text.split(',') {
        let (name, weight) = part.split_once('=').ok_or_else(wrong)?;
        let weight: u32 = weight.parse().map_err(|_| wrong())?;
        match name {
            "read" => mix.read = weight,
            "write" => mix.write = weight,
            "stat" => mix.stat = weight,
            "list" => mix.list = weight,
            _ => return Err(wrong()),
        }
    }
    Ok(Operation::Mixed(mix))
}

fn parse_order(text: &str) -> Parsed<Order> {
    let wrong = || {
        format!(
            "\"{text}\" is no order; write sequential, random, strided:8, uniform, zipf:0.99 or hotspot:10/90"
        )
    };
    let number = |text: &str| text.parse::<f64>().map_err(|_| wrong());
    match text.split_once(':') {
        None if text == "sequential" => Ok(Order::Sequential),
        None if text == "random" => Ok(Order::Random),
        None if text == "uniform" => Ok(Order::Uniform),
        Some(("strided", blocks)) => blocks.parse().map(Order::Strided).map_err(|_| wrong()),
        Some(("zipf", theta)) => Ok(Order::Zipf { theta: number(theta)? }),
        Some(("hotspot", shares)) => {
            let (hot, access) = shares.split_once('/').ok_or_else(wrong)?;
            Ok(Order::Hotspot { hot_percent: number(hot)?, access_percent: number(access)? })
        }
        _ => Err(wrong()),
    }
}

fn parse_sizes(text: &str) -> Parsed<Sizes> {
    match text.split_once('-') {
        Some((min, max)) if !min.is_empty() => {
            Ok(Sizes::Spread { min: quantity::size(min)?, max: quantity::size(max)? })
        }
        _ => quantity::size(text).map(Sizes::Equal),
    }
}

impl LoadArgs {
    fn layout(&self) -> Layout {
        let (files_per_directory, private) = (self.files_per_directory, self.private);
        Layout { files: self.files, sizes: self.file_size, files_per_directory, private }
    }

    fn work(&self) -> Work {
        Work {
            operation: self.operation,
            unit: match self.unit {
                UnitArg::File => Unit::File,
                UnitArg::Block => Unit::Block,
            },
            order: self.order,
            share: match self.share {
                ShareArg::Split => Share::Split,
                ShareArg::Interleaved => Share::Interleaved,
                ShareArg::Client => Share::Client,
                ShareArg::Worker => Share::Worker,
            },
            amount: self.draws.map_or(Amount::Epochs(self.epochs), Amount::Draws),
            block_bytes: self.block,
            seed: self.common.seed,
        }
    }

    fn pace(&self) -> Pace {
        match self.open {
            Some(per_second) => Pace::Open {
                per_second,
                arrivals: match self.arrivals {
                    ArrivalsArg::Constant => Arrivals::Constant,
                    ArrivalsArg::Poisson => Arrivals::Poisson,
                },
            },
            None => Pace::Closed { think_s: self.think.as_secs_f64(), stagger: self.stagger },
        }
    }

    fn job(&self, bed: &Bed, version: u32) -> Job {
        let time = self.seconds.unwrap_or(self.common.time_budget);
        Job {
            root: bed.root(),
            layout: self.layout(),
            content: bed.content,
            fleet: Fleet { clients: self.nodes, first_client: 0, workers: self.workers },
            phases: vec![Phase {
                name: "load".to_owned(),
                work: self.work(),
                pace: self.pace(),
                version,
                verify_percent: self.verify,
                ..Phase::default()
            }],
            limits: Limits { seconds: time.as_secs_f64(), ..Limits::default() },
        }
    }

    /// Bytes that lie on the target.
    fn bytes(&self) -> u64 {
        let trees = if self.private { u64::from(self.nodes) } else { 1 };
        self.layout().total_bytes().saturating_mul(trees)
    }
}

pub async fn command(args: LoadArgs) -> Result<ExitCode> {
    args.target.check()?;
    args.layout().check()?;
    args.work().check()?;
    args.pace().check()?;
    if args.common.faithful {
        return refuse("load: there is no original to be faithful to; leave --faithful out");
    }
    if args.common.dry_run {
        println!(
            "load: {} nodes x {} workers, {:?}, {:?}, on {} files, {} bytes on {}; {} repetitions",
            args.nodes,
            args.workers,
            args.operation,
            args.order,
            args.files,
            args.bytes(),
            args.target.url(),
            args.common.repetitions
        );
        return Ok(ExitCode::SUCCESS);
    }
    let result = crew::run(&args.common.launch, async |crew| measure(crew, &args).await).await?;
    result.map_or(Ok(ExitCode::SUCCESS), |file| publish(&file, &args.common.output))
}

async fn measure(crew: &Crew, args: &LoadArgs) -> Result<ResultFile> {
    let mut draft = Draft::new("load", "A load of your own", &args.common);
    let told = |value: &dyn std::fmt::Debug| format!("{value:?}").to_lowercase();
    draft.parameter("target", args.target.url());
    for (name, value) in [
        ("operation", told(&args.operation)),
        ("order", told(&args.order)),
        ("unit", told(&args.unit)),
        ("share", told(&args.share)),
        ("pace", told(&args.pace())),
        ("file_bytes", told(&args.file_size)),
    ] {
        draft.parameter(name, value);
    }
    draft.parameter("files", args.files);
    draft.parameter("block_bytes", args.block);
    draft.parameter("nodes", args.nodes);
    draft.parameter("workers", args.workers);
    let ceiling = ceiling::measure().await?;
    let mut bed = Bed::make(&args.target, &args.common, args.bytes()).await?;
    bed.content.compressible_percent = args.compressible;
    let measured = unless_interrupted(all(crew, args, &bed)).await;
    crew.settle(&measured).await;
    draft.cleaned(bed.clean_up().await);
    fill(&mut draft, args, &measured?);
    ceiling.tell(&mut draft.file);
    places(&mut draft, crew);
    Ok(draft.finish())
}

async fn all(crew: &Crew, args: &LoadArgs, bed: &Bed) -> Result<Vec<PhaseOutcome>> {
    let only_writes = matches!(args.operation, Operation::Write);
    let trees = if args.private { args.nodes } else { 1 };
    bed.check(&args.job(bed, 1), args.bytes()).await?;
    if !only_writes {
        let dataset = Dataset { layout: args.layout(), content: bed.content, version: 1, trees };
        bed.lay_out(&dataset, "").await?;
    }
    let mut runs = Vec::new();
    for repetition in 0..args.common.repetitions {
        // Who only writes makes a new version each time; a mixture goes on with the one that lies there.
        let version = if only_writes { repetition + 1 } else { 1 };
        let what = format!("load {}/{}", repetition + 1, args.common.repetitions);
        let loaded = crew.load(bed.url(), &args.job(bed, version), &what).await?;
        runs.extend(loaded.outcome.phases);
    }
    Ok(runs)
}

fn fill(draft: &mut Draft, args: &LoadArgs, runs: &[PhaseOutcome]) {
    let phases: Vec<overlap::Phase> = runs.iter().filter_map(spans::phase).collect();
    let seconds: Vec<f64> = runs.iter().map(|run| run.last_done_s().unwrap_or(0.0)).collect();
    let per_second = |value: fn(&PhaseOutcome) -> u64| -> Vec<f64> {
        runs.iter().zip(&seconds).map(|(run, s)| value(run) as f64 / s.max(1e-9)).collect()
    };
    let rates: Vec<f64> = per_second(PhaseOutcome::bytes).iter().map(|rate| rate / MIB).collect();
    let touches = per_second(|run| run.units);
    let mut invalid: Vec<String> = runs.iter().flat_map(|run| run.faults()).collect();
    invalid.extend(seconds.iter().find_map(|s| sanity::too_short(*s, TICK_SECONDS)));
    invalid.sort();
    invalid.dedup();
    let cells = vec![
        Cell::Count(runs.len() as u64),
        estimate(&seconds),
        Cell::Bytes(runs.first().map_or(0, PhaseOutcome::bytes)),
        Cell::Count(runs.first().map_or(0, |run| run.units)),
        estimate(&rates),
        estimate(&touches),
        estimate(&phases.iter().map(|phase| phase.overlap() * 100.0).collect::<Vec<_>>()),
        estimate(&phases.iter().map(overlap::Phase::fairness).collect::<Vec<_>>()),
        Cell::Count(runs.iter().map(|run| run.errors.count).sum()),
        Cell::Bytes(runs.iter().map(|run| run.verification.checked_bytes).sum()),
    ];
    let columns = [
        "n",
        "last done s",
        "Bytes",
        "Touches",
        "bytes / last finisher MiB/s",
        "touches/s",
        "overlap %",
        "slowest / fastest",
        "errors",
        "verified",
    ];
    draft.file.tables.push(Table::new(
        "The load",
        columns,
        vec![Row { invalid: invalid.clone(), ..Row::new(cells) }],
    ));
    draft.measure(
        Measure {
            name: "rate".to_owned(),
            unit: "MiB/s".to_owned(),
            better: Better::Higher,
            values: rates.clone(),
        },
        &invalid,
    );
    draft.measure(
        Measure {
            name: "touches".to_owned(),
            unit: "1/s".to_owned(),
            better: Better::Higher,
            values: touches.clone(),
        },
        &invalid,
    );
    if let Some(first) = runs.first() {
        draft
            .file
            .plots
            .push(spans::throughput("Throughput, first repetition", [("load".to_owned(), &first.series)]));
    }
    latencies(draft, args, runs);
    if runs.iter().any(|run| run.stopped == Some(Stop::Time)) {
        draft.note("ended by time before all touches were done");
    }
    limit(draft, args, runs, &seconds);
}

fn latencies(draft: &mut Draft, args: &LoadArgs, runs: &[PhaseOutcome]) {
    let merged = |of: fn(&PhaseOutcome) -> &Histogram| {
        let mut all = Histogram::new();
        runs.iter().for_each(|run| all.merge(of(run)));
        all
    };
    let mut named: Vec<(String, Histogram)> = vec![("touch, once begun".to_owned(), merged(|run| &run.unit))];
    if args.open.is_some() {
        named.push(("touch, from when it should have begun".to_owned(), merged(|run| &run.response)));
        named.push(("the bench's own lateness".to_owned(), merged(|run| &run.lateness)));
    }
    let calls: std::collections::BTreeSet<&String> = runs.iter().flat_map(|run| run.service.keys()).collect();
    for call in calls {
        let mut all = Histogram::new();
        runs.iter().filter_map(|run| run.service.get(call)).for_each(|one| all.merge(one));
        named.push((format!("call: {call}"), all));
    }
    draft.file.histograms.extend(named.iter().map(|(name, histogram)| histogram.to_named(name.clone())));
    // In a closed loop the two say the same: rate x latency is the number of workers.
    if args.open.is_none() && args.think.is_zero() && args.stagger.is_none() {
        let workers = u64::from(args.nodes) * u64::from(args.workers);
        let touches: u64 = runs.iter().map(|run| run.units).sum();
        let seconds: f64 = runs.iter().filter_map(PhaseOutcome::last_done_s).sum();
        let mean = merged(|run| &run.unit).mean().unwrap_or(0.0) / 1e6;
        draft.file.findings.extend(
            sanity::little(touches as f64 / seconds.max(1e-9), mean, workers)
                .map(|why| bench_report::model::Finding::warning(format!("closed loop: {why}"))),
        );
    }
}

fn limit(draft: &mut Draft, args: &LoadArgs, runs: &[PhaseOutcome], seconds: &[f64]) {
    let cores = std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64);
    let (cpu, wall): (f64, f64) = (runs.iter().map(|run| run.cpu_seconds).sum(), seconds.iter().sum());
    let client_cpu = Some((cpu / (wall.max(1e-3) * cores)).min(1.0));
    let told = bottleneck(&Measured { client_cpu, ..Measured::default() });
    let gib = runs.iter().map(PhaseOutcome::bytes).sum::<u64>() as f64 / f64::from(1 << 30);
    let per_gib = if gib > 0.0 {
        format!(", {:.2} CPU seconds of the client per GiB", cpu / gib)
    } else {
        String::new()
    };
    draft.verdict(format!("{} workers: {told}{per_gib}", u64::from(args.nodes) * u64::from(args.workers)));
    if told.is_client() {
        draft.warning("the bench itself was the limit: this says nothing about the storage; use more processes or machines");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_typed_is_understood_and_what_cannot_says_what_can() {
        assert_eq!(parse_order("zipf:0.99"), Ok(Order::Zipf { theta: 0.99 }));
        assert_eq!(parse_order("strided:8"), Ok(Order::Strided(8)));
        assert_eq!(
            parse_order("hotspot:10/90"),
            Ok(Order::Hotspot { hot_percent: 10.0, access_percent: 90.0 })
        );
        assert_eq!(parse_sizes("4KiB-1MiB"), Ok(Sizes::Spread { min: 4096, max: 1 << 20 }));
        assert_eq!(parse_sizes("1MiB"), Ok(Sizes::Equal(1 << 20)));
        let mix = Mix { read: 70, write: 20, stat: 10, ..Mix::default() };
        assert_eq!(parse_operation("read=70,write=20,stat=10"), Ok(Operation::Mixed(mix)));
        for wrong in ["backwards", "zipf:x", "hotspot:10", "strided:"] {
            assert!(parse_order(wrong).is_err_and(|e| e.contains("zipf:0.99")), "{wrong}");
        }
        for wrong in ["delete", "read=x", "read70"] {
            assert!(parse_operation(wrong).is_err_and(|e| e.contains("read=70")), "{wrong}");
        }
        assert!(parse_sizes("-1").is_err());
    }
}
