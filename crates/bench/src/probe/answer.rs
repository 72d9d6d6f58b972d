//! What follows from the measurement: lines through the medians, and the model T = a + n * RTT that they are. No clock
//! and no network in here.

mod findings;
mod lines;
mod plots;
mod tables;

use std::time::Duration;

use bench_report::fit::{self, DistanceModel, FittedLine, Observation};
use bench_report::{Better, Histogram, Measure, ResultFile, median};

use super::operation::ProbeOperation;
use super::samples::Timed;
use super::streams::StreamRate;
use super::{Config, nfs, posix};
use crate::ResultBuilder;

/// A line that explains less of the variance than this is no line.
const R2_MIN: f64 = 0.98;
/// Operations with fewer round trips than this may well scatter around a flat line.
const FLAT: f64 = 0.2;

struct Understood {
    operation: ProbeOperation,
    /// Medians of what was measured without a relay, and with each.
    direct: f64,
    far: Vec<f64>,
    /// Seconds over the seconds that were added.
    line: Option<FittedLine>,
}

impl Understood {
    fn of(timed: &Timed, delays: &[Duration]) -> Option<Understood> {
        let far: Vec<f64> = timed.far.iter().filter_map(|times| median(times)).collect();
        let points: Vec<(f64, f64)> =
            delays.iter().map(Duration::as_secs_f64).zip(far.iter().copied()).collect();
        let line = fit::line(&points);
        Some(Understood { operation: timed.operation, direct: median(&timed.direct)?, far, line })
    }

    fn round_trips(&self) -> Option<f64> {
        self.line.map(|line| line.slope.value)
    }

    /// Seconds that it would take without any distance: the server's time and ours.
    fn fixed(&self, rtt_here: f64) -> Option<f64> {
        self.round_trips().map(|n| (self.direct - n * rtt_here).max(0.0))
    }

    fn predict(&self, rtt: f64, rtt_here: f64) -> Option<f64> {
        Some(self.fixed(rtt_here)? + self.round_trips()?.max(0.0) * rtt)
    }

    /// Why the line must not be believed. Times that scatter around a flat line by less than the distance that was
    /// added may do so.
    fn problem(&self, delays: &[Duration]) -> Option<String> {
        let line = self.line?;
        let spread = |values: &mut dyn Iterator<Item = f64>| {
            let (low, high) =
                values.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), v| (l.min(v), h.max(v)));
            high - low
        };
        let added = spread(&mut delays.iter().map(Duration::as_secs_f64));
        let crooked = line.r2 < R2_MIN && spread(&mut self.far.iter().copied()) > FLAT * added;
        crooked.then(|| format!("time is not a line in distance: R2 {:.3} is below {R2_MIN}", line.r2))
    }
}

struct ProbeAnswer<'a> {
    config: &'a Config,
    measured: &'a nfs::NfsProbe,
    operations: Vec<Understood>,
    /// Seconds, by TCP handshake or NULL, whichever is shorter; by NULL where somebody nearer answers handshakes.
    rtt_here: f64,
    /// The handshake, if it is so much shorter than a NULL call that it ends somewhere else.
    answered_nearer: Option<f64>,
    /// T = a + n * RTT + bytes / BW, over READs of several sizes.
    reads: Option<DistanceModel>,
    near: Vec<(ProbeOperation, f64)>,
}

impl<'a> ProbeAnswer<'a> {
    fn new(config: &'a Config, measured: &'a nfs::NfsProbe) -> ProbeAnswer<'a> {
        let operations: Vec<Understood> =
            measured.timed.iter().filter_map(|timed| Understood::of(timed, &config.delays)).collect();
        // A handshake is the path alone, but also the making of a socket at both ends, which a NULL call has not.
        let null = operations.iter().find(|o| o.operation == ProbeOperation::Null).map(|o| o.direct);
        let handshake = median(&measured.handshakes);
        // A server takes some tens of microseconds for a NULL call, and a handshake is no more than a round trip either.
        let nearer = |handshake: &f64| null.is_some_and(|null| null > 2.0 * handshake + 0.001);
        let answered_nearer = handshake.filter(nearer);
        let rtt_here = match (answered_nearer, null) {
            (Some(_), Some(null)) => null,
            _ => handshake.into_iter().chain(null).reduce(f64::min).unwrap_or_default(),
        };
        let reads = reads(&operations, &config.delays, rtt_here);
        let near = measured.near.iter().filter_map(|t| Some((t.operation, median(&t.direct)?))).collect();
        ProbeAnswer { config, measured, operations, rtt_here, answered_nearer, reads, near }
    }

    fn operation(&self, operation: ProbeOperation) -> Option<&Understood> {
        self.operations.iter().find(|o| o.operation == operation)
    }

    /// The round trip, in seconds, from which the nearer server is faster. Below 0: always.
    fn break_even(&self, understood: &Understood) -> Option<f64> {
        let (_, near) = self.near.iter().find(|(operation, _)| *operation == understood.operation)?;
        let n = understood.round_trips().filter(|n| *n > FLAT)?;
        Some((near - understood.fixed(self.rtt_here)?) / n)
    }

    /// The round trip at which it takes twice as long as here.
    fn doubled(&self, understood: &Understood) -> Option<f64> {
        let n = understood.round_trips().filter(|n| *n > FLAT)?;
        Some(self.rtt_here + understood.direct / n)
    }

    /// What all the streams together read, by number of streams.
    fn rates(&self, added: Option<Duration>) -> Vec<&StreamRate> {
        self.measured.streams.iter().filter(|rate| rate.added == added).collect()
    }

    /// Where streams were tried: here, and at the farthest injected distance if there is one.
    fn places(&self) -> Vec<Option<Duration>> {
        let farthest = self.measured.streams.iter().filter_map(|rate| rate.added).max();
        std::iter::once(None).chain(farthest.map(Some)).collect()
    }
}

