use super::*;

const PART: u32 = 100;
const ALL: Due = Due { sequence: u64::MAX, written_ms: u64::MAX };
const NONE: Due = Due { sequence: 0, written_ms: 0 };
const ONE: WriteVerifier = [1; 8];
const TWO: WriteVerifier = [2; 8];

fn extents() -> BufferExtents<()> {
    BufferExtents::new(PART)
}

fn write(extents: &mut BufferExtents<()>, sequence: u64, offset: u64, length: usize) {
    extents.write(offset, &Bytes::from(vec![sequence as u8; length]), sequence, Stability::Unstable, 5, &());
}

fn shown(part: Option<BufferPart>) -> Option<(u64, Vec<u8>)> {
    part.map(|part| (part.offset, part.data.to_vec()))
}

#[test]
fn full_parts_are_sent_at_once_and_others_when_they_are_due() {
    let mut e = extents();
    write(&mut e, 1, 40, 50);
    assert_eq!(e.next_part(NONE), None);
    write(&mut e, 2, 90, 120);
    assert_eq!(shown(e.next_part(NONE)), Some((100, vec![2; 100])), "the only full one");
    assert_eq!(e.next_part(NONE), None);
    assert_eq!(
        shown(e.next_part(Due { sequence: 1, written_ms: 0 })),
        Some((40, [vec![1; 50], vec![2; 10]].concat()))
    );
    assert_eq!(e.next_part(Due { sequence: 1, written_ms: 4 }), None, "written at 5");
    assert_eq!(shown(e.next_part(Due { sequence: 0, written_ms: 5 })), Some((200, vec![2; 10])));
    assert_eq!((e.next_part(ALL), e.parts_under_way()), (None, 3));
}

#[test]
fn what_was_asked_to_be_durable_is_sent_at_once_and_alone() {
    let mut e = extents();
    write(&mut e, 1, 0, 10);
    e.write(10, &Bytes::from_static(&[2; 10]), 2, Stability::FileSync, 5, &());
    write(&mut e, 3, 20, 10);
    let part = e.next_part(NONE).unwrap();
    assert_eq!((part.offset, part.stability), (10, Stability::FileSync));
    e.arrived(part.number, Stability::FileSync, ONE);
    assert!(e.is_open(ByteRange::new(10, 1), 2));
    assert_eq!(e.lay(false).written, [(10, Bytes::from_static(&[2; 10]))]);
    e.laid();
    assert!(!e.is_open(ByteRange::new(10, 10), 3) && e.is_open(ByteRange::new(0, 20), 1));
}

#[test]
fn what_was_sent_and_is_replaced_before_the_cache_has_it_is_unknown_to_the_cache() {
    let mut e = extents();
    write(&mut e, 1, 0, 100);
    let first = e.next_part(ALL).unwrap();
    write(&mut e, 2, 10, 5);
    e.arrived(first.number, Stability::Unstable, ONE);
    write(&mut e, 3, 50, 20);
    // Waits, and was never sent.
    write(&mut e, 4, 60, 5);
    let lay = e.lay(true);
    let written: Vec<_> = lay.written.iter().map(|(offset, bytes)| (*offset, bytes.len())).collect();
    assert_eq!(written, [(0, 10), (15, 35), (70, 30)]);
    assert_eq!(lay.unknown, [ByteRange::new(10, 5), ByteRange::new(50, 20)]);
    assert_eq!(e.lay(true).unknown, [], "the cache was told");
    // What comes in their place tells what is there.
    write(&mut e, 5, 0, 30);
    let second = e.next_part(ALL).unwrap();
    e.arrived(second.number, Stability::Unstable, ONE);
    assert_eq!(e.lay(true).unknown, []);
}

#[test]
fn bytes_are_not_sent_while_earlier_ones_for_their_place_are_under_way() {
    let mut e = extents();
    write(&mut e, 1, 0, 100);
    let first = e.next_part(NONE).unwrap();
    write(&mut e, 2, 50, 10);
    assert_eq!(e.next_part(ALL), None);
    e.arrived(first.number, Stability::Unstable, ONE);
    let second = e.next_part(ALL).unwrap();
    assert_eq!(shown(Some(second.clone())), Some((50, vec![2; 10])));
    // What is replaced while it is under way is not sent again.
    write(&mut e, 3, 50, 10);
    e.unsent(second.number);
    assert_eq!(shown(e.next_part(ALL)), Some((50, vec![3; 10])));
}

