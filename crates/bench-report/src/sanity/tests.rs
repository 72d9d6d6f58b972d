use super::*;
use crate::published::PUBLISHED;

const MIB: f64 = 1048576.0;

#[test]
fn a_closed_loop_obeys_little() {
    // AIStore, warm: 104.64 GiB/s in objects of 10 MiB, and 46.7 ms.
    let (operations, latency_s) = (104.64 * 1024.0 / 10.0, 0.0467);
    assert_eq!(little(operations, latency_s, 500), None);
    let reason = little(operations, latency_s, 800).unwrap();
    assert!(reason.contains("500.4 operations in flight"), "{reason}");
    assert!(little(f64::NAN, 1.0, 5).is_some() && little(1.0, 1.0, 0).is_some());
}

#[test]
fn rows_of_milliseconds_are_refused() {
    // Azure HPC IO wrote 40 MiB to Cirrus at 10000 MiB/s: 4 ms on a clock of 1 ms.
    let seconds = 40.0 / PUBLISHED.azure.mfmw.points(1, 4)[1].y;
    assert!(too_short(seconds).unwrap().contains("0.004 s"));
    assert_eq!(too_short(1.0), None);
    assert!(too_short(f64::NAN).is_some());
}

#[test]
fn random_reads_do_not_outrun_sequential_ones() {
    assert_eq!(random_above_sequential(105.0, 100.0), None);
    assert!(random_above_sequential(150.0, 100.0).unwrap().contains("1.50 times"));
}

#[test]
fn nothing_outruns_its_link() {
    // Tryggve's sum of reads, 157.8 MiB/s, over 941 Mbit/s.
    assert!(
        faster_than(157.8 * MIB, 941e6 / 8.0, "the link")
            .unwrap()
            .contains("more than the link carries (112.2")
    );
    assert_eq!(faster_than(112.0 * MIB, 941e6 / 8.0, "the link"), None);
}

#[test]
fn fairness_is_the_slowest_over_the_fastest() {
    assert_eq!(fairness(&[50.0, 100.0]), Some(0.5));
    assert_eq!(fairness(&[]), None);
    assert_eq!(fairness(&[0.0, 0.0]), None);
}

#[test]
fn a_full_link_is_found() {
    assert!(nic_cap(&[50.0 * MIB, 110.0 * MIB], Some(941e6 / 8.0)).unwrap().contains("98 % full"));
    assert_eq!(nic_cap(&[50.0 * MIB, 90.0 * MIB], Some(941e6 / 8.0)), None);
}

/// Azure: 1000 to 1130 MiB/s over five nodes, single file or many, Blob or File.
#[test]
fn a_capped_link_of_unknown_speed_shows_in_shapes_that_should_differ() {
    let reason = nic_cap(&[1011.96, 1116.0, 1130.0, 1047.0].map(|v| v / 5.0 * MIB), None).unwrap();
    assert!(reason.contains("4 different shapes all move 215 MiB/s a node"), "{reason}");
    assert_eq!(nic_cap(&[100.0, 101.0], None), None, "two shapes may agree by chance");
    assert_eq!(nic_cap(&[100.0, 200.0, 300.0], None), None);
}
