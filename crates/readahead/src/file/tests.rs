use std::time::Duration;

use super::*;

const MIB: u64 = 1 << 20;
const KIB: u64 = 1 << 10;
const SIZE: u64 = 1 << 30;
const WINDOW: u64 = 32 * MIB;

impl History {
    fn plan(&mut self, range: ByteRange, window: u64) -> Vec<ByteRange> {
        let (at, _) = self.note(range, 0);
        self.ahead(at, range, SIZE, window)
    }
}

/// Every range planned while `offsets` are read, `length` each, with the offset that was read.
fn walk(offsets: impl IntoIterator<Item = u64>, length: u64, window: u64) -> Vec<(u64, ByteRange)> {
    let mut history = History::default();
    let mut planned = Vec::new();
    for offset in offsets {
        let ranges = history.plan(ByteRange::new(offset, length), window);
        planned.extend(ranges.into_iter().map(|range| (offset, range)));
    }
    planned
}

fn bytes(planned: &[(u64, ByteRange)]) -> u64 {
    planned.iter().map(|(_, range)| range.length).sum()
}

fn random(seed: &mut u64, below: u64) -> u64 {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    (*seed >> 33) % below
}

#[test]
fn a_reader_in_order_has_the_whole_window_after_it_has_earned_it_and_not_after_so_many_round_trips() {
    let planned = walk((0..40).map(|n| n * 128 * KIB), 128 * KIB, WINDOW);
    assert_eq!(planned[0], (0, ByteRange::new(128 * KIB, MIB)), "a first guess");
    let whole = planned.iter().find(|(at, range)| range.end() - at >= WINDOW).expect("the window opens");
    assert!(whole.0 <= MIB, "1 MiB read in order is enough, not {}", whole.0);
    for (at, range) in planned {
        assert!(range.end() <= at + 128 * KIB + WINDOW, "{at}: {range:?}");
    }
}

#[test]
fn nothing_is_planned_twice_and_nothing_left_out() {
    for length in [4 * KIB, 64 * KIB, 100_000, MIB] {
        let planned = walk((0..600).map(|n| n * length), length, WINDOW);
        let mut next = length;
        for (at, range) in planned {
            assert_eq!(range.offset, next.max(range.offset.min(at + length)), "{length}");
            next = range.end();
        }
        assert!(next >= 600 * length, "{length}: planned to {next}");
    }
}

#[test]
fn parallel_reads_that_overtake_each_other_are_one_reader() {
    let mut seed = 7;
    let mut offsets: Vec<u64> = (0..512).map(|n| n * 128 * KIB).collect();
    for start in (0..512).step_by(8) {
        for i in 0..8 {
            let other = random(&mut seed, 8) as usize;
            offsets.swap(start + i, start + other);
        }
    }
    let planned = walk(offsets, 128 * KIB, WINDOW);
    let reached = planned.iter().map(|(_, range)| range.end()).max();
    assert!(reached >= Some(512 * 128 * KIB + WINDOW / 2), "{reached:?}");
    assert!(bytes(&planned) <= 512 * 128 * KIB + WINDOW + 2 * MIB, "{}", bytes(&planned));
}

#[test]
fn a_random_reader_is_left_alone() {
    let mut seed = 7;
    for length in [4 * KIB, 16 * KIB, 64 * KIB] {
        let reads = 4000;
        let offsets: Vec<u64> =
            (0..reads).map(|_| length.max(random(&mut seed, SIZE / length) * length)).collect();
        let ahead = bytes(&walk(offsets, length, WINDOW));
        // A read of 4 KiB fetches a block of 16 times as much; all together may fetch 20 times.
        assert!(ahead <= reads * length.max(64 * KIB) / 8, "{length}: {} KiB", ahead / KIB);
    }
}

#[test]
fn a_backward_reader_is_read_ahead_downwards() {
    let planned = walk((0..200).rev().map(|n| 500 * MIB + n * 128 * KIB), 128 * KIB, WINDOW);
    assert!(planned.iter().all(|(at, range)| range.end() <= at + 128 * KIB), "only below");
    let lowest = planned.iter().map(|(_, range)| range.offset).min();
    assert!(lowest <= Some(500 * MIB - WINDOW + MIB), "{lowest:?}");
    let mut next = planned[0].1.end();
    for (_, range) in &planned {
        assert_eq!(range.end(), next, "nothing twice, nothing left out");
        next = range.offset;
    }
    let to_the_start = walk((0..64).rev().map(|n| n * MIB), MIB, WINDOW);
    assert_eq!(to_the_start.last().map(|(_, range)| range.offset), Some(0));
}

#[test]
fn a_strided_reader_gets_its_next_strides_and_nothing_between() {
    for stride in [192 * KIB as i64, MIB as i64, 10 * MIB as i64, -(3 * MIB as i64)] {
        let start: i64 = if stride < 0 { 700 * MIB as i64 } else { 3 * MIB as i64 + 4096 };
        let offset = |n: i64| u64::try_from(start + n * stride).expect("in the file");
        let planned = walk((0..60).map(offset), 4 * KIB, WINDOW);
        let mut wanted: Vec<u64> = planned.iter().map(|(_, range)| range.offset).collect();
        wanted.sort_unstable();
        wanted.dedup();
        assert_eq!(wanted.len(), planned.len(), "{stride}: nothing twice");
        let on_the_way = wanted.iter().filter(|o| (o.abs_diff(start as u64)) % stride.unsigned_abs() == 0);
        assert_eq!(on_the_way.count(), wanted.len(), "{stride}: only its strides");
        let foreseen = (4..60).filter(|n| wanted.contains(&offset(*n))).count();
        assert!(foreseen >= 54, "{stride}: {foreseen} of 56 foreseen");
    }
}

