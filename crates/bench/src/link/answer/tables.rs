//! The link's tables: the study's three columns, and what they leave out.

use bench_report::{Cell, PUBLISHED, Table, TableRow, estimate_or, format, median};

use super::super::Pair;
use super::super::schedule::{Ran, Round};
use super::bounds::exceeded;
use super::{Here, IDLE, LOADED, LinkCondition, RECEIVER, SENDER, StreamEnd, arrow, in_mib, streams};
use crate::columns;

pub fn of(conditions: &[LinkCondition], here: &Here) -> Vec<Table> {
    let mut tables = vec![seed(conditions), extended(conditions, here)];
    if conditions.iter().any(|condition| condition.config.faithful) {
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

fn seed(conditions: &[LinkCondition]) -> Table {
    let row = |name: String, of: &dyn Fn(StreamEnd) -> (Vec<f64>, Option<String>)| {
        let cell = |end| {
            let (rates, why) = of(end);
            mbits(&rates, why)
        };
        TableRow::new(vec![Cell::text(name), cell(SENDER), cell(RECEIVER)])
    };
    let mut rows = Vec::new();
    for condition in conditions {
        for (at, pair) in condition.pairs().enumerate() {
            rows.push(row(condition.name(pair), &|end| condition.rates(at, end)));
        }
        if condition.first.together {
            rows.push(row(condition.name_of_all(), &|end| condition.rates_of_all(end)));
        }
    }
    Table::new("The link", &PUBLISHED.tryggve.link.columns, rows).noted([
        "Mbit/s in the window in which all streams of the row ran; all pairs together are measured in their common \
         window, never added.",
    ])
}

struct PairRow<'a> {
    condition: &'a LinkCondition<'a>,
    at: usize,
    pair: &'a Pair,
    /// Mbit/s, and why some are missing.
    sent: (Vec<f64>, Option<String>),
    received: (Vec<f64>, Option<String>),
    /// Milliseconds, sorted.
    loaded: Vec<f64>,
}

impl<'a> PairRow<'a> {
    fn of(condition: &'a LinkCondition<'a>, (at, pair): (usize, &'a Pair)) -> PairRow<'a> {
        let [sent, received] = [SENDER, RECEIVER].map(|end| condition.rates(at, end));
        let mut loaded = condition.round_trips(at, LOADED);
        loaded.sort_by(f64::total_cmp);
        PairRow { condition, at, pair, sent, received, loaded }
    }

    fn received(&self, unit: impl Fn(f64) -> f64) -> Cell {
        let (rates, why) = &self.received;
        value(&rates.iter().copied().map(unit).collect::<Vec<_>>(), why.clone())
    }
}

fn extended(conditions: &[LinkCondition], here: &Here) -> Table {
    let mut rows = Vec::new();
    for condition in conditions {
        rows.extend(condition.pairs().enumerate().map(|pair| PairRow::of(condition, pair)));
    }
    columns::table(
        "Streams, round trips and losses",
        &rows,
        |row| {
            let too_fast = exceeded(here, row.pair, &row.received.0);
            row.received.1.iter().cloned().chain(too_fast).collect()
        },
        &[
            ("Pair", &|row| Cell::text(arrow(row.pair, row.condition.first.way))),
            ("Streams", &|row| Cell::text(streams(row.condition.first.streams))),
            ("At once", &|row| Cell::text(if row.condition.first.together { "all pairs" } else { "alone" })),
            ("Sender (Mbit/s)", &|row| value(&row.sent.0, row.sent.1.clone())),
            ("Receiver (Mbit/s)", &|row| row.received(|mbit| mbit)),
            ("Receiver (MiB/s)", &|row| row.received(in_mib)),
            ("Slowest / fastest stream", &|row| fairness(row.condition, row.at)),
            ("Start skew (ms)", &|row| skew(row.condition, row.at)),
            ("RTT idle (ms)", &|row| middle(&row.condition.round_trips(row.at, IDLE))),
            ("RTT loaded (ms)", &|row| middle(&row.loaded)),
            ("RTT loaded p99 (ms)", &|row| p99(&row.loaded)),
            ("Retransmits", &|row| retransmits(row.condition, row.at)),
        ],
    )
}

fn middle(values: &[f64]) -> Cell {
    Cell::known(median(values).map(|value| format::round(value, 3)), "not measured")
}

fn p99(sorted: &[f64]) -> Cell {
    let at = (sorted.len() as f64 * 0.99).ceil() as usize;
    let value = sorted.get(at.saturating_sub(1)).filter(|_| sorted.len() >= 100);
    Cell::known(value.map(|value| format::round(*value, 3)), "fewer than 100 pings")
}

fn fairness(condition: &LinkCondition, at: usize) -> Cell {
    let of_round = |(round, ran): (&Round, &Ran)| {
        Some(condition.phase(round, std::slice::from_ref(ran), RECEIVER).ok()?.fairness())
    };
    middle(&condition.each(at).filter_map(of_round).collect::<Vec<_>>())
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
