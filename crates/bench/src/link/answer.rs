//! From logs to rates: what arrived in the window in which all streams ran. No clock and no network in here.

mod bounds;
mod tables;

use std::collections::BTreeMap;

use bench_report::model::{
    Axis, Better, Finding, Measure, Plot, PlotKind, Point, ResultFile, SCHEMA, Series, Severity,
};
use bench_report::overlap::{OVERLAP_MIN, PhaseSpans, Refusal, Span};
use bench_report::summary::median;
use serde_json::json;

use super::schedule::{Ran, Round};
use super::wire::{StreamDirection, StreamLog};
use super::{Config, Pair};

/// A clock that may be wrong by more than this part of the time makes the other end's window doubtful.
const CLOCK_DOUBT: f64 = 0.05;
/// A line that becomes longer than this under load has queues that somebody else waits in.
const BLOAT: f64 = 3.0;
/// Bins of the plot over time.
const BINS: usize = 50;

pub use bounds::Here;

/// The same pairs and streams in the same direction, again and again.
struct LinkCondition<'a> {
    way: StreamDirection,
    streams: u32,
    together: bool,
    rounds: Vec<&'a Round>,
}

fn conditions(rounds: &[Round]) -> Vec<LinkCondition<'_>> {
    let mut found: Vec<LinkCondition> = Vec::new();
    for round in rounds {
        let same = |c: &&mut LinkCondition| {
            let pairs = |round: &Round| round.pairs.iter().map(|ran| ran.pair.clone()).collect::<Vec<_>>();
            let first = c.rounds.first().map(|first| pairs(first));
            (c.way, c.streams, c.together) == (round.way, round.streams, round.together)
                && first == Some(pairs(round))
        };
        match found.iter_mut().find(same) {
            Some(condition) => condition.rounds.push(round),
            None => found.push(LinkCondition {
                way: round.way,
                streams: round.streams,
                together: round.together,
                rounds: vec![round],
            }),
        }
    }
    found
}

/// Which end of the streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamEnd {
    Sender,
    Receiver,
}

impl StreamEnd {
    fn logs(self, ran: &Ran) -> &[StreamLog] {
        match self {
            StreamEnd::Sender => &ran.log.sent,
            StreamEnd::Receiver => &ran.log.received,
        }
    }
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

/// Bytes that a stream had moved at a moment.
fn bytes_at(log: &StreamLog, at: u64) -> f64 {
    let mut before = (log.start_us, 0);
    for after in log.progress.iter().copied().chain([(log.end_us, log.bytes)]) {
        if at <= after.0 {
            let share = at.saturating_sub(before.0) as f64 / after.0.saturating_sub(before.0).max(1) as f64;
            return before.1 as f64 + share * after.1.saturating_sub(before.1) as f64;
        }
        before = after;
    }
    log.bytes as f64
}

/// What a stream did within a window.
fn span(name: String, log: &StreamLog, from: u64, to: u64) -> Span {
    let (start, end) = (log.start_us.max(from), log.end_us.min(to));
    let base = bytes_at(log, start) as u64;
    let moved = |bytes: f64| (bytes as u64).saturating_sub(base);
    let mut span = Span::new(name, seconds(start), seconds(end), moved(bytes_at(log, end)));
    let within = log.progress.iter().filter(|(at, _)| (start..=end).contains(at));
    span.progress = within.map(|(at, bytes)| (seconds(*at), bytes.saturating_sub(base))).collect();
    span
}

/// The streams of some pairs of a round, without what is omitted at the beginning.
fn phase(config: &Config, round: &Round, pairs: &[Ran], end: StreamEnd) -> Result<PhaseSpans, Refusal> {
    let omit = u64::try_from(config.omit.as_micros()).unwrap_or(u64::MAX);
    let from = round.start_us.saturating_add(omit);
    let mut spans = Vec::new();
    for ran in pairs {
        let logs = end.logs(ran);
        if logs.len() < round.streams as usize {
            let reason =
                format!("{}: {} of {} streams told what they did", ran.pair, logs.len(), round.streams);
            return Err(Refusal { reason });
        }
        spans.extend(
            logs.iter().map(|l| span(format!("{} stream {}", ran.pair, l.stream), l, from, round.stop_us)),
        );
    }
    let phase = PhaseSpans::new(spans)?;
    // All may have begun together, and late: the schedule is what they are held against.
    let scheduled = seconds(round.stop_us.saturating_sub(from));
    let common = phase.common().map_or(0.0, |common| common.seconds());
    if common < OVERLAP_MIN * scheduled {
        let reason = format!("no rate: all streams ran for {common:.2} s of {scheduled:.2} s (needed 95 %)");
        return Err(Refusal { reason });
    }
    Ok(phase)
}

/// Bytes a second in the window in which all of them ran.
fn rate(config: &Config, round: &Round, pairs: &[Ran], end: StreamEnd) -> Result<f64, Refusal> {
    phase(config, round, pairs, end)?.common_rate()
}

fn mbit(bytes_per_second: f64) -> f64 {
    bytes_per_second * 8.0 / 1e6
}

fn arrow(pair: &Pair, way: StreamDirection) -> String {
    let here = pair.from.as_deref().unwrap_or("here");
    match way {
        StreamDirection::Up => format!("{here} -> {}", pair.to),
        StreamDirection::Down => format!("{} -> {here}", pair.to),
    }
}

fn streams(n: u32) -> String {
    if n == 1 { "1 stream".to_owned() } else { format!("{n} streams") }
}

impl LinkCondition<'_> {
    /// For the rates of one of its pairs.
    fn name(&self, pair: &Pair) -> String {
        let together = if self.together { " each, all pairs at once" } else { "" };
        format!("{}, {}{together}", arrow(pair, self.way), streams(self.streams))
    }

