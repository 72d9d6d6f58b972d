use super::*;
use crate::probe::nfs::{NfsProbe, ProbedFiles};

fn line(
    operation: ProbeOperation,
    fixed_ms: f64,
    round_trips: f64,
    delays: &[Duration],
    rtt_ms: f64,
) -> Timed {
    let at = |rtt: f64| (fixed_ms + round_trips * rtt) / 1e3;
    let far = delays.iter().map(|d| vec![at(ms(*d) + rtt_ms); 6]).collect();
    Timed { operation, direct: vec![at(rtt_ms); 100], far }
}

fn config() -> Config {
    Config { target: "nfs://nas/x".into(), ..Config::default() }
}

fn measured(timed: Vec<Timed>) -> NfsProbe {
    NfsProbe {
        handshakes: vec![0.002; 11],
        timed,
        streams: Vec::new(),
        near: Vec::new(),
        read_bytes: 1 << 20,
        found: ProbedFiles::default(),
    }
}

#[test]
fn a_line_gives_its_round_trips_and_its_prediction() {
    let config = config();
    // 3 round trips and 1 ms of work, at 2 ms.
    let measured = measured(vec![line(ProbeOperation::OpenReadClose, 1.0, 3.0, &config.delays, 2.0)]);
    let answer = ProbeAnswer::new(&config, &measured);
    let understood = answer.operation(ProbeOperation::OpenReadClose).expect("measured");
    assert!((understood.round_trips().expect("a line") - 3.0).abs() < 1e-9);
    assert!((understood.fixed(0.002).expect("a line") - 0.001).abs() < 1e-9);
    // 1 ms + 3 * 80 ms.
    assert!((understood.predict(0.080, 0.002).expect("a line") - 0.241).abs() < 1e-9);
    // 7 ms here, 14 ms at an RTT of 13/3 ms.
    assert!((answer.doubled(understood).expect("it depends") - 0.013 / 3.0).abs() < 1e-9);
    let file = of_server(&config, &measured);
    assert!(file.findings.iter().any(|f| f.text.contains("atlantic x34.4")), "{:?}", file.findings);
    let told = bench_report::report::answer(&file);
    let line = |what: &str| told.iter().find(|(name, _)| name == what).map(|(_, text)| text.as_str());
    assert!(
        line("predicted slow-down, open-read-close").is_some_and(|text| text.contains("atlantic 34.4 x")),
        "{told:?}"
    );
    assert!(line("round trips per open-read-close").is_some_and(|text| text.starts_with("3.0")), "{told:?}");
    assert!(line("direct, cold and warm").is_some_and(|text| text.contains("bench render")), "{told:?}");
}

#[test]
fn a_handshake_that_a_proxy_answers_is_not_the_distance() {
    let config = config();
    let of = |handshake: f64, null_ms: f64| {
        let timed = vec![line(ProbeOperation::Null, 0.0, 1.0, &config.delays, null_ms)];
        let measured = NfsProbe { handshakes: vec![handshake; 11], ..measured(timed) };
        let answer = ProbeAnswer::new(&config, &measured);
        let file = of_server(&config, &measured);
        let warned = file.findings.iter().any(|finding| finding.text.contains("a proxy"));
        ((answer.rtt_here * 1e6).round(), warned)
    };
    assert_eq!(of(0.000_054, 31.5), (31_500.0, true));
    assert_eq!(of(0.002, 2.1), (2_000.0, false));
    assert_eq!(of(0.000_05, 0.08), (50.0, false), "a near server's own time is no distance");
}

#[test]
fn the_nearer_server_is_faster_from_the_crossing_on() {
    let config = Config { near: Some("nfs://tier/x".into()), ..config() };
    let mut measured = measured(vec![line(ProbeOperation::OpenReadClose, 1.0, 2.0, &config.delays, 2.0)]);
    measured.near =
        vec![Timed { operation: ProbeOperation::OpenReadClose, direct: vec![0.004; 10], far: Vec::new() }];
    let answer = ProbeAnswer::new(&config, &measured);
    // 1 ms + 2 * RTT = 4 ms.
    let from = answer.break_even(&answer.operations[0]).expect("both are measured");
    assert!((from - 0.0015).abs() < 1e-9, "{from}");
}

#[test]
fn a_time_that_is_no_line_is_marked() {
    let config = config();
    let mut crooked = line(ProbeOperation::Lookup, 1.0, 1.0, &config.delays, 2.0);
    crooked.far[1] = vec![0.5; 6];
    let flat = line(ProbeOperation::Getattr, 1.0, 0.0, &config.delays, 2.0);
    let file = of_server(&config, &measured(vec![crooked, flat]));
    let marked: Vec<bool> = file.tables[0].rows.iter().map(|row| !row.invalid.is_empty()).collect();
    assert_eq!(marked, [true, false], "only where there is a slope to doubt");
    assert!(file.findings.iter().any(|f| f.text.contains("GETATTR: no round trip")), "{:?}", file.findings);
}

#[test]
fn reads_of_several_sizes_separate_distance_from_bandwidth() {
    let config = config();
    // 100 MiB/s.
    let read = |operation: ProbeOperation| {
        let bytes_ms = operation.read_bytes().expect("a READ") as f64 / (100 << 20) as f64 * 1e3;
        line(operation, 0.5 + bytes_ms, 1.0, &config.delays, 2.0)
    };
    let measured = measured(vec![
        read(ProbeOperation::Read4K),
        read(ProbeOperation::Read64K),
        read(ProbeOperation::Read1M),
    ]);
    let reads = ProbeAnswer::new(&config, &measured).reads.expect("all three vary");
    assert!((reads.round_trips.expect("it varies").value - 1.0).abs() < 1e-6);
    assert!((mib(reads.bandwidth().expect("it varies")) - 100.0).abs() < 0.1);
}

#[test]
fn more_streams_than_the_knee_bring_little() {
    let rate = |streams, mb: f64| StreamRate {
        added: None,
        streams,
        bytes_per_second: vec![mb * 1e6],
        out_of_order: vec![],
    };
    let rates = [rate(1, 50.0), rate(2, 100.0), rate(4, 180.0), rate(8, 185.0), rate(16, 186.0)];
    assert_eq!(knee(&rates.iter().collect::<Vec<_>>()), Some(4));
    assert_eq!(knee(&rates.iter().take(2).collect::<Vec<_>>()), Some(2));
    assert_eq!(knee(&[]), None);
}
