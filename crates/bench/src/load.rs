//! Any load, put together by hand: which files, who touches what in which order, and when. What the presets do not ask,
//! this can.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use bench_load::dataset::Dataset;
use bench_load::engine::{Job, Limits, Phase};
use bench_load::outcome::{PhaseOutcome, Stop};
use bench_load::pace::{Pace, Stagger};
use bench_load::shape::{Amount, Fleet, Layout, Mix, Operation, Order, Share, Sizes, Unit, Work};
use bench_load::target::limited::BUSY_CALL;
use bench_report::histogram::Histogram;
use bench_report::model::{Better, Cell, Measure, ResultFile, Row, Table};
use bench_report::overlap;
use bench_report::sanity;
use bench_report::summary::estimate;
use clap::{Args, ValueEnum};
use types::{Error, ErrorKind, Result};

use crate::bed::{Bed, TargetArgs, tell_wrong_bytes};
use crate::ceiling;
use crate::cli::{CommonArgs, refuse};
use crate::crew::{self, Crew, unless_interrupted};
use crate::knee::{self, Found, KneeArgs};
use crate::limit::Bounds;
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
    /// read=60,range=10,write=15,stat=8,list=2,delete=5 (range: one block of a file; delete: make an empty file, remove it)
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
    #[command(flatten)]
    knee: KneeArgs,
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
            "delete" => mix.delete = weight,
            "range" => mix.range = weight,
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
            Some(per_second) => Pace::Open { per_second, arrivals: self.knee.arrivals.into() },
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

    /// With the knee it is workers and pace that are looked for.
    fn check_knee(&self) -> Result<()> {
        let paced =
            self.open.is_some() || !self.think.is_zero() || self.stagger.is_some() || self.seconds.is_some();
        if self.knee.knee && paced {
            return refuse(
                "load: --knee has steps of its own (--step); leave out --open, --think, --stagger and --seconds",
            );
        }
        Ok(())
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
    args.check_knee()?;
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
    args.target.check_crew(crew)?;
    let mut draft = Draft::new("load", "A load of your own", &args.common);
    let told = |value: &dyn std::fmt::Debug| format!("{value:?}").to_lowercase();
    args.target.tell(&mut draft);
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
    if !args.knee.knee {
        draft.parameter("workers", args.workers);
    }
    let ceiling = ceiling::measure().await?;
    let mut bed = Bed::make(&args.target, &args.common, args.bytes()).await?;
    bed.content.compressible_percent = args.compressible;
    let measured = unless_interrupted(all(crew, args, &bed)).await;
    crew.settle(&measured).await;
    draft.cleaned(bed.clean_up().await);
    let bounds = Bounds::of(args.target.url(), &ceiling, crew).await;
    match measured? {
        All::Runs(runs) => fill(&mut draft, args, &runs, &bounds),
        All::Knee(found, last) => {
            knee::fill(&mut draft, &args.knee, &found, "touches");
            bounds.tell(&mut draft, "the last step", std::slice::from_ref(&*last));
        }
    }
    ceiling.tell(&mut draft.file);
    places(&mut draft, crew);
    Ok(draft.finish())
}

enum All {
    /// Repetitions.
    Runs(Vec<PhaseOutcome>),
    /// With what the most workers did.
    Knee(Found, Box<PhaseOutcome>),
}

async fn all(crew: &Crew, args: &LoadArgs, bed: &Bed) -> Result<All> {
    let begin = Instant::now();
    let only_writes = matches!(args.operation, Operation::Write);
    let trees = if args.private { args.nodes } else { 1 };
    bed.check(&args.job(bed, 1), args.bytes()).await?;
    if !only_writes {
        let dataset = Dataset { layout: args.layout(), content: bed.content, version: 1, trees };
        bed.lay_out(&dataset, "").await?;
    }
    if args.knee.knee {
        return find_knee(crew, args, bed, begin).await;
    }
    let mut runs = Vec::new();
    for repetition in 0..args.common.repetitions {
        // Who only writes makes a new version each time; a mixture goes on with the one that lies there.
        let version = if only_writes { repetition + 1 } else { 1 };
        let what = format!("load {}/{}", repetition + 1, args.common.repetitions);
        let loaded = crew.load(bed.url(), &args.job(bed, version), &what).await?;
        runs.extend(loaded.outcome.phases);
    }
    Ok(All::Runs(runs))
}

