//! From samples to what a reader gets: the study's columns, the extended ones, the line through the direct times, and
//! the answer in a few sentences.

use bench_report::bottleneck::Bottleneck;
use bench_report::fit;
use bench_report::format::fixed;
use bench_report::histogram::Histogram;
use bench_report::model::{Axis, Better, Cell, Measure, Plot, PlotKind, Series, Table, TableRow};
use bench_report::published::PUBLISHED;
use bench_report::sanity;
use bench_report::summary::{estimate, median, noise_floor, point};
use relay::Profile;

use super::{RenderPlan, demanded};
use crate::ceiling::MachineCeiling;
use crate::limit;
use crate::results::ResultBuilder;
use crate::sample::{self, CacheMode, Sample, Triple};
use crate::testbed::Line;
use crate::value::TierPrices;
use crate::worker_phases;

/// A line through fewer distances is no line.
const DISTANCES_MIN: usize = 3;

pub fn fill(
    draft: &mut ResultBuilder,
    plan: &RenderPlan,
    ceiling: &MachineCeiling,
    lines: &[Line],
    triples: &[Vec<Triple>],
    prices: Option<&TierPrices>,
) {
    parameters(draft, plan, lines);
    let verdicts: Vec<Vec<String>> = triples.iter().map(|t| invalid(plan, ceiling, t)).collect();
    draft.file.tables.push(faithful(plan, lines, triples, &verdicts));
    draft.file.tables.push(PUBLISHED.vfxt.results.table());
    if !plan.faithful {
        draft.file.tables.push(extended(plan, lines, triples, &verdicts));
    }
    draft.file.plots.push(against_rtt(lines, triples));
    if let (Some(far), Some(first)) = (lines.last(), triples.last().and_then(|t| t.first())) {
        let title = format!("Throughput at {} ms, first repetition", nominal_ms(far));
        let moved = CacheMode::ALL.map(|mode| (mode.name().to_owned(), &first.of(mode).series));
        draft.file.plots.push(worker_phases::throughput(&title, moved));
    }
    draft.file.plots.push(PUBLISHED.vfxt.plot());
    measures(draft, lines, triples, &verdicts);
    slopes(draft, lines, triples, &verdicts);
    histograms(draft, lines, triples);
    answers(draft, plan, lines, triples);
    if let Some(far) = triples.last() {
        sample::worth(draft, far, prices);
    }
    predictions(draft, lines, triples);
    refit(draft);
    for warning in lines.iter().filter_map(Line::warning) {
        draft.warning(warning);
    }
}

fn parameters(draft: &mut ResultBuilder, plan: &RenderPlan, lines: &[Line]) {
    draft.parameter("nodes", plan.nodes);
    draft.parameter("files", plan.layout.files);
    draft.parameter("file_bytes", plan.layout.size_limits().1);
    draft.parameter("compute_seconds", plan.compute.as_secs_f64());
    let nominal: Vec<f64> = lines.iter().map(|line| line.nominal.as_secs_f64() * 1000.0).collect();
    draft.parameter("rtt_ms", nominal);
    draft.parameter("rate_bytes_per_second", plan.rate.map_or(0, |rate| rate.bytes_per_second()));
    draft.parameter("stagger_seconds", plan.stagger.map_or(0.0, |stagger| stagger.every_s));
}

/// Why the row must not be believed.
fn invalid(plan: &RenderPlan, ceiling: &MachineCeiling, triples: &[Triple]) -> Vec<String> {
    let (unique, all) = (plan.layout.total_bytes(), demanded(plan));
    let mut reasons = Vec::new();
    for triple in triples {
        for mode in CacheMode::ALL {
            let sample = triple.of(mode);
            let name = mode.name();
            reasons.extend(sample.faults.iter().map(|fault| format!("{name}: {fault}")));
            if let Some(why) = sanity::too_short(sample.makespan) {
                reasons.push(format!("{name}: {why}"));
            }
            let why = limit::sample_exceeded(sample, mode, plan.rate, ceiling);
            reasons.extend(why.map(|why| format!("{name}: {why}")));
        }
        reasons.extend(sample::unproved(triple, unique, all));
    }
    reasons.sort();
    reasons.dedup();
    reasons
}

