//! Bytes, of one version at a time and the right one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use namespace::Freshness;
use origin::memory::generated;
use tokio::task::JoinSet;
use types::{ByteRange, Caller, ErrorKind};

use crate::harness::{AFTER_TTL, Mode, in_every_mode, joined, kind, rule, tier, tier_with};

in_every_mode!(
    a_file_changed_during_reads_is_never_mixed,
    a_change_is_seen_after_the_ttl_and_at_once_with_always,
    any_range_reads_as_the_origin_has_it,
    reads_at_and_past_the_end_are_short_and_say_so,
    only_files_have_bytes,
    a_removed_file_reads_as_stale_and_a_new_one_of_its_name_as_new,
    handles_read_on_when_the_origin_comes_back_with_other_references,
);

/// Each version is one byte value throughout, and so a mix shows.
async fn a_file_changed_during_reads_is_never_mixed(mode: Mode) {
    const SIZE: usize = 900_000;
    let t = Arc::new(tier(mode));
    t.far.memory.write_file(b"file", &vec![0; SIZE]).unwrap();
    let id = t.id(b"/file").await;
    let stop = Arc::new(AtomicBool::new(false));
    let mut readers = JoinSet::new();
    for reader in 0..4_u64 {
        let (t, stop) = (t.clone(), stop.clone());
        readers.spawn(async move {
            let (mut seen, mut good) = (std::collections::HashSet::new(), 0);
            let mut offset = reader * 100_000;
            while !stop.load(Ordering::Relaxed) {
                match t.read(id, offset, 256 << 10).await {
                    Ok(read) => {
                        let bytes = joined(&read);
                        let value = bytes[0];
                        assert!(bytes.iter().all(|b| *b == value), "a mix of versions at {offset}");
                        let length = SIZE + usize::from(value);
                        assert_eq!(read.node.attr.size, length as u64, "attributes of those bytes");
                        assert_eq!(bytes.len(), (256 << 10).min(length - offset as usize));
                        seen.insert(value);
                        good += 1;
                    }
                    Err(e) => assert_eq!(e.kind(), ErrorKind::Busy, "{e}"),
                }
                offset = (offset + 200_000) % SIZE as u64;
            }
            (seen.len(), good)
        });
    }
    for value in 1..60_u8 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        t.far.memory.write_file(b"file", &vec![value; SIZE + usize::from(value)]).unwrap();
        if value % 8 == 0 {
            t.pass(AFTER_TTL);
        }
    }
    stop.store(true, Ordering::Relaxed);
    while let Some(reader) = readers.join_next().await {
        let (versions, good) = reader.unwrap();
        assert!(versions > 1 && good > 10, "{good} reads of {versions} versions prove little");
    }
    t.pass(AFTER_TTL);
    assert_eq!(t.read_path(b"/file").await.unwrap(), vec![59; SIZE + 59]);
}

async fn a_change_is_seen_after_the_ttl_and_at_once_with_always(mode: Mode) {
    let (old, new) = (vec![1; 300_000], vec![2; 300_000]);
    let t = tier(mode);
    t.far.memory.write_file(b"file", &old).unwrap();
    assert_eq!(t.read_path(b"/file").await.unwrap(), old);
    t.far.memory.write_file(b"file", &new).unwrap();
    t.pass(AFTER_TTL);
    assert_eq!(t.read_path(b"/file").await.unwrap(), new);

    let t = tier_with(mode, rule(Freshness::Always));
    t.far.memory.write_file(b"file", &old).unwrap();
    for round in 0..10_u8 {
        let contents = vec![round; 300_000 - usize::from(round)];
        t.far.memory.write_file(b"file", &contents).unwrap();
        assert_eq!(t.read_path(b"/file").await.unwrap(), contents);
    }
}

