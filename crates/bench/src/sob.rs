//! The sob stress tests that two sites ran on three nodes each: every node writes, and then reads, files of its own.
//!
//! `--faithful` does what the original script did: no barrier between writing and reading, so that a node that is done
//! with its writes reads while others still write. Its rates are then not added, because they were not had at the same
//! time; the original's were.

use std::process::ExitCode;
use std::sync::LazyLock;

use bench_load::process::memory_bytes;
use bench_load::{Layout, LoadPhase, LoadWork, PhaseOutcome, Sharing, Sizes, TouchUnit};
use bench_report::{
    Better, Cell, PUBLISHED, PhaseSpans, Refusal, ResultFile, Table, TableRow, estimate, format, median,
    sanity,
};
use clap::{Args, ValueEnum};
use serde::Deserialize;
use types::Result;

use crate::{
    Budget, CommonArgs, LoadBounds, LoadRow, MIB, Ranks, RepeatedLoad, ResultBuilder, Scale, TargetArgs,
    TargetDir, TargetLoad, columns, driver, worker_phases,
};

const NODES: u32 = 3;
/// Two phases that are compared with each other.
const SEQUENTIAL: &str = "sequential read";
const RANDOM: &str = "random read";

#[derive(Args, Clone, Debug)]
pub struct SobArgs {
    /// 1: one large file, 2: many small ones, 3: random reads, 4: one file that fits memory
    #[arg(value_parser = clap::value_parser!(u32).range(1..=4))]
    test: u32,
    #[command(flatten)]
    target: TargetArgs,
    /// Nodes, each with files of its own
    #[arg(long, value_name = "N", default_value_t = NODES, value_parser = clap::value_parser!(u32).range(1..=4096))]
    nodes: u32,
    /// What test 3 draws at random: the original's documentation is lost, and its comment speaks of files
    #[arg(long, value_name = "UNIT", default_value = "files")]
    random: RandomUnit,
    #[command(flatten)]
    common: CommonArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum RandomUnit {
    Files,
    Blocks,
}

/// The four tests.
static TESTS: LazyLock<[Test; 4]> = LazyLock::new(|| {
    let tests: SobTests = toml::from_str(include_str!("../sob.toml")).expect("the file was read by a test");
    tests.test
});

#[derive(Deserialize)]
struct SobTests {
    test: [Test; 4],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Test {
    command: String,
    files: u64,
    file_bytes: u64,
    files_per_directory: u64,
    block_bytes: u64,
    reads: bool,
    random_reads: u64,
    /// What "small" is of it: so much that a local disk needs a second.
    small: f64,
}

impl Test {
    /// Files keep their number where that is what the test is about; the bytes shrink, down to a few blocks.
    fn layout(&self, scale: Scale) -> Layout {
        let small_files = self.files_per_directory > 0;
        let (files, bytes) = if small_files {
            (scale.of(self.files, self.files_per_directory), self.file_bytes)
        } else {
            (self.files, scale.of(self.file_bytes, self.block_bytes * 4))
        };
        let sizes = Sizes::Equal(bytes - bytes % self.block_bytes);
        Layout { files, sizes, files_per_directory: self.files_per_directory, private: true }
    }