#[test]
fn a_commit_is_about_what_arrived_before_it_and_another_verifier_sends_again() {
    let mut e = extents();
    write(&mut e, 1, 0, 100);
    write(&mut e, 2, 100, 100);
    let (one, two) = (e.next_part(NONE).unwrap(), e.next_part(NONE).unwrap());
    e.arrived(one.number, Stability::Unstable, ONE);
    assert!(e.is_to_arrive(2) && !e.is_to_arrive(1) && e.is_to_commit(1));
    let arrivals = e.arrivals();
    e.arrived(two.number, Stability::Unstable, ONE);
    assert_eq!(e.committed(arrivals, ONE), (0, Vec::new()));
    assert_eq!((e.stored_bytes(), e.unstable_bytes()), (100, 100));
    assert_eq!(e.committed(e.arrivals(), TWO), (100, Vec::new()));
    assert_eq!(e.next_part(NONE).map(|part| part.offset), Some(100));
}

#[test]
fn what_fails_for_good_is_gone_and_says_whose_it_was() {
    let mut e = extents();
    write(&mut e, 1, 0, 60);
    write(&mut e, 2, 60, 40);
    let part = e.next_part(NONE).unwrap();
    write(&mut e, 3, 70, 5);
    let mut lost = e.failed(part.number);
    lost.dedup();
    assert_eq!(lost, [(1, Stability::Unstable), (2, Stability::Unstable)]);
    assert_eq!((e.bytes(), e.end()), (5, 75));
    assert!(!e.is_open(ByteRange::new(0, 100), 2) && e.is_open(ByteRange::new(0, 100), 3));
}

/// Random calls against the plainest model: an array of bytes with their state.
#[test]
fn random_calls_do_what_an_array_of_bytes_does() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| {
        std::time::UNIX_EPOCH.elapsed().map_or(0, |first_waiter| first_waiter.as_nanos() as u64)
    });
    println!("SEED={seed}");
    let mut state = seed;
    let mut below = move |limit: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % limit
    };
    const SIZE: u64 = 1000;
    let mut e = extents();
    // What readers see, and what the origin has, stored or not.
    let (mut model, mut memory, mut disk) =
        ([0_u8; SIZE as usize], [0_u8; SIZE as usize], [0_u8; SIZE as usize]);
    let (mut verifier, mut under_way) = (0_u8, Vec::<BufferPart>::new());
    for sequence in 1..4_000_u64 {
        match below(10) {
            0..=4 => {
                let range = ByteRange::new(below(SIZE), 1 + below(150)).clamp_to(SIZE);
                let stability = if below(5) == 0 { Stability::DataSync } else { Stability::Unstable };
                let data = vec![1 + below(255) as u8; range.length as usize];
                model[range.offset as usize..range.end() as usize].copy_from_slice(&data);
                e.write(range.offset, &Bytes::from(data), sequence, stability, sequence, &());
            }
            5 => {
                if let Some(part) = e.next_part(Due { sequence: below(sequence), written_ms: 0 }) {
                    assert!(under_way.iter().all(|other| !other.range().overlaps(&part.range())));
                    under_way.push(part);
                }
            }
            6 | 7 if !under_way.is_empty() => {
                let part = under_way.swap_remove(below(under_way.len() as u64) as usize);
                if below(4) == 0 {
                    e.unsent(part.number);
                } else {
                    let range = part.offset as usize..part.range().end() as usize;
                    memory[range.clone()].copy_from_slice(&part.data);
                    if part.stability > Stability::Unstable {
                        disk[range].copy_from_slice(&part.data);
                    }
                    e.arrived(part.number, part.stability, [verifier; 8]);
                }
            }
            8 if below(4) == 0 => (memory, verifier) = (disk, verifier.wrapping_add(1)),
            8 => {
                disk = memory;
                e.committed(e.arrivals(), [verifier; 8]);
            }
            _ => {
                for (offset, data) in e.lay(false).written {
                    let range = offset as usize..offset as usize + data.len();
                    assert_eq!(disk[range], data[..], "only what is stored leaves");
                }
                e.laid();
            }
        }
        let mut seen = Vec::new();
        for segment in e.segments(ByteRange::new(0, SIZE)) {
            match segment {
                ReadSegment::Zeros(_) => unreachable!("no segment of zeros is made here"),
                ReadSegment::Dirty(bytes) => seen.extend_from_slice(&bytes),
                ReadSegment::Clean(range) => {
                    seen.extend_from_slice(&disk[range.offset as usize..range.end() as usize])
                }
            }
        }
        assert!(seen == model, "after step {sequence}");
    }
}

