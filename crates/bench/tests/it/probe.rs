//! The probe as a ruler: what it says of a server whose distance is known.

use bench::probe::{Config, run};
use bench_load::target;
use bench_report::model::{Cell, ResultFile, Severity, Table, TableRow};
use relay::Relay;
use testkit::azfile::{StandIn, credentials};

use crate::nas::NasProcess;
use crate::{ms, number, quiet};

/// Short, and long enough for a slope.
fn config(target: String) -> Config {
    Config {
        target,
        delays: vec![ms(0), ms(25), ms(50)],
        repetitions: 7,
        samples: 8,
        streams: vec![1, 2],
        stream_time: ms(200),
        stream_repetitions: 2,
        ..Config::default()
    }
}

fn table<'a>(file: &'a ResultFile, title: &str) -> &'a Table {
    file.tables.iter().find(|table| table.title.contains(title)).expect("the table is there")
}

fn row<'a>(table: &'a Table, name: &str) -> &'a TableRow {
    let named = |row: &&TableRow| matches!(row.cells.first(), Some(Cell::Text(text)) if text == name);
    table.rows.iter().find(named).expect("the row is there")
}

fn round_trips(file: &ResultFile, operation: &str) -> f64 {
    number(&row(table(file, "Round trips"), operation).cells[3])
}

