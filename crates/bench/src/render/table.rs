//! From samples to what a reader gets: the study's columns, the extended ones, the line through the direct times, and
//! the answer in a few sentences.

use bench_report::bottleneck::Bottleneck;
use bench_report::fit::{self, FittedLine};
use bench_report::format::{fixed, round};
use bench_report::{
    Axis, Better, Cell, Histogram, PUBLISHED, Plot, PlotKind, Series, Table, estimate, median, noise_floor,
    point,
};
use relay::Profile;

use super::{RenderDistance, RenderPlan};
use crate::{
    CacheMode, GIB, MIB, ResultBuilder, Sample, TierPrices, Triple, columns, limit, sample, worker_phases,
};

/// A line through fewer distances is no line.
const DISTANCES_MIN: usize = 3;

pub fn fill(
    draft: &mut ResultBuilder,
    plan: &RenderPlan,
    distances: &[RenderDistance],
    prices: Option<&TierPrices>,
) {
    parameters(draft, plan, distances);
    draft.file.tables.extend([faithful(plan, distances), PUBLISHED.vfxt.results.table()]);
    if !plan.args.common.faithful {
        draft.file.tables.push(extended(plan, distances));
    }
    draft.file.plots.push(against_rtt(distances));
    if let Some((far, first)) = distances.last().and_then(|far| Some((far, far.triples.first()?))) {
        let title = format!("Throughput at {} ms, first repetition", far.nominal_ms());
        let moved = CacheMode::ALL.map(|mode| (mode.to_string(), &first.of(mode).phase.series));
        draft.file.plots.push(worker_phases::throughput(&title, moved));
    }
    draft.file.plots.push(PUBLISHED.vfxt.plot());
    measures(draft, distances);
    slopes(draft, distances);
    answers(draft, plan, distances);
    if let Some(far) = distances.last() {
        sample::worth(draft, &far.triples, prices);
    }
    predictions(draft, distances);
    refit(draft);
    distances.iter().for_each(|distance| distance.line.tell(draft));
}

fn parameters(draft: &mut ResultBuilder, plan: &RenderPlan, distances: &[RenderDistance]) {
    draft.parameter("nodes", plan.nodes);
    draft.parameter("files", plan.layout.files);
    draft.parameter("file_bytes", plan.layout.size_limits().1);
    draft.parameter("compute_seconds", plan.compute.as_secs_f64());
    draft.parameter("rtt_ms", distances.iter().map(RenderDistance::nominal_ms).collect::<Vec<_>>());
    draft.parameter("rate_bytes_per_second", plan.args.rate.map_or(0, |rate| rate.bytes_per_second()));
    draft.parameter("stagger_seconds", plan.stagger.map_or(0.0, |stagger| stagger.every_s));
}

impl RenderDistance {
    pub fn nominal_ms(&self) -> f64 {
        self.line.nominal.as_secs_f64() * 1000.0
    }

    fn values(&self, mode: CacheMode, value: impl Fn(&Sample) -> f64) -> Vec<f64> {
        sample::values(&self.triples, mode, value)
    }

    pub fn middle(&self, mode: CacheMode, value: impl Fn(&Sample) -> f64) -> Option<f64> {
        median(&self.values(mode, value))
    }

    fn makespans(&self, mode: CacheMode) -> Vec<f64> {
        self.values(mode, Sample::makespan)
    }

    pub fn time(&self, mode: CacheMode) -> Cell {
        estimate(&self.makespans(mode))
    }

    /// How many times as fast as direct.
    pub fn gain(&self, mode: CacheMode) -> Cell {
        let gain = |triple: &Triple| triple.direct.makespan() / triple.of(mode).makespan();
        estimate(&self.triples.iter().map(gain).collect::<Vec<_>>())
    }

