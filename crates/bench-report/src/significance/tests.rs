use super::*;

fn close(a: f64, b: f64) {
    assert!((a - b).abs() < 1e-6, "{a} is not {b}");
}

/// Against SciPy: mannwhitneyu(b, a, method="exact") gives U = 19, p = 0.2222; the interval leaves out two differences
/// at each end, as P(U <= 2) = 4/252.
#[test]
fn small_samples_are_tested_exactly() {
    let (a, b) = ([1.1, 2.2, 3.3, 4.4, 5.5], [3.0, 4.0, 5.0, 6.0, 7.0]);
    close(mann_whitney(&a, &b).unwrap(), 2.0 / 9.0);
    let (shift, interval) = hodges_lehmann(&a, &b).unwrap();
    close(shift, 1.7);
    let (low, high) = interval.unwrap();
    close(low, -1.4);
    close(high, 4.8);
}

/// Against SciPy: mannwhitneyu(b, a, method="asymptotic") gives U = 970, p = 0.1027380.
#[test]
fn large_samples_with_ties_are_approximated() {
    let a: Vec<f64> = (0..40).map(|i| f64::from((i * 7) % 40)).collect();
    let b: Vec<f64> = (0..40).map(|i| f64::from((i * 11) % 40 / 2 * 2 + 5)).collect();
    close(mann_whitney(&a, &b).unwrap(), 0.1027380045);
}

#[test]
fn a_full_separation_has_the_smallest_p() {
    for (n, m) in [(3, 3), (4, 4), (6, 6), (8, 5)] {
        let a: Vec<f64> = (0..n).map(f64::from).collect();
        let b: Vec<f64> = (0..m).map(|i| f64::from(i) + 100.0).collect();
        let p = mann_whitney(&a, &b).unwrap();
        close(p, smallest_p(n as usize, m as usize));
    }
    close(smallest_p(4, 4), 2.0 / 70.0);
    close(smallest_p(6, 6), 2.0 / 924.0);
    close(smallest_p(1, 1), 1.0);
}

/// Enumerated by hand: of the 20 ways to choose 3 of the ranks 1.5 1.5 3.5 3.5 5 6, six are as far from the middle as
/// 3.5 + 5 + 6.
#[test]
fn ties_are_counted_and_not_approximated() {
    let p = mann_whitney(&[1.0, 1.0, 2.0], &[2.0, 3.0, 4.0]).unwrap();
    let ranks = [1.5, 1.5, 3.5, 3.5, 5.0, 6.0];
    let mut far = 0;
    for i in 0..6 {
        for j in i + 1..6 {
            for k in j + 1..6 {
                let sum: f64 = ranks[i] + ranks[j] + ranks[k];
                far += i32::from((sum - 10.5).abs() >= 4.0);
            }
        }
    }
    close(p, f64::from(far) / 20.0);
}

#[test]
fn samples_that_are_all_alike_are_not_different() {
    close(mann_whitney(&[5.0; 6], &[5.0; 6]).unwrap(), 1.0);
    close(mann_whitney(&[5.0; 40], &[5.0; 40]).unwrap(), 1.0);
}

/// Where exactness ends the approximation must agree with it.
#[test]
fn the_approximation_joins_the_exact_test() {
    let a: Vec<f64> = (0..25).map(|i| f64::from((i * 7) % 25)).collect();
    let b: Vec<f64> = (0..25).map(|i| f64::from((i * 11) % 25) + 4.5).collect();
    assert_eq!(a.len() + b.len(), EXACT_MAX);
    let more: Vec<f64> = b.iter().copied().chain([16.5]).collect();
    let (exact, approximate) = (mann_whitney(&a, &b).unwrap(), mann_whitney(&a, &more).unwrap());
    assert!((exact - approximate).abs() < 0.01, "{exact} {approximate}");
    let (exact_low, _) = hodges_lehmann(&a, &b).unwrap().1.unwrap();
    let (shift, interval) = hodges_lehmann(&a, &more).unwrap();
    let (low, high) = interval.unwrap();
    assert!((exact_low - low).abs() < 1.0 && low < shift && shift < high);
}

#[test]
fn the_effect_is_a_ratio() {
    let a = [10.0, 10.2, 9.9, 10.1, 10.3, 9.8];
    let b: Vec<f64> = a.iter().map(|v| v * 1.1).collect();
    let effect = effect(&a, &b).unwrap();
    close(effect.relative, 0.1);
    let (low, high) = effect.interval.unwrap();
    assert!(low > 0.05 && high < 0.15, "{low} {high}");
}

#[test]
fn an_effect_around_zero_is_relative_to_the_median() {
    let effect = effect(&[-1.0, 2.0, 2.0], &[1.0, 4.0, 4.0]).unwrap();
    close(effect.relative, 1.0);
    assert_eq!(effect.interval, None);
}

/// Holm's own example: 0.01 0.04 0.03 0.005 becomes 0.03 0.06 0.06 0.02.
#[test]
fn holm_corrects_in_the_order_given() {
    let corrected = holm(&[0.01, 0.04, 0.03, 0.005]);
    for (p, expected) in corrected.iter().zip([0.03, 0.06, 0.06, 0.02]) {
        close(*p, expected);
    }
    assert!(holm(&[]).is_empty());
}

/// 2/n! for a strictly rising order; the middle of the distribution for a balanced one.
#[test]
fn kendall_counts_permutations() {
    close(kendall(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap(), 2.0 / 720.0);
    close(kendall(&[6.0, 5.0, 4.0, 3.0, 2.0, 1.0]).unwrap(), 2.0 / 720.0);
    close(kendall(&[3.0, 1.0, 4.0, 2.0, 5.0, 0.0]).unwrap(), 1.0);
    // SciPy: kendalltau(method="exact").
    close(kendall(&[3.0, 1.0, 4.0, 2.0, 6.0, 5.0, 8.0, 7.0]).unwrap(), 0.0311507937);
    assert_eq!(kendall(&[1.0, 2.0, 3.0]), None);
    close(kendall(&[7.0; 9]).unwrap(), 1.0);
}

/// 5000 each, shifted by a quarter of their range.
#[test]
fn very_large_samples_are_thinned_and_not_refused() {
    let a: Vec<f64> = (0..5000).map(|i| f64::from(i * 7919 % 5000) / 5000.0).collect();
    let b: Vec<f64> = a.iter().map(|v| v + 0.25).collect();
    let (shift, interval) = hodges_lehmann(&a, &b).unwrap();
    assert!(mann_whitney(&a, &b).unwrap() < 1e-9 && (shift - 0.25).abs() < 0.002, "{shift}");
    let (low, high) = interval.unwrap();
    // Half the width: 1.96 x sqrt(10001 / 12 / 5000^2) = 0.011.
    assert!((0.235..0.242).contains(&low) && (0.258..0.265).contains(&high), "{low} {high}");
}

#[test]
fn values_that_are_no_numbers_are_not_compared() {
    assert_eq!(mann_whitney(&[], &[1.0]), None);
    assert_eq!(mann_whitney(&[1.0], &[f64::NAN]), None);
}
