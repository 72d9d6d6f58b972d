//! The tables and plots of shapes, with the study's own beside them.

use bench_load::outcome::PhaseOutcome;
use bench_report::bottleneck::BUSY;
use bench_report::model::{Axis, Better, Cell, Measure, Plot, PlotKind, Series, Table, TableRow};
use bench_report::overlap;
use bench_report::published::PUBLISHED;
use bench_report::summary::{estimate, estimate_or, median, point};
use origin::emulated::ServiceLimits;

use super::condition::{Shape, Sweep};
use super::run::{ShapeResults, ShapeRun, ShapeRuns};
use crate::budget::TimeCut;
use crate::limit::LoadBounds;
use crate::results::ResultBuilder;
use crate::worker_phases::{self, MIB};

/// The columns that follow those that say what the row is.
const COLUMNS: [&str; 12] = [
    "Latency (s)",
    "all workers (MiB/s)",
    "one worker (MiB/s)",
    "slowest / fastest",
    "overlap %",
    "call p50 (ms)",
    "call p99 (ms)",
    "first block p50 (ms)",
    "file p50 (ms)",
    "making durable s",
    "times gone through",
    "n",
];

pub fn fill(draft: &mut ResultBuilder, all: &ShapeResults, bounds: &LoadBounds) {
    for shape in Shape::ALL {
        for sweep in [Sweep::Size, Sweep::Fleet, Sweep::Block] {
            let of = |row: &&ShapeRuns| row.condition.shape == shape && row.condition.sweep == sweep;
            let rows: Vec<&ShapeRuns> = all.rows.iter().filter(of).collect();
            if rows.is_empty() {
                continue;
            }
            draft.file.tables.push(table(shape, sweep, &rows, bounds));
            draft.file.plots.extend(plot(shape, sweep, &rows));
            rows.iter().for_each(|row| measure(draft, row, bounds));
        }
    }
    draft.file.tables.extend(PUBLISHED.azure.tables());
    let busy: u64 = all.rows.iter().flat_map(|row| &row.runs).map(|run| run.busy).sum();
    if busy > 0 {
        draft.note(format!("{busy} requests were answered with \"busy\" and made again later"));
    }
    if all.reused > 0 {
        draft.note(format!(
            "{} sets of files were there from an earlier run, and were used again",
            all.reused
        ));
    }
    TimeCut::tell(all.cut, draft, "repetitions of all rows: some have fewer");
}

/// The study's columns, with the target in the place of a service: what it gives directly, and what Forebay in front of it
/// gives. The study's own numbers are in tables of their own.
pub fn through(
    draft: &mut ResultBuilder,
    direct: &ShapeResults,
    through: &ShapeResults,
    bounds: &LoadBounds,
) {
    for shape in Shape::ALL {
        for sweep in [Sweep::Size, Sweep::Fleet, Sweep::Block] {
            let of = |(row, _): &(&ShapeRuns, &ShapeRuns)| {
                row.condition.shape == shape && row.condition.sweep == sweep
            };
            let pairs: Vec<_> = direct.rows.iter().zip(&through.rows).filter(of).collect();
            if pairs.is_empty() {
                continue;
            }
            let row = |(direct, through): &(&ShapeRuns, &ShapeRuns)| {
                let (mut cells, runs) =
                    (heads(sweep, direct), |row: &ShapeRuns| estimate(&together(&row.runs)));
                let one = |row: &ShapeRuns| estimate(&each(&row.runs));
                cells.extend([runs(direct), runs(through), one(direct), one(through)]);
                let mut reasons = invalid(direct, bounds);
                reasons.extend(invalid(through, bounds));
                TableRow { invalid: reasons, ..TableRow::new(cells) }
            };
            let columns = columns(shape, sweep).into_iter().chain([
                "direct (MiB/s)",
                "through Forebay (MiB/s)",
                "one worker, direct (MiB/s)",
                "one worker, through Forebay (MiB/s)",
            ]);
            let rows = pairs.iter().map(row).collect();
            let title = format!("{} directly and through Forebay", shape.name());
            draft.file.tables.push(Table::new(title, columns, rows).noted([
                "Through Forebay: by the S3 front of a tier on this machine. Reads are of a warm cache; writes are done when \
                 the bucket has them."
                    .to_owned(),
            ]));
        }
    }
    for row in &through.rows {
        let measure = Measure::new(
            format!("{}, through Forebay", row.condition.name()),
            "MiB/s",
            Better::Higher,
            together(&row.runs),
        );
        draft.measure(measure, &invalid(row, bounds));
    }
}

