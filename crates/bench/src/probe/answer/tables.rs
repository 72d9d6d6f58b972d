//! The probe's tables.

use bench_report::model::{Cell, Table, TableRow};
use bench_report::summary::{estimate, median};

use super::super::operation::ProbeOperation;
use super::super::streams::StreamRate;
use super::super::{nfs, posix};
use super::{ProbeAnswer, Understood, digits, histogram, mib, ms, named, place};

pub fn of_server(answer: &ProbeAnswer) -> Vec<Table> {
    let mut tables = vec![round_trips(answer), measured_back(answer), predictions(answer)];
    tables.extend(reads(answer));
    if !answer.measured.streams.is_empty() {
        tables.push(streams(answer));
    }
    tables
}

fn milliseconds(seconds: Option<f64>, why_not: &str) -> Cell {
    seconds.map_or_else(|| Cell::missing(why_not), |s| Cell::Number(digits(s * 1e3)))
}

fn in_ms(seconds: &[f64]) -> Cell {
    estimate(&seconds.iter().map(|s| s * 1e3).collect::<Vec<_>>())
}

fn p99(seconds: &[f64]) -> Cell {
    match histogram(seconds).percentile(99.0) {
        Some(us) => Cell::Number(us as f64 / 1e3),
        None => Cell::missing("fewer than 100 samples"),
    }
}

fn round_trips(answer: &ProbeAnswer) -> Table {
    let columns =
        ["Operation", "Median here (ms)", "p99 here (ms)", "Round trips", "Without distance (ms)", "R2"];
    let rows = answer.measured.timed.iter().filter_map(|timed| {
        let understood = answer.operation(timed.operation)?;
        let none = || Cell::missing("no line");
        let slope = understood.line.map_or_else(none, |line| Cell::Estimate {
            median: line.slope.value,
            interval: line.slope.interval,
            n: timed.far.iter().map(Vec::len).sum(),
        });
        let cells = vec![
            Cell::text(timed.operation.to_string()),
            in_ms(&timed.direct),
            p99(&timed.direct),
            slope,
            milliseconds(understood.fixed(answer.rtt_here), "no line"),
            understood.line.map_or_else(none, |line| Cell::Number(digits(line.r2))),
        ];
        Some(TableRow { cells, invalid: understood.problem(&answer.config.delays).into_iter().collect() })
    });
    let mut table = Table::new("Round trips of each operation", columns, rows.collect());
    table.notes = notes(answer.measured);
    table
}

fn notes(measured: &nfs::NfsProbe) -> Vec<String> {
    let found = measured.found;
    let mut notes = vec![
        "Round trips: the slope of the medians over the distance that a relay adds, with the 95 % interval of the fit."
            .to_owned(),
        "Here: without a relay. Without distance: the median here, less its round trips at the round trip here."
            .to_owned(),
        "Operations are those of our own client: open is one LOOKUP, close costs nothing after reading. A kernel's \
         client asks more (ACCESS, GETATTR)."
            .to_owned(),
    ];
    match found.small_bytes {
        Some(bytes) => notes.push(format!("The small file has {bytes} bytes.")),
        None => {
            notes.push("No file of 1 byte to 64 KiB was found: open, read, close is not measured.".to_owned())
        }
    }
    notes.push(format!("The directory that is listed has {} names.", found.names));
    notes
}

fn measured_back(answer: &ProbeAnswer) -> Table {
    let null = answer.measured.timed.iter().find(|timed| timed.operation == ProbeOperation::Null);
    let here = null.and_then(|timed| median(&timed.direct));
    let rows = answer.config.delays.iter().enumerate().map(|(at, added)| {
        let times = null.and_then(|timed| timed.far.get(at)).cloned().unwrap_or_default();
        let more = median(&times).zip(here).map(|(far, here)| far - here);
        TableRow::new(vec![Cell::Number(ms(*added)), in_ms(&times), milliseconds(more, "not measured")])
    });
    let columns = ["Added (ms)", "NULL through the relay (ms)", "More than without a relay (ms)"];
    Table::new("The injected distances, measured back", columns, rows.collect())
}

fn predictions(answer: &ProbeAnswer) -> Table {
    let mut columns = vec!["Operation".to_owned(), "Here (ms)".to_owned()];
    columns.extend(named().iter().map(|p| format!("{} {} ms (ms)", short(p.name), ms(p.rtt))));
    columns.push("Twice as long from RTT (ms)".to_owned());
    if !answer.near.is_empty() {
        columns.push("Near is faster from RTT (ms)".to_owned());
    }
    let row = |understood: &Understood| {
        let mut cells =
            vec![Cell::text(understood.operation.to_string()), Cell::Number(digits(understood.direct * 1e3))];
        let at = |rtt| milliseconds(understood.predict(rtt, answer.rtt_here), "no line");
        cells.extend(named().iter().map(|p| at(p.rtt.as_secs_f64())));
        cells.push(milliseconds(answer.doubled(understood), "hardly depends on it"));
        if !answer.near.is_empty() {
            let from = answer.break_even(understood).map(|rtt| rtt.max(0.0));
            cells.push(milliseconds(from, "not measured near"));
        }
        TableRow { cells, invalid: understood.problem(&answer.config.delays).into_iter().collect() }
    };
    let rows = answer.operations.iter().map(row).collect();
    Table::new("Predicted times at named distances", columns, rows)
        .noted(["T = a + n * RTT, by the table of round trips; bandwidth is not in it."])
}

