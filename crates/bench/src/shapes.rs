//! Single and multiple files, single and multiple readers and writers, after the Azure HPC IO study: sweeps over the size
//! of a file and over how many nodes the workers are spread.
//!
//! The study printed the rate of one reader as the system's. Here both stand in the table, each with its name, and a row
//! that would be over in less than a second is repeated until it is not.

use std::process::ExitCode;
use std::time::Instant;

use bench_load::dataset::Dataset;
use bench_load::engine::{Job, Limits, Phase};
use bench_load::outcome::PhaseOutcome;
use bench_load::shape::{Amount, Fleet, Layout, Share, Sizes, Work};
use bench_report::model::{Axis, Better, Cell, Measure, Plot, PlotKind, ResultFile, Row, Series, Table};
use bench_report::overlap;
use bench_report::published::azure_hpc_io as published;
use bench_report::sanity;
use bench_report::summary::{estimate, point};
use clap::{Args, ValueEnum};
use types::Result;

use crate::bed::{Bed, TargetArgs};
use crate::ceiling;
use crate::cli::{CommonArgs, refuse};
use crate::crew::{self, Crew, unless_interrupted};
use crate::limit::{self, Bounds};
use crate::quantity;
use crate::render::table::places;
use crate::results::{Draft, publish};
use crate::spans;

const MIB: f64 = 1_048_576.0;
const TICK_SECONDS: f64 = 1e-6;
/// A row is repeated until it takes this long: a second, and some for a run that is faster than the first look.
const ROW_SECONDS: f64 = 2.5;
const ROW_SECONDS_MIN: f64 = 1.6;
const LOOKS_MAX: u32 = 5;
const EPOCHS_MAX: u64 = 100_000;
/// The study's: workers in all, and (workers of a node, nodes) at 64 MiB.
const WORKERS: u32 = 20;
const SPREADS: [(u32, u32); 5] = [(1, 20), (2, 10), (4, 5), (6, 4), (8, 3)];
const SPREAD_BYTES: u64 = 64 << 20;

#[derive(Args, Clone, Debug)]
pub struct ShapesArgs {
    #[command(flatten)]
    target: TargetArgs,
    /// Which shapes; those that write are left out by default if the target is laid out by another way
    #[arg(long, value_name = "SHAPES", value_delimiter = ',')]
    shape: Vec<Shape>,
    /// Sizes of a file [default: the study's 1 MiB to 1 GiB, up to scale x 1 GiB but at least 4 MiB]
    #[arg(long, value_name = "SIZES", value_delimiter = ',', value_parser = quantity::size)]
    sizes: Vec<u64>,
    /// Nodes, each with connections of its own
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=4096))]
    nodes: u32,
    /// Workers of each node
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=4096))]
    workers: u32,
    /// Bytes of one read or write
    #[arg(long, value_name = "SIZE", default_value = "1MiB", value_parser = quantity::size)]
    block: u64,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shape {
    /// Single file, multiple readers
    Sfmr,
    /// Multiple files, multiple readers
    Mfmr,
    /// Single file, multiple writers
    Sfmw,
    /// Multiple files, multiple writers
    Mfmw,
}

impl Shape {
    const ALL: [Shape; 4] = [Shape::Sfmr, Shape::Mfmr, Shape::Sfmw, Shape::Mfmw];

    fn name(self) -> &'static str {
        match self {
            Shape::Sfmr => "SFMR",
            Shape::Mfmr => "MFMR",
            Shape::Sfmw => "SFMW",
            Shape::Mfmw => "MFMW",
        }
    }

    fn writes(self) -> bool {
        matches!(self, Shape::Sfmw | Shape::Mfmw)
    }

    /// `bytes` of a file that is read; of what one worker writes.
    fn layout(self, bytes: u64, workers: u64) -> Layout {
        let (files, bytes) = match self {
            Shape::Sfmr => (1, bytes),
            Shape::Sfmw => (1, bytes.saturating_mul(workers)),
            Shape::Mfmr | Shape::Mfmw => (workers, bytes),
        };
        Layout { files, sizes: Sizes::Equal(bytes), ..Layout::default() }
    }

    fn work(self, block_bytes: u64, epochs: u64, seed: u64) -> Work {
        let amount = Amount::Epochs(epochs);
        let work = match self {
            Shape::Sfmr => Work::sfmr(),
            Shape::Mfmr => Work { share: Share::Split, ..Work::default() },
            Shape::Sfmw => Work::sfmw(),
            Shape::Mfmw => Work::mfmw(),
        };
        Work { amount, block_bytes, seed, ..work }
    }
}

