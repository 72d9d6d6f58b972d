//! What was found, in the columns that the study should have had, beside what it published.

use std::collections::BTreeMap;

use bench_load::outcome::PhaseOutcome;
use bench_report::format::{self, fixed};
use bench_report::published::Printed;
use bench_report::{
    Axis, Better, Cell, PUBLISHED, Plot, PlotKind, Point, Series, Table, TableRow, estimate, estimate_or,
    median, point,
};

use super::measure::{CopyCondition, CopyState, GatewayPass, ReplicasFound, SettledCopies};
use crate::nodes::{Repair, StripeCopies, local_percent};
use crate::{CounterPage, GIB, LoadRow, MIB, ResultBuilder, columns};

/// Where fetched bytes came from, in the words of the nodes' counter, and what they mean.
const SOURCES: [(&str, &str); 5] = [
    ("Rank", "from a node with a copy MiB"),
    ("Primary", "from the primary MiB"),
    ("Holder", "from a former keeper MiB"),
    ("Origin", "from the storage, by the primary MiB"),
    ("Around", "from the storage, around the primary MiB"),
];
const RATE_AXIS: &str = "all readers (MiB/s)";

/// The passes of a condition in one state.
struct Row<'a> {
    condition: &'a CopyCondition,
    state: CopyState,
    passes: &'a [GatewayPass],
    rates: Vec<f64>,
    invalid: Vec<String>,
}

impl Row<'_> {
    fn each(&self, value: impl Fn(&GatewayPass) -> f64) -> Vec<f64> {
        self.passes.iter().map(value).collect()
    }

    fn median(&self, value: impl Fn(&GatewayPass) -> f64) -> Cell {
        Cell::known(median(&self.each(value)), "not measured")
    }

    fn is_settled(&self, copies: usize, gateways: usize) -> bool {
        let of = self.condition;
        self.state == CopyState::Settled && (of.copies, of.gateways) == (copies, gateways)
    }

    fn head(&self) -> [Cell; 3] {
        let count = |count: usize| Cell::Count(count as u64);
        [count(self.condition.copies), count(self.condition.gateways), Cell::text(self.state.to_string())]
    }

    fn name(&self) -> String {
        let of = self.condition;
        format!("{} of {} copies, {} gateways, {}", of.junction, of.copies, of.gateways, self.state)
    }
}

/// The study's tables, and ours without a figure.
pub fn fill_empty(draft: &mut ResultBuilder) {
    const WHY: &str = "no cluster was named";
    let mapr = &PUBLISHED.mapr;
    let rows = [(1, 1), (1, 2), (1, 3), (2, 2), (3, 3)].map(|(copies, gateways)| {
        let mut cells = vec![Cell::Count(copies), Cell::Count(gateways), Cell::Count(gateways)];
        cells.resize_with(mapr.wanted.columns.len(), || Cell::missing(WHY));
        TableRow::new(cells)
    });
    let missing = |of: &Printed| {
        of.filled(vec![TableRow::new(of.columns.iter().map(|_| Cell::missing(WHY)).collect())])
    };
    draft.file.tables = vec![
        mapr.wanted.filled(rows.into()),
        missing(&mapr.placement),
        missing(&mapr.placement_by_node),
        mapr.results.table(),
    ];
    draft.file.plots.push(against_copies(&[], None));
}

