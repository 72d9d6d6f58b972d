//! The link's tables: the study's three columns, and what they leave out.

use bench_report::model::{Cell, Table, TableRow};
use bench_report::published::PUBLISHED;
use bench_report::summary::{estimate_or, median};

use super::super::Config;
use super::super::schedule::{Ran, Round};
use super::bounds::exceeded;
use super::{Here, LinkCondition, StreamEnd, arrow, idle, loaded, phase, streams};

pub fn of(config: &Config, conditions: &[LinkCondition], here: &Here) -> Vec<Table> {
    let mut tables = vec![seed(config, conditions), extended(config, conditions, here)];
    if config.preset == "faithful" {
        tables.push(PUBLISHED.tryggve.link.table());
    }
    tables
}

fn value(rates: &[f64], why: Option<String>) -> Cell {
    estimate_or(rates, why.unwrap_or_else(|| "not measured".to_owned()))
}

/// Rates as the study prints them.
fn mbits(rates: &[f64], why: Option<String>) -> Cell {
    match median(rates) {
        Some(rate) => Cell::text(format!("{rate:.0} Mbits/sec")),
        None => value(rates, why),
    }
}

fn seed(config: &Config, conditions: &[LinkCondition]) -> Table {
    let mut rows = Vec::new();
    for condition in conditions {
        let both = |end| condition.rates_of_all(config, end);
        for (at, pair) in condition.pairs().into_iter().enumerate() {
            let of = |end| condition.rates(config, at, end);
            let ((sent, no_sent), (received, no_received)) = (of(StreamEnd::Sender), of(StreamEnd::Receiver));
            let cells =
                vec![Cell::text(condition.name(pair)), mbits(&sent, no_sent), mbits(&received, no_received)];
            rows.push(TableRow::new(cells));
        }
        if condition.together {
            let ((sent, no_sent), (received, no_received)) =
                (both(StreamEnd::Sender), both(StreamEnd::Receiver));
            let name = Cell::text(condition.name_of_all());
            rows.push(TableRow::new(vec![name, mbits(&sent, no_sent), mbits(&received, no_received)]));
        }
    }
    Table::new("The link", &PUBLISHED.tryggve.link.columns, rows).noted(["Mbit/s in the window in which all streams of the row ran; all pairs together are measured in their common \
         window, never added."
            .to_owned()])
}

fn extended(config: &Config, conditions: &[LinkCondition], here: &Here) -> Table {
    let columns = [
        "Pair",
        "Streams",
        "At once",
        "Sender (Mbit/s)",
        "Receiver (Mbit/s)",
        "Receiver (MiB/s)",
        "Slowest / fastest stream",
        "Start skew (ms)",
        "RTT idle (ms)",
        "RTT loaded (ms)",
        "RTT loaded p99 (ms)",
        "Retransmits",
    ];
    let rows = conditions.iter().flat_map(|condition| {
        let pairs = condition.pairs().into_iter().enumerate();
        pairs.map(move |(at, _)| row(config, condition, at, here))
    });
    Table::new("Streams, round trips and losses", columns, rows.collect()).noted(["Sender: what its socket took. Receiver: what came out at the other end.".to_owned(), "RTT: one byte there and back on a connection of its own, before the streams and beside them. Retransmits: \
         segments, of all streams and repetitions, as the sender's kernel counts them."
            .to_owned()])
}

fn row(config: &Config, condition: &LinkCondition, at: usize, here: &Here) -> TableRow {
    let (sent, no_sent) = condition.rates(config, at, StreamEnd::Sender);
    let (received, no_received) = condition.rates(config, at, StreamEnd::Receiver);
    let in_mib: Vec<f64> = received.iter().map(|mbit| mbit * 1e6 / 8.0 / (1 << 20) as f64).collect();
    let mut loaded = condition.round_trips(at, loaded);
    loaded.sort_by(f64::total_cmp);
    let name = condition.pairs().get(at).map_or(String::new(), |pair| arrow(pair, condition.way));
    let cells = vec![
        Cell::text(name),
        Cell::text(streams(condition.streams)),
        Cell::text(if condition.together { "all pairs" } else { "alone" }),
        value(&sent, no_sent),
        value(&received, no_received.clone()),
        value(&in_mib, no_received.clone()),
        of_phases(config, condition, at, |phase| phase.fairness()),
        skew(condition, at),
        middle(&condition.round_trips(at, idle)),
        middle(&loaded),
        p99(&loaded),
        retransmits(condition, at),
    ];
    let too_fast = condition.pairs().get(at).and_then(|pair| exceeded(here, pair, &received));
    TableRow { cells, invalid: no_received.into_iter().chain(too_fast).collect() }
}

fn rounded(value: f64) -> Cell {
    Cell::Number((value * 1e3).round() / 1e3)
}

fn middle(values: &[f64]) -> Cell {
    median(values).map_or_else(|| Cell::missing("not measured"), rounded)
}

fn p99(sorted: &[f64]) -> Cell {
    let at = (sorted.len() as f64 * 0.99).ceil() as usize;
    match sorted.get(at.saturating_sub(1)) {
        Some(value) if sorted.len() >= 100 => rounded(*value),
        _ => Cell::missing("fewer than 100 pings"),
    }
}

fn of_phases(
    config: &Config,
    condition: &LinkCondition,
    at: usize,
    of: impl Fn(&bench_report::overlap::PhaseSpans) -> f64,
) -> Cell {
    let phases = condition
        .each(at)
        .filter_map(|(round, ran)| phase(config, round, std::slice::from_ref(ran), StreamEnd::Receiver).ok());
    middle(&phases.map(|phase| of(&phase)).collect::<Vec<_>>())
}

/// Between the first and the last stream that began to send.
fn skew(condition: &LinkCondition, at: usize) -> Cell {
    let of_round = |(_, ran): (&Round, &Ran)| {
        let starts = || ran.log.sent.iter().map(|log| log.start_us);
        Some(starts().max()?.saturating_sub(starts().min()?) as f64 / 1e3)
    };
    middle(&condition.each(at).filter_map(of_round).collect::<Vec<_>>())
}

fn retransmits(condition: &LinkCondition, at: usize) -> Cell {
    let logs: Vec<_> = condition.each(at).flat_map(|(_, ran)| &ran.log.sent).collect();
    let told: Option<Vec<u64>> = logs.iter().map(|log| log.retransmits).collect();
    match told {
        Some(told) if !told.is_empty() => Cell::Count(told.iter().fold(0, |sum, n| sum.saturating_add(*n))),
        _ => Cell::missing("the kernel does not tell"),
    }
}