    fn phases(&self, scale: Scale, random: RandomUnit, faithful: bool) -> Vec<LoadPhase> {
        let block_bytes = self.block_bytes;
        let write = LoadWork { block_bytes, ..LoadWork::mfmw() };
        let mut phases = vec![LoadPhase { name: "write".to_owned(), work: write, ..LoadPhase::default() }];
        let after = |name: &str, work: LoadWork| LoadPhase {
            name: name.to_owned(),
            work,
            barrier: !faithful,
            ..LoadPhase::default()
        };
        // Each node reads all of its files in order.
        let in_order = LoadWork { block_bytes, share: Sharing::Client, ..LoadWork::default() };
        if self.reads {
            phases.push(after("read", in_order.clone()));
        }
        if self.random_reads > 0 {
            if !faithful {
                // What the random reads are held against: they cannot be faster, unless a cache serves them.
                phases.push(after(SEQUENTIAL, in_order));
            }
            let unit = if random == RandomUnit::Files { TouchUnit::File } else { TouchUnit::Block };
            let work =
                LoadWork { block_bytes, ..LoadWork::random_reads(unit, scale.of(self.random_reads, 100)) };
            phases.push(after(RANDOM, work));
        }
        phases
    }
}

struct SobPlan {
    args: SobArgs,
    test: &'static Test,
    layout: Layout,
    phases: Vec<LoadPhase>,
    /// Bytes, by all nodes.
    written: u64,
    repetitions: u32,
}

pub async fn command(args: SobArgs) -> Result<ExitCode> {
    let test = &TESTS[args.test as usize - 1];
    let scale = args.common.scale.small_is(test.small);
    let layout = test.layout(scale);
    let phases = test.phases(scale, args.random, args.common.faithful);
    let written = layout.total_bytes().saturating_mul(u64::from(args.nodes));
    // The original ran each line-up once.
    let repetitions = args.common.repetitions(1);
    let plan = SobPlan { args, test, layout, phases, written, repetitions };
    let told = || {
        let (SobArgs { test, nodes, .. }, files) = (&plan.args, plan.layout.files);
        let [each, all] = [plan.layout.size_limits().1, written].map(format::bytes);
        let read = if plan.phases.len() > 1 { ", and read them" } else { "" };
        format!(
            "sob {test}: {nodes} nodes write {files} files of {each} each, {all} in all, {repetitions} times{read}"
        )
    };
    driver::command(&plan.args.common, told, async |ranks| measure(ranks, &plan).await).await
}

async fn measure(ranks: &Ranks, plan: &SobPlan) -> Result<ResultFile> {
    let SobPlan { args, test, layout, written, repetitions, .. } = plan;
    let title = format!("sob test {}: {}", args.test, test.command);
    let mut draft = ResultBuilder::new("sob", title, &args.common, *repetitions);
    draft.parameters([
        ("test", args.test.into()),
        ("nodes", args.nodes.into()),
        ("files", layout.files.into()),
        ("file_bytes", layout.size_limits().1.into()),
        ("block_bytes", test.block_bytes.into()),
    ]);
    if test.random_reads > 0 {
        draft.parameter("random_reads_of", if args.random == RandomUnit::Files { "files" } else { "blocks" });
    }
    let load = TargetLoad { ranks, target: &args.target, common: &args.common, bytes: *written };
    let measure = async |target_dir: &mut TargetDir, budget: &Budget| {
        let job = async |repetition: u32| {
            // A version of its own, so that a read of an earlier repetition's data is seen for what it is.
            let version = |phase: &LoadPhase| LoadPhase { version: repetition + 1, ..phase.clone() };
            let phases = plan.phases.iter().map(version).collect();
            let job = driver::job(target_dir, (args.nodes, 1), layout.clone(), phases, budget.limits());
            target_dir.check(&job, *written).await.map(|()| job)
        };
        let told = |number: u32| format!("sob {} ({number}/{repetitions})", args.test);
        load.repeat(target_dir, budget, *repetitions, told, job).await
    };
    load.run(draft, measure, |draft, RepeatedLoad { runs, skew }, bounds| {
        draft.note(format!("processes began a phase {:.2} ms apart at most", skew.as_secs_f64() * 1000.0));
        fill(draft, plan, &runs, bounds);
        if layout.total_bytes() < memory_bytes().saturating_mul(2) && test.reads && args.test != 4 {
            draft.warning(format!(
                "each node reads {} bytes, less than twice this machine's memory: its page cache may have served them",
                layout.total_bytes()
            ));
        }
    })
    .await
}

fn fill(draft: &mut ResultBuilder, plan: &SobPlan, runs: &[Vec<PhaseOutcome>], bounds: &LoadBounds) {
    let SobPlan { args, phases, .. } = plan;
    if let Some(first) = runs.first() {
        draft.file.tables.push(by_node(args, first));
    }
    let mut rows = Vec::new();
    for (index, phase) in phases.iter().enumerate() {
        let row = LoadRow::of(runs.iter().filter_map(|run| run.get(index)));
        // The last test is about a cache's effect: what is served by one is no fault there.
        let exceeded = if args.test == 4 { None } else { bounds.exceeded(&row.runs) };
        let invalid = row.reasons(&row.each(PhaseSpans::last_done_seconds), exceeded);
        let measure = format!("{}, bytes / last finisher", phase.name);
        draft.measure(measure, "MiB/s", Better::Higher, row.rates(), &invalid);
        for (call, latencies) in row.merged_by(|run| &run.service) {
            draft.file.histograms.push(latencies.to_named(format!("{}: {call}", phase.name)));
        }
        bounds.tell(draft, &phase.name, &row.runs);
        rows.push((phase.name.as_str(), row, invalid));
    }
    if let Some(why) = random_too_fast(phases, runs) {
        draft.warning(why);
    }
    draft.file.tables.push(believed(&rows));
    if let Some(first) = runs.first() {
        let moved = first.iter().map(|phase| (phase.name.clone(), &phase.series));
        draft.file.plots.push(worker_phases::throughput("Throughput of the first repetition", moved));
    }
    if args.test == 1 {
        draft.file.tables.push(replayed());
        for run in &PUBLISHED.tryggve.sob {
            draft.file.tables.push(run.table());
        }
    }
}

/// A row for each phase: its name, its repetitions, and why it must not be believed.
fn believed(rows: &[(&str, LoadRow, Vec<String>)]) -> Table {
    columns::table(
        "Rates that may be believed",
        rows,
        |(_, _, invalid)| invalid.clone(),
        &[
            ("Phase", &|(name, ..)| Cell::text(*name)),
            ("n", &|(_, row, _)| Cell::Count(row.runs.len() as u64)),
            ("Bytes", &|(_, row, _)| Cell::Bytes(row.first(PhaseOutcome::bytes))),
            ("Units", &|(_, row, _)| Cell::Count(row.first(|run| run.units))),
            ("first done s", &|(_, row, _)| estimate(&row.each(PhaseSpans::first_done_seconds))),
            ("last done s", &|(_, row, _)| estimate(&row.each(PhaseSpans::last_done_seconds))),
            ("thereof making durable s", &|(_, row, _)| estimate(&row.sync_seconds())),
            ("bytes / last finisher MiB/s", &|(_, row, _)| estimate(&row.rates())),
            ("common window MiB/s", &|(_, row, _)| refusable(row.each(PhaseSpans::common_rate))),
            ("overlap %", &|(_, row, _)| estimate(&row.each(|phase| phase.overlap() * 100.0))),
            ("sum of node rates MiB/s", &|(_, row, _)| refusable(row.each(PhaseSpans::added_rates))),
            ("slowest / fastest", &|(_, row, _)| estimate(&row.each(PhaseSpans::fairness))),
        ],
    )
}

/// MiB/s, or why there is no such rate in one of the repetitions.
fn refusable(rates: Vec<std::result::Result<f64, Refusal>>) -> Cell {
    let all: std::result::Result<Vec<f64>, Refusal> = rates.into_iter().collect();
    all.map_or_else(Cell::missing, |rates| estimate(&rates.iter().map(|rate| rate / MIB).collect::<Vec<_>>()))
}

/// Compares the medians: if random reads were faster, a cache that should have been empty served them.
fn random_too_fast(phases: &[LoadPhase], runs: &[Vec<PhaseOutcome>]) -> Option<String> {
    let rate = |name: &str| {
        let index = phases.iter().position(|phase| phase.name == name)?;
        median(&LoadRow::of(runs.iter().filter_map(|run| run.get(index))).rates())
    };
    sanity::random_above_sequential(rate(RANDOM)?, rate(SEQUENTIAL)?)
}

/// The published timings, judged as ours are: what they add up to, and what they do not.
fn replayed() -> Table {
    let rows = PUBLISHED.tryggve.sob.iter().map(|run| {
        let mut cells = vec![Cell::text(&run.name)];
        for phase in [run.writes(), run.reads()] {
            match phase {
                Ok(phase) => cells.extend([
                    Cell::Number((phase.last_done_rate() / MIB * 10.0).round() / 10.0),
                    phase.added_rates().map_or_else(Cell::missing, |r| Cell::Number(r / MIB)),
                    Cell::Number((phase.overlap() * 100.0).round()),
                ]),
                Err(why) => cells.extend([0; 3].map(|_| Cell::missing(&why))),
            }
        }
        TableRow::new(cells)
    });
    let columns = [
        "Run",
        "write: bytes / last finisher MiB/s",
        "sum of rates",
        "overlap %",
        "read: bytes / last finisher MiB/s",
        "sum of rates ",
        "overlap % ",
    ];
    Table::new("Published timings of test 1, judged the same way", columns, rows.collect())
        .noted(["The study added rates of nodes that did not work at the same time: 90.2 for Knox x3."])
}

/// The original's table: a column for each node.
fn by_node(args: &SobArgs, run: &[PhaseOutcome]) -> Table {
    let mut columns = vec!["Test".to_owned()];
    columns.extend((0..args.nodes).map(|node| format!("node {}", node + 1)));
    let mut cells = vec![Cell::text(args.test.to_string())];
    for node in 0..args.nodes {
        let told = run.iter().filter_map(|phase| {
            let span = phase.spans.iter().find(|span| span.client == node)?;
            let seconds = span.end_s - span.start_s;
            let rate = span.bytes as f64 / MIB / seconds.max(1e-9);
            Some(format!("{}: {seconds:.1} s ({rate:.3} MB/s)", format::capital(&phase.name)))
        });
        cells.push(Cell::text(told.collect::<Vec<_>>().join("; ")));
    }
    Table::new("By node, first repetition", columns, vec![TableRow::new(cells)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_full_scale_the_tests_are_the_originals() {
        let full = Scale::new(1.0);
        let sizes = TESTS.each_ref().map(|test| {
            let layout = test.layout(full);
            (layout.files, layout.size_limits().1, test.block_bytes)
        });
        assert_eq!(sizes[0], (1, 10 << 30, 8 << 20));
        assert_eq!(sizes[1], (500, 1 << 20, 64 << 10));
        assert_eq!(sizes[2], (50, 128 << 20, 64 << 10));
        assert_eq!(sizes[3], (1, 1 << 30, 128 << 10));
        let names = |faithful| -> Vec<String> {
            TESTS[2].phases(full, RandomUnit::Files, faithful).into_iter().map(|phase| phase.name).collect()
        };
        assert_eq!(names(true), ["write", RANDOM]);
        assert_eq!(names(false), ["write", SEQUENTIAL, RANDOM]);
        let faithful = TESTS[0].phases(full, RandomUnit::Files, true);
        assert!(faithful[0].barrier && !faithful[1].barrier, "sob reads on without waiting for the others");
    }

    #[test]
    fn random_reads_that_beat_sequential_ones_are_warned_of() {
        let phases = TESTS[2].phases(Scale::new(1.0), RandomUnit::Blocks, false);
        let of = |random_seconds: f64| {
            let seconds = [9.0, 2.0, random_seconds];
            let run: Vec<PhaseOutcome> = phases
                .iter()
                .zip(seconds)
                .map(|(phase, s)| crate::limit::tests::run(&phase.name, 200, s, 0.1))
                .collect();
            random_too_fast(&phases, &[run])
        };
        assert!(of(1.0).is_some_and(|why| why.contains("2.00 times as fast")));
        assert_eq!(of(2.0), None);
        let faithful = TESTS[2].phases(Scale::new(1.0), RandomUnit::Blocks, true);
        assert_eq!(random_too_fast(&faithful, &[]), None, "the original has nothing to compare with");
    }
}