pub(super) fn makespans(triples: &[Triple], mode: CacheMode) -> Vec<f64> {
    triples.iter().map(|triple| triple.of(mode).makespan).collect()
}

fn row(cells: Vec<Cell>, invalid: &[String]) -> TableRow {
    TableRow { invalid: invalid.to_vec(), ..TableRow::new(cells) }
}

/// The study's columns.
fn faithful(plan: &RenderPlan, lines: &[Line], triples: &[Vec<Triple>], invalid: &[Vec<String>]) -> Table {
    let rows = lines.iter().zip(triples).zip(invalid).map(|((line, triples), invalid)| {
        let place = PUBLISHED.vfxt.place(nominal_ms(line));
        let name = place.map_or_else(|| format!("{} ms", nominal_ms(line)), |place| format!("as {place}"));
        let from_last_start = |s: &f64| (s - plan.stagger_s()).max(0.0);
        let time = |mode| estimate(&makespans(triples, mode).iter().map(from_last_start).collect::<Vec<_>>());
        let cells = vec![
            Cell::text(name),
            Cell::Number(round(line.rtt_ms, 1)),
            time(CacheMode::Direct),
            time(CacheMode::Cold),
            time(CacheMode::Warm),
        ];
        row(cells, invalid)
    });
    let columns = [
        "NFS Location",
        "Roundtrip Latency (ms)",
        "Direct Connect (s)",
        "Cold Forebay (s)",
        "Warm Forebay (s)",
    ];
    Table::new("The study's table, measured here", columns, rows.collect()).noted([
        "Seconds from the start (of the last nodes, if they do not start together) to the last frame; the median of the repetitions and its 95 % interval. The round \
         trip is as measured through the line."
            ,
        "Frames are read and not written.",
    ])
}