    /// Reads of the cold state that waited, for each READ at the storage.
    pub fn coalescing(&self) -> Cell {
        let of = |triple: &Triple| {
            let cold = &triple.cold;
            (cold.origin_reads > 0).then(|| cold.waits as f64 / cold.origin_reads as f64)
        };
        let all: Vec<f64> = self.triples.iter().filter_map(of).collect();
        median(&all).map_or(Cell::missing("nobody waited"), |shared| Cell::Number(round(shared, 1)))
    }

    /// The medians of these states side by side.
    fn side_by_side(
        &self,
        modes: &[CacheMode],
        value: impl Fn(&Sample) -> Option<f64>,
        told: impl Fn(f64) -> String,
    ) -> Cell {
        let part = |mode: &CacheMode| {
            let values = self.triples.iter().filter_map(|triple| value(triple.of(*mode)));
            median(&values.collect::<Vec<_>>()).map_or("-".to_owned(), &told)
        };
        Cell::text(modes.iter().map(part).collect::<Vec<_>>().join(" / "))
    }

    fn three(&self, value: impl Fn(&Sample) -> f64, told: impl Fn(f64) -> String) -> Cell {
        self.side_by_side(&CacheMode::ALL, |sample| Some(value(sample)), told)
    }

    /// What limited a state in the last repetition.
    pub fn limited(&self, plan: &RenderPlan, mode: CacheMode) -> Option<Bottleneck> {
        let serial = match mode {
            CacheMode::Direct => Some(plan.round_trips()),
            // At least one for each file that nobody has yet.
            CacheMode::Cold => Some(plan.layout.files as f64),
            CacheMode::Warm => None,
        };
        let last = self.triples.last()?;
        Some(limit::of_sample(last.of(mode), mode, &self.line, plan.args.rate, serial))
    }
}

fn faithful(plan: &RenderPlan, distances: &[RenderDistance]) -> Table {
    let name = |row: &RenderDistance| match PUBLISHED.vfxt.place(row.nominal_ms()) {
        Some(place) => format!("as {place}"),
        None => format!("{} ms", row.nominal_ms()),
    };
    let from_last_start = |row: &RenderDistance, mode| {
        estimate(&row.values(mode, |sample| (sample.makespan() - plan.stagger_s()).max(0.0)))
    };
    columns::table(
        "The study's table, measured here",
        distances,
        |row| row.invalid.clone(),
        &[
            ("NFS Location", &|row| Cell::text(name(row))),
            ("Roundtrip Latency (ms)", &|row| Cell::Number(round(row.line.rtt_ms, 1))),
            ("Direct Connect (s)", &|row| from_last_start(row, CacheMode::Direct)),
            ("Cold Forebay (s)", &|row| from_last_start(row, CacheMode::Cold)),
            ("Warm Forebay (s)", &|row| from_last_start(row, CacheMode::Warm)),
        ],
    )
}

