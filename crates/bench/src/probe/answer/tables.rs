//! The probe's tables.

use bench_report::fit::Coefficient;
use bench_report::{Cell, Table, TableRow, estimate, median};
use relay::Profile;

use super::super::operation::ProbeOperation;
use super::super::samples::Timed;
use super::super::streams::StreamRate;
use super::super::{nfs, posix};
use super::{ProbeAnswer, Understood, digits, histogram, in_mib, in_ms, mib, ms, place};
use crate::columns;

pub fn of_server(answer: &ProbeAnswer) -> Vec<Table> {
    let mut tables = vec![round_trips(answer), measured_back(answer), predictions(answer)];
    tables.extend(reads(answer));
    if !answer.measured.streams.is_empty() {
        tables.push(streams(answer));
    }
    tables
}

fn milliseconds(seconds: Option<f64>, why_not: &str) -> Cell {
    Cell::known(seconds.map(|s| digits(s * 1e3)), why_not)
}

fn p99(seconds: &[f64]) -> Cell {
    Cell::known(histogram(seconds).percentile_ms(99.0), "fewer than 100 samples")
}

fn round_trips(answer: &ProbeAnswer) -> Table {
    let timed = answer.measured.timed.iter();
    let rows: Vec<(&Timed, &Understood)> =
        timed.filter_map(|timed| Some((timed, answer.operation(timed.operation)?))).collect();
    let none = || Cell::missing("no line");
    columns::table(
        "Round trips of each operation",
        &rows,
        |(_, understood)| understood.problem(&answer.config.delays).into_iter().collect(),
        &[
            ("Operation", &|(timed, _)| Cell::text(timed.operation.to_string())),
            ("Median here (ms)", &|(timed, _)| estimate(&in_ms(&timed.direct))),
            ("p99 here (ms)", &|(timed, _)| p99(&timed.direct)),
            ("Round trips", &|(timed, understood)| {
                let n = timed.far.iter().map(Vec::len).sum();
                understood.line.map_or_else(none, |line| line.slope.cell(n))
            }),
            ("Without distance (ms)", &|(_, understood)| {
                milliseconds(understood.fixed(answer.rtt_here), "no line")
            }),
            ("R2", &|(_, understood)| Cell::known(understood.line.map(|line| digits(line.r2)), "no line")),
        ],
    )
    .noted(notes(answer.measured))
}

fn notes(measured: &nfs::NfsProbe) -> [String; 5] {
    let found = measured.found;
    [
        "Round trips: the slope of the medians over the distance that a relay adds, with the 95 % interval of the fit."
            .to_owned(),
        "Here: without a relay. Without distance: the median here, less its round trips at the round trip here."
            .to_owned(),
        "Operations are those of our own client: open is one LOOKUP, close costs nothing after reading. A kernel's \
         client asks more (ACCESS, GETATTR)."
            .to_owned(),
        match found.small_bytes {
            Some(bytes) => format!("The small file has {bytes} bytes."),
            None => "No file of 1 byte to 64 KiB was found: open, read, close is not measured.".to_owned(),
        },
        format!("The directory that is listed has {} names.", found.names),
    ]
}

fn measured_back(answer: &ProbeAnswer) -> Table {
    let null = answer.measured.timed.iter().find(|timed| timed.operation == ProbeOperation::Null);
    let here = null.and_then(|timed| median(&timed.direct));
    let far = |at| null.and_then(|timed| timed.far.get(at)).cloned().unwrap_or_default();
    let rows: Vec<(f64, Vec<f64>)> =
        answer.config.delays.iter().enumerate().map(|(at, added)| (ms(*added), far(at))).collect();
    columns::table(
        "The injected distances, measured back",
        &rows,
        |_| Vec::new(),
        &[
            ("Added (ms)", &|(added, _)| Cell::Number(*added)),
            ("NULL through the relay (ms)", &|(_, times)| estimate(&in_ms(times))),
            ("More than without a relay (ms)", &|(_, times)| {
                let more = median(times).zip(here).map(|(far, here)| far - here);
                milliseconds(more, "not measured")
            }),
        ],
    )
}