fn extended(plan: &RenderPlan, lines: &[Line], triples: &[Vec<Triple>], invalid: &[Vec<String>]) -> Table {
    let rows = lines.iter().zip(triples).zip(invalid).map(|((line, triples), invalid)| {
        let of = |mode: CacheMode, value: fn(&Sample) -> f64| -> Vec<f64> {
            triples.iter().map(|triple| value(triple.of(mode))).collect()
        };
        let middle = |mode: CacheMode, value: fn(&Sample) -> f64| median(&of(mode, value));
        let three = |value: fn(&Sample) -> f64, digits: i32| {
            let parts = CacheMode::ALL
                .map(|mode| middle(mode, value).map_or("-".into(), |v| format!("{}", round(v, digits))));
            Cell::text(parts.join(" / "))
        };
        let gain = |mode: CacheMode| -> Vec<f64> {
            triples.iter().map(|triple| triple.direct.makespan / triple.of(mode).makespan).collect()
        };
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        let cpu: Vec<String> = CacheMode::ALL
            .map(|mode| {
                let cpu = |s: &Sample| {
                    (s.client_cpu + s.tier_cpu + s.origin_cpu.unwrap_or(0.0))
                        / (s.bytes_read as f64 / f64::from(1 << 30))
                };
                middle(mode, cpu).map_or("-".into(), |v| format!("{v:.1}"))
            })
            .to_vec();
        let coalescing = median(&triples.iter().filter_map(coalescing).collect::<Vec<_>>());
        let cells = vec![
            Cell::text(format!("{} ms", nominal_ms(line))),
            Cell::Number(round(line.rtt_ms, 1)),
            plan.rate.map_or(Cell::text("unlimited"), |rate| Cell::text(rate.to_string())),
            Cell::missing("not measured"),
            Cell::Count(triples.len() as u64),
            estimate(&of(CacheMode::Direct, |s| s.makespan)),
            estimate(&of(CacheMode::Cold, |s| s.makespan)),
            estimate(&of(CacheMode::Warm, |s| s.makespan)),
            estimate(&gain(CacheMode::Cold)),
            estimate(&gain(CacheMode::Warm)),
            {
                let parts = CacheMode::ALL.map(|mode| {
                    let bytes = middle(mode, |s| s.origin_bytes as f64).unwrap_or(0.0);
                    format!("{:.4}", gib(bytes as u64))
                });
                Cell::text(parts.join(" / "))
            },
            three(|s| s.origin_bytes as f64 / s.bytes_read.max(1) as f64, 3),
            three(|s| s.origin_calls as f64, 0),
            coalescing.map_or(Cell::missing("nobody waited"), |c| Cell::Number(round(c, 1))),
            three(|s| percentile(&s.frames, 0.99), 2),
            Cell::text(cpu.join(" / ")),
            three(|s| s.client_switches.all() as f64 / s.client_calls.max(1) as f64, 2),
            tier_switches(triples),
            wire_bytes(triples),
            Cell::text(if invalid.is_empty() { "yes" } else { "INVALID" }),
        ];
        row(cells, invalid)
    });
    let columns = [
        "Profile",
        "RTT ms",
        "BW",
        "Loss %",
        "n",
        "Direct s",
        "Cold s",
        "Warm s",
        "x cold",
        "x warm",
        "origin GiB D/C/W",
        "amplification D/C/W",
        "origin req D/C/W",
        "coalescing",
        "p99 frame s D/C/W",
        "CPU-s/GiB D/C/W",
        "switches/call, clients D/C/W",
        "switches/call, tier C/W",
        "wire B / payload B D/C",
        "valid",
    ];
    Table::new("Extended: what it costs the storage and the machines", columns, rows.collect()).noted([
        "Origin bytes and requests: payload and NFS calls, from the tier's own counters; direct, from the clients'. \
         D/C/W: direct, cold, warm."
            .into(),
        "Amplification: bytes from the storage for each byte that a node read.".to_owned(),
        "Coalescing: reads that waited for absent bytes, for each READ at the storage.".to_owned(),
        "CPU: user and system seconds of clients, tier and storage for each GiB that the clients read; the line's own \
         work is not in it."
            .into(),
        "Switches: how often a thread of the clients (of the tier) left the processor, voluntarily or not, for each NFS call \
         of the clients. Wire: bytes that came down the line for each byte of payload from the storage."
            .into(),
        "Valid: direct if all bytes came over the line, cold if the storage gave the scene once, warm if it gave nothing.".to_owned(),
    ])
}

/// The tier's switches for each call that clients made to it.
fn tier_switches(triples: &[Triple]) -> Cell {
    let parts = [CacheMode::Cold, CacheMode::Warm].map(|mode| {
        let of = |triple: &Triple| {
            let sample = triple.of(mode);
            Some(sample.tier_switches?.all() as f64 / sample.client_calls.max(1) as f64)
        };
        median(&triples.iter().filter_map(of).collect::<Vec<_>>()).map_or("-".into(), |v| format!("{v:.2}"))
    });
    Cell::text(parts.join(" / "))
}

/// A warm pass has no payload from there.
fn wire_bytes(triples: &[Triple]) -> Cell {
    let parts = [CacheMode::Direct, CacheMode::Cold].map(|mode| {
        let of = |triple: &Triple| {
            let sample = triple.of(mode);
            (sample.origin_bytes > 0).then(|| sample.line_bytes as f64 / sample.origin_bytes as f64)
        };
        median(&triples.iter().filter_map(of).collect::<Vec<_>>()).map_or("-".into(), |v| format!("{v:.3}"))
    });
    Cell::text(parts.join(" / "))
}

pub(super) fn coalescing(triple: &Triple) -> Option<f64> {
    let cold = &triple.cold;
    (cold.origin_reads > 0).then(|| cold.waits as f64 / cold.origin_reads as f64)
}

fn against_rtt(lines: &[Line], triples: &[Vec<Triple>]) -> Plot {
    let series = CacheMode::ALL.map(|mode| {
        let points = lines
            .iter()
            .zip(triples)
            .filter_map(|(line, triples)| point(line.rtt_ms, &makespans(triples, mode)));
        Series::ours(mode.name(), points.collect())
    });
    Plot {
        title: "Time of the job against the distance of its storage".to_owned(),
        x: Axis::linear("round trip (ms)"),
        y: Axis::linear("all frames (s)"),
        kind: PlotKind::Lines,
        series: series.into(),
    }
}

