//! Rules that numbers must obey before anybody believes them, each named after a fault found in published results.
//!
//! A rule answers None, or the reason why the row must not be believed: what [`TableRow::invalid`](crate::model::TableRow)
//! holds, so that `row.invalid.extend(rule)` is all there is to do. A rule never repairs a number.

use crate::distribution::extremes;
use crate::summary::{coefficient_of_variation, mean};

/// Shorter rows measure start-up and timer resolution.
pub const ROW_SECONDS_MIN: f64 = 1.0;
/// A rate may differ from a limit by rounding to three digits.
const RATE_TOLERANCE: f64 = 0.01;
/// Requests in flight, throughput x latency, may differ from the workers by so much: ramps at both ends.
const LITTLE_TOLERANCE: f64 = 0.1;
/// Random reads this much faster than sequential ones are noise at the usual repetitions.
const RANDOM_TOLERANCE: f64 = 0.1;
/// A link filled to this fraction is full: the rest is headers and pauses.
const LINK_FULL: f64 = 0.9;
/// Rates a node of different shapes that vary by less than this look like one cap.
const CAP_VARIATION_MAX: f64 = 0.08;
/// A cap of the link is believed if so many different shapes show it.
const CAP_SHAPES_MIN: usize = 3;

/// Little's law of a closed loop without think time: operations a second x latency in seconds = workers.
pub fn little(operations_per_second: f64, latency_seconds: f64, workers: u64) -> Option<String> {
    let in_flight = operations_per_second * latency_seconds;
    let off = (in_flight / workers as f64 - 1.0).abs();
    (!in_flight.is_finite() || off > LITTLE_TOLERANCE).then(|| {
        format!(
            "throughput x latency = {in_flight:.1} operations in flight, and there were {workers} workers"
        )
    })
}

/// A row shorter than 1 s; the bench's clock counts microseconds, so its rounding is nothing then.
pub fn too_short(seconds: f64) -> Option<String> {
    (seconds.is_nan() || seconds < ROW_SECONDS_MIN).then(|| {
        format!("too short: {seconds:.3} s, needed {ROW_SECONDS_MIN} s; use more data or more passes")
    })
}

/// Random reads faster than sequential ones of the same data were served by a cache that should have been empty.
pub fn random_above_sequential(random_rate: f64, sequential_rate: f64) -> Option<String> {
    let ratio = random_rate / sequential_rate;
    (ratio > 1.0 + RANDOM_TOLERANCE).then(|| {
        format!("random reads are {ratio:.2} times as fast as sequential ones: some cache served them")
    })
}

/// Nothing moves faster than what it moves through, unless it was declared cached. Bytes a second.
pub fn faster_than(rate: f64, limit: f64, what: &str) -> Option<String> {
    (rate > limit * (1.0 + RATE_TOLERANCE))
        .then(|| format!("{:.1} MiB/s is more than {what} carries ({:.1} MiB/s)", mib(rate), mib(limit)))
}

/// Rate of the slowest worker over that of the fastest, 0 to 1; None without workers or if none moved anything.
pub fn fairness(worker_rates: &[f64]) -> Option<f64> {
    let (slowest, fastest) = extremes(worker_rates.iter().copied());
    (fastest > 0.0 && slowest.is_finite()).then(|| slowest / fastest)
}

/// What one node moved, bytes a second, in each of several different shapes (single file, many files, sizes), all of
/// them large; and what its link carries, if known. A node's link is the limit if it is full, or, where its speed is
/// unknown, if shapes that should differ all stop at one rate.
pub fn nic_cap(node_rates: &[f64], link: Option<f64>) -> Option<String> {
    let fastest = node_rates.iter().copied().fold(0.0, f64::max);
    if let Some(link) = link {
        let share = fastest / link;
        return (share >= LINK_FULL).then(|| {
            format!(
                "a node's link is {:.0} % full ({:.1} of {:.1} MiB/s)",
                share * 100.0,
                mib(fastest),
                mib(link)
            )
        });
    }
    let variation = coefficient_of_variation(node_rates)?;
    (node_rates.len() >= CAP_SHAPES_MIN && variation < CAP_VARIATION_MAX).then(|| {
        format!(
            "{} different shapes all move {:.0} MiB/s a node (within {:.0} %): the signature of a capped link, not of \
             the storage",
            node_rates.len(),
            mib(mean(node_rates).unwrap_or(fastest)),
            variation * 100.0,
        )
    })
}

fn mib(bytes: f64) -> f64 {
    bytes / 1048576.0
}

#[cfg(test)]
mod tests;
