use bench_load::outcome::WorkerSpan;

use super::*;

#[test]
fn what_a_pass_takes_is_not_what_several_take() {
    let several = Sample { epochs: 4, origin_bytes: 400, origin_calls: 40, ..idle(8.0) };
    let triple = Triple { direct: idle(4.0), cold: idle(5.0), warm: several };
    let told = pass(std::slice::from_ref(&triple), CacheMode::Warm);
    assert_eq!((told.seconds, told.origin_bytes, told.origin_calls), (2.0, 100.0, 10.0));
    assert_eq!(pass(std::slice::from_ref(&triple), CacheMode::Direct).seconds, 4.0);
}

/// Nothing happened, and it took so long.
pub fn idle(makespan: f64) -> Sample {
    let span = WorkerSpan { end_s: makespan, units: 1, ..WorkerSpan::default() };
    let phase = PhaseOutcome { spans: vec![span], ..PhaseOutcome::default() };
    Sample { phase, epochs: 1, ..Sample::default() }
}
