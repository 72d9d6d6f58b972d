//! A cache disk that is full or fails.

use std::path::{Path, PathBuf};
use std::process::Command;

use types::ByteRange;

use crate::harness::*;

/// A tmpfs of a given size, unmounted at the end.
struct SmallDisk {
    dir: tempfile::TempDir,
}

impl SmallDisk {
    fn mount(size: u64) -> Option<SmallDisk> {
        let dir = tempfile::tempdir().unwrap();
        let disk = SmallDisk { dir };
        if disk.run_mount(&format!("size={size}"), &["-t", "tmpfs"]) {
            return Some(disk);
        }
        println!("not run: mounting a tmpfs needs root");
        None
    }

    fn run_mount(&self, option: &str, more: &[&str]) -> bool {
        let status = Command::new("mount")
            .args(more)
            .args(["-o", option, "tmpfs"])
            .arg(self.dir.path())
            .stderr(std::process::Stdio::null())
            .status();
        status.is_ok_and(|status| status.success())
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.dir.path()).status();
    }
}

#[test]
fn a_full_disk_reads_through_and_recovers() {
    let Some(disk) = SmallDisk::mount(24 * MIB) else { return };
    let tier = Tier::open_with(disk.path(), |config| config.size_max = 64 * MIB);
    let source = TestSource::new();
    let early = key(0, 1, MIB);
    tier.check_all(&source, &early);
    // Somebody else fills the disk to the last byte.
    let filler = disk.path().join("filler");
    let filled = std::fs::write(&filler, vec![1; 24 * MIB as usize]);
    assert!(filled.is_err(), "the disk is full");
    for file in 1..6 {
        tier.check_all(&source, &key(file, 1, 3 * MIB));
    }
    tier.check_all(&source, &early);
    assert!(tier.cache().stats().degraded.is_some(), "the operator is told: {:?}", tier.cache().stats());
    let many: Vec<_> = (0..8)
        .map(|_| {
            let key = key(50, 1, 4 * MIB);
            tier.spawn(read(tier.cache().clone(), source.clone(), key, whole(&key)))
        })
        .collect();
    for task in many {
        assert_same(&tier.run(task).unwrap().unwrap(), &key(50, 1, 4 * MIB), ByteRange::new(0, 4 * MIB));
    }
    std::fs::remove_file(&filler).unwrap();
    let later = key(99, 1, 3 * MIB);
    eventually("caching goes on by itself", || {
        tier.check_all(&source, &later);
        tier.cached_bytes(&later) == later.size
    });
    eventually("the alarm ends", || tier.cache().stats().degraded.is_none());
}

#[test]
fn a_small_disk_that_only_the_cache_uses_keeps_what_fits() {
    let Some(disk) = SmallDisk::mount(12 * MIB) else { return };
    let tier = Tier::open_with(disk.path(), |config| config.size_max = 64 * MIB);
    let source = TestSource::new();
    for file in 0..12 {
        tier.check_all(&source, &key(file, 1, 3 * MIB));
    }
    let kept: u64 = (0..12).map(|file| tier.cached_bytes(&key(file, 1, 3 * MIB))).sum();
    assert!(kept >= 6 * MIB, "{kept} bytes kept on a disk of 12 MiB: {:?}", tier.cache().stats());
}

#[test]
fn the_free_space_floor_is_kept() {
    let Some(disk) = SmallDisk::mount(48 * MIB) else { return };
    let floor = 16 * MIB;
    let tier = Tier::open_with(disk.path(), |config| {
        config.size_max = 512 * MIB;
        config.free_floor = floor;
    });
    let source = TestSource::new();
    for file in 0..30 {
        tier.check_all(&source, &key(file, 1, 3 * MIB));
    }
    let free = || {
        let stat = rustix::fs::statvfs(disk.path()).unwrap();
        stat.f_bavail * stat.f_frsize
    };
    eventually("the floor is free", || free() >= floor);
    assert!(tier.cache().stats().bytes_used >= 8 * MIB, "the rest is used: {:?}", tier.cache().stats());
}

#[test]
fn a_disk_below_its_floor_reads_through_once_and_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let old = key(0, 1, 3 * MIB);
    let tier = Tier::open_with(dir.path(), |config| config.readahead_max = 0);
    tier.check(&TestSource::new(), &old, ByteRange::new(0, 2 * MIB));
    tier.kill();
    let tier = Tier::open_with(dir.path(), |config| config.free_floor = 1 << 60);
    let source = TestSource::new();
    let small: u64 = (1..200).map(|file| 10_000 + file).sum();
    for file in 1..200 {
        tier.check_all(&source, &key(file, 1, 10_000 + file));
    }
    tier.check_all(&source, &key(200, 1, 20 * MIB));
    let degraded = tier.cache().stats().degraded.expect("the operator is told");
    assert!(degraded.contains(&dir.path().display().to_string()), "{degraded}");
    // A try every few seconds may cost a piece of read-ahead.
    let extra = source.bytes_read() - small - 20 * MIB;
    assert!(extra <= 2 * MIB, "{extra} bytes were fetched for nothing");
    assert!(files_ending(dir.path(), ".map").len() <= 5);
}

#[test]
fn a_disk_that_turns_read_only_is_no_error_for_readers() {
    let Some(disk) = SmallDisk::mount(96 * MIB) else { return };
    let tier = Tier::open_with(disk.path(), |config| config.size_max = 64 * MIB);
    let source = TestSource::new();
    let (old, new) = (key(1, 1, 3 * MIB), key(2, 1, 3 * MIB));
    tier.check_all(&source, &old);
    // Open files keep a file system writable: a bind mount over it changes only what is opened from now on.
    if !disk.run_mount("remount,ro", &[]) {
        println!("not run further: the tmpfs is busy and cannot turn read-only");
        let data: Vec<PathBuf> = files_ending(disk.path(), ".data");
        assert!(!data.is_empty());
        return;
    }
    tier.check_all(&source, &old);
    tier.check_all(&source, &new);
}