/// One row of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Condition {
    shape: Shape,
    bytes: u64,
    nodes: u32,
    workers: u32,
    /// Of the sweep over nodes; otherwise of that over sizes.
    spread: bool,
}

impl Condition {
    fn in_all(&self) -> u64 {
        u64::from(self.nodes) * u64::from(self.workers)
    }

    fn layout(&self) -> Layout {
        self.shape.layout(self.bytes, self.in_all())
    }
}

pub async fn command(args: ShapesArgs) -> Result<ExitCode> {
    args.target.check()?;
    let conditions = conditions(&args)?;
    let most = conditions.iter().map(|c| c.layout().total_bytes()).max().unwrap_or(0);
    if args.common.dry_run {
        println!(
            "shapes: {} rows, {} times each, on {}",
            conditions.len(),
            args.common.repetitions,
            args.target.url()
        );
        for c in &conditions {
            println!(
                "  {} of {} bytes, {} nodes x {} workers: {} bytes on the target",
                c.shape.name(),
                c.bytes,
                c.nodes,
                c.workers,
                c.layout().total_bytes()
            );
        }
        return Ok(ExitCode::SUCCESS);
    }
    let result =
        crew::run(&args.common.launch, async |crew| measure(crew, &args, &conditions, most).await).await?;
    result.map_or(Ok(ExitCode::SUCCESS), |file| publish(&file, &args.common.output))
}

fn conditions(args: &ShapesArgs) -> Result<Vec<Condition>> {
    let (nodes, workers) = if args.common.faithful { (5, WORKERS / 5) } else { (args.nodes, args.workers) };
    let shapes = if args.shape.is_empty() { Shape::ALL.to_vec() } else { args.shape.clone() };
    let sizes = if args.sizes.is_empty() {
        let most = args.common.scale.of(1 << 30, 4 << 20);
        (20..=30).map(|shift| 1_u64 << shift).filter(|bytes| *bytes <= most).collect()
    } else {
        args.sizes.clone()
    };
    if args.block == 0 || args.block > 1 << 30 || sizes.contains(&0) {
        return refuse("shapes: sizes are at least 1 byte, and --block at most 1GiB");
    }
    let mut all = Vec::new();
    for shape in &shapes {
        all.extend(sizes.iter().map(|bytes| Condition {
            shape: *shape,
            bytes: *bytes,
            nodes,
            workers,
            spread: false,
        }));
        let bytes = args.common.scale.of(SPREAD_BYTES, 1 << 20);
        if !shape.writes() {
            all.extend(SPREADS.map(|(workers, nodes)| Condition {
                shape: *shape,
                bytes,
                nodes,
                workers,
                spread: true,
            }));
        }
    }
    all.iter().try_for_each(|condition| condition.layout().check())?;
    Ok(all)
}

async fn measure(crew: &Crew, args: &ShapesArgs, conditions: &[Condition], most: u64) -> Result<ResultFile> {
    let mut draft = Draft::new("shapes", "Files and workers: who reads and writes what", &args.common);
    draft.parameter("target", args.target.url());
    draft.parameter("block_bytes", args.block);
    draft.parameter("nodes", args.nodes);
    draft.parameter("workers", args.workers);
    let ceiling = ceiling::measure().await?;
    let bed = Bed::make(&args.target, &args.common, most).await?;
    let measured = unless_interrupted(all(crew, args, conditions, &bed)).await;
    crew.settle(&measured).await;
    draft.cleaned(bed.clean_up().await);
    let rows = measured?;
    fill(&mut draft, &rows);
    Bounds::of(args.target.url(), &ceiling, crew)
        .await
        .judge(&mut draft, &rows.iter().map(judged).collect::<Vec<_>>());
    ceiling.tell(&mut draft.file);
    places(&mut draft, crew);
    Ok(draft.finish())
}

type Rows = Vec<(Condition, Vec<PhaseOutcome>)>;

async fn all(crew: &Crew, args: &ShapesArgs, conditions: &[Condition], bed: &Bed) -> Result<Rows> {
    let (chosen, begin) = (!args.shape.is_empty(), Instant::now());
    let mut rows = Vec::new();
    for condition in conditions {
        if condition.shape.writes() && !bed.is_writable() {
            if chosen {
                return refuse(format!(
                    "{} writes, and the target cannot be written",
                    condition.shape.name()
                ));
            }
            continue;
        }
        rows.push((*condition, one(crew, args, bed, condition, begin).await?));
    }
    Ok(rows)
}

