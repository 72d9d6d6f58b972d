//! Files handed out as a whole: only whole ones, only checked ones, and nothing is taken from them.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use cache::{CacheKey, WholeFile};
use types::{BLOCK_SIZE, ByteRange};

use crate::harness::*;

fn borrow(tier: &Tier, key: &CacheKey) -> Option<WholeFile> {
    tier.run(async { tier.cache().whole(key).await })
}

fn assert_right(file: &WholeFile) {
    let key = *file.key();
    let fd = File::from(file.as_fd().try_clone_to_owned().unwrap());
    let mut bytes = vec![0; key.size as usize];
    fd.read_exact_at(&mut bytes, 0).unwrap();
    assert_same(&bytes, &key, whole(&key));
}

#[test]
fn a_file_is_whole_when_its_last_block_has_come() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open_with(dir.path(), |config| config.readahead_max = 0);
    let (source, key) = (TestSource::new(), key(1, 1, 3 * MIB + 5));
    assert!(borrow(&tier, &key).is_none(), "nothing is there");
    tier.check(&source, &key, ByteRange::new(0, 3 * MIB));
    assert!(borrow(&tier, &key).is_none(), "the last block is missing");
    tier.check(&source, &key, ByteRange::new(3 * MIB, 5));
    assert_right(&borrow(&tier, &key).expect("all is there, and was checked when it came"));
}

/// Passed through by FUSE, each read would have to find out whether to note its time.
#[test]
fn reads_of_cached_files_note_no_access_times() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open(dir.path());
    let key = key(1, 1, MIB);
    tier.check_all(&TestSource::new(), &key);
    let (data, _) = files_of(dir.path(), &key);
    let data = File::open(data).unwrap();
    let Ok(flags) = rustix::fs::ioctl_getflags(&data) else {
        return eprintln!("not run: this file system has no such flag");
    };
    assert!(flags.contains(rustix::fs::IFlags::NOATIME));
    let long_ago = std::time::SystemTime::UNIX_EPOCH;
    data.set_times(std::fs::FileTimes::new().set_accessed(long_ago)).unwrap();
    assert_right(&borrow(&tier, &key).expect("all is there"));
    assert_eq!(data.metadata().unwrap().accessed().unwrap(), long_ago);
}

#[test]
fn after_a_restart_a_file_is_whole_once_all_of_it_was_checked() {
    let dir = tempfile::tempdir().unwrap();
    let key = key(1, 1, 5 * MIB + 77);
    let tier = Tier::open(dir.path());
    tier.check_all(&TestSource::new(), &key);
    tier.kill();
    let tier = Tier::open(dir.path());
    assert!(borrow(&tier, &key).is_none(), "nothing was checked yet");
    eventually("the file is checked in the background", || borrow(&tier, &key).is_some());
    assert_right(&borrow(&tier, &key).expect("checked"));
}

#[test]
fn a_file_with_a_bad_block_is_not_handed_out_until_it_is_mended() {
    let dir = tempfile::tempdir().unwrap();
    let key = key(1, 1, 4 * MIB);
    let tier = Tier::open(dir.path());
    tier.check_all(&TestSource::new(), &key);
    tier.kill();
    let (data, _) = files_of(dir.path(), &key);
    let file = File::options().write(true).open(data).unwrap();
    file.write_all_at(b"rot", 2 * MIB + 1000).unwrap();

    let tier = Tier::open(dir.path());
    assert!(borrow(&tier, &key).is_none());
    eventually("the bad block is found", || {
        assert!(borrow(&tier, &key).is_none(), "a bad block was handed out");
        tier.cached_bytes(&key) == key.size - BLOCK_SIZE
    });
    let source = TestSource::new();
    tier.check_all(&source, &key);
    assert_eq!(source.bytes_read(), BLOCK_SIZE);
    eventually("the rest is checked", || borrow(&tier, &key).is_some());
    assert_right(&borrow(&tier, &key).expect("mended"));
}

#[test]
fn what_is_handed_out_keeps_its_bytes_when_it_is_evicted() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open_with(dir.path(), |config| config.size_max = 64 * MIB);
    let (source, giant) = (TestSource::new(), key(1, 1, 20 * MIB));
    tier.check_all(&source, &giant);
    let held = borrow(&tier, &giant).expect("whole");
    // Twice the quota of others: the giant would lose ranges if it were not held.
    for other in 2..42 {
        tier.check_all(&source, &key(other, 1, 3 * MIB));
        assert!(tier.cache().stats().bytes_used <= 64 * MIB, "what is held does not block the cache");
    }
    assert_right(&held);
    tier.cache().evict_file(giant.file);
    assert_right(&held);
    assert!(borrow(&tier, &giant).is_none(), "evicted is not there");
    tier.check_all(&source, &giant);
    assert_right(&held);
    assert_right(&borrow(&tier, &giant).expect("fetched again, into another file"));
}