/// `vfxt-69.5` says its round trip already.
fn short(name: &str) -> &str {
    name.split_once('-').map_or(name, |(study, _)| study)
}

fn reads(answer: &ProbeAnswer) -> Option<Table> {
    let reads = answer.reads?;
    let number = |c: Option<bench_report::fit::Coefficient>, factor: f64| {
        c.map_or_else(
            || Cell::missing("did not vary"),
            |c| {
                let c = c.times(factor);
                Cell::Estimate { median: c.value, interval: c.interval, n: reads.n }
            },
        )
    };
    let bandwidth = match reads.bandwidth() {
        Some(bandwidth) => Cell::Number(digits(mib(bandwidth))),
        None => Cell::missing("more bytes did not clearly take longer"),
    };
    let cells = vec![
        number(Some(reads.fixed), 1e3),
        number(reads.round_trips, 1.0),
        bandwidth,
        Cell::Number(digits(reads.r2)),
    ];
    let columns = ["a (ms)", "n, round trips", "BW (MiB/s)", "R2"];
    let mut table = Table::new("One READ: T = a + n * RTT + bytes / BW", columns, vec![TableRow::new(cells)]);
    table
        .notes
        .push("Fitted to the medians of READs of 4 KiB, 64 KiB and 1 MiB at all distances.".to_owned());
    Some(table)
}

fn streams(answer: &ProbeAnswer) -> Table {
    let places: Vec<_> = std::iter::once(None).chain(answer.farthest().map(Some)).collect();
    let mut columns = vec!["Streams".to_owned()];
    for added in &places {
        columns.push(format!("{} (MiB/s)", place(*added)));
        columns.push("MB/s".to_owned());
        columns.push("x one stream".to_owned());
        columns.push("Out of order (%)".to_owned());
    }
    let row = |&streams: &usize| {
        let mut cells = vec![Cell::Count(streams as u64)];
        for added in &places {
            let rates = answer.rates(*added);
            let of = |streams| rates.iter().find(|rate| rate.streams == streams);
            let missing = || Cell::missing("not measured");
            let in_mib = |rate: &&StreamRate| {
                estimate(&rate.bytes_per_second.iter().copied().map(mib).collect::<Vec<_>>())
            };
            cells.push(of(streams).map_or_else(missing, in_mib));
            cells.push(of(streams).map_or_else(missing, |rate| Cell::Number(digits(rate.median() / 1e6))));
            let times = of(streams).zip(of(1)).map(|(rate, one)| rate.median() / one.median());
            cells.push(times.filter(|t| t.is_finite()).map_or_else(missing, |t| Cell::Number(digits(t))));
            let losses = of(streams).and_then(|rate| median(&rate.out_of_order));
            cells.push(losses.map_or_else(missing, |share| Cell::Number(digits(share * 100.0))));
        }
        TableRow::new(cells)
    };
    let rows = answer.config.streams.iter().map(row).collect();
    Table::new("What streams carry", columns, rows).noted([format!(
        "Each stream is a connection with {} READs of {} bytes under way in a file of {} bytes; {} times {} s each, in \
         turns.",
        answer.config.read_ahead,
        answer.measured.read_bytes,
        answer.measured.found.big_bytes.unwrap_or_default(),
        answer.config.stream_repetitions,
        answer.config.stream_time.as_secs_f64()
    ), "Out of order: segments that came late, of all TCP of this machine: a sign of loss, and an estimate from above."
            .to_owned()])
}

pub fn of_path(measured: &posix::LocalProbe) -> Table {
    let rtt = measured.server.as_ref().and_then(|(_, times)| median(times));
    let rows = measured.operations.iter().map(|(name, times)| {
        // Below a fifth of a millisecond the kernel's own time would be taken for distance.
        let trips = match (median(times), rtt.filter(|rtt| *rtt >= 0.0002)) {
            (Some(time), Some(rtt)) => Cell::Number(digits(time / rtt)),
            (_, Some(_)) => Cell::missing("not measured"),
            (_, None) => Cell::missing("no server at a known distance"),
        };
        TableRow::new(vec![Cell::text(*name), in_ms(times), p99(times), trips])
    });
    let columns = ["Operation", "Median (ms)", "p99 (ms)", "At most so many round trips"];
    Table::new(format!("Times of {}", measured.kind), columns, rows.collect()).noted([format!(
        "{} {} are used in turn; what caches them on this side answers where it can.",
        measured.files, measured.small
    )])
}
