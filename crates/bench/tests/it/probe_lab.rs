//! The probe of a real server that is really far: Linux's own, behind netem, with exports that ask for privileged ports.

use std::time::Duration;

use bench::probe::{Config, run};
use testkit::lab::{EXPORT, with_lab};

use crate::probe::assert_round_trips;
use crate::quiet;

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
            samples: 6,
            streams: vec![1, 2],
            stream_time: Duration::from_millis(300),
            stream_repetitions: 1,
            small_file: Some("probed/small".to_owned()),
            big_file: Some("probed/big".to_owned()),
            write: true,
            ..Config::default()
        };
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let expected = [
            ("NULL", 1.0),
            ("GETATTR", 1.0),
            ("LOOKUP", 1.0),
            ("READ 4 KiB", 1.0),
            ("open, read, close a small file", 2.0),
            ("create, write 4 KiB, close", 2.0),
        ];
        runtime.block_on(async {
            let _quiet = quiet().await;
            // The guest's kernel shares two cores with everything else: its times scatter by some milliseconds.
            assert_round_trips(config.clone(), &expected, 0.1).await;
            let file = run(Config { write: false, ..config }).await.expect("measured");
            let here = file.findings.first().map(|finding| finding.text.as_str()).expect("the distance");
            let ms = here.split(' ').find_map(|word| word.parse::<f64>().ok()).expect("a number");
            assert!((20.0..40.0).contains(&ms), "20 ms away: {here}");
        });
        let left = lab.nas.must(&format!("ls -A {EXPORT}")).stdout;
        assert!(!left.contains("forebay-probe"), "what was written is removed: {left}");
    });
}
