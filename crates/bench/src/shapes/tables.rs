//! The tables and plots of shapes, with the study's own beside them.

use bench_load::{PhaseOutcome, TouchUnit};
use bench_report::bottleneck::BUSY;
use bench_report::{
    Axis, Better, Cell, PUBLISHED, PhaseSpans, Plot, PlotKind, Series, Table, estimate, estimate_or, median,
    point,
};
use origin::emulated::ServiceLimits;

use super::condition::{Shape, ShapeCondition, Sweep};
use super::run::{ShapeResults, ShapeRuns};
use crate::{LoadBounds, MIB, ResultBuilder, columns, worker_phases};

/// Each table: of a shape, and of what differs between its rows.
fn sweeps() -> impl Iterator<Item = (Shape, Sweep)> {
    let of = |shape| [Sweep::Size, Sweep::Fleet, Sweep::Block].map(|sweep| (shape, sweep));
    Shape::ALL.into_iter().flat_map(of)
}

pub fn fill(draft: &mut ResultBuilder, all: &ShapeResults, bounds: &LoadBounds) {
    for (shape, sweep) in sweeps() {
        let rows: Vec<&ShapeRuns> = all.rows.iter().filter(|row| row.condition.is_in(shape, sweep)).collect();
        if rows.is_empty() {
            continue;
        }
        draft.file.tables.push(table(shape, sweep, &rows, bounds));
        draft.file.plots.extend(plot(shape, sweep, &rows));
        rows.iter().for_each(|row| measure(draft, row, "", bounds));
    }
    draft.file.tables.extend(PUBLISHED.azure.tables());
    worker_phases::tell_busy(draft, all.rows.iter().flat_map(|row| &row.outcomes));
    if all.reused > 0 {
        draft.note(format!(
            "{} sets of files were there from an earlier run, and were used again",
            all.reused
        ));
    }
}

/// The study's columns, with the target in the place of a service: what it gives directly, and what Forebay in front of it
/// gives. The study's own numbers are in tables of their own.
pub fn through(
    draft: &mut ResultBuilder,
    direct: &ShapeResults,
    through: &ShapeResults,
    bounds: &LoadBounds,
) {
    for (shape, sweep) in sweeps() {
        let pairs = direct.rows.iter().zip(&through.rows);
        let pairs: Vec<_> = pairs.filter(|(row, _)| row.condition.is_in(shape, sweep)).collect();
        if pairs.is_empty() {
            continue;
        }
        let [first, second] = heads(shape, sweep);
        let together = |row: &ShapeRuns| estimate(&row.row().rates());
        let table = columns::table(
            format!("{shape} directly and through Forebay"),
            &pairs,
            |(direct, through)| [invalid(direct, bounds), invalid(through, bounds)].concat(),
            &[
                (first.0, &|(direct, _)| (first.1)(&direct.condition)),
                (second.0, &|(direct, _)| (second.1)(&direct.condition)),
                ("direct (MiB/s)", &|(direct, _)| together(direct)),
                ("through Forebay (MiB/s)", &|(_, through)| together(through)),
                ("one worker, direct (MiB/s)", &|(direct, _)| estimate(&each(direct))),
                ("one worker, through Forebay (MiB/s)", &|(_, through)| estimate(&each(through))),
            ],
        );
        draft.file.tables.push(table.noted([
            "Through Forebay: by the S3 front of a tier on this machine. Reads are of a warm cache; writes are done when \
             the bucket has them.",
        ]));
    }
    through.rows.iter().for_each(|row| measure(draft, row, ", through Forebay", bounds));
}

