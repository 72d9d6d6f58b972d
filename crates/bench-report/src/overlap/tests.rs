use super::*;
use crate::published::PUBLISHED;

const MIB: f64 = 1048576.0;

type Expected = (&'static str, f64, &'static str, f64, Option<(f64, f64)>);

/// Sum of write rates, bytes over the last finisher, sum of read rates, seconds in which all three read. Of the five
/// runs of test 1; the sums are what the study would have printed, and what is refused here.
const EXPECTED: [Expected; 5] = [
    ("Knox x3", 90.2, "62.4", 157.8, None),
    ("ePouta x3", 73.3, "58.3", 116.8, Some((123.0, 382.0))),
    ("1 Knox + 2 ePouta", 74.7, "58.0", 121.3, Some((54.0, 440.0))),
    ("2 Knox + 1 ePouta", 81.1, "44.2", 186.5, None),
    ("2 ePouta + 1 Knox", 93.0, "58.0", 155.8, None),
];

#[test]
fn the_tryggve_writes_are_62_4_and_never_90_2() {
    for (run, (name, sum, last_done, ..)) in PUBLISHED.tryggve.sob.iter().zip(EXPECTED) {
        assert_eq!(run.name, name);
        let writes = run.writes().unwrap();
        assert_eq!(format!("{:.1}", writes.last_done_rate() / MIB), last_done, "{name}");
        let added: f64 = writes.spans().iter().map(Span::rate).sum::<f64>() / MIB;
        assert!((added - sum).abs() < 0.06, "{name}: the rates that must not be added make {added}");
        for refused in [writes.added_rates(), writes.common_rate()] {
            let reason = refused.unwrap_err();
            assert!(reason.contains("3 workers shared") && reason.contains("needed 95 %"), "{reason}");
        }
    }
}

#[test]
fn the_tryggve_reads_never_fully_overlapped() {
    for (run, (name, _, _, sum, together)) in PUBLISHED.tryggve.sob.iter().zip(EXPECTED) {
        let reads = run.reads().unwrap();
        let added: f64 = reads.spans().iter().map(Span::rate).sum::<f64>() / MIB;
        assert!((added - sum).abs() < 0.06, "{name}: {added}");
        let found = reads.common().map(|c| (seconds(&c).round(), seconds(&reads.whole()).round()));
        assert_eq!(found, together, "{name}");
        let reason = reads.added_rates().unwrap_err();
        assert_eq!(reason.contains("never all worked at once"), together.is_none(), "{reason}");
    }
}

fn phase(spans: &[(f64, f64, u64)]) -> PhaseSpans {
    let span = |(i, (start, end, bytes)): (usize, &(f64, f64, u64))| {
        Span::new(format!("w{i}"), *start, *end, *bytes)
    };
    PhaseSpans::new(spans.iter().enumerate().map(span).collect()).unwrap()
}

#[test]
fn rates_of_workers_that_overlap_are_added() {
    let phase = phase(&[(0.0, 10.0, 1000), (0.2, 10.1, 990)]);
    assert!(phase.overlap() > 0.95);
    assert!((phase.added_rates().unwrap() - 200.0).abs() < 1e-9);
    assert!((phase.common_rate().unwrap() - 200.0).abs() < 1e-9);
    assert!((phase.last_done_rate() - 1990.0 / 10.1).abs() < 1e-9);
    assert!((phase.fairness() - 1.0).abs() < 1e-9);
}

/// The border itself: 95 of 100 seconds are enough, a little less is not.
#[test]
fn ninety_five_percent_is_the_border() {
    assert!(phase(&[(0.0, 100.0, 1), (0.0, 95.0, 1)]).added_rates().is_ok());
    assert!(phase(&[(0.0, 100.0, 1), (0.0, 94.9, 1)]).added_rates().is_err());
}

#[test]
fn with_progress_the_windows_are_measured() {
    // Two workers; the first moves everything in its first second and then waits.
    let mut fast = Span::new("fast", 0.0, 10.0, 1000);
    fast.progress = vec![(1.0, 1000)];
    let mut late = Span::new("late", 4.0, 14.0, 2000);
    late.progress = vec![(9.0, 1000)];
    let phase = PhaseSpans::new(vec![fast, late]).unwrap();
    assert_eq!(phase.common(), Some(4.0..10.0));
    // 0 of fast; 1000 until 9 s and another 200 until 10 s of late; in 6 s.
    assert!((phase.common_rate().unwrap() - 200.0).abs() < 1e-9);
    assert!(phase.added_rates().is_err(), "own rates are never added without overlap");
}

#[test]
fn spans_that_make_no_sense_are_refused() {
    let refused = |spans: Vec<Span>| PhaseSpans::new(spans).unwrap_err();
    assert_eq!(refused(vec![]), "no worker finished");
    assert!(refused(vec![Span::new("w", 1.0, 1.0, 5)]).contains("w took no time"));
    assert!(refused(vec![Span::new("w", 0.0, f64::NAN, 5)]).contains("took no time"));
    let mut backwards = Span::new("w", 0.0, 2.0, 5);
    backwards.progress = vec![(1.0, 6)];
    assert_eq!(refused(vec![backwards]), "w's progress goes backwards");
}

#[test]
fn one_worker_overlaps_with_itself() {
    let phase = phase(&[(5.0, 7.0, 10)]);
    assert_eq!(phase.overlap(), 1.0);
    assert_eq!(phase.added_rates(), Ok(5.0));
    assert_eq!(phase.first_done_seconds(), 2.0);
}
