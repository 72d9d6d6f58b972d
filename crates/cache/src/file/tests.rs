use types::{ByteRange, FileId, Version};

use super::*;
use crate::disk_usage::DISK_UNIT;

const BLOCKS: u64 = 40;

fn filled() -> (tempfile::TempDir, Arc<CachedFile>) {
    filled_with(BLOCKS)
}

fn filled_with(blocks: u64) -> (tempfile::TempDir, Arc<CachedFile>) {
    let dir = tempfile::tempdir().unwrap();
    let key = CacheKey { file: FileId([7; 16]), version: Version([1; 16]), size: blocks * BLOCK_SIZE - 5 };
    let file = Arc::new(CachedFile::open(dir.path(), &key, 0, true, FolioRule::OneBlock).unwrap());
    file.fill(0..blocks, &vec![0x5a; (blocks * BLOCK_SIZE - 5) as usize]).unwrap();
    (dir, file)
}

fn present(file: &CachedFile) -> Vec<u64> {
    let mut state = file.lock();
    (0..BLOCKS).filter(|&block| state.entry(&file.map, block).is_some()).collect()
}

#[test]
fn what_fills_a_file_that_nobody_has_looked_into_is_counted_once() {
    let dir = tempfile::tempdir().unwrap();
    let key = CacheKey { file: FileId([7; 16]), version: Version([1; 16]), size: 4 * BLOCK_SIZE };
    let file = CachedFile::open(dir.path(), &key, 0, true, FolioRule::OneBlock).unwrap();
    let bytes = vec![1; 2 * BLOCK_SIZE as usize];
    assert_eq!(file.fill(0..2, &bytes).unwrap(), 2 * BLOCK_SIZE + DISK_UNIT);
    assert_eq!(file.fill(1..3, &bytes).unwrap(), BLOCK_SIZE, "one of them was there");
}

#[test]
fn pinned_blocks_are_not_punched() {
    let (_dir, file) = filled();
    let (one, two) = (file.pin(3..5), file.pin(4..9));
    let same = file.pin(3..5);
    let freed = file.punch(u64::MAX, drop).unwrap();
    assert_eq!(present(&file), (3..9).collect::<Vec<_>>());
    assert_eq!(freed, file.key.size - 6 * BLOCK_SIZE);
    drop((one, two));
    file.punch(u64::MAX, drop).unwrap();
    assert_eq!(present(&file), [3, 4]);
    drop(same);
    file.punch(u64::MAX, drop).unwrap();
    assert!(present(&file).is_empty());
    assert!(!file.is_busy());
}

/// Sends these blocks, does `then` while they are in the socket, and tells how many bytes the other end gets that are not those
/// of the file.
fn wrong_bytes(file: Arc<CachedFile>, blocks: Range<u64>, then: impl FnOnce(Arc<CachedFile>)) -> usize {
    use std::io::Read;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut reader = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (sender, _) = listener.accept().unwrap();
    let extent =
        crate::Extent::of(&file, bytes_of_blocks(blocks, file.key.size)).expect("here and in memory");
    let (mut at, end) = (extent.offset(), extent.offset() + extent.length());
    while at < end {
        let rest = (end - at) as usize;
        rustix::fs::sendfile(&sender, &extent, Some(&mut at), rest).unwrap();
    }
    drop((extent, sender));
    then(file);
    let mut got = Vec::new();
    reader.read_to_end(&mut got).unwrap();
    got.iter().filter(|byte| **byte != 0x5a).count()
}

fn after_half_a_minute(file: &CachedFile) {
    file.lock().sent_runs = SentRuns::default();
}

