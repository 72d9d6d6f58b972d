use std::collections::BTreeMap;

use super::*;
use crate::random::TestRandom;

fn position(sequence: u64, length: u64) -> Position {
    Position { sequence, segment: 1, offset: 64, head_length: 0, data_length: length as u32 }
}

fn range(offset: u64, length: u64) -> ByteRange {
    ByteRange::new(offset, length)
}

fn dirty(offset: u64, length: u64, position: Position, skip: u64) -> DirtyPiece {
    DirtyPiece::Dirty { range: range(offset, length), position, skip }
}

#[test]
fn a_later_write_lies_over_an_earlier_one_and_splits_it() {
    let (first, second) = (position(1, 100), position(2, 10));
    let mut overlay = Overlay::new(0);
    overlay.write(0, first);
    overlay.write(40, second);
    let plan = [dirty(0, 40, first, 0), dirty(40, 10, second, 0), dirty(50, 50, first, 50)];
    assert_eq!(overlay.plan(range(0, 1000)), plan);
    assert_eq!((overlay.dirty_bytes(), overlay.size()), (100, 100));
    assert_eq!(overlay.plan(range(45, 10)), [dirty(45, 5, second, 5), dirty(50, 5, first, 50)]);
}

#[test]
fn clean_bytes_never_shine_through_beyond_a_truncation() {
    let mut overlay = Overlay::new(1000);
    overlay.truncate(1, 100);
    overlay.truncate(2, 1000);
    let plan = [DirtyPiece::Clean { range: range(0, 100) }, DirtyPiece::Zero { range: range(100, 900) }];
    assert_eq!(overlay.plan(range(0, 5000)), plan);
    // A flush of the first cut alone: the clean version is short now, and the growth is still ours.
    overlay.flushed(1, 100);
    assert_eq!(overlay.plan(range(0, 5000)), plan);
    assert!(!overlay.is_clean());
    overlay.flushed(2, 1000);
    assert_eq!(overlay.plan(range(0, 5000)), [DirtyPiece::Clean { range: range(0, 1000) }]);
    assert!(overlay.is_clean());
}

#[test]
fn a_flush_of_what_was_before_a_cut_does_not_bring_the_cut_bytes_back() {
    let mut overlay = Overlay::new(0);
    overlay.write(0, position(1, 100));
    overlay.truncate(2, 10);
    overlay.truncate(3, 100);
    overlay.flushed(1, 100);
    let plan = [DirtyPiece::Clean { range: range(0, 10) }, DirtyPiece::Zero { range: range(10, 90) }];
    assert_eq!(overlay.plan(range(0, 100)), plan);
}

#[test]
fn holes_beyond_the_old_end_are_zeros() {
    let mut overlay = Overlay::new(10);
    let far = position(1, 5);
    overlay.write(20, far);
    let plan = [
        DirtyPiece::Clean { range: range(0, 10) },
        DirtyPiece::Zero { range: range(10, 10) },
        dirty(20, 5, far, 0),
    ];
    assert_eq!(overlay.plan(range(0, 100)), plan);
    assert_eq!(overlay.plan(range(25, 100)), []);
    assert_eq!(overlay.plan(range(7, 0)), []);
}

#[test]
fn the_far_end_of_the_number_line_is_an_end_like_any_other() {
    let mut overlay = Overlay::new(0);
    overlay.write(u64::MAX - 4, position(1, 10));
    assert_eq!((overlay.size(), overlay.dirty_bytes()), (u64::MAX, 4));
    overlay.truncate(2, u64::MAX - 2);
    assert_eq!(overlay.dirty_bytes(), 2);
    overlay.write(5, position(3, 0));
    assert_eq!(overlay.dirty_bytes(), 2);
}

/// The file as clients see it, and as it was after each operation.
struct Model {
    now: Vec<u8>,
    /// Contents after the operation of this sequence; the first is the clean version.
    after: Vec<Vec<u8>>,
    clean: usize,
    written: BTreeMap<u64, Vec<u8>>,
}

impl Model {
    fn read(&self, overlay: &Overlay, asked: ByteRange, seed: u64) -> Vec<u8> {
        let clean = &self.after[self.clean];
        let mut bytes = Vec::new();
        let mut at = asked.offset;
        for piece in overlay.plan(asked) {
            let range = piece.range();
            assert!(range.offset == at && !range.is_empty(), "seed {seed}: pieces follow each other");
            at = range.end();
            let (from, to) = (range.offset as usize, range.end() as usize);
            match piece {
                DirtyPiece::Zero { .. } => bytes.resize(bytes.len() + to - from, 0),
                DirtyPiece::Clean { .. } => bytes.extend_from_slice(&clean[from..to]),
                DirtyPiece::Dirty { position, skip, .. } => {
                    let data = &self.written[&position.sequence];
                    bytes.extend_from_slice(&data[skip as usize..skip as usize + to - from]);
                }
            }
        }
        bytes
    }
}

fn play(seed: u64) {
    let mut random = TestRandom(seed);
    let length = random.below(200) as usize;
    let first = random.bytes(length);
    let mut model = Model { now: first.clone(), after: vec![first], clean: 0, written: BTreeMap::new() };
    let mut overlay = Overlay::new(model.now.len() as u64);
    for _ in 0..60 {
        let sequence = model.after.len() as u64;
        match random.below(10) {
            0..6 => {
                let (offset, length) = (random.below(300) as usize, random.below(80) as usize);
                let data = random.bytes(length);
                if length > 0 {
                    let end = offset + length;
                    model.now.resize(model.now.len().max(end), 0);
                    model.now[offset..end].copy_from_slice(&data);
                }
                overlay.write(offset as u64, position(sequence, length as u64));
                model.written.insert(sequence, data);
                model.after.push(model.now.clone());
            }
            6..8 => {
                let size = random.below(400);
                model.now.resize(size as usize, 0);
                overlay.truncate(sequence, size);
                model.after.push(model.now.clone());
            }
            _ => {
                let open = model.after.len() - model.clean;
                model.clean += random.below(open as u64) as usize;
                overlay.flushed(model.clean as u64, model.after[model.clean].len() as u64);
            }
        }
        assert_eq!(overlay.size(), model.now.len() as u64, "seed {seed}");
        let asked = ByteRange::new(random.below(300), random.below(200)).clamp_to(overlay.size());
        for asked in [asked, ByteRange::new(0, u64::MAX)] {
            let end = asked.end().min(model.now.len() as u64) as usize;
            let expected = &model.now[(asked.offset as usize).min(end)..end];
            assert_eq!(model.read(&overlay, asked, seed), expected, "seed {seed}, {asked:?}");
        }
        let due: u64 = overlay.dirty_up_to(u64::MAX).map(|piece| piece.range().length).sum();
        assert_eq!(overlay.dirty_bytes(), due, "seed {seed}");
    }
    let last = model.after.len() - 1;
    overlay.flushed(last as u64, model.now.len() as u64);
    assert!(overlay.is_clean(), "seed {seed}");
}

#[test]
fn random_writes_cuts_and_flushes_read_as_a_plain_file_would() {
    println!("seeds 1 to 3000");
    (1..=3000).for_each(play);
}
