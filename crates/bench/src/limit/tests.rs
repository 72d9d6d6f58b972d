use bench_load::outcome::WorkerSpan;

use super::*;

const MIB: u64 = 1 << 20;

/// A phase of one worker that read.
pub fn run(name: &str, mib: u64, seconds: f64, cpu_seconds: f64) -> PhaseOutcome {
    let span = WorkerSpan { end_s: seconds, bytes: mib * MIB, units: 1, ..WorkerSpan::default() };
    PhaseOutcome {
        name: name.to_owned(),
        spans: vec![span],
        bytes_read: mib * MIB,
        units: 1,
        cpu_seconds,
        ..PhaseOutcome::default()
    }
}

fn bounds(way: TargetPath) -> LoadBounds {
    LoadBounds { machines: 1.0, cores: 2.0, way, memory: Some(1000.0 * MIB as f64) }
}

pub fn over_a_gigabit() -> LoadBounds {
    bounds(gigabit())
}

fn gigabit() -> TargetPath {
    TargetPath::Over(Some(Nic { name: "eth0".into(), rate: Some(125e6) }))
}

#[test]
fn what_is_faster_than_its_link_or_memory_is_not_believed() {
    let fast = [run("read", 100, 1.0, 0.1), run("read", 200, 1.0, 0.1)];
    assert_eq!(bounds(TargetPath::Here).exceeded(&fast), None);
    let why = bounds(gigabit()).exceeded(&fast).expect("200 MiB/s over a gigabit");
    assert!(why.contains("200.0 MiB/s") && why.contains("eth0 1000 Mbit/s"), "{why}");
    let two = LoadBounds { machines: 2.0, ..bounds(gigabit()) };
    assert_eq!(two.exceeded(&fast), None, "two machines have two links");
    let why = bounds(TargetPath::Here).exceeded(&[run("read", 1600, 1.0, 0.1)]).expect("faster than memory");
    assert!(why.contains("memory"), "{why}");
}

#[test]
fn the_busiest_part_that_is_known_is_the_verdict() {
    let told = |way, run| bottleneck(&bounds(way).measured(&[run])).to_string();
    let cpu = told(TargetPath::Here, run("read", 100, 1.0, 1.9));
    assert!(cpu.starts_with("limited by: client CPU (client CPU 95 %"), "{cpu}");
    assert!(cpu.contains("not measured: client NIC"), "{cpu}");
    let nic = told(gigabit(), run("read", 115, 1.0, 0.2));
    assert!(nic.starts_with("limited by: client NIC"), "{nic}");
    let unknown = told(TargetPath::Over(None), run("read", 115, 1.0, 0.2));
    assert!(unknown.starts_with("limited by: nothing that was measured"), "{unknown}");
}

#[test]
fn shapes_that_all_stop_at_one_rate_show_a_capped_link_and_only_where_there_is_one() {
    let runs = [[run("read", 200, 1.0, 0.1)], [run("read", 202, 1.0, 0.1)], [run("read", 198, 1.0, 0.1)]];
    let rows: Vec<SweepRow> = runs.iter().map(|runs| ("a row".to_owned(), 2, &runs[..])).collect();
    let of = |way| bounds(way).capped(&rows);
    assert!(of(TargetPath::Over(None)).is_some_and(|why| why.contains("100 MiB/s a node")));
    assert!(of(gigabit()).is_some_and(|why| why.contains("full")));
    assert_eq!(of(TargetPath::Here), None);
}

#[test]
fn a_sweep_is_told_in_one_line_for_each_limit() {
    let runs = [
        [run("read", 1, 1.0, 0.1)],
        [run("read", 115, 1.0, 1.99)],
        [run("read", 200, 1.0, 0.1)],
        [run("read", 1, 1.0, 0.1)],
    ];
    let rows: Vec<SweepRow> =
        runs.iter().enumerate().map(|(n, runs)| (format!("row {n}"), 1, &runs[..])).collect();
    let mut draft = ResultBuilder::without_common("shapes", "a sweep", "modern", 1);
    bounds(gigabit()).judge(&mut draft, &rows);
    let told: Vec<&str> = draft.file.findings.iter().map(|finding| finding.text.as_str()).collect();
    let has = |parts: &[&str]| told.iter().any(|text| parts.iter().all(|part| text.contains(part)));
    assert!(has(&["2 of 4 rows are limited by: nothing that was measured", "that is of row 0"]), "{told:?}");
    assert!(has(&["1 of 4 rows are limited by: client CPU"]), "{told:?}");
    assert!(has(&["1 of 4 rows measure the bench and not the storage (row 1)"]), "{told:?}");
}

#[test]
fn a_state_is_held_against_the_line_unless_a_cache_served_it() {
    let ceiling =
        MachineCeiling { memory_rate: 100.0 * MIB as f64, memory_operations: 1.0, loopback_rate: None };
    let reads = |mib: u64, sample: Sample| {
        let phase = PhaseOutcome { bytes_read: mib * MIB, ..sample.phase };
        Sample { phase, ..sample }
    };
    let sample = reads(20, Sample { origin_bytes: 20 * MIB, ..crate::sample::tests::idle(1.0) });
    let exceeded = |sample: &Sample, mode| sample_exceeded(sample, mode, Some(ByteRate(10 * MIB)), &ceiling);
    assert!(
        exceeded(&sample, CacheMode::Direct).is_some_and(|why| why.contains("more than the line carries"))
    );
    assert!(exceeded(&sample, CacheMode::Cold).is_some());
    assert_eq!(exceeded(&sample, CacheMode::Warm), None);
    let slow = Sample { origin_bytes: 9 * MIB, ..sample.clone() };
    assert_eq!(exceeded(&slow, CacheMode::Cold), None, "most came from the tier");
    let impossible = reads(200, slow);
    assert!(exceeded(&impossible, CacheMode::Warm).is_some_and(|why| why.contains(MEMORY)));
}

#[tokio::test]
async fn a_target_of_this_machine_has_no_link_in_between() {
    for here in [
        "/tmp",
        "file:///tmp?direct=1",
        "nfs://127.0.0.1:2049/x",
        "s3://bucket?endpoint=http://127.0.0.1:9000",
    ] {
        assert_eq!(way(here).await, TargetPath::Here, "{here}");
    }
}