/// Linux has folios of many pages for a file that is written or read in large pieces (ext4 since 6.16, XFS since 5.18), and puts
/// zeros where a hole is punched into a part of one, also in what a socket still holds of it: a client got zeros.
#[test]
fn what_a_socket_holds_outlasts_the_holes_that_are_punched() {
    let (_dir, file) = filled();
    let wrong_around = |blocks: Range<u64>, punched: u64| {
        let punch = |file: Arc<CachedFile>| {
            after_half_a_minute(&file);
            file.punch_only(std::slice::from_ref(&(punched..punched + 1)), drop).map(drop).unwrap()
        };
        wrong_bytes(file.clone(), blocks, punch)
    };
    assert_eq!(wrong_around(0..8, 1), 0, "as it was written");
    assert_eq!(wrong_around(BLOCKS - 4..BLOCKS, BLOCKS - 1), 0, "the end, within a page");
}

/// Of a file that is read in order the kernel reads ever more at once, and makes folios of that size.
#[test]
fn what_a_socket_holds_of_a_file_that_was_read_from_the_disk_outlasts_holes_too() {
    let (_dir, file) = filled_with(512);
    file.forget_pages(false).unwrap();
    let read = |block: u64| {
        let range = bytes_of_blocks(block..block + 2, file.key.size);
        assert!(matches!(file.read(range, false).unwrap(), Some(ReadBack::Bytes(_))), "block {block}");
    };
    (0..512).step_by(2).for_each(read);
    let wrong = (8..504).step_by(32).map(|block| {
        (block..block + 8).step_by(2).for_each(read);
        let punched = [block + 1..block + 2, block + 4..block + 5];
        wrong_bytes(file.clone(), block..block + 8, |file| {
            after_half_a_minute(&file);
            drop(file.punch_only(&punched, drop));
        })
    });
    assert_eq!(wrong.sum::<usize>(), 0);
}

#[test]
fn what_was_lent_to_be_sent_is_not_punched_for_some_time() {
    let (_dir, file) = filled();
    let lent = bytes_of_blocks(20..22, file.key.size);
    drop(crate::Extent::of(&file, lent).expect("here and in memory"));
    assert_eq!(file.punch_only(std::slice::from_ref(&(20..22)), drop).unwrap(), 0);
    file.punch(u64::MAX, drop).unwrap();
    assert_eq!(present(&file), [20, 21]);
    after_half_a_minute(&file);
    file.punch(u64::MAX, drop).unwrap();
    assert!(present(&file).is_empty());
}

/// With blocks 1 and 2 as stale ones, and so many bytes long.
fn relabelled(file: Arc<CachedFile>, size: u64) -> CachedFile {
    let mut file = Arc::into_inner(file).expect("nobody else has it");
    let stale = std::slice::from_ref(&(1..3));
    let new = CacheKey { version: Version([2; 16]), size, ..file.key };
    assert!(file.detach_sent(stale, size).unwrap(), "this file system writes past the kernel's memory");
    file.relabel(&new, stale, 1).unwrap()
}

#[test]
fn what_a_socket_holds_outlasts_a_cut_and_what_is_written_over_it() {
    let size = 2 * BLOCK_SIZE + 10_000;
    for is_long_ago in [false, true] {
        let (_dir, file) = filled();
        let cut = |file: Arc<CachedFile>| {
            if is_long_ago {
                after_half_a_minute(&file);
            }
            let file = relabelled(file, size);
            file.fill(1..3, &vec![0x77; (size - BLOCK_SIZE) as usize]).unwrap();
        };
        assert_eq!(wrong_bytes(file, 0..8, cut), 0, "{is_long_ago}");
    }
}