pub fn fill(draft: &mut ResultBuilder, file_bytes: u64, block: u64, found: &ReplicasFound) {
    let rows: Vec<Row<'_>> =
        found.conditions.iter().flat_map(|condition| rows_of(condition, file_bytes)).collect();
    // What all others are held against: the fewest copies, through one gateway.
    let least = found.conditions.iter().map(|condition| condition.copies).min().unwrap_or(1);
    let single = rows.iter().find(|row| row.is_settled(least, 1)).and_then(|row| median(&row.rates));
    let mapr = &PUBLISHED.mapr;
    let ours =
        rows.iter().map(|row| TableRow { cells: cells(row, block, single), invalid: row.invalid.clone() });
    draft.file.tables.push(mapr.wanted.filled(ours.collect()).noted([
        "local-read %: of what the gateways sent to clients, the share that they did not fetch from another node or the storage, \
         by the nodes' counters. node egress max: what the busiest node sent to clients and to other nodes.",
    ]));
    draft.file.tables.push(mapr.results.table());
    draft.file.tables.push(sources(&rows));
    draft.file.tables.push(rates_of_nodes(&rows, &found.names));
    if found.conditions.iter().any(|condition| !condition.repairs.is_empty()) {
        draft.file.tables.push(repairs(&found.conditions));
    }
    for settled in &found.settled {
        draft.file.tables.push(placement(settled));
        draft.file.tables.push(placement_by_node(settled, &found.names));
    }
    draft.file.plots.push(against_copies(&rows, single));
    draft.file.plots.push(against_gateways(&rows));
    draft.file.plots.extend(rows.iter().filter(|row| row.state == CopyState::Lost).filter_map(during_repair));
    for row in &rows {
        draft.measure(row.name(), "MiB/s", Better::Higher, row.rates.clone(), &row.invalid);
    }
    say(draft, &rows, least, single);
}

fn load(passes: &[GatewayPass]) -> LoadRow<'_> {
    LoadRow::of(passes.iter().map(|pass| &pass.read.outcome))
}

fn rows_of<'a>(condition: &'a CopyCondition, file_bytes: u64) -> Vec<Row<'a>> {
    let row = |(state, passes): (&CopyState, &'a Vec<GatewayPass>)| Row {
        condition,
        state: *state,
        passes,
        rates: load(passes).rates(),
        invalid: condition.unproved(*state, passes, file_bytes),
    };
    condition.passes.iter().map(row).collect()
}

/// MiB/s of each reader over its own time.
fn job_rates(outcome: &PhaseOutcome) -> Vec<f64> {
    let rate = |span: &bench_load::outcome::WorkerSpan| {
        span.bytes as f64 / MIB / (span.end_s - span.start_s).max(1e-9)
    };
    outcome.spans.iter().map(rate).collect()
}

fn cells(row: &Row<'_>, block: u64, single: Option<f64>) -> Vec<Cell> {
    let jobs = |pick: fn(f64, f64) -> f64| {
        estimate(&row.each(|pass| job_rates(&pass.read.outcome).into_iter().reduce(pick).unwrap_or(f64::NAN)))
    };
    let gateways = |pass: &GatewayPass| local_percent(pass.read.nodes.iter().take(row.condition.gateways));
    let sent = |node: &CounterPage| node.served_bytes().saturating_add(node.sent());
    let egress = |pass: &GatewayPass| pass.read.nodes.iter().map(sent).max().unwrap_or(0) as f64;
    let since: Vec<f64> = row.passes.iter().filter_map(|pass| pass.since_loss).collect();
    let percent = median(&row.each(|pass| pass.percent)).unwrap_or(f64::NAN);
    let times = single.zip(median(&row.rates)).map(|(single, rate)| rate / single);
    let fairness = load(row.passes).each(|phase| phase.fairness());
    let [copies, readers, state] = row.head();
    vec![
        copies,
        readers.clone(),
        readers,
        state,
        Cell::text(format::bytes(block)),
        row.median(|pass| pass.read.outcome.bytes_read as f64 / GIB),
        estimate(&row.rates),
        jobs(f64::min),
        jobs(f64::max),
        estimate(&fairness),
        estimate(&row.each(gateways)),
        estimate(&row.each(|pass| egress(pass) / MIB / pass.read.seconds())),
        estimate_or(&since, "no change"),
        Cell::text(match percent >= 100.0 {
            true => "no".to_owned(),
            false => format!("yes: {percent:.0} % of the copies were there"),
        }),
        Cell::known(times, "one gateway alone was not measured"),
    ]
}