/// What is kept of writes that come while others are committed was taken for as old as the first of all: whoever streams
/// kept the COMMIT of who asked before from ever ending, and each was followed by the next.
#[test]
fn what_the_origin_keeps_is_as_old_as_what_is_not_committed_of_it() {
    let mut e = extents();
    let keep = |e: &mut BufferExtents<()>, sequence, offset| {
        write(e, sequence, offset, 100);
        let part = e.next_part(ALL).expect("full");
        e.arrived_to_be_kept(part.number, ONE);
    };
    keep(&mut e, 1, 0);
    let arrivals = e.arrivals();
    keep(&mut e, 2, 100);
    assert_eq!(e.kept_is_committed(arrivals, ONE), []);
    assert!(!e.is_to_commit(1) && e.is_to_commit(2) && e.is_kept());
    assert!(!e.is_unstored(ByteRange::new(0, 1000), 1) && e.is_unstored(ByteRange::new(0, 1000), 2));
    assert_eq!(e.kept_is_committed(e.arrivals(), ONE), []);
    assert!(!e.is_kept() && !e.is_to_commit(2));
}

/// Who waited for his bytes to be stored was answered when others wrote over them, though neither were.
#[test]
fn who_waits_for_bytes_that_others_wrote_over_waits_for_theirs() {
    let durable = |e: &mut BufferExtents<()>| {
        e.write(10, &Bytes::from_static(&[1; 50]), 1, Stability::FileSync, 5, &());
    };
    let place = ByteRange::new(10, 50);
    // Before they are sent.
    let mut e = extents();
    durable(&mut e);
    write(&mut e, 2, 0, 100);
    assert!(e.is_unstored(place, 1) && e.is_open(place, 1));
    let part = e.next_part(NONE).expect("somebody waits for it");
    assert_eq!((part.stability, part.data.to_vec()), (Stability::FileSync, vec![2; 100]));
    e.arrived(part.number, part.stability, ONE);
    assert!(!e.is_unstored(place, 2));
    // While they are sent, and arrive; those over them are nobody's concern then.
    let mut e = extents();
    durable(&mut e);
    let part = e.next_part(NONE).expect("somebody waits for it");
    write(&mut e, 2, 20, 10);
    assert!(e.is_unstored(place, 1));
    e.arrived(part.number, part.stability, ONE);
    assert!(!e.is_unstored(place, 1) && e.is_unstored(place, 2));
    // While they are sent, and do not arrive.
    let mut e = extents();
    durable(&mut e);
    let part = e.next_part(NONE).expect("somebody waits for it");
    write(&mut e, 2, 10, 50);
    e.unsent(part.number);
    assert!(e.is_unstored(place, 1));
    let part = e.next_part(NONE).expect("somebody waits for it");
    assert_eq!((part.stability, part.data.to_vec()), (Stability::FileSync, vec![2; 50]));
    e.arrived(part.number, part.stability, ONE);
    assert!(!e.is_unstored(place, 2));
    // And never will: each is told.
    let mut e = extents();
    durable(&mut e);
    write(&mut e, 2, 10, 50);
    let part = e.next_part(NONE).expect("somebody waits for it");
    let lost: Vec<u64> = e.failed(part.number).into_iter().map(|(sequence, _)| sequence).collect();
    assert_eq!(lost, [1, 2]);
}