fn measures(draft: &mut ResultBuilder, lines: &[Line], triples: &[Vec<Triple>], invalid: &[Vec<String>]) {
    for ((line, triples), invalid) in lines.iter().zip(triples).zip(invalid) {
        for mode in CacheMode::ALL {
            let name = format!("{} time, rtt {} ms", mode.name(), nominal_ms(line));
            let (unit, better, values) = ("s".to_owned(), Better::Lower, makespans(triples, mode));
            draft.measure(Measure::new(name, unit, better, values), invalid);
        }
    }
}

/// The slope of each repetition by itself: a quantity that two runs can be compared by.
fn slopes(draft: &mut ResultBuilder, lines: &[Line], triples: &[Vec<Triple>], invalid: &[Vec<String>]) {
    let repetitions = triples.iter().map(Vec::len).min().unwrap_or(0);
    let of = |repetition: usize| {
        let points: Vec<(f64, f64)> = lines
            .iter()
            .zip(triples)
            .map(|(line, t)| (line.rtt_ms / 1000.0, t[repetition].direct.makespan))
            .collect();
        fit::line(&points).ok().map(|line| line.slope.value)
    };
    let values: Vec<f64> = (0..repetitions).filter_map(of).collect();
    if lines.len() >= DISTANCES_MIN && !values.is_empty() {
        let name = "serial round trips in a frame, direct".to_owned();
        let measure = Measure::new(name, "round trips", Better::Lower, values);
        draft.measure(measure, &invalid.concat());
    }
}

fn histograms(draft: &mut ResultBuilder, lines: &[Line], triples: &[Vec<Triple>]) {
    for (line, triples) in lines.iter().zip(triples) {
        for mode in CacheMode::ALL {
            let mut all = Histogram::new();
            triples.iter().for_each(|triple| all.merge(&triple.of(mode).service));
            draft.file.histograms.push(all.to_named(format!(
                "read, {}, {} ms",
                mode.name(),
                nominal_ms(line)
            )));
        }
    }
}

fn answers(draft: &mut ResultBuilder, plan: &RenderPlan, lines: &[Line], triples: &[Vec<Triple>]) {
    if let (Some(far), Some(at_far)) = (lines.last(), triples.last()) {
        draft.verdict(in_a_sentence(far, at_far));
    }
    slope(draft, plan, lines, triples);
    let (Some(far), Some(at_far)) = (lines.last(), triples.last()) else { return };
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    let warm: Vec<Vec<f64>> = triples.iter().map(|t| makespans(t, CacheMode::Warm)).collect();
    if let Some(noise) = noise_floor(warm.iter().map(Vec::as_slice)) {
        draft.note(format!("noise floor: warm repetitions vary by {:.1} %", noise * 100.0));
    }
    for mode in CacheMode::ALL {
        if let Some(last) = at_far.last() {
            let (told, compute) = limits(plan, far, last.of(mode), mode);
            draft.limit(format!("{} at {:.1} ms ({compute})", mode.name(), far.rtt_ms), &told);
        }
    }
    let peak = triples
        .iter()
        .flatten()
        .map(|t| t.cold.tier_peak_bytes.max(t.warm.tier_peak_bytes))
        .max()
        .unwrap_or(0);
    let client = triples
        .iter()
        .flatten()
        .flat_map(|t| CacheMode::ALL.map(|m| t.of(m).client_peak_bytes))
        .max()
        .unwrap_or(0);
    draft.note(format!(
        "resident at most: the tier {:.0} MiB, a process of the bench {:.0} MiB",
        mib(peak as f64),
        mib(client as f64)
    ));
    let skew =
        triples.iter().flatten().flat_map(|t| CacheMode::ALL.map(|mode| t.of(mode).skew)).fold(0.0, f64::max);
    draft.note(format!("processes began a phase {:.2} ms apart at most", skew * 1000.0));
}

