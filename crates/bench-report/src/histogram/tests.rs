use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// Made by the HdrHistogram library's own V2 serializer from the values below.
const GOLDEN: &str = "HISTEwAAABMAAAAAAAAAAwAAAAAAAAABAAAAFB3XYAA/8AAAAAAAAAIEAAL1HwoCwRPYBPt6DsmFAgI=";
const GOLDEN_VALUES: [(u64, u64); 8] =
    [(0, 1), (1, 2), (3, 1), (2047, 5), (2048, 1), (5000, 300), (1_000_000, 7), (MICROSECONDS_MAX, 1)];

fn of(values: &[(u64, u64)]) -> Histogram {
    let mut histogram = Histogram::new();
    for (value, count) in values {
        histogram.record_microseconds(*value, *count);
    }
    histogram
}

#[test]
fn what_is_written_is_what_the_family_writes() {
    let histogram = of(&GOLDEN_VALUES);
    assert_eq!(histogram.encode(), GOLDEN);
    assert_eq!(Histogram::decode(GOLDEN).unwrap(), histogram);
}

#[test]
fn no_samples_are_no_percentiles() {
    let empty = Histogram::new();
    assert!(empty.is_empty());
    assert_eq!((empty.percentile(50.0), empty.max(), empty.min(), empty.mean()), (None, None, None, None));
    assert!(empty.cumulative("x").points.is_empty());
    assert_eq!(Histogram::decode(&empty.encode()).unwrap(), empty);
    let table = table("Latency", &[("read".to_owned(), empty)]);
    assert_eq!(table.rows[0].cells[2], Cell::missing("no samples"));
    assert_eq!(table.rows[0].cells.len(), table.columns.len());
}

#[test]
fn percentiles_are_within_a_thousandth() {
    let histogram = of(&(1..=10_000u64).map(|v| (v * 37, 1)).collect::<Vec<_>>());
    for (name, percent) in PERCENTILES {
        let exact = percent / 100.0 * 10_000.0 * 37.0;
        let found = histogram.percentile(percent).unwrap() as f64;
        assert!((found / exact - 1.0).abs() < 0.001, "{name}: {found} and not {exact}");
    }
    assert!((histogram.max().unwrap() as f64 / 370_000.0 - 1.0).abs() < 0.001);
}

#[test]
fn too_few_samples_have_no_far_percentile() {
    let histogram = of(&[(10, 99)]);
    assert!(histogram.percentile(90.0).is_some() && histogram.percentile(99.0).is_none());
    assert!(of(&[(10, 100)]).percentile(99.0).is_some());
    assert!(of(&[(10, 10_000)]).percentile(99.99).is_some());
    assert!(of(&[(10, 9_999)]).percentile(99.99).is_none());
}

#[test]
fn longer_than_a_day_is_a_day() {
    let mut histogram = Histogram::new();
    histogram.record(Duration::MAX);
    histogram.record(Duration::from_millis(2));
    assert_eq!(histogram.len(), 2);
    assert_eq!(histogram.above(1_000_000), 1);
    assert!(histogram.max().unwrap() >= MICROSECONDS_MAX);
}

#[test]
fn counts_that_do_not_fit_stay_at_the_largest() {
    let mut histogram = of(&[(5, u64::MAX - 1)]);
    histogram.record_microseconds(6, 10);
    assert_eq!(histogram.len(), u64::MAX);
}

#[test]
fn a_table_shows_no_more_digits_than_are_known() {
    assert_eq!(four_digits(1_959_935), 1_960_000.0);
    assert_eq!((four_digits(0), four_digits(9_999), four_digits(10_004)), (0.0, 9_999.0, 10_000.0));
}

#[test]
fn the_cumulative_curve_rises_to_a_hundred() {
    let points = of(&[(1000, 50), (2000, 49), (90_000, 1)]).cumulative("read").points;
    assert_eq!(points.first().map(|p| p.y), Some(0.0));
    assert_eq!(points.last().map(|p| p.y), Some(100.0));
    assert!(points.is_sorted_by(|a, b| a.x <= b.x && a.y < b.y), "{points:?}");
    assert!((points.last().unwrap().x - 90.0).abs() < 0.1);
}

#[test]
fn damaged_texts_are_errors() {
    let bytes = BASE64.decode(GOLDEN).unwrap();
    let damaged = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = bytes.clone();
        change(&mut bytes);
        let error = Histogram::decode(&BASE64.encode(&bytes)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        error.to_string()
    };
    assert!(damaged(&|b| b[0] = 0).contains("not of version 2"));
    assert!(damaged(&|b| b.truncate(20)).contains("too short"));
    assert!(damaged(&|b| b.truncate(50)).contains("length"));
    assert!(damaged(&|b| b[15] = 5).contains("three digits"));
    assert!(damaged(&|b| b[24] = 1).contains("longer than a day"));
    // Numbers as the encoding has them: ZigZag LEB128, whose ninth byte is whole.
    let (largest, least) = ([&[0xfe][..], &[0xff; 8]].concat(), vec![0xff; 9]);
    let skip_all = vec![0xff, 0xbf, 0x03];
    let with = |new: Vec<u8>| {
        move |b: &mut Vec<u8>| {
            b.truncate(HEADER_BYTES);
            b[7] = new.len() as u8;
            b.extend(&new);
        }
    };
    assert!(damaged(&with(largest.repeat(3))).contains("do not fit"));
    assert!(damaged(&with(least)).contains("do not fit"));
    assert!(damaged(&with([skip_all, vec![2]].concat())).contains("do not fit"));
    assert!(damaged(&with(vec![0x80])).contains("do not fit"));
    let long = "A".repeat(ENCODED_BYTES_MAX * 2);
    assert!(Histogram::decode(&long).unwrap_err().to_string().contains("longer than any histogram"));
}

proptest! {
    #[test]
    fn encoding_keeps_all_and_merging_adds(
        a in prop::collection::vec((0..MICROSECONDS_MAX, 1..1000u64), 0..50),
        b in prop::collection::vec((0..5000u64, 1..1000u64), 0..50),
    ) {
        let (one, two) = (of(&a), of(&b));
        prop_assert_eq!(&Histogram::decode(&one.encode()).unwrap(), &one);
        let mut merged = one.clone();
        merged.merge(&two);
        let all: Vec<_> = a.iter().chain(&b).copied().collect();
        prop_assert_eq!(merged.encode(), of(&all).encode());
        prop_assert_eq!(merged.len(), one.len() + two.len());
    }

    #[test]
    fn no_bytes_make_it_panic(counts in prop::collection::vec(any::<u8>(), 0..200), text in ".{0,80}") {
        let mut bytes = BASE64.decode(GOLDEN).unwrap();
        bytes.truncate(HEADER_BYTES);
        bytes[6..8].copy_from_slice(&(counts.len() as u16).to_be_bytes());
        bytes.extend(&counts);
        if let Ok(histogram) = Histogram::decode(&BASE64.encode(&bytes)) {
            prop_assert_eq!(Histogram::decode(&histogram.encode()).unwrap(), histogram);
        }
        let _ = Histogram::decode(&text);
    }
}