fn reads(operations: &[Understood], delays: &[Duration], rtt_here: f64) -> Option<DistanceModel> {
    let observations: Vec<Observation> = operations
        .iter()
        .filter_map(|o| Some((o.operation.read_bytes()? as f64, o)))
        .flat_map(|(bytes, o)| {
            delays.iter().zip(&o.far).map(move |(delay, seconds)| Observation {
                rtt_seconds: delay.as_secs_f64() + rtt_here,
                bytes,
                seconds: *seconds,
            })
        })
        .collect();
    fit::distance(&observations)
}

/// The number of streams after which twice as many bring less than a tenth more.
fn knee(rates: &[&StreamRate]) -> Option<usize> {
    let little = |rate: &StreamRate, next: &StreamRate| next.median() < rate.median() * 1.1;
    let knee = rates.windows(2).find_map(|pair| match pair {
        [rate, next] if little(rate, next) => Some(rate.streams),
        _ => None,
    });
    knee.or(rates.last().map(|rate| rate.streams))
}

pub fn of_server(config: &Config, measured: &nfs::NfsProbe) -> ResultFile {
    let answer = ProbeAnswer::new(config, measured);
    let mut draft = begun(config);
    findings::of_server(&mut draft, &answer);
    let mut file = draft.file;
    file.tables = tables::of_server(&answer);
    file.plots = plots::of_server(&answer);
    file.answer = lines::of_server(&answer);
    for timed in &measured.timed {
        keep(&mut file, format!("{}, without a relay", timed.operation), &timed.direct);
        for (added, times) in config.delays.iter().zip(&timed.far) {
            let name = format!("{}, {} ms added", timed.operation, ms(*added));
            file.measures.push(Measure::new(name, "s", Better::Lower, times.clone()));
        }
    }
    for rate in &measured.streams {
        let name = format!("read with {} streams, {}", rate.streams, place(rate.added));
        file.measures.push(Measure::new(name, "MiB/s", Better::Higher, in_mib(&rate.bytes_per_second)));
    }
    file
}

pub fn of_path(config: &Config, measured: &posix::LocalProbe) -> ResultFile {
    let mut draft = begun(config);
    findings::of_path(&mut draft, measured);
    let mut file = draft.file;
    file.tables = vec![tables::of_path(measured)];
    file.answer = lines::of_path(measured);
    for (name, times) in &measured.operations {
        keep(&mut file, (*name).to_owned(), times);
    }
    file
}

/// Times that were taken without a relay.
fn keep(file: &mut ResultFile, name: String, times: &[f64]) {
    file.histograms.push(histogram(times).to_named(&name));
    file.measures.push(Measure::new(name, "s", Better::Lower, times.to_vec()));
}

/// `run` knows when it was.
fn begun(config: &Config) -> ResultBuilder {
    let title = format!("How far is {}?", config.target);
    let mut draft = ResultBuilder::without_common("probe", title, "modern", config.seed);
    draft.parameter("target", config.target.clone());
    draft.parameter("near", config.near.clone());
    draft.parameter("delays_ms", config.delays.iter().copied().map(ms).collect::<Vec<_>>());
    draft.parameter("repetitions", config.repetitions);
    draft.parameter("samples", config.samples);
    draft.parameter("streams", config.streams.clone());
    draft.parameter("stream_seconds", config.stream_time.as_secs_f64());
    draft.parameter("stream_repetitions", config.stream_repetitions);
    draft.parameter("read_ahead", config.read_ahead);
    draft.parameter("write", config.write);
    draft
}

fn histogram(seconds: &[f64]) -> Histogram {
    let mut histogram = Histogram::new();
    seconds.iter().for_each(|s| histogram.record(Duration::from_secs_f64(*s)));
    histogram
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn mib(bytes_per_second: f64) -> f64 {
    bytes_per_second / (1 << 20) as f64
}

fn in_mib(bytes_per_second: &[f64]) -> Vec<f64> {
    bytes_per_second.iter().copied().map(mib).collect()
}

fn in_ms(seconds: &[f64]) -> Vec<f64> {
    seconds.iter().map(|seconds| seconds * 1e3).collect()
}

fn place(added: Option<Duration>) -> String {
    match added {
        None => "without a relay".to_owned(),
        Some(added) => format!("with {} ms added", ms(added)),
    }
}

/// Four digits: what is measured here is not known to more.
fn digits(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10_f64.powf(3.0 - value.abs().log10().floor());
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests;