    fn name_of_all(&self) -> String {
        let way = if self.way == StreamDirection::Up { "there" } else { "back" };
        format!("all pairs at once, {way}, {} each", streams(self.streams))
    }

    fn pairs(&self) -> Vec<&Pair> {
        self.rounds.first().map(|round| round.pairs.iter().map(|ran| &ran.pair).collect()).unwrap_or_default()
    }

    /// Of pair number `at` in each round.
    fn each(&self, at: usize) -> impl Iterator<Item = (&Round, &Ran)> {
        self.rounds.iter().filter_map(move |round| Some((*round, round.pairs.get(at)?)))
    }

    /// Mbit/s of one pair in each round, and why some are missing.
    fn rates(&self, config: &Config, at: usize, end: StreamEnd) -> (Vec<f64>, Option<String>) {
        collected(self.each(at).map(|(round, ran)| rate(config, round, std::slice::from_ref(ran), end)))
    }

    /// Of all pairs together.
    fn rates_of_all(&self, config: &Config, end: StreamEnd) -> (Vec<f64>, Option<String>) {
        collected(self.rounds.iter().map(|round| rate(config, round, &round.pairs, end)))
    }

    /// Milliseconds.
    fn round_trips(&self, at: usize, of: fn(&Ran) -> &[u64]) -> Vec<f64> {
        let all = self.each(at).flat_map(|(_, ran)| of(ran));
        all.map(|us| *us as f64 / 1e3).collect()
    }
}

fn collected(rates: impl Iterator<Item = Result<f64, Refusal>>) -> (Vec<f64>, Option<String>) {
    let (mut found, mut why) = (Vec::new(), None);
    for rate in rates {
        match rate {
            Ok(rate) => found.push(mbit(rate)),
            Err(refusal) => why = Some(refusal.reason),
        }
    }
    (found, why)
}

fn idle(ran: &Ran) -> &[u64] {
    &ran.log.idle_us
}

fn loaded(ran: &Ran) -> &[u64] {
    &ran.log.loaded_us
}

pub fn of(config: &Config, rounds: &[Round], here: &Here) -> ResultFile {
    let conditions = conditions(rounds);
    let mut findings = findings(config, &conditions);
    findings.extend(bounds::findings(config, &conditions, here));
    ResultFile {
        schema: SCHEMA,
        experiment: "link".to_owned(),
        title: "The link by itself".to_owned(),
        preset: config.preset.to_owned(),
        command: config.command.clone(),
        seed: 0,
        parameters: parameters(config),
        tables: tables::of(config, &conditions, here),
        plots: conditions.iter().filter_map(|condition| over_time(config, condition)).collect(),
        measures: measures(config, &conditions),
        findings,
        // `run` knows when it was and on what.
        ..ResultFile::default()
    }
}

fn parameters(config: &Config) -> BTreeMap<String, serde_json::Value> {
    let pairs: Vec<String> = config.pairs.iter().map(Pair::to_string).collect();
    let parameters = [
        ("pairs", json!(pairs)),
        ("streams", json!(config.streams)),
        ("streams_together", json!(config.streams_together)),
        ("seconds", json!(config.time.as_secs_f64())),
        ("omit_seconds", json!(config.omit.as_secs_f64())),
        ("repetitions", json!(config.repetitions)),
        ("ways", json!(config.ways)),
    ];
    parameters.map(|(name, value)| (name.to_owned(), value)).into_iter().collect()
}