/// What the lines through the times say of other distances, and where the tier begins to pay.
fn predictions(draft: &mut ResultBuilder, lines: &[Line], triples: &[Vec<Triple>]) {
    let fits = CacheMode::ALL.map(|mode| line_through(lines, triples, mode));
    let [Some(direct), Some(cold), Some(warm)] = fits else { return };
    let rows = Profile::ALL.iter().map(|profile| {
        let ms = profile.rtt.as_secs_f64() * 1000.0;
        let [d, c, w] = [&direct, &cold, &warm].map(|line| line.predict(profile.rtt.as_secs_f64()));
        let times = [d, c, w].map(|s| Cell::Number(round(s, 2)));
        let mut cells = vec![Cell::text(profile.name), Cell::Number(round(ms, 1))];
        cells.extend(times);
        cells.extend([Cell::Number(round(d / c, 2)), Cell::Number(round(d / w, 2))]);
        TableRow::new(cells)
    });
    let columns = ["Distance", "RTT ms", "Direct s", "Cold s", "Warm s", "x cold", "x warm"];
    draft.file.tables.push(Table::new("Predicted for named distances", columns, rows.collect()).noted([
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
    if let Ok(line) = fit::line(&PUBLISHED.vfxt.direct()) {
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
pub(super) fn line_through(
    lines: &[Line],
    triples: &[Vec<Triple>],
    mode: CacheMode,
) -> Option<fit::FittedLine> {
    if lines.len() < DISTANCES_MIN {
        return None;
    }
    let times = lines.iter().zip(triples);
    let points: Vec<(f64, f64)> = times
        .flat_map(|(line, t)| makespans(t, mode).into_iter().map(|s| (line.rtt_ms / 1000.0, s)))
        .collect();
    fit::line(&points).ok()
}

/// The line through the direct times: its slope is a count.
fn slope(draft: &mut ResultBuilder, plan: &RenderPlan, lines: &[Line], triples: &[Vec<Triple>]) {
    if lines.len() < DISTANCES_MIN {
        return draft
            .note(format!("no line through {} distances; give {DISTANCES_MIN} or more --rtt", lines.len()));
    }
    let Some(line) = line_through(lines, triples, CacheMode::Direct) else {
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
        if let Some(line) = line_through(lines, triples, mode) {
            let trips = fixed(line.slope.value, 1);
            draft.verdict(format!("{}: {trips} serial round trips in a frame", mode.name()));
        }
    }
}

pub(super) fn limited(plan: &RenderPlan, line: &Line, sample: &Sample, mode: CacheMode) -> Bottleneck {
    let serial = match mode {
        CacheMode::Direct => Some(plan.round_trips()),
        // At least one for each file that nobody has yet.
        CacheMode::Cold => Some(plan.layout.files as f64),
        CacheMode::Warm => None,
    };
    limit::of_sample(sample, mode, line, plan.rate, serial)
}

fn limits(plan: &RenderPlan, line: &Line, sample: &Sample, mode: CacheMode) -> (Bottleneck, String) {
    let told = limited(plan, line, sample, mode);
    let compute = (plan.compute.as_secs_f64() / sample.makespan.max(0.001)).min(1.0) * 100.0;
    (told, format!("the job's own compute is {compute:.0} % of the time"))
}

/// What is passed on: the medians at the farthest distance.
fn in_a_sentence(far: &Line, triples: &[Triple]) -> String {
    let [direct, cold, warm] =
        CacheMode::ALL.map(|mode| fixed(median(&makespans(triples, mode)).unwrap_or(f64::NAN), 1));
    format!(
        "at {:.0} ms a frame takes {direct} s direct, {cold} s the first time, {warm} s from then on",
        nominal_ms(far)
    )
}

fn nominal_ms(line: &Line) -> f64 {
    line.nominal.as_secs_f64() * 1000.0
}

pub(super) fn round(value: f64, digits: i32) -> f64 {
    let factor = 10_f64.powi(digits);
    (value * factor).round() / factor
}

/// The smallest value that at least this share is not above.
fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = ((sorted.len() as f64 * share).ceil() as usize).max(1) - 1;
    sorted.get(at).copied().unwrap_or(f64::NAN)
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