async fn find_knee(crew: &Crew, args: &LoadArgs, bed: &Bed, begin: Instant) -> Result<All> {
    let last = RefCell::new(None);
    let found = knee::find(&args.knee, &args.common, args.nodes, begin, async |step, what| {
        let version = if matches!(args.operation, Operation::Write) { step.number + 1 } else { 1 };
        let loaded = crew.load(bed.url(), &step.of(args.job(bed, version)), what).await?;
        let phase = loaded.outcome.phases.into_iter().next();
        let phase = phase.ok_or_else(|| Error::new(ErrorKind::Io, "measure", "no phase came back"))?;
        if matches!(step.pace, Pace::Closed { .. }) {
            *last.borrow_mut() = Some(Box::new(phase.clone()));
        }
        Ok(phase)
    })
    .await?;
    let last = last.into_inner();
    last.map(|last| All::Knee(found, last))
        .ok_or_else(|| Error::new(ErrorKind::Io, "find the knee", "nothing was run"))
}

fn fill(draft: &mut Draft, args: &LoadArgs, runs: &[PhaseOutcome], bounds: &Bounds) {
    let phases: Vec<overlap::Phase> = runs.iter().filter_map(spans::phase).collect();
    let seconds: Vec<f64> = runs.iter().map(|run| run.last_done_s().unwrap_or(0.0)).collect();
    let per_second = |value: fn(&PhaseOutcome) -> u64| -> Vec<f64> {
        runs.iter().zip(&seconds).map(|(run, s)| value(run) as f64 / s.max(1e-9)).collect()
    };
    let rates: Vec<f64> = per_second(PhaseOutcome::bytes).iter().map(|rate| rate / MIB).collect();
    let touches = per_second(|run| run.units);
    let mut invalid: Vec<String> = runs.iter().flat_map(|run| run.faults()).collect();
    invalid.extend(seconds.iter().find_map(|s| sanity::too_short(*s, TICK_SECONDS)));
    if args.verify == 100 && args.compressible == 0 {
        invalid.extend(bounds.exceeded(runs));
    }
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
    tell_wrong_bytes(draft, runs.iter().map(|run| &run.verification));
    let busy: u64 = runs.iter().filter_map(|run| run.calls.get(BUSY_CALL)).sum();
    if busy > 0 {
        draft.note(format!("{busy} requests were answered with \"busy\" and made again later"));
    }
    bounds.tell(draft, &format!("{} workers", u64::from(args.nodes) * u64::from(args.workers)), runs);
    let gib = runs.iter().map(PhaseOutcome::bytes).sum::<u64>() as f64 / f64::from(1 << 30);
    if gib > 0.0 {
        let cpu: f64 = runs.iter().map(|run| run.cpu_seconds).sum();
        draft.note(format!("{:.2} CPU seconds of the client per GiB", cpu / gib));
    }
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
    let mut some = |name: &str, of: fn(&PhaseOutcome) -> &Histogram| {
        let all = merged(of);
        if !all.is_empty() {
            named.push((name.to_owned(), all));
        }
    };
    some("more than a block: to the first block", |run| &run.first_block);
    some("more than a block: to the last", |run| &run.all_blocks);
    named.extend(by_size(runs));
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

/// Touches of whole files, by the class of their size, if there are several.
fn by_size(runs: &[PhaseOutcome]) -> Vec<(String, Histogram)> {
    let mut all: BTreeMap<u64, Histogram> = BTreeMap::new();
    for (class, histogram) in runs.iter().flat_map(|run| &run.unit_by_size) {
        all.entry(*class).or_default().merge(histogram);
    }
    let name = |class: u64| match class {
        u64::MAX => "files of more than 256 MiB".to_owned(),
        c if c >= 1 << 20 => format!("files up to {} MiB", c >> 20),
        c => format!("files up to {} KiB", c >> 10),
    };
    all.into_iter().map(|(class, histogram)| (name(class), histogram)).collect()
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
        let mix = Mix { delete: 3, range: 5, ..Mix::default() };
        assert_eq!(parse_operation("range=5,delete=3"), Ok(Operation::Mixed(mix)));
        for wrong in ["delete", "read=x", "read70", "truncate=5"] {
            assert!(parse_operation(wrong).is_err_and(|e| e.contains("read=70")), "{wrong}");
        }
        assert!(parse_sizes("-1").is_err());
    }
}