type ConditionHead = (&'static str, fn(&ShapeCondition) -> Cell);

fn heads(shape: Shape, sweep: Sweep) -> [ConditionHead; 2] {
    let size = if shape.writes() { "Size(MiB) per Proc" } else { "File Size(MiB)" };
    match sweep {
        Sweep::Size => [
            (size, |c| Cell::Number(c.bytes as f64 / MIB)),
            ("Total Size(MiB)", |c| Cell::Number(c.layout().total_bytes() as f64 / MIB)),
        ],
        Sweep::Fleet => {
            [("Procs/Node", |c| Cell::Count(c.workers.into())), ("Nodes", |c| Cell::Count(c.nodes.into()))]
        }
        Sweep::Block => [
            ("Block (KiB)", |c| Cell::Number(c.block as f64 / 1024.0)),
            ("File Size(MiB)", |c| Cell::Number(c.bytes as f64 / MIB)),
        ],
    }
}

/// Which rows the limits of a service explain: no part of the way is busy then.
pub fn limited(draft: &mut ResultBuilder, all: &ShapeResults, limits: &ServiceLimits) {
    let at_limit = |row: &&ShapeRuns| {
        let c = &row.condition;
        let most = limits.most(c.layout().files, c.block.min(c.bytes));
        most.zip(median(&row.row().rates())).is_some_and(|(most, rate)| rate * MIB >= most as f64 * BUSY)
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

fn each(row: &ShapeRuns) -> Vec<f64> {
    row.row().each(|phase| {
        let rates: Vec<f64> = phase.spans().iter().map(|span| span.rate() / MIB).collect();
        rates.iter().sum::<f64>() / rates.len().max(1) as f64
    })
}

/// How often a repetition went through it: not the passes that were planned, as the time may have been over before.
fn gone(row: &ShapeRuns, run: &PhaseOutcome) -> f64 {
    run.bytes() as f64 / row.condition.once().max(1) as f64
}

/// Seconds of each repetition to go through it once.
fn once(row: &ShapeRuns) -> Vec<f64> {
    let once = |run: &PhaseOutcome| Some(run.last_done_s()? / gone(row, run)).filter(|s| s.is_finite());
    row.outcomes.iter().filter_map(once).collect()
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
    let [first, second] = heads(shape, sweep);
    let some = |values: Vec<f64>| estimate_or(&values, "there is none");
    // A touch is a whole file.
    let whole = |row: &ShapeRuns| row.condition.work(1, 0).unit == TouchUnit::File;
    let files = |row: &ShapeRuns| -> Vec<f64> {
        row.outcomes.iter().filter(|_| whole(row)).filter_map(|run| run.unit.percentile_ms(50.0)).collect()
    };
    let table = columns::table(
        format!("{shape} {title}"),
        rows,
        |row| invalid(row, bounds),
        &[
            (first.0, &|row| (first.1)(&row.condition)),
            (second.0, &|row| (second.1)(&row.condition)),
            ("Latency (s)", &|row| estimate(&once(row))),
            ("all workers (MiB/s)", &|row| estimate(&row.row().rates())),
            ("one worker (MiB/s)", &|row| estimate(&each(row))),
            ("slowest / fastest", &|row| estimate(&row.row().each(PhaseSpans::fairness))),
            ("overlap %", &|row| estimate(&row.row().each(|phase| phase.overlap() * 100.0))),
            ("call p50 (ms)", &|row| some(row.call_p50_ms.clone())),
            ("call p99 (ms)", &|row| row.calls.milliseconds(99.0, "calls")),
            ("first block p50 (ms)", &|row| {
                some(row.outcomes.iter().filter_map(|run| run.first_block.percentile_ms(50.0)).collect())
            }),
            ("file p50 (ms)", &|row| some(files(row))),
            ("making durable s", &|row| some(row.row().sync_seconds())),
            ("times gone through", &|row| {
                Cell::Count(row.outcomes.first().map_or(0, |run| gone(row, run) as u64))
            }),
            ("n", &|row| Cell::Count(row.outcomes.len() as u64)),
        ],
    );
    if sweep != Sweep::Size {
        return table;
    }
    table.noted([
        "Latency: of the last worker, to go through it once. All workers: bytes over the time of the last one. One worker: the mean of their own rates; the study's read \
         table printed this, without saying so.",
        "A call is one read or write of a block; a file's time counts from its opening to its end. What is gone \
         through again and again may be in a cache, the target's or this machine's; what is written again is made \
         durable when its file is closed, each time.",
    ])
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
    let points = rows.iter().filter_map(|row| point(x(row), &row.row().rates())).collect();
    let mut series = vec![Series::ours(format!("{shape}, all workers"), points)];
    if sweep == Sweep::Size {
        series.extend(PUBLISHED.azure.series(&shape.to_string()));
    }
    let title = format!("{shape}: rate against {what}");
    Some(Plot::new(PlotKind::Lines, title, Axis::log(axis), Axis::log("MiB/s"), series))
}

fn invalid(row: &ShapeRuns, bounds: &LoadBounds) -> Vec<String> {
    let all = row.row();
    all.reasons(&all.seconds(), bounds.exceeded(&row.outcomes))
}

/// `way`: how the target was reached, behind the condition's name.
fn measure(draft: &mut ResultBuilder, row: &ShapeRuns, way: &str, bounds: &LoadBounds) {
    let name = format!("{}{way}", row.condition.name());
    draft.measure(name, "MiB/s", Better::Higher, row.row().rates(), &invalid(row, bounds));
}

#[cfg(test)]
mod tests {
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
        let row =
            |mib| ShapeRuns { outcomes: vec![run("read", mib, 1.0, 0.1)], ..ShapeRuns::new(condition, 1) };
        assert_eq!(invalid(&row(100), &over_a_gigabit()), Vec::<String>::new());
        let reasons = invalid(&row(200), &over_a_gigabit());
        assert!(matches!(&reasons[..], [why] if why.contains("more than the link eth0")), "{reasons:?}");
    }
}
