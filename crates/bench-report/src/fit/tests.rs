use super::*;

fn close(a: f64, b: f64, tolerance: f64) {
    assert!((a - b).abs() < tolerance, "{a} is not {b}");
}

/// Against SciPy's linregress, which agrees with the published re-analysis.
#[test]
fn a_line_has_the_errors_of_the_textbook() {
    let fit = line(&[(1.9, 497.0), (69.5, 836.0), (194.0, 1168.0), (221.0, 1280.0)]).unwrap();
    close(fit.intercept.value, 534.1199471655502, 1e-9);
    close(fit.slope.value, 3.381003723967515, 1e-12);
    close(fit.r2, 0.9816868339434202, 1e-12);
    let (low, high) = fit.slope.interval.unwrap();
    close(high - fit.slope.value, 4.302653 * 0.326532103, 1e-5);
    close(fit.slope.value - low, high - fit.slope.value, 1e-9);
    assert!(low > 0.0);
    let (_, high) = fit.intercept.interval.unwrap();
    close(high - fit.intercept.value, 4.302653 * 49.335224148, 1e-3);
    close(fit.predict(100.0), 872.2203, 1e-3);
    assert_eq!(crate::format::interval(fit.slope.value, fit.slope.interval), "3.381 [1.976, 4.786]");
}

#[test]
fn two_points_have_a_line_and_no_error() {
    let fit = line(&[(0.0, 1.0), (1.0, 3.0)]).unwrap();
    close(fit.slope.value, 2.0, 1e-12);
    assert_eq!(fit.slope.interval, None);
}

#[test]
fn what_has_no_line_has_none() {
    assert_eq!(line(&[(1.0, 1.0)]), None);
    assert_eq!(line(&[(1.0, 1.0), (1.0, 2.0)]), None);
    assert_eq!(line(&[(1.0, f64::NAN), (2.0, 2.0)]), None);
    assert_eq!(line(&[(f64::NAN, 1.0), (f64::NAN, 2.0)]), None);
}

#[test]
fn a_level_line_explains_all_of_nothing() {
    assert_eq!(line(&[(0.0, 15.0), (1.0, 15.0), (2.0, 15.0)]).unwrap().r2, 1.0);
}

fn job(rtt_seconds: f64, bytes: f64) -> Observation {
    Observation { rtt_seconds, bytes, seconds: 0.5 + 12.0 * rtt_seconds + bytes / 100e6 }
}

#[test]
fn three_terms_are_told_apart() {
    let jobs: Vec<_> =
        [0.002, 0.05, 0.2].iter().flat_map(|rtt| [1e6, 1e8, 1e9].map(|bytes| job(*rtt, bytes))).collect();
    let fit = distance(&jobs).unwrap();
    close(fit.fixed.value, 0.5, 1e-9);
    close(fit.round_trips.unwrap().value, 12.0, 1e-8);
    close(fit.bandwidth().unwrap(), 100e6, 1.0);
    close(fit.r2, 1.0, 1e-12);
}

#[test]
fn a_term_that_did_not_vary_is_not_fitted() {
    let by_rtt: Vec<_> = [0.002, 0.05, 0.2].map(|rtt| job(rtt, 1e8)).to_vec();
    let fit = distance(&by_rtt).unwrap();
    assert_eq!(fit.seconds_per_byte, None);
    assert_eq!(fit.bandwidth(), None);
    close(fit.fixed.value, 1.5, 1e-9);
    let by_bytes: Vec<_> = [1e6, 1e8, 1e9].map(|bytes| job(0.05, bytes)).to_vec();
    let fit = distance(&by_bytes).unwrap();
    assert_eq!(fit.round_trips, None);
    close(fit.bandwidth().unwrap(), 100e6, 1.0);
}

#[test]
fn terms_that_varied_together_are_refused() {
    let jobs: Vec<_> = [1.0, 2.0, 3.0, 4.0].map(|k| job(0.01 * k, 1e6 * k)).to_vec();
    assert_eq!(distance(&jobs), None);
    assert_eq!(distance(&[job(0.1, 1.0); 3]), None);
    assert_eq!(distance(&[job(0.1, 1.0), job(0.2, 5.0)]), None);
}

#[test]
fn more_bytes_that_took_no_longer_have_no_bandwidth() {
    let jobs = [(1e6, 1.0), (2e6, 1.1), (3e6, 0.9), (4e6, 1.0)].map(|(bytes, seconds)| Observation {
        rtt_seconds: 0.1,
        bytes,
        seconds,
    });
    assert_eq!(distance(&jobs).unwrap().bandwidth(), None);
}

#[test]
fn a_coefficient_changes_its_unit_with_its_errors() {
    let c = Coefficient { value: 2.0, interval: Some((1.0, 3.0)) };
    assert_eq!(c.times(-10.0), Coefficient { value: -20.0, interval: Some((-30.0, -10.0)) });
}