/// All repetitions of a row. Looks before it, not kept, tell how often it must be gone through to last long enough.
async fn one(
    crew: &Crew,
    args: &ShapesArgs,
    bed: &Bed,
    condition: &Condition,
    begin: Instant,
) -> Result<Vec<PhaseOutcome>> {
    bed.clear().await?;
    let layout = condition.layout();
    if !condition.shape.writes() {
        let dataset = Dataset { layout: layout.clone(), content: bed.content, version: 1, trees: 1 };
        bed.lay_out(&dataset).await?;
    }
    let job = |epochs: u64, version: u32| Job {
        root: bed.root(),
        layout: layout.clone(),
        content: bed.content,
        fleet: Fleet { clients: condition.nodes, first_client: 0, workers: condition.workers },
        phases: vec![Phase {
            name: condition.shape.name().to_owned(),
            work: condition.shape.work(args.block, epochs, args.common.seed),
            version,
            ..Phase::default()
        }],
        limits: Limits { seconds: args.common.seconds_left(begin), ..Limits::default() },
    };
    bed.check(&job(1, 1), layout.total_bytes()).await?;
    let name = format!(
        "{} {} MiB, {}x{}",
        condition.shape.name(),
        condition.bytes >> 20,
        condition.nodes,
        condition.workers
    );
    let run = async |epochs: u64, version: u32, what: String| -> Result<PhaseOutcome> {
        let loaded = crew.load(bed.url(), &job(epochs, version), &what).await?;
        let phase = loaded.outcome.phases.into_iter().next();
        phase.ok_or_else(|| types::Error::new(types::ErrorKind::Io, "measure", "no phase came back"))
    };
    let mut epochs = 1;
    for look in 1..=LOOKS_MAX {
        let seconds =
            run(epochs, 1, format!("{name}: look {look}")).await?.last_done_s().unwrap_or(0.0).max(1e-6);
        if seconds >= ROW_SECONDS_MIN || epochs == EPOCHS_MAX {
            break;
        }
        // The first goes are slower than those that follow: an estimate from a few is too low.
        epochs = ((epochs as f64 * ROW_SECONDS / seconds).ceil() as u64).max(epochs + 1).min(EPOCHS_MAX);
    }
    let mut kept = Vec::new();
    for repetition in 0..args.common.repetitions {
        let version = if condition.shape.writes() { repetition + 2 } else { 1 };
        kept.push(
            run(epochs, version, format!("{name} {}/{}", repetition + 1, args.common.repetitions)).await?,
        );
    }
    Ok(kept)
}

fn phases(runs: &[PhaseOutcome]) -> Vec<overlap::Phase> {
    runs.iter().filter_map(spans::phase).collect()
}

/// MiB/s of all together, bytes over the last finisher, and of one worker on average.
fn rates(runs: &[PhaseOutcome]) -> (Vec<f64>, Vec<f64>) {
    let phases = phases(runs);
    let all = phases.iter().map(|phase| phase.last_done_rate() / MIB).collect();
    let one = phases.iter().map(|phase| {
        let rates: Vec<f64> = phase.spans().iter().map(|span| span.rate() / MIB).collect();
        rates.iter().sum::<f64>() / rates.len().max(1) as f64
    });
    (all, one.collect())
}

fn fill(draft: &mut Draft, rows: &[(Condition, Vec<PhaseOutcome>)]) {
    for shape in Shape::ALL {
        let of_shape: Vec<_> = rows.iter().filter(|(condition, _)| condition.shape == shape).collect();
        if of_shape.is_empty() {
            continue;
        }
        let (by_spread, by_size): (Vec<_>, Vec<_>) = of_shape.iter().copied().partition(|(c, _)| c.spread);
        sizes_table(draft, shape, &by_size);
        if !by_spread.is_empty() {
            spread_table(draft, shape, &by_spread);
        }
        for (condition, runs) in of_shape {
            measure_of(draft, condition, runs);
        }
    }
    draft.file.tables.extend([published::read(), published::nodes(), published::sfmw(), published::mfmw()]);
}

