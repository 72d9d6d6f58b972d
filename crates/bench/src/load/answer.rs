//! What a load comes to in a result.

use bench_load::outcome::{PhaseOutcome, Stop};
use bench_report::{Better, Cell, Finding, PhaseSpans, estimate, sanity};

use super::args::LoadArgs;
use crate::{LoadBounds, LoadRow, MIB, ResultBuilder, columns, worker_phases};

pub fn fill(draft: &mut ResultBuilder, args: &LoadArgs, runs: &[PhaseOutcome], bounds: &LoadBounds) {
    let row = LoadRow::of(runs);
    let seconds = row.seconds();
    let per_second = |count: fn(&PhaseOutcome) -> u64| -> Vec<f64> {
        runs.iter().zip(&seconds).map(|(run, s)| count(run) as f64 / s.max(1e-9)).collect()
    };
    let rates: Vec<f64> = per_second(PhaseOutcome::bytes).iter().map(|rate| rate / MIB).collect();
    let touches = per_second(|run| run.units);
    // What was not compared byte by byte, or was made small on its way, may be faster than a link.
    let compared = args.verify == 100 && args.compressible == 0;
    let exceeded = if compared { bounds.exceeded(runs) } else { None };
    let invalid = row.reasons(&seconds, exceeded);
    draft.file.tables.push(columns::table(
        "The load",
        std::slice::from_ref(&row),
        |_| invalid.clone(),
        &[
            ("n", &|row| Cell::Count(row.runs.len() as u64)),
            ("last done s", &|_| estimate(&seconds)),
            ("Bytes", &|row| Cell::Bytes(row.first(PhaseOutcome::bytes))),
            ("Touches", &|row| Cell::Count(row.first(|run| run.units))),
            ("bytes / last finisher MiB/s", &|_| estimate(&rates)),
            ("touches/s", &|_| estimate(&touches)),
            ("overlap %", &|row| estimate(&row.each(|phase| phase.overlap() * 100.0))),
            ("slowest / fastest", &|row| estimate(&row.each(PhaseSpans::fairness))),
            ("errors", &|row| Cell::Count(row.sum(|run| run.errors.count))),
            ("verified", &|row| Cell::Bytes(row.sum(|run| run.verification.checked_bytes))),
        ],
    ));
    draft.measure("rate", "MiB/s", Better::Higher, rates, &invalid);
    draft.measure("touches", "1/s", Better::Higher, touches, &invalid);
    if let Some(first) = runs.first() {
        let moved = [("load".to_owned(), &first.series)];
        draft.file.plots.push(worker_phases::throughput("Throughput, first repetition", moved));
    }
    let workers = u64::from(args.nodes) * u64::from(args.workers);
    latencies(draft, args, &row, workers);
    if runs.iter().any(|run| run.stopped == Some(Stop::Asked)) {
        draft.note("ended by --seconds before all touches were done");
    }
    worker_phases::tell_busy(draft, runs);
    bounds.tell(draft, &format!("{workers} workers"), runs);
    let gib = row.sum(PhaseOutcome::bytes) as f64 / f64::from(1 << 30);
    if gib > 0.0 {
        let cpu: f64 = runs.iter().map(|run| run.cpu_seconds).sum();
        draft.note(format!("{:.2} CPU seconds of the client per GiB", cpu / gib));
    }
}

fn latencies(draft: &mut ResultBuilder, args: &LoadArgs, row: &LoadRow, workers: u64) {
    let touch = row.merged(|run| &run.unit);
    // In a closed loop the two say the same: rate x latency is the number of workers.
    if args.open.is_none() && args.think.is_zero() && args.stagger.is_none() {
        let seconds: f64 = row.seconds().iter().sum();
        let rate = row.sum(|run| run.units) as f64 / seconds.max(1e-9);
        let why = sanity::little(rate, touch.mean().unwrap_or(0.0) / 1e6, workers);
        draft.file.findings.extend(why.map(|why| Finding::warning(format!("closed loop: {why}"))));
    }
    let mut named = vec![("touch, once begun".to_owned(), touch)];
    if args.open.is_some() {
        named.push(("touch, from when it should have begun".to_owned(), row.merged(|run| &run.response)));
        named.push(("the bench's own lateness".to_owned(), row.merged(|run| &run.lateness)));
    }
    let several = [
        ("more than a block: to the first block".to_owned(), row.merged(|run| &run.first_block)),
        ("more than a block: to the last".to_owned(), row.merged(|run| &run.all_blocks)),
    ];
    named.extend(several.into_iter().filter(|(_, all)| !all.is_empty()));
    // Touches of whole files, if these are of several sizes.
    let by_size = row.merged_by(|run| &run.unit_by_size).into_iter();
    named.extend(by_size.map(|(class, all)| (files_of(class), all)));
    let by_call = row.merged_by(|run| &run.service).into_iter();
    named.extend(by_call.map(|(call, all)| (format!("call: {call}"), all)));
    draft.file.histograms.extend(named.iter().map(|(name, histogram)| histogram.to_named(name.clone())));
}

/// The name of a class of files' sizes, by its largest.
fn files_of(class: u64) -> String {
    match class {
        u64::MAX => "files of more than 256 MiB".to_owned(),
        c if c >= 1 << 20 => format!("files up to {} MiB", c >> 20),
        c => format!("files up to {} KiB", c >> 10),
    }
}
