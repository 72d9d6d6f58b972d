use super::*;
use crate::model::Better;

#[test]
fn the_median_of_an_even_number_lies_between_the_middle_two() {
    assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
    assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median(&[]), None);
    assert_eq!(median(&[1.0, f64::NAN]), None);
    assert_eq!(median(&[f64::MAX, f64::MAX]), Some(f64::MAX));
}

/// Ranks from the binomial distribution: n = 6: 1 and 6; n = 9: 2 and 8; n = 20: 6 and 15.
#[test]
fn the_interval_has_the_tabled_ranks_and_needs_six_values() {
    let ranks = |n: u32| median_interval(&(1..=n).rev().map(f64::from).collect::<Vec<_>>());
    assert_eq!(ranks(5), None);
    assert_eq!(ranks(6), Some((1.0, 6.0)));
    assert_eq!(ranks(8), Some((1.0, 8.0)));
    assert_eq!(ranks(9), Some((2.0, 8.0)));
    assert_eq!(ranks(20), Some((6.0, 15.0)));
}

#[test]
fn nothing_measured_is_missing_and_not_zero() {
    assert_eq!(estimate(&[]), Cell::missing("not measured"));
    assert_eq!(estimate(&[f64::INFINITY]), Cell::missing("not a finite number"));
    assert_eq!(estimate(&[7.0]), Cell::Estimate { median: 7.0, interval: None, n: 1 });
}

/// The warm column of the vFXT study: 9.8 % over conditions that should be the same.
#[test]
fn the_noise_of_the_warm_vfxt_column_is_ten_percent() {
    let warm = [331.0, 316.0, 262.0, 312.0];
    let cv = coefficient_of_variation(&warm).unwrap();
    assert!((cv - 0.098).abs() < 0.001, "{cv}");
    assert_eq!(noise_floor([&warm[..], &[5.0]]), Some(cv));
    assert_eq!(noise_floor([&[1.0][..]]), None);
}

/// (2.1448 + 0.8681) x 3 % x sqrt(2 / (8 x 0.9549)) = 4.6 %.
#[test]
fn eight_repetitions_see_about_one_and_a_half_times_the_noise() {
    let effect = minimum_detectable_effect(0.03, 8).unwrap();
    assert!((0.044..0.048).contains(&effect), "{effect}");
    assert!(minimum_detectable_effect(0.03, 16).unwrap() < effect);
    assert_eq!(minimum_detectable_effect(0.03, 3), None);
}

#[test]
fn a_trend_is_warned_of_and_noise_is_not() {
    let measure = |values: &[f64]| Measure::new("warm seconds", "s", Better::Lower, values.to_vec());
    let warning = drift_warning(&measure(&[10.0, 10.4, 10.8, 11.2, 11.6, 12.0])).unwrap();
    assert!(warning.contains("changed by +18.2 %") && warning.contains("warm seconds"), "{warning}");
    assert_eq!(drift_warning(&measure(&[10.0, 11.2, 10.4, 10.8, 12.0, 10.1])), None);
    assert_eq!(drift_warning(&measure(&[1.0, 2.0, 3.0, 4.0])), None);
    let steady: Vec<f64> = (0..20).map(|i| 7.0 - 0.0015 * f64::from(i)).collect();
    assert_eq!(drift_warning(&measure(&steady)), None, "0.4 % is nothing to act on");
    let long: Vec<f64> = (0..100_000).map(|i| 10.0 + f64::from(i % 7) + f64::from(i) / 1e5).collect();
    let change = drift(&long).unwrap().change;
    assert!((change - 1.0 / 13.5).abs() < 0.01, "{change}");
}
