//! The study's answer in ten lines: how far, what that costs, what the tier buys, what it is worth, and what limits it.

use bench_report::fit::FittedLine;
use bench_report::format::round;
use bench_report::{AnswerLine, AnswerPart, Cell};
use relay::Profile;

use super::table::line_through;
use super::{RenderDistance, RenderPlan};
use crate::{CacheMode, GIB, Sample, TierPrices, sample};

const TB: f64 = 1e12;
/// A predicted time has no more digits than this.
const DIGITS: i32 = 2;
const TIER_MODES: [CacheMode; 2] = [CacheMode::Cold, CacheMode::Warm];

/// About the farthest line; its triples are not empty.
pub fn ten_lines(
    plan: &RenderPlan,
    distances: &[RenderDistance],
    prices: Option<&TierPrices>,
) -> Vec<AnswerLine> {
    let Some(far) = distances.last() else { return Vec::new() };
    let at = format!("at {:.1} ms", far.line.rtt_ms);
    let direct = line_through(distances, CacheMode::Direct);
    let rtts = distances.iter().map(|row| Cell::Number(round(row.line.rtt_ms, 2)));
    vec![
        AnswerLine::new("round trip", rtts.map(|rtt| AnswerPart::new("", rtt, "ms")).collect()),
        of_modes("round trips per open-read-close", CacheMode::ALL, "", |mode| {
            per_file(plan, line_through(distances, mode))
        }),
        slow_down(direct.as_ref()),
        of_modes(format!("time of the job {at}"), CacheMode::ALL, "s", |mode| far.time(mode)),
        of_modes(format!("speed-up {at}"), TIER_MODES, "x", |mode| far.gain(mode)),
        saved(far),
        AnswerLine::one("coalescing, cold", far.coalescing(), "reads for each READ at the storage"),
        cost(far, prices),
        of_modes(format!("limited {at} by"), CacheMode::ALL, "", |mode| limit(plan, far, mode)),
    ]
}

/// A line with a value for each of these states.
fn of_modes<const N: usize>(
    what: impl Into<String>,
    modes: [CacheMode; N],
    unit: &str,
    value: impl Fn(CacheMode) -> Cell,
) -> AnswerLine {
    AnswerLine::new(what, modes.map(|mode| AnswerPart::new(mode.to_string(), value(mode), unit)).into())
}

/// The round trips of one file, as a node's client opens, reads and closes it.
fn per_file(plan: &RenderPlan, line: Option<FittedLine>) -> Cell {
    let Some(line) = line else { return Cell::missing("it takes three --rtt") };
    let slope = line.slope.times(1.0 / plan.layout.files.max(1) as f64);
    let digits = |value: f64| round(value, 3);
    let interval = slope.interval.map(|(low, high)| (digits(low), digits(high)));
    Cell::Estimate { median: digits(slope.value), interval, n: line.n }
}

/// The direct job at named distances, against no distance at all.
fn slow_down(direct: Option<&FittedLine>) -> AnswerLine {
    let what = "predicted slow-down, direct";
    let Some(line) = direct else { return AnswerLine::one(what, Cell::missing("it takes three --rtt"), "") };
    let here = line.intercept.value;
    if here <= 0.0 {
        return AnswerLine::one(what, Cell::missing("without distance there is no time left"), "");
    }
    let part = |profile: &Profile| {
        let seconds = line.predict(profile.rtt.as_secs_f64());
        AnswerPart::new(profile.name, Cell::Number(round(seconds / here, DIGITS)), "x")
    };
    AnswerLine::new(what, Profile::ALL.iter().map(part).collect())
}

fn saved(far: &RenderDistance) -> AnswerLine {
    let less = |mode, value: fn(&Sample) -> f64, digits| {
        let both = far.middle(CacheMode::Direct, value).zip(far.middle(mode, value));
        let less = |(direct, with): (f64, f64)| Cell::Number(round(direct - with, digits));
        both.map_or(Cell::missing("not measured"), less)
    };
    let parts = TIER_MODES.into_iter().flat_map(|mode| {
        [
            AnswerPart::new(mode.to_string(), less(mode, |s| s.origin_bytes as f64 / GIB, 4), "GiB"),
            AnswerPart::new("", less(mode, |s| s.origin_calls as f64, 0), "requests"),
        ]
    });
    AnswerLine::new("saved at the storage by a pass", parts.collect())
}

fn cost(far: &RenderDistance, prices: Option<&TierPrices>) -> AnswerLine {
    let what = "cost of each TB read";
    let Some(prices) = prices else { return AnswerLine::one(what, Cell::missing("no --prices"), "") };
    of_modes(what, CacheMode::ALL, &prices.currency, |mode| {
        let pass = prices.of(sample::pass(&far.triples, mode));
        let read = far.middle(mode, |s| s.phase.bytes_read as f64).filter(|bytes| *bytes > 0.0);
        read.map_or(Cell::missing("nothing was read"), |bytes| Cell::Number(round(pass / bytes * TB, 4)))
    })
}

/// What limited the last repetition; the findings say how busy that was, and what was not measured.
fn limit(plan: &RenderPlan, far: &RenderDistance, mode: CacheMode) -> Cell {
    match far.limited(plan, mode).map(|told| told.limit) {
        Some(Some(limit)) => Cell::text(limit.to_string()),
        Some(None) => Cell::missing("no part that was measured is busy"),
        None => Cell::missing("not measured"),
    }
}
