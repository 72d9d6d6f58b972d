//! What a mount asks of the machine's processors, by the kernel's own word: /dev/cpu_dma_latency tells the strictest demand of all.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::harness::*;

const DEVICE: &str = "/dev/cpu_dma_latency";

/// The longest time that a processor may take to wake up, in us.
fn may_take() -> Option<i32> {
    let told = std::fs::read(DEVICE).ok()?;
    Some(i32::from_ne_bytes(told.get(..4)?.try_into().ok()?))
}

/// Whether it comes to be so in time; looked at between calls of `meanwhile`.
fn comes_to_be(wanted: impl Fn(i32) -> bool, mut meanwhile: impl FnMut()) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < DEADLINE {
        meanwhile();
        if wanted(may_take().expect("it could be read before")) {
            return true;
        }
    }
    false
}

#[test]
fn processors_stay_awake_while_a_mount_of_low_latency_is_busy_and_sleep_when_it_is_not() {
    let name = "processors_stay_awake_while_a_mount_of_low_latency_is_busy_and_sleep_when_it_is_not";
    match may_take() {
        None => return testkit::lab::not_run(name, "/dev/cpu_dma_latency cannot be read"),
        Some(0) => return testkit::lab::not_run(name, "somebody else keeps the processors awake"),
        Some(_) => {}
    }
    let Some(mut tier) = mount_with(name, |o| o.config.low_latency = true, |_| {}) else { return };
    let absent =
        |tier: &Tier, n: u64| assert!(!Path::exists(&tier.mount_point().join(format!("absent-{n}"))));
    let mut n = 0;
    let mut many = || {
        (n..n + 500).for_each(|n| absent(&tier, n));
        n += 500;
    };
    assert!(comes_to_be(|us| us == 0, &mut many), "it was never busy enough");
    assert!(comes_to_be(|_| tier.metrics.awake.get() == 1, &mut many), "its metric does not tell");
    let mut few = || {
        std::thread::sleep(Duration::from_millis(20));
        let _ = std::fs::metadata(tier.mount_point());
    };
    assert!(comes_to_be(|us| us > 0, &mut few), "it stayed awake for a few requests");
    assert!(comes_to_be(|us| us == 0, &mut many), "it did not wake again");
    tier.unmount();
    assert!(
        comes_to_be(|us| us > 0, || std::thread::sleep(Duration::from_millis(5))),
        "it outlived the mount"
    );
}

#[test]
fn a_mount_asks_nothing_of_the_processors_by_itself() {
    let name = "a_mount_asks_nothing_of_the_processors_by_itself";
    let Some(tier) = mount(name, |_| {}) else { return };
    let begun = Instant::now();
    let mut n = 0;
    while begun.elapsed() < Duration::from_millis(300) {
        assert!(!tier.mount_point().join(format!("absent-{n}")).exists());
        n += 1;
    }
    assert_eq!(tier.metrics.awake.get(), 0, "{n} requests");
}