fn extended(plan: &RenderPlan, distances: &[RenderDistance]) -> Table {
    let rate = plan.args.rate.map_or("unlimited".to_owned(), |rate| rate.to_string());
    let per_call = |switches: u64, s: &Sample| switches as f64 / s.client_calls().max(1) as f64;
    let tier_switches = |s: &Sample| Some(per_call(s.tier_switches?, s));
    // A warm pass has no payload from the storage.
    let wire = |s: &Sample| (s.origin_bytes > 0).then(|| s.line_bytes as f64 / s.origin_bytes as f64);
    let (direct_cold, cold_warm) = ([CacheMode::Direct, CacheMode::Cold], [CacheMode::Cold, CacheMode::Warm]);
    let rounded = |digits: i32| move |value: f64| round(value, digits).to_string();
    columns::table(
        "Extended: what it costs the storage and the machines",
        distances,
        |row| row.invalid.clone(),
        &[
            ("Profile", &|row| Cell::text(format!("{} ms", row.nominal_ms()))),
            ("RTT ms", &|row| Cell::Number(round(row.line.rtt_ms, 1))),
            ("BW", &|_| Cell::text(&rate)),
            ("Loss %", &|_| Cell::missing("not measured")),
            ("n", &|row| Cell::Count(row.triples.len() as u64)),
            ("Direct s", &|row| row.time(CacheMode::Direct)),
            ("Cold s", &|row| row.time(CacheMode::Cold)),
            ("Warm s", &|row| row.time(CacheMode::Warm)),
            ("x cold", &|row| row.gain(CacheMode::Cold)),
            ("x warm", &|row| row.gain(CacheMode::Warm)),
            ("origin GiB D/C/W", &|row| {
                row.three(|s| s.origin_bytes as f64 / GIB, |gib| format!("{gib:.4}"))
            }),
            ("amplification D/C/W", &|row| row.three(Sample::amplification, rounded(3))),
            ("origin req D/C/W", &|row| row.three(|s| s.origin_calls as f64, rounded(0))),
            ("coalescing", &|row| row.coalescing()),
            ("p99 frame s D/C/W", &|row| row.three(p99_frame, rounded(2))),
            ("CPU-s/GiB D/C/W", &|row| row.three(Sample::cpu_per_gib, |cpu| format!("{cpu:.1}"))),
            ("switches/call, clients D/C/W", &|row| row.three(|s| per_call(s.phase.switches, s), rounded(2))),
            ("switches/call, tier C/W", &|row| {
                row.side_by_side(&cold_warm, tier_switches, |n| format!("{n:.2}"))
            }),
            ("wire B / payload B D/C", &|row| row.side_by_side(&direct_cold, wire, |n| format!("{n:.3}"))),
            ("valid", &|row| Cell::text(if row.invalid.is_empty() { "yes" } else { "INVALID" })),
        ],
    )
}

fn against_rtt(distances: &[RenderDistance]) -> Plot {
    let series = CacheMode::ALL.map(|mode| {
        let points = distances.iter().filter_map(|row| point(row.line.rtt_ms, &row.makespans(mode)));
        Series::ours(mode.to_string(), points.collect())
    });
    let (x, y) = (Axis::linear("round trip (ms)"), Axis::linear("all frames (s)"));
    Plot::new(PlotKind::Lines, "Time of the job against the distance of its storage", x, y, series)
}

/// What is compared, and how the calls of all repetitions are distributed.
fn measures(draft: &mut ResultBuilder, distances: &[RenderDistance]) {
    for row in distances {
        for mode in CacheMode::ALL {
            let name = format!("{mode} time, rtt {} ms", row.nominal_ms());
            draft.measure(name, "s", Better::Lower, row.makespans(mode), &row.invalid);
            let mut all = Histogram::new();
            let reads = row.triples.iter().filter_map(|triple| triple.of(mode).phase.service.get("read"));
            reads.for_each(|reads| all.merge(reads));
            let name = format!("read, {mode}, {} ms", row.nominal_ms());
            draft.file.histograms.push(all.to_named(name));
        }
    }
}

/// The slope of each repetition by itself: a quantity that two runs can be compared by.
fn slopes(draft: &mut ResultBuilder, distances: &[RenderDistance]) {
    let repetitions = distances.iter().map(|row| row.triples.len()).min().unwrap_or(0);
    let of = |repetition: usize| {
        let point =
            |row: &RenderDistance| (row.line.rtt_ms / 1000.0, row.triples[repetition].direct.makespan());
        let points: Vec<(f64, f64)> = distances.iter().map(point).collect();
        fit::line(&points).map(|line| line.slope.value)
    };
    let values: Vec<f64> = (0..repetitions).filter_map(of).collect();
    if distances.len() >= DISTANCES_MIN && !values.is_empty() {
        let name = "serial round trips in a frame, direct";
        let invalid: Vec<String> = distances.iter().flat_map(|row| row.invalid.clone()).collect();
        draft.measure(name, "round trips", Better::Lower, values, &invalid);
    }
}

