//! The decisions about read-ahead, played against a model of a far origin in virtual time.

use std::time::Duration;

use crate::line::{Client, Line, Outcome, run};

const GIB: u64 = 1 << 30;
const FARTHEST: u64 = 256 << 20;
const GIGABIT: f64 = 125e6;

fn client(file: u64) -> Client {
    Client { file, block: 128 << 10, think: Duration::from_micros(50) }
}

fn one_reader(rtt_ms: f64, mbit: f64, size: u64) -> Outcome {
    run(Line::new(rtt_ms, mbit), &[client(0)], size, FARTHEST)
}

#[test]
fn a_cold_gibibyte_takes_the_same_time_from_everywhere() {
    let near = one_reader(1.9, 1000.0, GIB);
    for rtt in [1.9, 69.5, 194.0, 221.0] {
        let cold = one_reader(rtt, 1000.0, GIB);
        println!("{rtt} ms: {:.2} s, {:.1} MB/s after 2 s", cold.seconds, cold.rate_after(2.0) / 1e6);
        assert!(cold.rate_after(2.0) >= 0.90 * GIGABIT, "{rtt} ms: {:.1} MB/s", cold.rate_after(2.0) / 1e6);
        assert!(
            cold.seconds <= 1.10 * near.seconds,
            "{rtt} ms: {:.2} s, near {:.2} s",
            cold.seconds,
            near.seconds
        );
        assert_eq!(cold.origin_bytes, GIB, "{rtt} ms: nothing twice");
    }
}

#[test]
fn a_line_that_is_not_what_was_guessed_is_filled_too_and_not_flooded() {
    for (mbit, size) in [(10.0, GIB / 32), (100.0, GIB / 8), (10_000.0, 8 * GIB)] {
        for rtt in [1.9, 69.5, 221.0] {
            let cold = one_reader(rtt, mbit, size);
            let ideal = size as f64 / (mbit * 125e3);
            // Three round trips to be believed, for each fourfold speed of the guess one or two more to learn it.
            let allowed = ideal * 1.1 + rtt / 1000.0 * 8.0 + 0.05;
            let bound = 96.0e6 / (rtt / 1000.0); // the budget in a round trip
            let allowed = allowed.max(size as f64 / bound * 1.2);
            assert!(
                cold.seconds <= allowed,
                "{mbit} Mbit/s, {rtt} ms: {:.2} s of {allowed:.2}",
                cold.seconds
            );
            assert_eq!(cold.origin_bytes, size);
        }
    }
}

#[test]
fn many_readers_of_many_files_share_the_line_and_the_budget() {
    let clients: Vec<Client> = (0..64).map(client).collect();
    for rtt in [1.9, 221.0] {
        let cold = run(Line::new(rtt, 1000.0), &clients, GIB / 64, FARTHEST);
        let ideal = GIB as f64 / GIGABIT;
        println!("64 files, {rtt} ms: {:.2} s", cold.seconds);
        assert!(cold.seconds <= ideal / 0.90 + rtt / 1000.0 * 3.0, "{rtt} ms: {:.2} s", cold.seconds);
        assert_eq!(cold.origin_bytes, GIB);
        assert!(cold.peak <= 128 << 20, "{} MiB under way", cold.peak >> 20);
    }
}

#[test]
fn many_readers_of_one_file_cost_the_line_what_one_does() {
    let clients = [client(0); 64];
    let alone = one_reader(69.5, 1000.0, GIB / 4);
    let together = run(Line::new(69.5, 1000.0), &clients, GIB / 4, FARTHEST);
    assert_eq!(together.origin_bytes, GIB / 4);
    assert!(together.seconds <= alone.seconds * 1.1, "{:.2} s, alone {:.2}", together.seconds, alone.seconds);
}

#[test]
fn jitter_of_a_fifth_of_the_way_costs_little() {
    for seed in 1..6 {
        let line = Line { jitter: Duration::from_millis(40), seed, ..Line::new(194.0, 1000.0) };
        let cold = run(line, &[client(0)], GIB, FARTHEST);
        assert!(
            cold.rate_after(2.0) >= 0.90 * GIGABIT,
            "seed {seed}: {:.1} MB/s",
            cold.rate_after(2.0) / 1e6
        );
    }
}