fn columns(shape: Shape, sweep: Sweep) -> [&'static str; 2] {
    match sweep {
        Sweep::Size if shape.writes() => ["Size(MiB) per Proc", "Total Size(MiB)"],
        Sweep::Size => ["File Size(MiB)", "Total Size(MiB)"],
        Sweep::Fleet => ["Procs/Node", "Nodes"],
        Sweep::Block => ["Block (KiB)", "File Size(MiB)"],
    }
}

/// What the row is.
fn heads(sweep: Sweep, row: &ShapeRuns) -> Vec<Cell> {
    let c = &row.condition;
    match sweep {
        Sweep::Size => {
            vec![Cell::Number(c.bytes as f64 / MIB), Cell::Number(c.layout().total_bytes() as f64 / MIB)]
        }
        Sweep::Fleet => vec![Cell::Count(c.workers.into()), Cell::Count(c.nodes.into())],
        Sweep::Block => vec![Cell::Number(c.block as f64 / 1024.0), Cell::Number(c.bytes as f64 / MIB)],
    }
}

/// Which rows the limits of a service explain: no part of the way is busy then.
pub fn limited(draft: &mut ResultBuilder, all: &ShapeResults, limits: &ServiceLimits) {
    let at_limit = |row: &&ShapeRuns| {
        let c = &row.condition;
        let most = limits.most(c.layout().files, c.block.min(c.bytes));
        most.zip(median(&together(&row.runs))).is_some_and(|(most, rate)| rate * MIB >= most as f64 * BUSY)
    };
    let rows: Vec<&ShapeRuns> = all.rows.iter().filter(at_limit).collect();
    if let Some(first) = rows.first() {
        draft.verdict(format!(
            "{} of {} rows are limited by: the limits that the service was given (the first: {})",
            rows.len(),
            all.rows.len(),
            first.condition.name()
        ));
    }
}

/// MiB/s of all together, bytes over the last finisher.
fn together(runs: &[ShapeRun]) -> Vec<f64> {
    phases(runs).map(|phase| phase.last_done_rate() / MIB).collect()
}

/// MiB/s of one worker on average.
fn each(runs: &[ShapeRun]) -> Vec<f64> {
    let mean = |phase: &overlap::PhaseSpans| {
        let rates: Vec<f64> = phase.spans().iter().map(|span| span.rate() / MIB).collect();
        rates.iter().sum::<f64>() / rates.len().max(1) as f64
    };
    phases(runs).map(mean).collect()
}

fn phases(runs: &[ShapeRun]) -> impl Iterator<Item = &overlap::PhaseSpans> {
    runs.iter().filter_map(|run| run.phase.as_ref())
}

fn table(shape: Shape, sweep: Sweep, rows: &[&ShapeRuns], bounds: &LoadBounds) -> Table {
    let size = rows.first().map_or(0.0, |row| row.condition.bytes as f64 / MIB);
    let title = match sweep {
        Sweep::Size => "against the size of a file".to_owned(),
        Sweep::Fleet => format!("over nodes, {size} MiB a file"),
        Sweep::Block => {
            let call = if shape.writes() { "write" } else { "read" };
            format!("against the size of a {call}, {size} MiB a file")
        }
    };
    let row = |row: &&ShapeRuns| {
        let mut cells = heads(sweep, row);
        cells.extend(common_cells(row));
        TableRow { invalid: invalid(row, bounds), ..TableRow::new(cells) }
    };
    let columns = columns(shape, sweep).into_iter().chain(COLUMNS);
    let mut table = Table::new(format!("{} {title}", shape.name()), columns, rows.iter().map(row).collect());
    if sweep == Sweep::Size {
        table.notes = vec![
            "Latency: of the last worker, to go through it once. All workers: bytes over the time of the last one. One worker: the mean of their own rates; the study's read \
             table printed this, without saying so."
                .to_owned(),
            "A call is one read or write of a block; a file's time counts from its opening to its end. What is gone \
             through again and again may be in a cache, the target's or this machine's; what is written again is made \
             durable when its file is closed, each time."
                .to_owned(),
        ];
    }
    table
}