fn measures(config: &Config, conditions: &[LinkCondition]) -> Vec<Measure> {
    let mut measures = Vec::new();
    let mut add = |name: String, unit: &str, better, values: Vec<f64>| {
        if !values.is_empty() {
            measures.push(Measure::new(name, unit, better, values));
        }
    };
    for condition in conditions {
        for (at, pair) in condition.pairs().into_iter().enumerate() {
            let name = condition.name(pair);
            add(name.clone(), "Mbit/s", Better::Higher, condition.rates(config, at, StreamEnd::Receiver).0);
            let of_round = |(_, ran): (&Round, &Ran)| {
                median(&ran.log.loaded_us.iter().map(|us| *us as f64 / 1e3).collect::<Vec<_>>())
            };
            let loaded = condition.each(at).filter_map(of_round).collect();
            add(format!("round trip under load, {name}"), "ms", Better::Lower, loaded);
        }
        if condition.together {
            let (rates, _) = condition.rates_of_all(config, StreamEnd::Receiver);
            add(condition.name_of_all(), "Mbit/s", Better::Higher, rates);
        }
    }
    measures
}

/// What arrived over time in the first round.
fn over_time(config: &Config, condition: &LinkCondition) -> Option<Plot> {
    let round = condition.rounds.first()?;
    let bin = (round.stop_us.saturating_sub(round.start_us) / BINS as u64).max(1);
    let series = round.pairs.iter().map(|ran| {
        let moved = |at: u64| ran.log.received.iter().map(|log| bytes_at(log, at)).sum::<f64>();
        let points = (0..BINS as u64).map(|n| {
            let from = round.start_us.saturating_add(n * bin);
            let rate = (moved(from.saturating_add(bin)) - moved(from)) / seconds(bin);
            Point::at(seconds(n * bin), mbit(rate))
        });
        Series::ours(arrow(&ran.pair, condition.way), points.collect())
    });
    let first = condition.pairs().first().map(|pair| condition.name(pair))?;
    let title = if condition.together { condition.name_of_all() } else { first };
    Some(Plot {
        title: format!("{title}: {} s", config.time.as_secs_f64()),
        x: Axis::linear("Time since the scheduled start (s)"),
        y: Axis::linear("Received (Mbit/s)"),
        kind: PlotKind::Steps,
        series: series.collect(),
    })
}

fn findings(config: &Config, conditions: &[LinkCondition]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for condition in conditions {
        for (at, pair) in condition.pairs().into_iter().enumerate() {
            let (rates, why) = condition.rates(config, at, StreamEnd::Receiver);
            let name = condition.name(pair);
            findings.extend(carried(&name, &rates, why));
            findings.extend(bloat(&name, condition, at));
        }
        if condition.together {
            let (rates, why) = condition.rates_of_all(config, StreamEnd::Receiver);
            findings.extend(carried(&condition.name_of_all(), &rates, why));
        }
    }
    findings.extend(doubtful_clock(config, conditions));
    findings
}

fn carried(name: &str, rates: &[f64], why: Option<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(rate) = median(rates) {
        findings.push(Finding::verdict(format!(
            "{name}: {rate:.0} Mbit/s ({:.1} MiB/s) arrive, in the window in which all streams run.",
            rate * 1e6 / 8.0 / (1 << 20) as f64
        )));
    }
    findings.extend(why.map(|why| Finding::warning(format!("{name}: {why}"))));
    findings
}

fn bloat(name: &str, condition: &LinkCondition, at: usize) -> Option<Finding> {
    let (idle, loaded) =
        (median(&condition.round_trips(at, idle))?, median(&condition.round_trips(at, loaded))?);
    (loaded > BLOAT * idle && loaded - idle > 1.0).then(|| {
        Finding::new(
            Severity::Note,
            format!("{name}: a round trip takes {loaded:.2} ms under load and {idle:.2} ms without; it waits in queues."),
        )
    })
}

fn doubtful_clock(config: &Config, conditions: &[LinkCondition]) -> Option<Finding> {
    let errors = conditions.iter().flat_map(|c| &c.rounds).flat_map(|round| &round.pairs);
    let worst = seconds(errors.map(|ran| ran.log.clock_error_us).max()?);
    (worst > CLOCK_DOUBT * config.time.as_secs_f64()).then(|| {
        Finding::warning(format!(
            "The clocks of the two ends are known to {:.1} ms only; measure for longer.",
            worst * 1e3
        ))
    })
}

#[cfg(test)]
mod tests;