fn answers(draft: &mut ResultBuilder, plan: &RenderPlan, distances: &[RenderDistance]) {
    if let Some(far) = distances.last() {
        draft.verdict(in_a_sentence(far));
    }
    slope(draft, plan, distances);
    let Some(far) = distances.last() else { return };
    let warm: Vec<Vec<f64>> = distances.iter().map(|row| row.makespans(CacheMode::Warm)).collect();
    if let Some(noise) = noise_floor(warm.iter().map(Vec::as_slice)) {
        draft.note(format!("noise floor: warm repetitions vary by {:.1} %", noise * 100.0));
    }
    for mode in CacheMode::ALL {
        let Some((told, last)) = far.limited(plan, mode).zip(far.triples.last()) else { continue };
        let compute = plan.compute.as_secs_f64() / last.of(mode).makespan().max(0.001);
        let compute = format!("the job's own compute is {:.0} % of the time", compute.min(1.0) * 100.0);
        draft.limit(format!("{mode} at {:.1} ms ({compute})", far.line.rtt_ms), &told);
    }
    let samples = || {
        let triples = distances.iter().flat_map(|row| &row.triples);
        triples.flat_map(|triple| CacheMode::ALL.map(|mode| triple.of(mode)))
    };
    draft.note(format!(
        "resident at most: the tier {:.0} MiB, a process of the bench {:.0} MiB",
        samples().map(|sample| sample.tier_used.peak_bytes).max().unwrap_or(0) as f64 / MIB,
        samples().map(|sample| sample.client_peak_bytes).max().unwrap_or(0) as f64 / MIB
    ));
    let skew = samples().map(|sample| sample.skew).max().unwrap_or_default().as_secs_f64();
    draft.note(format!("processes began a phase {:.2} ms apart at most", skew * 1000.0));
}

/// What the lines through the times say of other distances, and where the tier begins to pay.
fn predictions(draft: &mut ResultBuilder, distances: &[RenderDistance]) {
    let fits = CacheMode::ALL.map(|mode| line_through(distances, mode));
    let [Some(direct), Some(cold), Some(warm)] = fits else { return };
    let at = |line: &FittedLine, profile: &Profile| line.predict(profile.rtt.as_secs_f64());
    let time = |line: &FittedLine, profile: &Profile| Cell::Number(round(at(line, profile), 2));
    let gain = |tier: &FittedLine, profile: &Profile| {
        Cell::Number(round(at(&direct, profile) / at(tier, profile), 2))
    };
    let predicted = columns::table(
        "Predicted for named distances",
        &Profile::ALL,
        |_| Vec::new(),
        &[
            ("Distance", &|profile| Cell::text(profile.name)),
            ("RTT ms", &|profile| Cell::Number(round(profile.rtt.as_secs_f64() * 1000.0, 1))),
            ("Direct s", &|profile| time(&direct, profile)),
            ("Cold s", &|profile| time(&cold, profile)),
            ("Warm s", &|profile| time(&warm, profile)),
            ("x cold", &|profile| gain(&cold, profile)),
            ("x warm", &|profile| gain(&warm, profile)),
        ],
    );
    draft.file.tables.push(predicted.noted([
        "From straight lines through all repetitions; beyond the measured distances it is a guess.",
    ]));
    draft.verdict(where_faster(
        direct.intercept.value - cold.intercept.value,
        direct.slope.value - cold.slope.value,
    ));
}

/// At which distances an empty tier is faster: by what it saves at no distance, in seconds, and for each second of
/// round trip.
fn where_faster(near: f64, each: f64) -> String {
    let ms = -near / each * 1000.0;
    match (near >= 0.0, each >= 0.0) {
        (true, true) => "an empty tier is not slower at any distance".to_owned(),
        (false, true) if ms.is_finite() => {
            format!("an empty tier is faster from {ms:.1} ms of round trip on")
        }
        (true, false) => format!("an empty tier is faster up to {ms:.1} ms of round trip, and slower beyond"),
        (false, _) => "an empty tier is slower at every distance".to_owned(),
    }
}

