use bench_report::Cell;

use super::super::wire::PairLog;
use super::*;

/// A steady stream with a sample every 100 ms, microseconds.
fn log(stream: u32, start_us: u64, end_us: u64, bytes_per_second: f64) -> StreamLog {
    let bytes = |at: u64| (seconds(at - start_us) * bytes_per_second) as u64;
    let progress =
        (start_us / 100_000 + 1..end_us / 100_000).map(|n| (n * 100_000, bytes(n * 100_000))).collect();
    StreamLog { stream, start_us, end_us, bytes: bytes(end_us), progress, retransmits: Some(1) }
}

fn ran(to: &str, logs: Vec<StreamLog>) -> Ran {
    let pair = Pair { from: None, to: to.to_owned() };
    let log = PairLog {
        sent: logs.clone(),
        received: logs,
        idle_us: vec![1_000; 16],
        loaded_us: vec![9_000; 200],
        clock_error_us: 10,
    };
    Ran { pair, log }
}

const START: u64 = 10_000_000;
const STOP: u64 = 12_000_000;

fn round(pairs: Vec<Ran>) -> Round {
    let streams = pairs[0].log.sent.len() as u32;
    let together = pairs.len() > 1;
    Round { way: StreamDirection::Up, streams, together, start_us: START, stop_us: STOP, pairs }
}

/// Bytes a second of some pairs of a round.
fn rate(config: &Config, round: &Round, pairs: &[Ran], end: StreamEnd) -> Result<f64, Refusal> {
    conditions(config, std::slice::from_ref(round))[0].phase(round, pairs, end)?.common_rate()
}

fn config() -> Config {
    Config { repetitions: 1, ..Config::default() }
}

#[test]
fn what_is_omitted_and_what_comes_late_does_not_count() {
    // Fast at the beginning, and still draining after the end.
    let mut uneven = log(0, START, STOP + 500_000, 1e6);
    for (_, bytes) in &mut uneven.progress {
        *bytes += 5_000_000;
    }
    uneven.bytes += 5_000_000;
    let round = round(vec![ran("a:1", vec![uneven])]);
    let rate = rate(&config(), &round, &round.pairs, RECEIVER).expect("it overlaps with itself");
    assert!((rate - 1e6).abs() < 1e3, "{rate}");
}

#[test]
fn pairs_that_did_not_run_together_are_not_added() {
    let apart = round(vec![
        ran("a:1", vec![log(0, START, STOP, 1e6)]),
        ran("b:1", vec![log(0, START + 1_000_000, STOP, 1e6)]),
    ]);
    let refused = rate(&config(), &apart, &apart.pairs, RECEIVER).expect_err("half of the time only");
    assert!(refused.contains("1.00 s of 1.70 s"), "{refused}");
    let file = of(&config(), &[apart], &Here::default());
    let all = file.tables[0].rows.last().expect("the row of all pairs");
    assert!(matches!(all.cells[2], Cell::Missing(_)), "{all:?}");

    let together = round(vec![
        ran("a:1", vec![log(0, START, STOP, 1e6)]),
        ran("b:1", vec![log(0, START + 10_000, STOP, 3e6)]),
    ]);
    let rate = rate(&config(), &together, &together.pairs, RECEIVER).expect("they ran together");
    assert!((rate - 4e6).abs() < 1e4, "{rate}");
}

#[test]
fn streams_that_all_began_late_are_held_against_the_schedule() {
    let late = round(vec![ran("a:1", vec![log(0, STOP - 500_000, STOP, 1e6)])]);
    assert!(rate(&config(), &late, &late.pairs, RECEIVER).is_err());
    let silent = round(vec![ran("a:1", vec![StreamLog::default()])]);
    assert!(rate(&config(), &silent, &silent.pairs, RECEIVER).is_err(), "nothing moved");
    let mut lost = round(vec![ran("a:1", vec![log(0, START, STOP, 1e6)])]);
    lost.streams = 2;
    assert!(rate(&config(), &lost, &lost.pairs, RECEIVER).is_err(), "one stream told nothing");
}

#[test]
fn a_result_has_the_studys_columns_and_the_queue_under_load() {
    let steady = || round(vec![ran("a:1", vec![log(0, START, STOP, 125e6), log(1, START, STOP, 125e6)])]);
    let file = of(&config(), &[steady(), steady()], &Here::default());
    assert_eq!(file.tables[0].columns, ["Bandwidth", "Sender", "Receiver"]);
    assert_eq!(file.tables[0].rows.len(), 1, "two repetitions of one condition");
    assert_eq!(file.tables[0].rows[0].cells[2], Cell::text("2000 Mbits/sec"));
    let extended = &file.tables[1].rows[0];
    assert_eq!(extended.cells.last(), Some(&Cell::Count(4)), "one of each stream and repetition");
    assert_eq!(extended.cells[9], Cell::Number(9.0));
    assert!(file.findings.iter().any(|f| f.text.contains("waits in queues")), "{:?}", file.findings);
    let rates = file.measures.iter().find(|m| m.unit == "Mbit/s").expect("measured");
    assert_eq!(rates.values.len(), 2);
    // Steady from beginning to end.
    let points = &file.plots[0].series[0].points;
    assert!(points.iter().all(|p| (p.y - 2000.0).abs() < 20.0), "{points:?}");
}

/// One pair, and a link of this machine that leads to it.
fn over_a_link(rate: Option<f64>, bytes_per_second: f64) -> ResultFile {
    let ran = ran("a:1", vec![log(0, START, STOP, bytes_per_second)]);
    let nics = [(ran.pair.clone(), crate::nic::Nic { name: "eth0".to_owned(), rate })].into();
    of(&config(), &[round(vec![ran])], &Here { cpu_seconds: 0.1, nics })
}

#[test]
fn a_rate_above_the_links_is_invalid_and_one_at_it_is_the_links() {
    let above = over_a_link(Some(1e6), 2e6);
    let row = &above.tables[1].rows[0];
    assert!(row.invalid.iter().any(|why| why.contains("the link eth0 8 Mbit/s")), "{:?}", row.invalid);
    let at = over_a_link(Some(1e6), 0.95e6);
    assert!(at.tables[1].rows[0].invalid.is_empty());
    let told = |file: &ResultFile, text: &str| file.findings.iter().any(|f| f.text.contains(text));
    assert!(told(&at, "limited by: client NIC"), "{:?}", at.findings);
    assert!(told(&at, "a node's link is 95 % full"), "{:?}", at.findings);
    let unknown = over_a_link(None, 2e6);
    assert!(unknown.tables[1].rows[0].invalid.is_empty());
    assert!(told(&unknown, "not measured: client NIC"), "{:?}", unknown.findings);
}
