//! What workers did when, in the form that `bench-report` judges: rates are only added where it allows.

use std::collections::BTreeMap;

use bench_load::outcome::{PhaseOutcome, ThroughputSeries as Moved};
use bench_report::histogram::Histogram;
use bench_report::model::{Axis, Plot, PlotKind, Point, Series};
use bench_report::overlap::{PhaseSpans, Span};
use bench_report::sanity;

pub const MIB: f64 = 1_048_576.0;

/// None if nobody worked, or if the measurement contradicts itself.
pub fn phase(outcome: &PhaseOutcome) -> Option<PhaseSpans> {
    let span = |span: &bench_load::outcome::WorkerSpan| {
        let name = format!("node {} worker {}", span.client + 1, span.worker + 1);
        let moved = Span::new(name, span.start_s, span.end_s, span.bytes);
        Span { progress: span.progress.clone(), ..moved }
    };
    PhaseSpans::new(outcome.spans.iter().filter(|span| span.units > 0).map(span).collect()).ok()
}

/// Why a row with these repetitions, which took so many seconds, must not be believed.
pub fn reasons<'a>(
    runs: impl IntoIterator<Item = &'a PhaseOutcome>,
    seconds: &[f64],
    exceeded: Option<String>,
) -> Vec<String> {
    let mut reasons: Vec<String> = runs.into_iter().flat_map(PhaseOutcome::faults).collect();
    reasons.extend(seconds.iter().find_map(|s| sanity::too_short(*s)));
    reasons.extend(exceeded);
    reasons.sort();
    reasons.dedup();
    reasons
}

/// The latencies of all repetitions, for each kind of call.
pub fn by_call<'a>(runs: impl IntoIterator<Item = &'a PhaseOutcome>) -> BTreeMap<String, Histogram> {
    let mut all: BTreeMap<String, Histogram> = BTreeMap::new();
    for (call, histogram) in runs.into_iter().flat_map(|run| &run.service) {
        all.entry(call.clone()).or_default().merge(histogram);
    }
    all
}

/// MiB/s of all workers together against time.
pub fn throughput<'a>(title: &str, moved: impl IntoIterator<Item = (String, &'a Moved)>) -> Plot {
    let series = moved.into_iter().map(|(name, moved)| {
        let interval = moved.interval_s.max(1e-3);
        let rate =
            |i: &bench_load::outcome::Interval| (i.bytes_read + i.bytes_written) as f64 / MIB / interval;
        let mut points: Vec<Point> = moved
            .intervals
            .iter()
            .enumerate()
            .map(|(i, one)| Point::at(i as f64 * interval, rate(one)))
            .collect();
        points.push(Point::at(moved.intervals.len() as f64 * interval, 0.0));
        Series::ours(name, points)
    });
    Plot {
        title: title.to_owned(),
        x: Axis::linear("seconds after the common start"),
        y: Axis::linear("all workers (MiB/s)"),
        kind: PlotKind::Steps,
        series: series.collect(),
    }
}