async fn any_range_reads_as_the_origin_has_it(mode: Mode) {
    const SIZE: u64 = 5 * 1024 * 1024 + 12_345;
    let t = tier(mode);
    t.far.memory.generate_file(b"file", 7, SIZE).unwrap();
    let id = t.id(b"/file").await;
    let block = types::BLOCK_SIZE;
    for (offset, count) in [
        (0, 1),
        (block - 1, 2),
        (block, block),
        (3 * block + 17, 5 * block),
        (SIZE - 1, 1),
        (SIZE - block - 1, block),
        (0, 1 << 20),
        (1 << 20, 3 << 20),
    ] {
        let read = t.read(id, offset, u32::try_from(count).unwrap()).await.unwrap();
        assert_eq!(joined(&read), generated(7, ByteRange::new(offset, count)), "{count} bytes from {offset}");
        assert_eq!(read.eof, offset + count == SIZE);
    }
    assert_eq!(t.read_path(b"/file").await.unwrap(), generated(7, ByteRange::new(0, SIZE)));
}

async fn reads_at_and_past_the_end_are_short_and_say_so(mode: Mode) {
    let t = tier(mode);
    t.far.memory.write_file(b"file", b"0123456789").unwrap();
    t.far.memory.write_file(b"empty", b"").unwrap();
    let (file, empty) = (t.id(b"/file").await, t.id(b"/empty").await);
    for (id, offset, count, expected, eof) in [
        (file, 0, 4, &b"0123"[..], false),
        (file, 6, 4, b"6789", true),
        (file, 6, 100, b"6789", true),
        (file, 10, 5, b"", true),
        (file, 1 << 40, 5, b"", true),
        (file, u64::MAX, u32::MAX, b"", true),
        (empty, 0, 10, b"", true),
    ] {
        let read = t.read(id, offset, count).await.unwrap();
        assert_eq!((joined(&read).as_slice(), read.eof), (expected, eof), "{count} from {offset}");
    }
}

async fn only_files_have_bytes(mode: Mode) {
    let t = tier(mode);
    t.far.memory.symlink(b"link", b"some/where").unwrap();
    t.far.memory.write_file(b"file", b"x").unwrap();
    let (link, file) = (t.id(b"/link").await, t.id(b"/file").await);
    assert_eq!(kind(t.read(t.vfs.root(), 0, 10).await), Some(ErrorKind::IsADirectory));
    assert_eq!(kind(t.read(link, 0, 10).await), Some(ErrorKind::InvalidArgument));
    let (target, node) = t.vfs.readlink(&Caller::root(), link).await.unwrap();
    assert_eq!((target.as_ref(), node.id), (&b"some/where"[..], link));
    assert_eq!(kind(t.vfs.readlink(&Caller::root(), file).await), Some(ErrorKind::InvalidArgument));
    assert_eq!(kind(t.vfs.readlink(&Caller::root(), t.vfs.root()).await), Some(ErrorKind::InvalidArgument));
}

async fn a_removed_file_reads_as_stale_and_a_new_one_of_its_name_as_new(mode: Mode) {
    let t = tier(mode);
    t.far.memory.write_file(b"file", &[1; 100_000]).unwrap();
    let old = t.id(b"/file").await;
    t.read(old, 0, 100_000).await.unwrap();
    t.far.memory.remove(b"file").unwrap();
    t.far.memory.write_file(b"file", &[2; 100_000]).unwrap();
    t.pass(AFTER_TTL);
    assert_eq!(t.read_path(b"/file").await.unwrap(), [2; 100_000]);
    assert_eq!(kind(t.read(old, 0, 100_000).await), Some(ErrorKind::Stale));
}

async fn handles_read_on_when_the_origin_comes_back_with_other_references(mode: Mode) {
    const SIZE: u64 = 2 << 20;
    let t = tier_with(mode, rule(Freshness::Immutable)); // nothing but the read itself meets the origin
    t.far.memory.mkdir(b"dir").unwrap();
    t.far.memory.generate_file(b"dir/file", 9, SIZE).unwrap();
    let id = t.id(b"/dir/file").await;
    for offset in (0..SIZE).step_by(512 << 10) {
        if offset == 512 << 10 {
            t.far.change_references(); // with read-ahead under way
        }
        let read = t.read(id, offset, 512 << 10).await.unwrap();
        assert_eq!(joined(&read), generated(9, ByteRange::new(offset, 512 << 10)));
    }
}
