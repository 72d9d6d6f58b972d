//! What workers did when, in the form that `bench-report` judges: rates are only added where it allows.

use std::collections::BTreeMap;

use bench_load::outcome::{Interval, merge_by_key};
use bench_load::target::limited::BUSY_CALL;
use bench_load::{PhaseOutcome, ThroughputSeries as Moved, WorkerSpan};
use bench_report::{Axis, Histogram, PhaseSpans, Plot, PlotKind, Point, Series, Span, sanity};

use crate::{ResultBuilder, limit};

pub const MIB: f64 = 1_048_576.0;
pub const GIB: f64 = 1_073_741_824.0;

/// None if nobody worked, or if the measurement contradicts itself.
fn phase(outcome: &PhaseOutcome) -> Option<PhaseSpans> {
    let span = |span: &WorkerSpan| {
        let name = format!("node {} worker {}", span.client + 1, span.worker + 1);
        let moved = Span::new(name, span.start_s, span.end_s, span.bytes);
        Span { progress: span.progress.clone(), ..moved }
    };
    PhaseSpans::new(outcome.spans.iter().filter(|span| span.units > 0).map(span).collect()).ok()
}

/// The repetitions of one condition: a row of a table.
pub struct LoadRow<'a> {
    pub runs: Vec<&'a PhaseOutcome>,
    /// Of the repetitions in which workers worked.
    phases: Vec<PhaseSpans>,
}

impl<'a> LoadRow<'a> {
    pub fn of(runs: impl IntoIterator<Item = &'a PhaseOutcome>) -> LoadRow<'a> {
        let runs: Vec<&PhaseOutcome> = runs.into_iter().collect();
        let phases = runs.iter().filter_map(|run| phase(run)).collect();
        LoadRow { runs, phases }
    }

    pub fn each<T>(&self, value: impl Fn(&PhaseSpans) -> T) -> Vec<T> {
        self.phases.iter().map(value).collect()
    }

    /// MiB/s of all workers together, bytes over the last finisher.
    pub fn rates(&self) -> Vec<f64> {
        self.each(|phase| phase.last_done_rate() / MIB)
    }

    /// Seconds from the common start to the last finisher.
    pub fn seconds(&self) -> Vec<f64> {
        self.runs.iter().map(|run| run.last_done_s().unwrap_or(0.0)).collect()
    }

    /// Seconds of the worker that took longest to make data durable.
    pub fn sync_seconds(&self) -> Vec<f64> {
        let longest = |run: &&PhaseOutcome| run.spans.iter().map(|span| span.sync_s).fold(0.0, f64::max);
        self.runs.iter().map(longest).collect()
    }

    pub fn first(&self, count: fn(&PhaseOutcome) -> u64) -> u64 {
        self.runs.first().map_or(0, |run| count(run))
    }

    pub fn sum(&self, count: fn(&PhaseOutcome) -> u64) -> u64 {
        self.runs.iter().map(|run| count(run)).sum()
    }

    pub fn merged(&self, latencies: fn(&PhaseOutcome) -> &Histogram) -> Histogram {
        let mut all = Histogram::new();
        self.runs.iter().for_each(|run| all.merge(latencies(run)));
        all
    }

    /// The latencies of all repetitions by a key, as the kind of call.
    pub fn merged_by<K: Clone + Ord>(
        &self,
        latencies: fn(&PhaseOutcome) -> &BTreeMap<K, Histogram>,
    ) -> BTreeMap<K, Histogram> {
        let mut all = BTreeMap::new();
        self.runs.iter().for_each(|run| merge_by_key(&mut all, latencies(run)));
        all
    }

    /// Why the row, whose repetitions took so many seconds, must not be believed.
    pub fn reasons(&self, seconds: &[f64], exceeded: Option<String>) -> Vec<String> {
        let mut reasons: Vec<String> = self.runs.iter().flat_map(|run| run.faults()).collect();
        reasons.extend(seconds.iter().find_map(|s| sanity::too_short(*s)));
        reasons.extend(exceeded);
        limit::distinct(reasons)
    }
}

pub fn tell_busy<'a>(draft: &mut ResultBuilder, runs: impl IntoIterator<Item = &'a PhaseOutcome>) {
    let busy: u64 = runs.into_iter().filter_map(|run| run.calls.get(BUSY_CALL)).sum();
    if busy > 0 {
        draft.note(format!("{busy} requests were answered with \"busy\" and made again later"));
    }
}

/// MiB/s of all workers together against time.
pub fn throughput<'a>(title: &str, moved: impl IntoIterator<Item = (String, &'a Moved)>) -> Plot {
    let series = moved.into_iter().map(|(name, moved)| {
        let interval = moved.interval_s.max(1e-3);
        let rate = |i: &Interval| (i.bytes_read + i.bytes_written) as f64 / MIB / interval;
        let points = moved.intervals.iter().enumerate();
        let mut points: Vec<Point> =
            points.map(|(i, one)| Point::at(i as f64 * interval, rate(one))).collect();
        points.push(Point::at(moved.intervals.len() as f64 * interval, 0.0));
        Series::ours(name, points)
    });
    let (x, y) = (Axis::linear("seconds after the common start"), Axis::linear("all workers (MiB/s)"));
    Plot::new(PlotKind::Steps, title, x, y, series)
}
