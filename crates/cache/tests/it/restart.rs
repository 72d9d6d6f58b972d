//! What was cached is still there after a stop of any kind, and what was half done does no harm.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use types::{BLOCK_SIZE, ByteRange, ErrorKind};

use crate::harness::*;

#[test]
fn cached_blocks_are_not_fetched_again_after_a_kill() {
    let dir = tempfile::tempdir().unwrap();
    let key = key(1, 1, 5 * MIB + 123);
    let first = TestSource::new();
    let tier = Tier::open(dir.path());
    tier.check_all(&first, &key);
    assert_eq!(first.bytes_read(), key.size);
    assert_eq!(tier.cached_bytes(&key), key.size);
    tier.kill();

    let second = TestSource::new();
    let tier = Tier::open(dir.path());
    assert_eq!(tier.cached_bytes(&key), key.size);
    tier.check_all(&second, &key);
    tier.check(&second, &key, ByteRange::new(70_000, 3));
    assert_eq!(second.calls(), 0, "everything was on disk");
}

#[test]
fn a_partly_cached_file_fetches_only_what_is_missing_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let key = key(1, 1, 8 * MIB);
    let tier = Tier::open_with(dir.path(), |config| config.readahead_max = 0);
    let first = TestSource::new();
    tier.check(&first, &key, ByteRange::new(2 * MIB, MIB));
    tier.check(&first, &key, ByteRange::new(7 * MIB + 5, 10));
    let before = first.bytes_read();
    assert_eq!(before, MIB + BLOCK_SIZE, "without read-ahead only what was asked for");
    tier.kill();

    let tier = Tier::open_with(dir.path(), |config| config.readahead_max = 0);
    let second = TestSource::new();
    tier.check_all(&second, &key);
    assert_eq!(second.bytes_read(), key.size - before);
}

#[test]
fn an_orderly_shutdown_keeps_the_cache_too() {
    let dir = tempfile::tempdir().unwrap();
    let key = key(1, 1, MIB);
    let tier = Tier::open(dir.path());
    tier.check_all(&TestSource::new(), &key);
    tier.run(tier.cache().shutdown());
    drop(tier);
    let source = TestSource::new();
    Tier::open(dir.path()).check_all(&source, &key);
    assert_eq!(source.calls(), 0);
}

#[test]
fn bytes_used_are_known_again_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open(dir.path());
    let source = TestSource::new();
    for file in 0..20 {
        tier.check_all(&source, &key(file, 1, 300_000));
    }
    let before = tier.cache().stats();
    assert_eq!(before.files, 20);
    assert!(before.bytes_used >= 20 * 300_000, "{before:?}");
    tier.kill();
    let tier = Tier::open(dir.path());
    eventually("the scan finds all files again", || {
        let now = tier.cache().stats();
        now.files == 20 && now.bytes_used.abs_diff(before.bytes_used) <= 20 * 3 * 4096
    });
}

#[test]
fn two_tiers_cannot_share_a_directory() {
    let dir = tempfile::tempdir().unwrap();
    let tier = Tier::open(dir.path());
    let error = Tier::try_open(dir.path(), |_| {}).err().expect("the second is refused");
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.to_string().contains(&dir.path().display().to_string()), "{error}");
    drop(tier);
    Tier::open(dir.path());
}

#[test]
fn a_size_below_the_floor_is_refused_with_the_floor() {
    let dir = tempfile::tempdir().unwrap();
    let error = Tier::try_open(dir.path(), |config| config.size_max = MIB).err().expect("refused");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("64 MiB"), "{error}");
}

#[test]
fn a_directory_that_cannot_be_used_is_refused_with_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("a-file");
    std::fs::write(&file, "not a directory").unwrap();
    let error = Tier::try_open(&file.join("cache"), |_| {}).err().expect("refused");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("a-file"), "{error}");
}

#[test]
fn a_cache_of_an_unknown_layout_is_refused_and_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    drop(Tier::open(dir.path()));
    let format = dir.path().join("FORMAT");
    assert!(format.exists());
    std::fs::write(&format, "forebay cache 999\n").unwrap();
    let error = Tier::try_open(dir.path(), |_| {}).err().expect("refused");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert_eq!(std::fs::read_to_string(&format).unwrap(), "forebay cache 999\n");
}

#[test]
fn strangers_in_the_directory_do_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let key = key(1, 1, 100_000);
    drop({
        let tier = Tier::open(dir.path());
        tier.check_all(&TestSource::new(), &key);
        tier
    });
    let (data, _) = files_of(dir.path(), &key);
    let beside = data.parent().unwrap();
    std::fs::write(beside.join("lost.txt"), "?").unwrap();
    std::fs::write(beside.join("zz-zz.data"), "?").unwrap();
    std::fs::write(beside.join("00-\u{e9}.map"), "?").unwrap();
    std::fs::create_dir(beside.join("a-directory.data")).unwrap();
    std::fs::create_dir(dir.path().join("zz")).unwrap();
    let name = data.file_name().unwrap().to_str().unwrap();
    std::fs::write(beside.join(name.to_uppercase().replace("DATA", "data")), "?").unwrap();
    std::fs::write(dir.path().join("zz").join(name), "?").unwrap();
    let tier = Tier::open(dir.path());
    let source = TestSource::new();
    eventually("the scan is through", || tier.cache().stats().files == 1);
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert_eq!(tier.cache().stats().files, 1, "strangers are not counted");
    tier.check_all(&source, &key);
    assert_eq!(source.calls(), 0);
}

/// Runs only as the child of the test below: fills the cache until it is killed.
#[test]
#[ignore = "is started, and killed, by kill_nine_in_the_middle_of_filling_leaves_only_right_bytes"]
fn child_that_fills_until_killed() {
    let Some(dir) = std::env::var_os("FOREBAY_TEST_KILL_DIR") else { return };
    let tier = Tier::open(dir.as_ref());
    let source = TestSource::new();
    for round in 0.. {
        tier.check_all(&source, &key(round % 40, 1, 3 * MIB + round % 40 * 1000));
        println!("\nfilled {round}");
    }
}

#[test]
fn kill_nine_in_the_middle_of_filling_leaves_only_right_bytes() {
    let dir = tempfile::tempdir().unwrap();
    for until in [1, 4, 13] {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--ignored", "--exact", "--nocapture", "restart::child_that_fills_until_killed"])
            .env("FOREBAY_TEST_KILL_DIR", dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let reached = lines.map_while(Result::ok).any(|line| line == format!("filled {until}"));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(reached, "the child filled {until} files before it was killed");
        let tier = Tier::open(dir.path());
        let source = TestSource::new();
        for file in 0..40 {
            tier.check_all(&source, &key(file, 1, 3 * MIB + file * 1000));
        }
        for file in 0..=until {
            let key = key(file, 1, 3 * MIB);
            let fetched = source.blocks.lock().unwrap().keys().filter(|(id, ..)| *id == key.file).count();
            assert_eq!(fetched, 0, "file {file} was complete before the kill");
        }
        // The next round kills in the middle again, from an empty cache.
        tier.kill();
        for path in files_ending(dir.path(), ".data").into_iter().chain(files_ending(dir.path(), ".map")) {
            std::fs::remove_file(path).unwrap();
        }
    }
}