/// It was answered when the origin had the bytes in memory only, if others had written over them by then.
#[test]
fn who_waits_for_bytes_that_were_replaced_waits_until_the_origin_has_stored_them() {
    let all = ByteRange::new(0, 100);
    // Replaced after they arrived, and on their way.
    for late in [true, false] {
        let mut e = extents();
        write(&mut e, 1, 0, 100);
        let part = e.next_part(ALL).unwrap();
        if late {
            e.arrived(part.number, Stability::Unstable, ONE);
        }
        write(&mut e, 2, 0, 60);
        if !late {
            e.arrived(part.number, Stability::Unstable, ONE);
        }
        assert!(e.is_unstored(ByteRange::new(0, 60), 1) && e.is_to_commit(1), "{late}");
        let arrivals = e.arrivals();
        // Somebody writes there all the time.
        let part = e.next_part(ALL).unwrap();
        e.arrived(part.number, Stability::Unstable, ONE);
        write(&mut e, 3, 0, 60);
        assert_eq!(e.committed(arrivals, ONE), (0, Vec::new()));
        assert!(!e.is_unstored(all, 1) && e.is_unstored(all, 2), "{late}");
        // Whoever has its own bytes stored there needs no commit.
        write(&mut e, 4, 0, 60);
        let part = e.next_part(ALL).unwrap();
        e.arrived(part.number, Stability::FileSync, ONE);
        assert!(!e.is_unstored(all, 4) && !e.is_to_commit(4), "{late}");
    }
    // What the origin has lost, those must be for who wrote over it.
    let mut e = extents();
    write(&mut e, 1, 0, 100);
    let part = e.next_part(ALL).unwrap();
    e.arrived(part.number, Stability::Unstable, ONE);
    write(&mut e, 2, 0, 100);
    assert_eq!(e.committed(e.arrivals(), TWO), (0, Vec::new()));
    assert!(e.is_unstored(all, 1) && e.is_to_arrive(1));
    let part = e.next_part(Due { sequence: 1, written_ms: 0 }).expect("due: somebody waits for it");
    e.arrived(part.number, Stability::FileSync, TWO);
    assert!(!e.is_unstored(all, 2));
}

/// What the origin was given and keeps was not to be committed, if all of it had been replaced by the time it arrived.
#[test]
fn what_the_origin_keeps_of_replaced_bytes_is_committed_too() {
    let mut e = extents();
    write(&mut e, 1, 0, 100);
    let part = e.next_part(ALL).unwrap();
    write(&mut e, 2, 0, 100);
    e.arrived_to_be_kept(part.number, ONE);
    assert!(e.is_kept() && e.is_to_commit(1));
}

/// What the origin had when it cut the file is gone there, and what is to be sent comes after it.
#[test]
fn a_cut_takes_what_the_origin_had() {
    let mut e = extents();
    write(&mut e, 1, 0, 100);
    write(&mut e, 2, 100, 100);
    for stability in [Stability::Unstable, Stability::FileSync] {
        let part = e.next_part(ALL).unwrap();
        e.arrived(part.number, stability, ONE);
    }
    write(&mut e, 3, 150, 20);
    write(&mut e, 4, 300, 10);
    e.cut(30);
    let shown: Vec<_> = e.map.iter().map(|(range, extent)| (range.offset, extent.data.len())).collect();
    assert_eq!(shown, [(0, 30), (150, 20), (300, 10)]);
    assert_eq!((e.unstable_bytes(), e.stored_bytes(), e.bytes()), (30, 0, 60));
}

/// Nobody was told, if others had written over all of it meanwhile: COMMIT said that it was stored.
#[test]
fn who_wrote_what_was_refused_and_replaced_is_told() {
    let mut e = extents();
    write(&mut e, 1, 0, 100);
    let part = e.next_part(ALL).unwrap();
    write(&mut e, 2, 0, 100);
    assert_eq!(e.failed(part.number), [(1, Stability::Unstable)]);
    // The origin has the first in memory, refuses the second, and loses the first.
    let mut e = extents();
    write(&mut e, 1, 0, 100);
    let part = e.next_part(ALL).unwrap();
    e.arrived(part.number, Stability::Unstable, ONE);
    write(&mut e, 2, 40, 100);
    while let Some(part) = e.next_part(ALL) {
        assert_eq!(e.failed(part.number), [(2, Stability::Unstable)]);
    }
    let (again, lost) = e.committed(e.arrivals(), TWO);
    assert_eq!((again, lost), (40, vec![(1, Stability::Unstable)]));
    // What was cut is not lost.
    let mut e = extents();
    write(&mut e, 1, 0, 100);
    let part = e.next_part(ALL).unwrap();
    e.arrived(part.number, Stability::Unstable, ONE);
    write(&mut e, 2, 40, 20);
    e.cut(0);
    let part = e.next_part(ALL).unwrap();
    e.failed(part.number);
    assert_eq!(e.committed(e.arrivals(), TWO), (0, Vec::new()));
}

/// A commit for each large write over small ones.
#[test]
fn small_writes_that_arrived_together_are_covered_as_one() {
    let mut e = extents();
    (0..10).for_each(|n| write(&mut e, n + 1, n * 10, 10));
    let part = e.next_part(ALL).unwrap();
    e.arrived(part.number, Stability::Unstable, ONE);
    write(&mut e, 11, 0, 100);
    assert_eq!(e.superseded(), 1);
    assert!(e.is_unstored(ByteRange::new(90, 10), 1));
}
