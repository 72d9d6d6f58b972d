//! What a load comes to in a result.

use std::collections::BTreeMap;

use bench_load::outcome::{PhaseOutcome, Stop};
use bench_load::target::limited::BUSY_CALL;
use bench_report::histogram::Histogram;
use bench_report::model::{Better, Cell, Finding, Measure, Table, TableRow};
use bench_report::overlap;
use bench_report::sanity;
use bench_report::summary::estimate;

use super::args::LoadArgs;
use crate::limit::LoadBounds;
use crate::results::ResultBuilder;
use crate::worker_phases::{self, MIB};

pub fn fill(draft: &mut ResultBuilder, args: &LoadArgs, runs: &[PhaseOutcome], bounds: &LoadBounds) {
    let phases: Vec<overlap::PhaseSpans> = runs.iter().filter_map(worker_phases::phase).collect();
    let seconds: Vec<f64> = runs.iter().map(|run| run.last_done_s().unwrap_or(0.0)).collect();
    let per_second = |value: fn(&PhaseOutcome) -> u64| -> Vec<f64> {
        runs.iter().zip(&seconds).map(|(run, s)| value(run) as f64 / s.max(1e-9)).collect()
    };
    let rates: Vec<f64> = per_second(PhaseOutcome::bytes).iter().map(|rate| rate / MIB).collect();
    let touches = per_second(|run| run.units);
    // What was not compared byte by byte, or was made small on its way, may be faster than a link.
    let compared = args.verify == 100 && args.compressible == 0;
    let exceeded = if compared { bounds.exceeded(runs) } else { None };
    let invalid = worker_phases::reasons(runs, &seconds, exceeded);
    let cells = vec![
        Cell::Count(runs.len() as u64),
        estimate(&seconds),
        Cell::Bytes(runs.first().map_or(0, PhaseOutcome::bytes)),
        Cell::Count(runs.first().map_or(0, |run| run.units)),
        estimate(&rates),
        estimate(&touches),
        estimate(&phases.iter().map(|phase| phase.overlap() * 100.0).collect::<Vec<_>>()),
        estimate(&phases.iter().map(overlap::PhaseSpans::fairness).collect::<Vec<_>>()),
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
        vec![TableRow { invalid: invalid.clone(), ..TableRow::new(cells) }],
    ));
    draft.measure(Measure::new("rate", "MiB/s", Better::Higher, rates.clone()), &invalid);
    draft.measure(Measure::new("touches", "1/s", Better::Higher, touches.clone()), &invalid);
    if let Some(first) = runs.first() {
        draft.file.plots.push(worker_phases::throughput(
            "Throughput, first repetition",
            [("load".to_owned(), &first.series)],
        ));
    }
    latencies(draft, args, runs);
    if runs.iter().any(|run| run.stopped == Some(Stop::Asked)) {
        draft.note("ended by --seconds before all touches were done");
    }
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

fn latencies(draft: &mut ResultBuilder, args: &LoadArgs, runs: &[PhaseOutcome]) {
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
    named.extend(worker_phases::by_call(runs).into_iter().map(|(call, all)| (format!("call: {call}"), all)));
    draft.file.histograms.extend(named.iter().map(|(name, histogram)| histogram.to_named(name.clone())));
    // In a closed loop the two say the same: rate x latency is the number of workers.
    if args.open.is_none() && args.think.is_zero() && args.stagger.is_none() {
        let workers = u64::from(args.nodes) * u64::from(args.workers);
        let touches: u64 = runs.iter().map(|run| run.units).sum();
        let seconds: f64 = runs.iter().filter_map(PhaseOutcome::last_done_s).sum();
        let mean = merged(|run| &run.unit).mean().unwrap_or(0.0) / 1e6;
        draft.file.findings.extend(
            sanity::little(touches as f64 / seconds.max(1e-9), mean, workers)
                .map(|why| Finding::warning(format!("closed loop: {why}"))),
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