/// Without a hole, too: a write changes the pages that the file has, and the socket has others by then.
#[test]
fn pages_that_a_socket_holds_are_the_files_no_more_once_they_are_detached() {
    for blocks in [4..12, BLOCKS - 4..BLOCKS] {
        let (_dir, file) = filled();
        let over = |file: Arc<CachedFile>| {
            let mut file = Arc::into_inner(file).expect("nobody else has it");
            assert!(file.detach_sent(std::slice::from_ref(&blocks), file.key.size).unwrap());
            let bytes = bytes_of_blocks(blocks.clone(), file.key.size);
            let there = file.read(bytes, false).unwrap();
            assert!(
                matches!(there, Some(ReadBack::Bytes(there)) if there.iter().all(|byte| *byte == 0x5a)),
                "the bytes are as before"
            );
            assert_eq!(file.data.metadata().unwrap().len(), file.key.size);
            file.data.write_all_at(&vec![0x77; bytes.length as usize], bytes.offset).unwrap();
        };
        assert_eq!(wrong_bytes(file, blocks.clone(), over), 0, "{blocks:?}");
    }
}

#[test]
fn a_file_that_the_kernel_reads_by_itself_loses_no_block() {
    let (_dir, file) = filled();
    file.note_kernel_reads();
    assert_eq!(file.punch(u64::MAX, drop).unwrap(), 0);
    assert_eq!(file.punch_only(std::slice::from_ref(&(0..3)), drop).unwrap(), 0);
    assert_eq!(present(&file), (0..BLOCKS).collect::<Vec<_>>());
}

#[test]
fn what_the_kernel_dropped_is_lent_only_after_it_was_read_and_checked() {
    let (_dir, file) = filled();
    let range = ByteRange::new(100, 16 * BLOCK_SIZE);
    let lend = || crate::Extent::of(&file, range);
    assert!(lend().is_some());
    file.forget_pages(false).unwrap();
    // Looks make the kernel read some of it.
    assert!((0..40).all(|_| lend().is_none()));
    let one = bytes_of_blocks(3..4, file.key.size);
    assert!(matches!(file.read(one, false).unwrap(), Some(ReadBack::Bytes(_))));
    assert!(lend().is_none());
    assert!(crate::Extent::of(&file, one).is_some());
    assert!(matches!(file.read(range, false).unwrap(), Some(ReadBack::Bytes(_))));
    assert!(lend().is_some());
}

#[test]
fn holes_are_punched_round_and_round_and_give_room_back() {
    use std::os::unix::fs::MetadataExt;
    let (_dir, file) = filled();
    let before = file.data.metadata().unwrap().blocks();
    assert_eq!(file.punch(3 * BLOCK_SIZE, drop).unwrap(), 3 * BLOCK_SIZE);
    assert_eq!(file.punch(BLOCK_SIZE / 2, drop).unwrap(), BLOCK_SIZE);
    assert_eq!(present(&file).first(), Some(&4));
    let after = file.data.metadata().unwrap().blocks();
    assert_eq!((before - after) * 512, 4 * BLOCK_SIZE);
    file.fill(0..1, &vec![1; BLOCK_SIZE as usize]).unwrap();
    assert_eq!(file.punch(BLOCK_SIZE, drop).unwrap(), BLOCK_SIZE);
    assert_eq!(present(&file).first(), Some(&0), "it goes on where it stopped, not from the start");
}

#[test]
fn memory_for_the_map_of_a_huge_file_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let size = 1 << 40;
    let key = CacheKey { file: FileId([7; 16]), version: Version([1; 16]), size };
    let file = CachedFile::open(dir.path(), &key, 0, true, FolioRule::OneBlock).unwrap();
    let bytes = vec![9; BLOCK_SIZE as usize];
    let places: Vec<u64> = (0..100).map(|n| n * 150_000 % (size / BLOCK_SIZE)).collect();
    for &block in &places {
        file.fill(block..block + 1, &bytes).unwrap();
    }
    for &block in &places {
        let range = ByteRange::new(block * BLOCK_SIZE + 7, 100);
        assert!(
            matches!(file.read(range, false).unwrap(), Some(ReadBack::Bytes(read)) if read == vec![9; 100])
        );
        assert!(file.lock().verified.is_set(block), "bits outlast the entries");
    }
    assert!(file.lock().pieces.len() <= PIECES_MAX);
}
