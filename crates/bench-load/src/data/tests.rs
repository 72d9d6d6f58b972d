use proptest::prelude::*;

use super::*;

const CONTENT: SeededData = SeededData { seed: 7, compressible_percent: 0 };
const PLACE: FileVersion = FileVersion { file: 3, version: 5 };

fn fault(found: &[u8], offset: u64) -> Mismatch {
    CONTENT.verify(PLACE, offset, found).expect_err("wrong bytes")
}

#[test]
fn every_single_flipped_byte_of_a_block_is_found_where_it_is() {
    let good = CONTENT.generate(PLACE, 8192, BLOCK).to_vec();
    for at in 0..BLOCK {
        let mut bad = good.clone();
        bad[at] ^= 1;
        let wanted = Mismatch { offset: 8192 + at as u64, fault: Fault::Corrupt };
        assert_eq!(fault(&bad, 8192), wanted);
    }
}

#[test]
fn an_older_version_is_stale_and_a_newer_one_is_newer() {
    for version in [0, 4] {
        let old = CONTENT.generate(FileVersion { version, ..PLACE }, 4096, 3 * BLOCK);
        assert_eq!(fault(&old, 4096), Mismatch { offset: 4096, fault: Fault::Stale { version } });
    }
    let new = CONTENT.generate(FileVersion { version: 6, ..PLACE }, 0, BLOCK);
    assert_eq!(fault(&new, 0).fault, Fault::Newer { version: 6 });
}

#[test]
fn a_stale_range_without_a_stamp_is_recognised_too() {
    let old = CONTENT.generate(FileVersion { version: 4, ..PLACE }, 100, 1000);
    assert_eq!(fault(&old, 100), Mismatch { offset: 100, fault: Fault::Stale { version: 4 } });
    let short = CONTENT.generate(FileVersion { version: 4, ..PLACE }, 0, 30);
    assert_eq!(fault(&short, 0).fault, Fault::Stale { version: 4 });
}

#[test]
fn a_block_of_another_place_is_misplaced() {
    let other = CONTENT.generate(PLACE, 40_960, BLOCK);
    assert_eq!(fault(&other, 0).fault, Fault::Misplaced { file: 3, offset: 40_960 });
    let other = CONTENT.generate(FileVersion { file: 9, ..PLACE }, 4096, BLOCK);
    assert_eq!(fault(&other, 4096).fault, Fault::Misplaced { file: 9, offset: 4096 });
}

#[test]
fn a_block_torn_between_two_versions_is_corrupt_where_it_changes() {
    let mut torn = CONTENT.generate(FileVersion { version: 4, ..PLACE }, 0, BLOCK).to_vec();
    torn[2048..].copy_from_slice(&CONTENT.generate(PLACE, 2048, 2048));
    assert_eq!(fault(&torn, 0).fault, Fault::Corrupt);
    assert_eq!(fault(&[0; BLOCK], 0), Mismatch { offset: 0, fault: Fault::Corrupt }, "a hole");
    let other_seed = SeededData { seed: 8, ..CONTENT }.generate(PLACE, 0, BLOCK);
    assert_eq!(fault(&other_seed, 0).fault, Fault::Corrupt);
}

#[test]
fn the_bytes_of_generator_1_never_change() {
    // Whoever changes what is generated must raise GENERATOR: data sets that lie there are compared with it.
    let sum = |content: SeededData| {
        let bytes = content.generate(FileVersion { file: 1, version: 2 }, 0, 3 * BLOCK);
        bytes.iter().fold(0, |sum, byte| mix(sum ^ u64::from(*byte)))
    };
    assert_eq!(GENERATOR, 1);
    assert_eq!(sum(SeededData { seed: 3, compressible_percent: 0 }), PLAIN);
    assert_eq!(sum(SeededData { seed: 3, compressible_percent: 50 }), HALF);
}

const PLAIN: u64 = 2_809_349_614_666_880_607;
const HALF: u64 = 1_358_865_834_141_033_264;

#[test]
fn the_knob_makes_that_share_zeros() {
    for percent in [0_u8, 25, 50, 99] {
        let content = SeededData { seed: 1, compressible_percent: percent };
        let bytes = content.generate(PLACE, 0, 64 * BLOCK);
        let zeros = bytes.iter().filter(|byte| **byte == 0).count() as f64 / bytes.len() as f64 * 100.0;
        assert!((zeros - f64::from(percent)).abs() < 1.5, "{percent} % asked, {zeros} % zeros");
        assert_eq!(content.verify(PLACE, 0, &bytes), Ok(()));
    }
}

#[test]
fn of_all_bytes_one_is_right_at_a_place_and_is_told_so() {
    for offset in [0, 31, 4096, 14_873_388_678_745_497_770] {
        let right: Vec<u8> =
            (0..=255).filter(|byte| CONTENT.verify(PLACE, offset, &[*byte]).is_ok()).collect();
        assert_eq!(right, CONTENT.generate(PLACE, offset, 1), "at {offset}");
    }
}

proptest! {
    #[test]
    fn any_range_is_a_piece_of_the_whole(offset in 0_u64..30_000, length in 0_usize..20_000, percent in 0_u8..=100) {
        let content = SeededData { seed: 11, compressible_percent: percent };
        let whole = content.generate(PLACE, 0, 50_000);
        let piece = content.generate(PLACE, offset, length);
        prop_assert_eq!(&piece[..], &whole[offset as usize..offset as usize + length]);
        prop_assert_eq!(content.verify(PLACE, offset, &piece), Ok(()));
    }

    #[test]
    fn any_bytes_are_judged_without_a_panic(offset in any::<u64>(), data in prop::collection::vec(any::<u8>(), 1..200)) {
        let right = CONTENT.generate(PLACE, offset, data.len());
        prop_assert_eq!(CONTENT.verify(PLACE, offset, &data).is_ok(), data == right);
    }
}
