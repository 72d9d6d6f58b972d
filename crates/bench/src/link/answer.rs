//! From logs to rates: what arrived in the window in which all streams ran. No clock and no network in here.

mod bounds;
mod tables;

use bench_report::overlap::{self, OVERLAP_MIN};
use bench_report::{
    Axis, Better, Measure, PhaseSpans, Plot, PlotKind, Point, Refusal, ResultFile, Series, Span, median,
};
use serde_json::json;

use super::schedule::{Ran, Round};
use super::wire::{StreamDirection, StreamLog};
use super::{Config, Pair};
use crate::{MIB, ResultBuilder};

/// A clock that may be wrong by more than this part of the time makes the other end's window doubtful.
const CLOCK_DOUBT: f64 = 0.05;
/// A line that becomes longer than this under load has queues that somebody else waits in.
const BLOAT: f64 = 3.0;
const BINS: usize = 50;

pub use bounds::Here;

/// The same pairs and streams in the same direction, again and again.
struct LinkCondition<'a> {
    config: &'a Config,
    first: &'a Round,
    rounds: Vec<&'a Round>,
}

fn conditions<'a>(config: &'a Config, rounds: &'a [Round]) -> Vec<LinkCondition<'a>> {
    let mut found: Vec<LinkCondition> = Vec::new();
    for round in rounds {
        let of = |round: &Round| (round.way, round.streams, round.together);
        let same = |c: &&mut LinkCondition| {
            of(c.first) == of(round) && c.pairs().eq(round.pairs.iter().map(|ran| &ran.pair))
        };
        match found.iter_mut().find(same) {
            Some(condition) => condition.rounds.push(round),
            None => found.push(LinkCondition { config, first: round, rounds: vec![round] }),
        }
    }
    found
}

/// Round trips of a pair.
type Pings = fn(&Ran) -> &[u64];
const IDLE: Pings = |ran| &ran.log.idle_us;
const LOADED: Pings = |ran| &ran.log.loaded_us;
/// The logs of one end of the streams.
type StreamEnd = fn(&Ran) -> &[StreamLog];
const SENDER: StreamEnd = |ran| &ran.log.sent;
const RECEIVER: StreamEnd = |ran| &ran.log.received;

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

/// All that a stream did.
fn span(pair: &Pair, log: &StreamLog) -> Span {
    let name = format!("{pair} stream {}", log.stream);
    let progress = log.progress.iter().map(|(at, bytes)| (seconds(*at), *bytes)).collect();
    Span { progress, ..Span::new(name, seconds(log.start_us), seconds(log.end_us), log.bytes) }
}

fn mbit(bytes_per_second: f64) -> f64 {
    bytes_per_second * 8.0 / 1e6
}

fn in_mib(mbit: f64) -> f64 {
    mbit * 1e6 / 8.0 / MIB
}