fn sizes_table(draft: &mut Draft, shape: Shape, rows: &[&(Condition, Vec<PhaseOutcome>)]) {
    let first = if shape.writes() { "Size(MiB) per Proc" } else { "File Size(MiB)" };
    let columns = [
        first,
        "Total Size(MiB)",
        "all workers (MiB/s)",
        "one worker (MiB/s)",
        "slowest / fastest",
        "overlap %",
        "making durable s",
        "times gone through",
        "n",
    ];
    let cells = |(condition, runs): &(Condition, Vec<PhaseOutcome>)| {
        let mut cells = vec![
            Cell::Number(condition.bytes as f64 / MIB),
            Cell::Number(condition.layout().total_bytes() as f64 / MIB),
        ];
        cells.extend(common_cells(condition, runs));
        Row { invalid: invalid(runs), ..Row::new(cells) }
    };
    let mut table = Table::new(
        format!("{} against the size of a file", shape.name()),
        columns,
        rows.iter().map(|row| cells(row)).collect(),
    );
    table.notes = vec![
        "All workers: bytes over the time of the last one. One worker: the mean of their own rates; the study's read \
         table printed this, without saying so."
            .to_owned(),
        "What is gone through again and again may be in a cache, the target's or this machine's; what is written again is \
         made durable when its file is closed, each time."
            .to_owned(),
    ];
    draft.file.tables.push(table);
    let points = rows.iter().filter_map(|(c, runs)| point(c.bytes as f64 / MIB, &rates(runs).0)).collect();
    let of_theirs = match shape {
        Shape::Sfmr => published::read_series(),
        Shape::Sfmw => published::sfmw_series(),
        Shape::Mfmw => published::mfmw_series(),
        Shape::Mfmr => Vec::new(),
    };
    let mut series = vec![Series::ours(format!("{}, all workers", shape.name()), points)];
    series.extend(of_theirs);
    draft.file.plots.push(Plot {
        title: format!("{}: rate against size", shape.name()),
        x: Axis::log("size (MiB)"),
        y: Axis::log("MiB/s"),
        kind: PlotKind::Lines,
        series,
    });
}

fn spread_table(draft: &mut Draft, shape: Shape, rows: &[&(Condition, Vec<PhaseOutcome>)]) {
    let columns = [
        "Procs/Node",
        "Nodes",
        "all workers (MiB/s)",
        "one worker (MiB/s)",
        "slowest / fastest",
        "overlap %",
        "making durable s",
        "times gone through",
        "n",
    ];
    let cells = |(condition, runs): &(Condition, Vec<PhaseOutcome>)| {
        let mut cells = vec![Cell::Count(condition.workers.into()), Cell::Count(condition.nodes.into())];
        cells.extend(common_cells(condition, runs));
        Row { invalid: invalid(runs), ..Row::new(cells) }
    };
    let title =
        format!("{} over nodes, {} MiB a file", shape.name(), rows.first().map_or(0, |(c, _)| c.bytes >> 20));
    draft.file.tables.push(Table::new(title, columns, rows.iter().map(|row| cells(row)).collect()));
}

fn common_cells(condition: &Condition, runs: &[PhaseOutcome]) -> Vec<Cell> {
    let (all, one) = rates(runs);
    let phases = phases(runs);
    let gone = runs.first().map_or(0, |run| {
        let once = match condition.shape {
            Shape::Sfmr => condition.bytes.saturating_mul(condition.in_all()),
            _ => condition.layout().total_bytes(),
        };
        run.bytes() / once.max(1)
    });
    vec![
        estimate(&all),
        estimate(&one),
        estimate(&phases.iter().map(overlap::Phase::fairness).collect::<Vec<_>>()),
        estimate(&phases.iter().map(|phase| phase.overlap() * 100.0).collect::<Vec<_>>()),
        estimate(
            &runs.iter().map(|r| r.spans.iter().map(|s| s.sync_s).fold(0.0, f64::max)).collect::<Vec<_>>(),
        ),
        Cell::Count(gone),
        Cell::Count(runs.len() as u64),
    ]
}

fn invalid(runs: &[PhaseOutcome]) -> Vec<String> {
    let mut reasons: Vec<String> = runs.iter().flat_map(|run| run.faults()).collect();
    let short = runs.iter().find_map(|run| sanity::too_short(run.last_done_s().unwrap_or(0.0), TICK_SECONDS));
    reasons.extend(short);
    reasons.sort();
    reasons.dedup();
    reasons
}

fn name_of(c: &Condition) -> String {
    let sweep = if c.spread { ", over nodes" } else { "" };
    let size = c.bytes as f64 / MIB;
    format!("{} {size} MiB, {} nodes x {} workers{sweep}", c.shape.name(), c.nodes, c.workers)
}

fn judged((condition, runs): &(Condition, Vec<PhaseOutcome>)) -> limit::Row<'_> {
    limit::Row { name: name_of(condition), nodes: condition.nodes, runs }
}

fn measure_of(draft: &mut Draft, c: &Condition, runs: &[PhaseOutcome]) {
    let (values, _) = rates(runs);
    let name = name_of(c);
    draft.measure(Measure { name, unit: "MiB/s".to_owned(), better: Better::Higher, values }, &invalid(runs));
}