fn predictions(answer: &ProbeAnswer) -> Table {
    let mut columns = vec!["Operation".to_owned(), "Here (ms)".to_owned()];
    columns.extend(Profile::ALL.iter().map(|p| format!("{} {} ms (ms)", short(p.name), ms(p.rtt))));
    columns.push("Twice as long from RTT (ms)".to_owned());
    if !answer.near.is_empty() {
        columns.push("Near is faster from RTT (ms)".to_owned());
    }
    let row = |understood: &Understood| {
        let mut cells =
            vec![Cell::text(understood.operation.to_string()), Cell::Number(digits(understood.direct * 1e3))];
        let at = |rtt| milliseconds(understood.predict(rtt, answer.rtt_here), "no line");
        cells.extend(Profile::ALL.iter().map(|p| at(p.rtt.as_secs_f64())));
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
    let number = |c: Option<Coefficient>, factor: f64| {
        c.map_or_else(|| Cell::missing("did not vary"), |c| c.times(factor).cell(reads.n))
    };
    let bandwidth = reads.bandwidth().map(|bandwidth| digits(mib(bandwidth)));
    let cells = vec![
        number(Some(reads.fixed), 1e3),
        number(reads.round_trips, 1.0),
        Cell::known(bandwidth, "more bytes did not clearly take longer"),
        Cell::Number(digits(reads.r2)),
    ];
    let columns = ["a (ms)", "n, round trips", "BW (MiB/s)", "R2"];
    let table = Table::new("One READ: T = a + n * RTT + bytes / BW", columns, vec![TableRow::new(cells)]);
    Some(table.noted(["Fitted to the medians of READs of 4 KiB, 64 KiB and 1 MiB at all distances."]))
}

fn streams(answer: &ProbeAnswer) -> Table {
    let places = answer.places();
    let mut columns = vec!["Streams".to_owned()];
    for added in &places {
        columns.push(format!("{} (MiB/s)", place(*added)));
        columns.extend(["MB/s", "x one stream", "Out of order (%)"].map(str::to_owned));
    }
    let row = |&streams: &usize| {
        let mut cells = vec![Cell::Count(streams as u64)];
        for added in &places {
            let rates = answer.rates(*added);
            let of = |streams| rates.iter().copied().find(|rate| rate.streams == streams);
            let missing = || Cell::missing("not measured");
            let number = |value: Option<f64>| Cell::known(value.map(digits), "not measured");
            let rate: Option<&StreamRate> = of(streams);
            let times = rate.zip(of(1)).map(|(rate, one)| rate.median() / one.median());
            let losses = rate.and_then(|rate| median(&rate.out_of_order));
            cells.push(rate.map_or_else(missing, |rate| estimate(&in_mib(&rate.bytes_per_second))));
            cells.push(number(rate.map(|rate| rate.median() / 1e6)));
            cells.push(number(times.filter(|times| times.is_finite())));
            cells.push(number(losses.map(|share| share * 100.0)));
        }
        TableRow::new(cells)
    };
    let rows = answer.config.streams.iter().map(row).collect();
    Table::new("What streams carry", columns, rows).noted([
        format!(
            "Each stream is a connection with {} READs of {} bytes under way in a file of {} bytes; {} times {} s each, in \
             turns.",
            answer.config.read_ahead,
            answer.measured.read_bytes,
            answer.measured.found.big_bytes.unwrap_or_default(),
            answer.config.stream_repetitions,
            answer.config.stream_time.as_secs_f64()
        ),
        "Out of order: segments that came late, of all TCP of this machine: a sign of loss, and an estimate from above."
            .to_owned(),
    ])
}

pub fn of_path(measured: &posix::LocalProbe) -> Table {
    let rtt = measured.server.as_ref().and_then(|(_, times)| median(times));
    // Below a fifth of a millisecond the kernel's own time would be taken for distance.
    let trips = |times: &[f64]| match (median(times), rtt.filter(|rtt| *rtt >= 0.0002)) {
        (Some(time), Some(rtt)) => Cell::Number(digits(time / rtt)),
        (_, Some(_)) => Cell::missing("not measured"),
        (_, None) => Cell::missing("no server at a known distance"),
    };
    columns::table(
        format!("Times of {}", measured.kind),
        &measured.operations,
        |_| Vec::new(),
        &[
            ("Operation", &|(name, _)| Cell::text(*name)),
            ("Median (ms)", &|(_, times)| estimate(&in_ms(times))),
            ("p99 (ms)", &|(_, times)| p99(times)),
            ("At most so many round trips", &|(_, times)| trips(times)),
        ],
    )
    .noted([format!(
        "{} {} are used in turn; what caches them on this side answers where it can.",
        measured.files, measured.small
    )])
}