fn common_cells(row: &ShapeRuns) -> Vec<Cell> {
    let runs = &row.runs;
    let of = |value: fn(&ShapeRun) -> Option<f64>| {
        estimate_or(&runs.iter().filter_map(value).collect::<Vec<f64>>(), "there is none")
    };
    let fairness: Vec<f64> = phases(runs).map(overlap::PhaseSpans::fairness).collect();
    let overlaps: Vec<f64> = phases(runs).map(|phase| phase.overlap() * 100.0).collect();
    // Not the passes that were planned: the time may have been over before.
    let gone = |run: &PhaseOutcome| run.bytes() as f64 / row.condition.once().max(1) as f64;
    let once = |run: &PhaseOutcome| Some(run.last_done_s()? / gone(run)).filter(|s| s.is_finite());
    let once: Vec<f64> = row.outcomes.iter().filter_map(once).collect();
    vec![
        estimate(&once),
        estimate(&together(runs)),
        estimate(&each(runs)),
        estimate(&fairness),
        estimate(&overlaps),
        of(|run| run.call_p50_ms),
        row.calls.milliseconds(99.0, "calls"),
        of(|run| run.first_block_p50_ms),
        of(|run| run.file_p50_ms),
        of(|run| Some(run.sync_s)),
        Cell::Count(row.outcomes.first().map_or(0, |run| gone(run) as u64)),
        Cell::Count(runs.len() as u64),
    ]
}

fn plot(shape: Shape, sweep: Sweep, rows: &[&ShapeRuns]) -> Option<Plot> {
    let x = |row: &ShapeRuns| match sweep {
        Sweep::Size => row.condition.bytes as f64 / MIB,
        Sweep::Fleet => row.condition.in_all() as f64,
        Sweep::Block => row.condition.block as f64 / 1024.0,
    };
    let (what, axis) = match sweep {
        Sweep::Size => ("size", "size (MiB)"),
        Sweep::Block => ("block size", "block (KiB)"),
        // The study's rows have nearly the same number of workers, and are no line.
        Sweep::Fleet => return None,
    };
    let points = rows.iter().filter_map(|row| point(x(row), &together(&row.runs))).collect();
    let mut series = vec![Series::ours(format!("{}, all workers", shape.name()), points)];
    series.extend(match (sweep, shape) {
        (Sweep::Size, Shape::Sfmr) => PUBLISHED.azure.read_series(),
        (Sweep::Size, Shape::Sfmw) => PUBLISHED.azure.sfmw_series(),
        (Sweep::Size, Shape::Mfmw) => PUBLISHED.azure.mfmw_series(),
        _ => Vec::new(),
    });
    Some(Plot {
        title: format!("{}: rate against {what}", shape.name()),
        x: Axis::log(axis),
        y: Axis::log("MiB/s"),
        kind: PlotKind::Lines,
        series,
    })
}

fn invalid(row: &ShapeRuns, bounds: &LoadBounds) -> Vec<String> {
    let seconds: Vec<f64> = row.outcomes.iter().map(|run| run.last_done_s().unwrap_or(0.0)).collect();
    worker_phases::reasons(&row.outcomes, &seconds, bounds.exceeded(&row.outcomes))
}

fn measure(draft: &mut ResultBuilder, row: &ShapeRuns, bounds: &LoadBounds) {
    let measure = Measure::new(row.condition.name(), "MiB/s", Better::Higher, together(&row.runs));
    draft.measure(measure, &invalid(row, bounds));
}

#[cfg(test)]
mod tests {
    use bench_report::histogram::Histogram;

    use super::super::condition::ShapeCondition;
    use super::*;
    use crate::limit::tests::{over_a_gigabit, run};

    #[test]
    fn a_row_that_is_faster_than_its_link_is_invalid() {
        let condition = ShapeCondition {
            shape: Shape::Sfmr,
            bytes: 1 << 20,
            nodes: 1,
            workers: 1,
            block: 1 << 20,
            sweep: Sweep::Size,
        };
        let row = |mib| ShapeRuns {
            condition,
            epochs: 1,
            outcomes: vec![run("read", mib, 1.0, 0.1)],
            runs: Vec::new(),
            calls: Histogram::new(),
        };
        assert_eq!(invalid(&row(100), &over_a_gigabit()), Vec::<String>::new());
        let reasons = invalid(&row(200), &over_a_gigabit());
        assert!(matches!(&reasons[..], [why] if why.contains("more than the link eth0")), "{reasons:?}");
    }
}