/// Each of these operations has this slope, to `tolerance` of it. Other work on the machine bends a ruler now and then: an
/// operation that is straight in one of a few attempts is straight, one that is never is not.
pub async fn assert_round_trips(config: Config, expected: &[(&str, f64)], tolerance: f64) {
    let mut left: Vec<(&str, f64, Vec<f64>)> =
        expected.iter().map(|(name, expected)| (*name, *expected, Vec::new())).collect();
    for _ in 0..6 {
        let file = run(config.clone()).await.expect("measured");
        for (name, _, seen) in &mut left {
            seen.push(round_trips(&file, name));
        }
        let crooked = |expected: f64, seen: &[f64]| {
            seen.iter().all(|slope| (slope - expected).abs() > tolerance * expected)
        };
        left.retain(|(_, expected, seen)| crooked(*expected, seen));
        if left.is_empty() {
            return;
        }
    }
    panic!("never within {tolerance} of what is expected: {left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_call_is_one_round_trip_and_two_are_two() {
    let _quiet = quiet().await;
    let nas = NasProcess::with_files().await;
    let expected = [
        ("NULL", 1.0),
        ("TCP connect and first NULL", 2.0),
        ("GETATTR", 1.0),
        ("LOOKUP", 1.0),
        ("READ 4 KiB", 1.0),
        ("READ 1 MiB", 1.0),
        ("open, read, close a small file", 2.0),
        ("list a directory", 1.0),
    ];
    assert_round_trips(config(nas.url()), &expected, 0.05).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn distance_that_is_there_already_is_in_the_time_here_and_not_in_the_slope() {
    let _quiet = quiet().await;
    let nas = NasProcess::with_files().await;
    let line = relay::Config { rtt: ms(20), ..relay::Config::default() };
    let relay = Relay::bind(([127, 0, 0, 1], 0).into(), nas.address, line).expect("bound");
    let port = relay.local_addr().port();
    let mut seen = Vec::new();
    for _ in 0..6 {
        let config = config(format!("nfs://127.0.0.1:{port}/?mountport={port}"));
        let file = run(Config { streams: vec![1], ..config }).await.expect("measured");
        let lookup = row(table(&file, "Round trips"), "LOOKUP").clone();
        let (here, slope) = (number(&lookup.cells[1]), number(&lookup.cells[3]));
        assert!(here >= 20.0, "nothing is faster than the line: {here}");
        if here < 24.0 && (slope - 1.0).abs() < 0.05 {
            return;
        }
        seen.push((here, slope));
    }
    panic!("20 ms here and one round trip were never seen: {seen:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_result_has_what_a_reader_asks_for() {
    let _quiet = quiet().await;
    let nas = NasProcess::with_files().await;
    let near = NasProcess::with_files().await;
    let config = Config {
        near: Some(near.url()),
        delays: vec![ms(0), ms(5), ms(10)],
        repetitions: 6,
        samples: 100,
        ..config(nas.url())
    };
    let file = run(config).await.expect("measured");
    assert_eq!(file.experiment, "probe");
    assert_eq!(file.plots.len(), 3);
    assert!(file.plots.iter().all(|plot| plot.series.iter().all(|s| !s.points.is_empty())));
    let measured = file.measures.iter().find(|m| m.name == "GETATTR, 10 ms added").expect("kept");
    assert_eq!(measured.values.len(), 6);
    let streams = table(&file, "What streams carry");
    assert_eq!(streams.rows.len(), 2);
    assert!(streams.rows.iter().all(|row| number(&row.cells[1]) > 1.0), "{streams:?}");
    let predicted = row(table(&file, "Predicted"), "GETATTR");
    // Within what a busy machine adds to an 80 ms round trip.
    assert!((number(&predicted.cells[5]) - 80.0).abs() < 40.0, "atlantic: {predicted:?}");
    let verdicts: Vec<&str> =
        file.findings.iter().filter(|f| f.severity == Severity::Verdict).map(|f| f.text.as_str()).collect();
    for about in ["ms away", "open, read, close a small file", "vfxt-221 x", "A single stream"] {
        assert!(verdicts.iter().any(|text| text.contains(about)), "nothing about {about}: {verdicts:?}");
    }
    // Both are as fast as each other: which of these is true is chance.
    let compared = |text: &&str| text.contains("Break-even") || text.contains("at any distance");
    assert!(verdicts.iter().any(compared), "no comparison: {verdicts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_empty_export_is_measured_as_far_as_it_goes() {
    let nas = NasProcess::start(|_| {}).await;
    let config = Config { delays: vec![ms(0), ms(5), ms(10)], repetitions: 3, ..config(nas.url()) };
    let file = run(config).await.expect("measured");
    let operations: Vec<&Cell> =
        table(&file, "Round trips").rows.iter().filter_map(|row| row.cells.first()).collect();
    assert!(operations.contains(&&Cell::text("GETATTR")));
    assert!(!operations.contains(&&Cell::text("LOOKUP")), "there is no name to look up");
    assert!(file.tables.iter().all(|table| table.title != "What streams carry"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mounted_directory_is_timed_without_a_slope() {
    let dir = tempfile::tempdir().expect("temporary directory");
    std::fs::write(dir.path().join("small"), [1; 100]).expect("written");
    let target = dir.path().to_string_lossy().into_owned();
    let file = run(Config { write: true, samples: 10, ..config(target) }).await.expect("measured");
    let table = table(&file, "Times of a mount");
    for operation in
        ["stat", "open, read, close a small file", "list the directory", "create, write 4 KiB, sync, close"]
    {
        assert!(number(&row(table, operation).cells[1]) > 0.0, "{operation}");
    }
    let left: Vec<_> = std::fs::read_dir(dir.path()).expect("there").flatten().collect();
    assert_eq!(left.len(), 1, "what was written is removed");
    assert!(file.findings.iter().any(|f| f.text.contains("nfs://HOST/EXPORT")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_is_timed_by_requests_without_a_slope_and_left_as_it_was() {
    let share = StandIn::start(&["show"]).await;
    let keys = tempfile::tempdir().expect("temporary directory");
    let url = share.url("show", &format!("&credentials={}", credentials(keys.path()).display()));
    let target = target::from_url(&url).expect("a share");
    let client = target::clients(&target, 0, 1).await.expect("a client").remove(0);
    for (name, bytes) in [("large", 200_000), ("small", 100)] {
        let file = client.create(name).await.expect("made");
        file.write(0, vec![1; bytes].into()).await.expect("written");
        file.close().await.expect("stored");
    }
    let file = run(Config { write: true, samples: 8, ..config(url) }).await.expect("measured");
    let table = table(&file, "Times of the store");
    for operation in
        ["list the first directory", "GET of 64 KiB at most", "GET of 4 MiB at most", "PUT of 4 KiB"]
    {
        assert!(number(&row(table, operation).cells[1]) > 0.0, "{operation}");
    }
    assert!(file.findings.iter().any(|f| f.text.contains("ms away")), "{:?}", file.findings);
    client.forget();
    let mut left: Vec<_> = client.list("").await.expect("listed").into_iter().map(|e| e.name).collect();
    left.sort();
    assert_eq!(left, ["large", "small"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_questions_are_answered_in_one_line() {
    let nas = NasProcess::with_files().await;
    let nobody = "nfs://127.0.0.1:1/?mountport=1".to_owned();
    for (wrong, hint) in [
        (config(String::new()), "nfs://HOST"),
        (config("/no/such/directory".to_owned()), "/no/such/directory"),
        (Config { delays: vec![ms(1), ms(1), ms(2)], ..config(nas.url()) }, "three different delays"),
        (Config { streams: vec![0], ..config(nas.url()) }, "1 to 256"),
        (Config { small_file: Some("nothing".to_owned()), ..config(nas.url()) }, "nothing"),
        (Config { small_file: Some("dir/big".to_owned()), ..config(nas.url()) }, "64 KiB"),
        (config(nobody), "127.0.0.1"),
        (Config { write: true, ..config(nas.url()) }, "leave --write out"),
    ] {
        let error = run(wrong).await.expect_err("a wrong question").to_string();
        assert!(error.contains(hint) && !error.contains('\n'), "{error}");
    }
}