fn sources(rows: &[Row<'_>]) -> Table {
    let head = ["Replicas", "Gateways", "State", "to clients MiB", "local-read %"];
    let columns = head.into_iter().chain(SOURCES.map(|(_, told)| told)).chain(["copied to nodes MiB"]);
    let cells = |row: &Row<'_>| {
        let mut cells = row.head().to_vec();
        cells.push(row.median(|pass| pass.read.sum(CounterPage::served_bytes) / MIB));
        cells.push(row.median(|pass| local_percent(&pass.read.nodes)));
        for (from, _) in SOURCES {
            let fetched = |node: &CounterPage| node.fetched().get(from).copied().unwrap_or(0);
            cells.push(row.median(|pass| pass.read.sum(fetched) / MIB));
        }
        cells.push(row.median(|pass| pass.read.sum(CounterPage::repaired) / MIB));
        TableRow { cells, invalid: row.invalid.clone() }
    };
    Table::new("Where the bytes came from", columns, rows.iter().map(cells).collect())
        .noted(["By the counters of all nodes that are named, while the readers read; medians."])
}

fn rates_of_nodes(rows: &[Row<'_>], names: &[String]) -> Table {
    let of_row = |row| names.iter().enumerate().map(move |(at, name)| (row, at, name));
    let all: Vec<(&Row, usize, &String)> = rows.iter().flat_map(of_row).collect();
    let rate = |(row, at, _): &(&Row, usize, &String), bytes: fn(&CounterPage) -> Option<u64>| {
        let rates: Option<Vec<f64>> = row.passes.iter().map(|of| of.read.node_rate(*at, bytes)).collect();
        estimate_or(&rates.unwrap_or_default(), "the node does not tell")
    };
    columns::table(
        "Rates of the nodes",
        &all,
        |(row, ..)| row.invalid.clone(),
        &[
            ("Replicas", &|(row, ..)| Cell::Count(row.condition.copies as u64)),
            ("Gateways", &|(row, ..)| Cell::Count(row.condition.gateways as u64)),
            ("State", &|(row, ..)| Cell::text(row.state.to_string())),
            ("Node", &|(.., name)| Cell::text(*name)),
            ("to clients MiB/s", &|of| rate(of, |node| Some(node.served_bytes()))),
            ("to other nodes MiB/s", &|of| rate(of, |node| Some(node.sent()))),
            ("fetched MiB/s", &|of| rate(of, |node| Some(node.remote()))),
            ("from its disks MiB/s", &|of| rate(of, CounterPage::disk_bytes)),
        ],
    )
}

fn repairs(conditions: &[CopyCondition]) -> Table {
    let with: Vec<&CopyCondition> =
        conditions.iter().filter(|condition| !condition.repairs.is_empty()).collect();
    let each = |condition: &CopyCondition, at: fn(&Repair) -> Option<f64>| -> Vec<f64> {
        condition.repairs.iter().filter_map(at).collect()
    };
    columns::table(
        "Losses and repairs",
        &with,
        |_| Vec::new(),
        &[
            ("Replicas", &|condition| Cell::Count(condition.copies as u64)),
            ("Gateways", &|condition| Cell::Count(condition.gateways as u64)),
            ("alarm, s after the loss began", &|condition| {
                let why_not = "none was raised: the copies were made again before one is due";
                estimate_or(&each(condition, |repair| repair.raised), why_not)
            }),
            ("copies whole, s after the loss", &|condition| {
                estimate(&each(condition, |repair| Some(repair.whole? - repair.lost)))
            }),
            ("alarm over, s after the loss", &|condition| {
                let raised = condition.repairs.iter().any(|repair| repair.raised.is_some());
                let why_not = if raised { "it was still raised" } else { "none was raised" };
                estimate_or(&each(condition, |repair| Some(repair.cleared? - repair.lost)), why_not)
            }),
        ],
    )
}

fn placement(settled: &SettledCopies) -> Table {
    let printed = &PUBLISHED.mapr.placement;
    let row = |(at, stripe): (usize, &StripeCopies)| {
        let mut cells = vec![Cell::Count(at as u64), Cell::Count(stripe.offset)];
        let names = stripe.copies.iter().map(|(node, _)| Cell::text(node));
        cells.extend(names.take(printed.columns.len().saturating_sub(2)));
        cells.resize_with(printed.columns.len(), || Cell::missing("no such copy"));
        TableRow::new(cells)
    };
    let table = printed.filled(settled.stripes.iter().enumerate().map(row).collect());
    let title = format!("{} of {} ({} copies)", table.title, settled.junction, settled.copies);
    Table { title, ..table }.noted(["A chunk is a stripe; its id is the offset of its first byte."])
}

fn placement_by_node(settled: &SettledCopies, names: &[String]) -> Table {
    let printed = &PUBLISHED.mapr.placement_by_node;
    let row = |name: &String| {
        let rank_in = |stripe: &StripeCopies| stripe.copies.iter().position(|(node, _)| node == name);
        let ranks: Vec<usize> = settled.stripes.iter().filter_map(rank_in).collect();
        let first = ranks.iter().filter(|rank| **rank == 0).count();
        let percent = ranks.len() as f64 / settled.stripes.len().max(1) as f64 * 100.0;
        let counts = [first, ranks.len()].map(|count| Cell::Count(count as u64));
        TableRow::new([Cell::text(name)].into_iter().chain(counts).chain([Cell::Number(percent)]).collect())
    };
    let table = printed.filled(names.iter().map(row).collect());
    let title = format!("{} of {} ({} copies)", table.title, settled.junction, settled.copies);
    Table { title, ..table }
}

/// As many gateways as copies, settled.
fn against_copies(rows: &[Row<'_>], single: Option<f64>) -> Plot {
    let mapr = &PUBLISHED.mapr;
    let mut series = vec![mapr.series()];
    let ours = rows.iter().filter(|row| row.is_settled(row.condition.gateways, row.condition.gateways));
    let ours: Vec<Point> = ours.filter_map(|row| point(row.condition.copies as f64, &row.rates)).collect();
    let first = single.or_else(|| mapr.series().points.first().map(|point| point.y)).unwrap_or(0.0);
    let ideal = (1..=3).map(|n| Point::at(f64::from(n), first * f64::from(n))).collect();
    if !ours.is_empty() {
        series.push(Series::ours("this cluster, as many gateways as copies", ours));
    }
    series.push(Series::model("each copy as fast as the first", ideal));
    let (x, y) = (Axis::linear("copies, and gateways"), Axis::linear(RATE_AXIS));
    Plot::new(PlotKind::Lines, "Rate against copies", x, y, series)
}

fn against_gateways(rows: &[Row<'_>]) -> Plot {
    let mut by_junction: BTreeMap<String, Vec<Point>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.state == CopyState::Settled) {
        let name = format!("{} copies ({})", row.condition.copies, row.condition.junction);
        by_junction.entry(name).or_default().extend(point(row.condition.gateways as f64, &row.rates));
    }
    let series = by_junction.into_iter().map(|(name, points)| Series::ours(name, points));
    let (x, y) = (Axis::linear("gateways"), Axis::linear(RATE_AXIS));
    Plot::new(PlotKind::Lines, "Rate against gateways", x, y, series)
}

/// The first repetition: how the rate and the copies grow again.
fn during_repair(row: &Row<'_>) -> Option<Plot> {
    let (pass, repair) = (row.passes.first()?, row.condition.repairs.first()?);
    let begun = pass.since_loss.unwrap_or(0.0);
    let most = median(&load(row.condition.passes.get(&CopyState::Repaired)?).rates())?;
    let moved = &pass.read.outcome.series;
    let rate = |bytes: u64| bytes as f64 / MIB / moved.interval_s.max(1e-3) / most * 100.0;
    let rates = moved.intervals.iter().enumerate();
    let rates = rates.map(|(at, of)| Point::at(begun + at as f64 * moved.interval_s, rate(of.bytes_read)));
    let copies = repair.curve.iter().map(|(at, percent)| Point::at(at - repair.lost, *percent));
    let CopyCondition { copies: wanted, gateways, .. } = row.condition;
    let title = format!("While a copy is made again: {wanted} copies, {gateways} gateways");
    let (x, y) = (Axis::linear("seconds after the loss"), Axis::linear("% of what it is after the repair"));
    let series =
        [Series::ours("rate of all readers", rates.collect()), Series::ours("copies", copies.collect())];
    Some(Plot::new(PlotKind::Lines, title, x, y, series))
}

fn say(draft: &mut ResultBuilder, rows: &[Row<'_>], least: usize, single: Option<f64>) {
    let Some(single) = single else { return };
    let times = |row: &Row<'_>| median(&row.rates).map(|rate| fixed(rate / single, 2));
    let of_least: Vec<(String, String)> = rows
        .iter()
        .filter(|row| row.state == CopyState::Settled && row.condition.copies == least)
        .filter_map(|row| Some((row.condition.gateways.to_string(), times(row)?)))
        .collect();
    let (gateways, rates): (Vec<String>, Vec<String>) = of_least.into_iter().unzip();
    draft.verdict(format!(
        "{least} copies: {} gateways read {} times what one reads, {single:.1} MiB/s",
        gateways.join(", "),
        rates.join(", ")
    ));
    for row in rows.iter().filter(|row| row.is_settled(row.condition.gateways, row.condition.gateways)) {
        let of = row.condition;
        if let (true, Some(times)) = (of.copies > least, times(row)) {
            draft.verdict(format!("{} copies by as many gateways: {times} times one gateway", of.copies));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replicas::not_measured;

    #[test]
    fn without_a_cluster_the_table_has_its_columns_and_claims_no_figure() {
        let file = not_measured();
        let (ours, mapr) = (&file.tables[0], &PUBLISHED.mapr);
        assert_eq!(ours.columns.len(), mapr.wanted.columns.len());
        assert!(ours.rows.iter().all(|row| row.cells.len() == ours.columns.len()));
        assert!(ours.rows.iter().all(|row| matches!(row.cells.last(), Some(Cell::Missing(_)))));
        assert!(file.measures.is_empty());
    }

    #[test]
    fn where_a_file_lies_is_told_by_stripe_and_by_node() {
        let copy = |name: &str| (name.to_owned(), Some(100));
        let settled = SettledCopies {
            junction: "/show".to_owned(),
            copies: 2,
            stripes: vec![
                StripeCopies { offset: 0, bytes: 64, copies: vec![copy("n1"), copy("n2")] },
                StripeCopies { offset: 64, bytes: 64, copies: vec![copy("n1"), copy("n3")] },
            ],
        };
        let table = placement(&settled);
        assert_eq!(table.rows[1].cells.len(), table.columns.len());
        assert_eq!(table.rows[1].cells[2..4], [Cell::text("n1"), Cell::text("n3")]);
        assert!(matches!(table.rows[1].cells[4], Cell::Missing(_)));
        let names = ["n1", "n2", "n3"].map(str::to_owned);
        let by_node = placement_by_node(&settled, &names);
        let expected = [(2, 2, 100.0), (0, 1, 50.0), (0, 1, 50.0)];
        for (row, (first, held, percent)) in by_node.rows.iter().zip(expected) {
            assert_eq!(row.cells[1..], [Cell::Count(first), Cell::Count(held), Cell::Number(percent)]);
        }
    }
}