/// The published column, fitted as ours is: the two can be compared.
fn refit(draft: &mut ResultBuilder) {
    if let Some(line) = fit::line(&PUBLISHED.vfxt.direct()) {
        draft.note(format!(
            "the study's direct column, fitted the same way: {:.0} s + {:.2} s for each ms (R2 {:.2}), {:.0} serial round trips",
            line.intercept.value,
            line.slope.value,
            line.r2,
            line.slope.value * 1000.0
        ));
    }
}

/// Seconds of the job over seconds of round trip, all repetitions; None where there are too few distances.
pub fn line_through(distances: &[RenderDistance], mode: CacheMode) -> Option<FittedLine> {
    if distances.len() < DISTANCES_MIN {
        return None;
    }
    let times = |row: &RenderDistance| {
        let rtt = row.line.rtt_ms / 1000.0;
        row.makespans(mode).into_iter().map(move |seconds| (rtt, seconds))
    };
    fit::line(&distances.iter().flat_map(times).collect::<Vec<_>>())
}

/// The line through the direct times: its slope is a count.
fn slope(draft: &mut ResultBuilder, plan: &RenderPlan, distances: &[RenderDistance]) {
    if distances.len() < DISTANCES_MIN {
        let n = distances.len();
        return draft.note(format!("no line through {n} distances; give {DISTANCES_MIN} or more --rtt"));
    }
    let Some(line) = line_through(distances, CacheMode::Direct) else {
        return draft.warning("no line through the direct times");
    };
    let interval = line
        .slope
        .interval
        .map(|(low, high)| format!(" [{}, {}]", fixed(low, 1), fixed(high, 1)))
        .unwrap_or_default();
    draft.verdict(format!(
        "direct = {} s + {:.4} s for each ms of round trip (R2 {:.4}): {}{interval} serial round trips in a frame; the \
         client's calls allow {:.0}",
        fixed(line.intercept.value, 2),
        line.slope.value / 1000.0,
        line.r2,
        fixed(line.slope.value, 1),
        plan.round_trips()
    ));
    for mode in [CacheMode::Cold, CacheMode::Warm] {
        if let Some(line) = line_through(distances, mode) {
            let trips = fixed(line.slope.value, 1);
            draft.verdict(format!("{mode}: {trips} serial round trips in a frame"));
        }
    }
}

/// What is passed on: the medians at the farthest distance.
fn in_a_sentence(far: &RenderDistance) -> String {
    let [direct, cold, warm] =
        CacheMode::ALL.map(|mode| fixed(far.middle(mode, Sample::makespan).unwrap_or(f64::NAN), 1));
    format!(
        "at {:.0} ms a frame takes {direct} s direct, {cold} s the first time, {warm} s from then on",
        far.nominal_ms()
    )
}

/// Seconds of a frame that at least 99 % of the nodes' were not above.
fn p99_frame(sample: &Sample) -> f64 {
    let mut frames: Vec<f64> = sample.phase.spans.iter().map(|span| span.end_s - span.start_s).collect();
    frames.sort_by(f64::total_cmp);
    let at = ((frames.len() as f64 * 0.99).ceil() as usize).max(1) - 1;
    frames.get(at).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::where_faster;

    #[test]
    fn where_an_empty_tier_is_faster_depends_on_both_ends_of_the_lines() {
        assert!(where_faster(0.1, 3.0).contains("not slower at any"));
        assert!(where_faster(-0.3, 3.0).contains("faster from 100.0 ms"));
        assert!(where_faster(0.3, -3.0).contains("faster up to 100.0 ms"));
        assert!(where_faster(-0.3, -3.0).contains("slower at every"));
        assert!(where_faster(-0.3, 0.0).contains("slower at every"));
    }
}