fn in_ms(us: &[u64]) -> Vec<f64> {
    us.iter().map(|us| *us as f64 / 1e3).collect()
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

impl<'a> LinkCondition<'a> {
    /// For the rates of one of its pairs.
    fn name(&self, pair: &Pair) -> String {
        let together = if self.first.together { " each, all pairs at once" } else { "" };
        format!("{}, {}{together}", arrow(pair, self.first.way), streams(self.first.streams))
    }

    fn name_of_all(&self) -> String {
        let way = if self.first.way == StreamDirection::Up { "there" } else { "back" };
        format!("all pairs at once, {way}, {} each", streams(self.first.streams))
    }

    fn pairs(&self) -> impl Iterator<Item = &'a Pair> + use<'a> {
        self.first.pairs.iter().map(|ran| &ran.pair)
    }

    /// Of pair number `at` in each round.
    fn each(&self, at: usize) -> impl Iterator<Item = (&Round, &Ran)> {
        self.rounds.iter().filter_map(move |round| Some((*round, round.pairs.get(at)?)))
    }

    /// The streams of some pairs of a round, without what is omitted at the beginning.
    fn phase(&self, round: &Round, pairs: &[Ran], end: StreamEnd) -> Result<PhaseSpans, Refusal> {
        let (from, to) = (seconds(round.start_us) + self.config.omit.as_secs_f64(), seconds(round.stop_us));
        let mut spans = Vec::new();
        for ran in pairs {
            let logs = end(ran);
            if logs.len() < round.streams as usize {
                let (pair, told, all) = (&ran.pair, logs.len(), round.streams);
                return Err(format!("{pair}: {told} of {all} streams told what they did"));
            }
            spans.extend(logs.iter().map(|log| span(&ran.pair, log).within(from, to)));
        }
        let phase = PhaseSpans::new(spans)?;
        // All may have begun together, and late: the schedule is what they are held against.
        let scheduled = (to - from).max(0.0);
        let common = phase.common().map_or(0.0, |common| overlap::seconds(&common));
        if common < OVERLAP_MIN * scheduled {
            return Err(format!(
                "no rate: all streams ran for {common:.2} s of {scheduled:.2} s (needed 95 %)"
            ));
        }
        Ok(phase)
    }

    /// Mbit/s of one pair in each round, in the window in which all of its streams ran, and why some are missing.
    fn rates(&self, at: usize, end: StreamEnd) -> (Vec<f64>, Option<String>) {
        collected(self.each(at).map(|(round, ran)| self.phase(round, std::slice::from_ref(ran), end)))
    }

    fn rates_of_all(&self, end: StreamEnd) -> (Vec<f64>, Option<String>) {
        collected(self.rounds.iter().map(|round| self.phase(round, &round.pairs, end)))
    }

    fn round_trips(&self, at: usize, of: Pings) -> Vec<f64> {
        self.each(at).flat_map(|(_, ran)| in_ms(of(ran))).collect()
    }
}

fn collected(phases: impl Iterator<Item = Result<PhaseSpans, Refusal>>) -> (Vec<f64>, Option<String>) {
    let (mut found, mut why) = (Vec::new(), None);
    for phase in phases {
        match phase.and_then(|phase| phase.common_rate()) {
            Ok(rate) => found.push(mbit(rate)),
            Err(reason) => why = Some(reason),
        }
    }
    (found, why)
}

pub fn of(config: &Config, rounds: &[Round], here: &Here) -> ResultFile {
    let conditions = conditions(config, rounds);
    let preset = if config.faithful { "faithful" } else { "modern" };
    let mut draft = ResultBuilder::without_common("link", "The link by itself", preset, 0);
    draft.parameter("pairs", config.pairs.iter().map(Pair::to_string).collect::<Vec<_>>());
    draft.parameter("streams", config.streams());
    draft.parameter("streams_together", config.streams_together());
    draft.parameter("seconds", config.time.as_secs_f64());
    draft.parameter("omit_seconds", config.omit.as_secs_f64());
    draft.parameter("repetitions", config.repetitions);
    draft.parameter("ways", json!(config.ways));
    draft.file.tables = tables::of(&conditions, here);
    draft.file.plots = conditions.iter().filter_map(over_time).collect();
    conditions.iter().for_each(|condition| judge(&mut draft, condition));
    doubt_clock(&mut draft, config, &conditions);
    bounds::judge(&mut draft, &conditions, here);
    draft.file
}

/// What arrived and how long the line became, for comparisons and in words.
fn judge(draft: &mut ResultBuilder, condition: &LinkCondition) {
    for (at, pair) in condition.pairs().enumerate() {
        let name = condition.name(pair);
        carried(draft, &name, condition.rates(at, RECEIVER));
        let of_round = |(_, ran): (&Round, &Ran)| median(&in_ms(&ran.log.loaded_us));
        let loaded: Vec<f64> = condition.each(at).filter_map(of_round).collect();
        if !loaded.is_empty() {
            let name = format!("round trip under load, {name}");
            draft.file.measures.push(Measure::new(name, "ms", Better::Lower, loaded));
        }
        bloat(draft, &name, condition, at);
    }
    if condition.first.together {
        carried(draft, &condition.name_of_all(), condition.rates_of_all(RECEIVER));
    }
}

fn carried(draft: &mut ResultBuilder, name: &str, (rates, why): (Vec<f64>, Option<String>)) {
    if let Some(rate) = median(&rates) {
        draft.verdict(format!(
            "{name}: {rate:.0} Mbit/s ({:.1} MiB/s) arrive, in the window in which all streams run.",
            in_mib(rate)
        ));
        draft.file.measures.push(Measure::new(name, "Mbit/s", Better::Higher, rates));
    }
    if let Some(why) = why {
        draft.warning(format!("{name}: {why}"));
    }
}

fn bloat(draft: &mut ResultBuilder, name: &str, condition: &LinkCondition, at: usize) {
    let middle = |of| median(&condition.round_trips(at, of));
    let (Some(idle), Some(loaded)) = (middle(IDLE), middle(LOADED)) else { return };
    if loaded > BLOAT * idle && loaded - idle > 1.0 {
        draft.note(format!(
            "{name}: a round trip takes {loaded:.2} ms under load and {idle:.2} ms without; it waits in queues."
        ));
    }
}

fn doubt_clock(draft: &mut ResultBuilder, config: &Config, conditions: &[LinkCondition]) {
    let pairs = conditions.iter().flat_map(|c| &c.rounds).flat_map(|round| &round.pairs);
    let worst = seconds(pairs.map(|ran| ran.log.clock_error_us).max().unwrap_or(0));
    if worst > CLOCK_DOUBT * config.time.as_secs_f64() {
        draft.warning(format!(
            "The clocks of the two ends are known to {:.1} ms only; measure for longer.",
            worst * 1e3
        ));
    }
}

fn over_time(condition: &LinkCondition) -> Option<Plot> {
    let round = condition.first;
    let start = seconds(round.start_us);
    let bin = ((seconds(round.stop_us) - start) / BINS as f64).max(1e-6);
    let series = round.pairs.iter().map(|ran| {
        let spans: Vec<Span> = RECEIVER(ran).iter().map(|log| span(&ran.pair, log)).collect();
        let moved = |n: usize| spans.iter().map(|span| span.bytes_at(start + n as f64 * bin)).sum::<f64>();
        let points = (0..BINS).map(|n| Point::at(n as f64 * bin, mbit((moved(n + 1) - moved(n)) / bin)));
        Series::ours(arrow(&ran.pair, round.way), points.collect())
    });
    let first = condition.name(condition.pairs().next()?);
    let title = if round.together { condition.name_of_all() } else { first };
    let title = format!("{title}: {} s", condition.config.time.as_secs_f64());
    let (x, y) = (Axis::linear("Time since the scheduled start (s)"), Axis::linear("Received (Mbit/s)"));
    Some(Plot::new(PlotKind::Steps, title, x, y, series))
}

#[cfg(test)]
mod tests;