#[test]
fn strides_within_a_block_are_reading_in_order() {
    let planned = walk((0..2000).map(|n| n * 32 * KIB), 4 * KIB, WINDOW);
    let reached = planned.iter().map(|(_, range)| range.end()).max();
    assert!(reached >= Some(2000 * 32 * KIB), "{reached:?}");
}

#[test]
fn readers_at_many_places_of_a_file_are_streams_of_their_own() {
    let mut history = History::default();
    let step = SIZE / 40;
    let mut planned = 0;
    for turn in 0..20 {
        for reader in 0..40 {
            let range = ByteRange::new(reader * step + turn * MIB / 8, MIB / 8);
            planned += history.plan(range, WINDOW).len();
        }
    }
    assert_eq!(history.streams.len(), 40);
    assert!(planned >= 40 * 3, "{planned}");
}

#[test]
fn all_readers_together_ask_for_what_the_line_holds() {
    let far = Distance { latency: Duration::from_millis(221), rate: 125_000_000 };
    for files in [1, 4, 64, 500] {
        let mut readers = Readers::new(256 * MIB);
        let mut ahead = vec![0_u64; files];
        // Everybody reads 4 MiB, in turns; a second passes.
        for turn in 0..32_u64 {
            for (file, reached) in ahead.iter_mut().enumerate() {
                let mut id = FileId([0; 16]);
                id.0[..8].copy_from_slice(&(file as u64).to_le_bytes());
                let range = ByteRange::new(turn * 128 * KIB, 128 * KIB);
                for planned in readers.plan(id, range, SIZE, || far, 5_000 + turn * 30) {
                    *reached = planned.end();
                }
            }
        }
        let total: u64 = ahead.iter().map(|reached| reached.saturating_sub(4 * MIB)).sum();
        let share = (56 * MIB).max(files as u64 * 700 * KIB);
        // Shares opened before all were known are not taken back.
        assert!(total <= share + files as u64 * MIB, "{files}: {} MiB", total / MIB);
        assert!(total >= 27 * MIB, "{files}: {} MiB do not fill the line", total / MIB);
    }
}

#[test]
fn a_small_file_is_fetched_whole_at_the_first_touch() {
    let touch = |farthest| {
        let mut readers = Readers::new(farthest);
        readers.plan(FileId([1; 16]), ByteRange::new(5000, 10), WHOLE_FILE_MAX, || Distance::UNKNOWN, 0)
    };
    assert_eq!(touch(WINDOW), [ByteRange::new(0, WHOLE_FILE_MAX)]);
    assert_eq!(touch(0), [], "switched off");
}

#[test]
fn what_could_not_be_started_is_planned_again() {
    let mut history = History::default();
    let mut planned = Vec::new();
    for turn in 0..16 {
        planned = history.plan(ByteRange::new(turn * MIB, MIB), WINDOW);
        assert!(!planned.is_empty());
    }
    let last = planned[0];
    history.stopped_at(last, last.offset);
    let again = history.plan(ByteRange::new(16 * MIB, MIB), WINDOW);
    assert_eq!(again[0].offset, last.offset);
}

#[test]
fn the_end_of_the_file_and_of_all_numbers_is_respected() {
    let mut history = History::default();
    for offset in [SIZE - 3 * MIB, SIZE - 2 * MIB, SIZE - MIB] {
        for range in history.plan(ByteRange::new(offset, MIB), WINDOW) {
            assert!(range.end() <= SIZE, "{range:?}");
        }
    }
    let mut seed = 3;
    for _ in 0..20_000 {
        let offset = u64::MAX - random(&mut seed, 40) * 100_000 - 1;
        let range = ByteRange::new(offset, random(&mut seed, 200_000));
        let (at, _) = history.note(range, 0);
        for range in history.ahead(at, range, u64::MAX, u64::MAX) {
            assert!(!range.is_empty());
        }
    }
}

/// How far ahead of its last reader a file is planned after readers that are `apart` read in turn, and the bytes planned.
fn frontier(readers: u64, apart: u64, rounds: u64) -> u64 {
    let far = Distance { latency: Duration::from_millis(221), rate: 125_000_000 };
    let mut all = Readers::new(256 * MIB);
    let size = 4 * SIZE;
    // Not at equal distances: that would be one strided reader.
    let place = |reader: u64| reader * apart + (reader + 1).pow(3) * 2_654_435_761 % apart.max(1);
    let mut planned_to = 0;
    for round in 0..rounds {
        for reader in 0..readers {
            let range = ByteRange::new(place(reader) + round * MIB, MIB);
            let planned = all.plan(FileId([1; 16]), range, size, || far, round * 100);
            planned_to = planned.iter().map(ByteRange::end).fold(planned_to, u64::max);
        }
    }
    planned_to - (place(readers - 1) + rounds * MIB)
}

#[test]
fn readers_that_follow_one_another_leave_the_leader_the_whole_window() {
    let alone = frontier(1, 0, 20);
    assert!(alone >= 50 * MIB, "{alone}");
    for (readers, apart) in [(64, 0), (64, MIB), (16, 5 * MIB)] {
        let led = frontier(readers, apart, 20);
        assert!(led >= alone / 2, "{readers} readers {apart} apart: {led} of {alone}");
    }
    let apart = frontier(16, 100 * MIB, 20);
    assert!(apart <= alone / 8, "readers of different parts share the line: {apart} of {alone}");
}
