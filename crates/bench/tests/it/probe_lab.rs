//! The probe of a real server that is really far: Linux's own, behind netem, with exports that ask for privileged ports.

use std::time::Duration;

use bench::probe::{Config, run};
use bench_report::model::Cell;
use testkit::lab::{EXPORT, with_lab};

const RTT: Duration = Duration::from_millis(20);

#[test]
fn a_real_far_server_is_as_far_as_it_is_and_has_the_round_trips_it_has() {
    with_lab("a_real_far_server_is_as_far_as_it_is", RTT, |lab| {
        lab.nas.must(&format!(
            "mkdir -p {EXPORT}/probed; echo hello > {EXPORT}/probed/small; \
             dd if=/dev/zero of={EXPORT}/probed/big bs=1M count=20 2>/dev/null; exportfs -o rw,async,no_root_squash,secure,no_subtree_check,fsid=1 '*:{EXPORT}'"
        ));
        let config = Config {
            target: lab.nas_url(),
            delays: [0, 20, 40].map(Duration::from_millis).to_vec(),
            repetitions: 7,
            samples: 8,
            streams: vec![1, 2],
            stream_time: Duration::from_millis(300),
            stream_repetitions: 1,
            small_file: Some("probed/small".to_owned()),
            big_file: Some("probed/big".to_owned()),
            write: true,
            ..Config::default()
        };
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let file = runtime.block_on(run(config)).expect("measured");
        let number = |cell: &Cell| match cell {
            Cell::Number(value) | Cell::Estimate { median: value, .. } => *value,
            other => panic!("no number: {other:?}"),
        };
        // The guest's kernel shares two cores with everything else: its times scatter by some milliseconds.
        let expected = [
            ("NULL", 1.0),
            ("GETATTR", 1.0),
            ("LOOKUP", 1.0),
            ("READ 4 KiB", 1.0),
            ("open, read, close a small file", 2.0),
            ("create, write 4 KiB, close", 2.0),
        ];
        for (name, round_trips) in expected {
            let named = |cell: &Cell| matches!(cell, Cell::Text(text) if text == name);
            let row = file.tables[0].rows.iter().find(|row| row.cells.first().is_some_and(named));
            let row = row.unwrap_or_else(|| panic!("{name} is measured"));
            let (here, slope) = (number(&row.cells[1]), number(&row.cells[3]));
            assert!(here >= 20.0 * round_trips, "{name}: nothing is faster than the line: {here} ms");
            assert!((slope - round_trips).abs() < 0.15 * round_trips, "{name}: {slope} round trips");
        }
        let left = lab.nas.must(&format!("ls -A {EXPORT}")).stdout;
        assert!(!left.contains("forebay-probe"), "what was written is removed: {left}");
    });
}
