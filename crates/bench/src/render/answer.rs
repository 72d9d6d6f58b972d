//! The study's answer in ten lines: how far, what that costs, what the tier buys, what it is worth, and what limits it.

use bench_report::bottleneck::Bottleneck;
use bench_report::fit;
use bench_report::model::{AnswerLine, AnswerPart, Cell};
use bench_report::summary::{estimate, median};
use relay::Profile;

use super::RenderPlan;
use super::table::{coalescing, limited, line_through, makespans, round};
use crate::sample::{self, CacheMode, Sample, Triple};
use crate::testbed::Line;
use crate::value::TierPrices;

const GIB: f64 = 1_073_741_824.0;
const TB: f64 = 1e12;
/// A predicted time has no more digits than this.
const DIGITS: i32 = 2;

/// About the farthest line; its triples are not empty.
pub fn ten_lines(
    plan: &RenderPlan,
    lines: &[Line],
    triples: &[Vec<Triple>],
    prices: Option<&TierPrices>,
) -> Vec<AnswerLine> {
    let (Some(far), Some(at_far)) = (lines.last(), triples.last()) else { return Vec::new() };
    let at = format!("at {:.1} ms", far.rtt_ms);
    let fits = CacheMode::ALL.map(|mode| line_through(lines, triples, mode));
    vec![
        AnswerLine::new(
            "round trip",
            lines.iter().map(|line| AnswerPart::new("", Cell::Number(round(line.rtt_ms, 2)), "ms")).collect(),
        ),
        round_trips(plan, &fits),
        slow_down(fits[0].as_ref()),
        AnswerLine::new(
            format!("time of the job {at}"),
            CacheMode::ALL
                .map(|mode| AnswerPart::new(mode.name(), estimate(&makespans(at_far, mode)), "s"))
                .into(),
        ),
        AnswerLine::new(
            format!("speed-up {at}"),
            [CacheMode::Cold, CacheMode::Warm].map(|mode| gain(at_far, mode)).into(),
        ),
        saved(at_far),
        AnswerLine::one("coalescing, cold", shared(at_far), "reads for each READ at the storage"),
        cost(at_far, prices),
        AnswerLine::new(
            format!("limited {at} by"),
            CacheMode::ALL
                .map(|mode| AnswerPart::new(mode.name(), limit(plan, far, at_far, mode), ""))
                .into(),
        ),
    ]
}

/// The round trips of one file, as a node's client opens, reads and closes it.
fn round_trips(plan: &RenderPlan, fits: &[Option<fit::FittedLine>; 3]) -> AnswerLine {
    let files = plan.layout.files.max(1) as f64;
    let part = |(mode, line): (CacheMode, &Option<fit::FittedLine>)| {
        let value = match line {
            Some(line) => per_file(line, files),
            None => Cell::missing("it takes three --rtt"),
        };
        AnswerPart::new(mode.name(), value, "")
    };
    AnswerLine::new(
        "round trips per open-read-close",
        CacheMode::ALL.into_iter().zip(fits).map(part).collect(),
    )
}

fn per_file(line: &fit::FittedLine, files: f64) -> Cell {
    let slope = line.slope.times(1.0 / files);
    let digits = |value: f64| round(value, 3);
    let interval = slope.interval.map(|(low, high)| (digits(low), digits(high)));
    Cell::Estimate { median: digits(slope.value), interval, n: line.n }
}

/// The direct job at named distances, against no distance at all.
fn slow_down(direct: Option<&fit::FittedLine>) -> AnswerLine {
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

fn gain(triples: &[Triple], mode: CacheMode) -> AnswerPart {
    let gains: Vec<f64> = triples.iter().map(|t| t.direct.makespan / t.of(mode).makespan).collect();
    AnswerPart::new(mode.name(), estimate(&gains), "x")
}

fn middle(triples: &[Triple], mode: CacheMode, value: impl Fn(&Sample) -> f64) -> Option<f64> {
    median(&triples.iter().map(|triple| value(triple.of(mode))).collect::<Vec<_>>())
}

/// What the storage gives less in each pass through the tier.
fn saved(triples: &[Triple]) -> AnswerLine {
    let less = |mode: CacheMode, value: &dyn Fn(&Sample) -> f64, digits: i32| match (
        middle(triples, CacheMode::Direct, value),
        middle(triples, mode, value),
    ) {
        (Some(direct), Some(with)) => Cell::Number(round(direct - with, digits)),
        _ => Cell::missing("not measured"),
    };
    let parts = [CacheMode::Cold, CacheMode::Warm].into_iter().flat_map(|mode| {
        [
            AnswerPart::new(mode.name(), less(mode, &|s| s.origin_bytes as f64 / GIB, 4), "GiB"),
            AnswerPart::new("", less(mode, &|s| s.origin_calls as f64, 0), "requests"),
        ]
    });
    AnswerLine::new("saved at the storage by a pass", parts.collect())
}

fn shared(triples: &[Triple]) -> Cell {
    let all: Vec<f64> = triples.iter().filter_map(coalescing).collect();
    median(&all).map_or(Cell::missing("nobody waited"), |shared| Cell::Number(round(shared, 1)))
}

/// The cost of 10^12 bytes that nodes read.
fn cost(triples: &[Triple], prices: Option<&TierPrices>) -> AnswerLine {
    let what = "cost of each TB read";
    let Some(prices) = prices else { return AnswerLine::one(what, Cell::missing("no --prices"), "") };
    let part = |mode: CacheMode| {
        let pass = prices.of(sample::pass(triples, mode));
        let read = middle(triples, mode, |s| s.bytes_read as f64).filter(|bytes| *bytes > 0.0);
        let value =
            read.map_or(Cell::missing("nothing was read"), |bytes| Cell::Number(round(pass / bytes * TB, 4)));
        AnswerPart::new(mode.name(), value, &prices.currency)
    };
    AnswerLine::new(what, CacheMode::ALL.map(part).into())
}

/// What limited the last repetition; the findings say how busy that was, and what was not measured.
fn limit(plan: &RenderPlan, far: &Line, triples: &[Triple], mode: CacheMode) -> Cell {
    let told: Option<Bottleneck> = triples.last().map(|triple| limited(plan, far, triple.of(mode), mode));
    match told.map(|told| told.limit) {
        Some(Some(limit)) => Cell::text(limit.to_string()),
        Some(None) => Cell::missing("no part that was measured is busy"),
        None => Cell::missing("not measured"),
    }
}
