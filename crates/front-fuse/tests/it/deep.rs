//! A tree that is deeper than PATH_MAX, worked in by who goes down one directory at a time.

use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, Gid, Mode, OFlags, Uid};

use crate::harness::mount_writable;

fn names(dir: &OwnedFd) -> Vec<String> {
    let entries = Dir::read_from(dir).expect("opened");
    let mut names: Vec<_> =
        entries.map(|entry| entry.expect("read").file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name != "." && name != "..");
    names.sort();
    names
}

#[test]
fn a_tree_deeper_than_path_max_is_worked_in_as_any_other() {
    let Some(tier) = mount_writable("a_tree_deeper_than_path_max_is_worked_in_as_any_other") else { return };
    let directory = OFlags::RDONLY | OFlags::DIRECTORY;
    for (depth, length) in [(60, 100), (25, 200)] {
        let step = "d".repeat(length);
        let mut way = vec![rustix::fs::open(tier.mount_point(), directory, Mode::empty()).expect("opened")];
        for level in 0..depth {
            rustix::fs::mkdirat(&way[level], step.as_str(), Mode::from_raw_mode(0o755)).expect("made");
            way.push(
                rustix::fs::openat(&way[level], step.as_str(), directory, Mode::empty()).expect("opened"),
            );
        }
        let bottom = &way[depth];
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let file = rustix::fs::openat(bottom, "file", flags, Mode::from_raw_mode(0o644)).expect("made");
        let mut file = File::from(file);
        file.write_all(b"hello").expect("written");
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o640)).expect("set");
        rustix::fs::fchown(&file, Some(Uid::from_raw(7)), Some(Gid::from_raw(8))).expect("set");
        file.set_len(4).expect("cut");
        file.sync_all().expect("stored");
        rustix::fs::linkat(bottom, "file", bottom, "link", AtFlags::empty()).expect("linked");
        rustix::fs::renameat(bottom, "file", bottom, "renamed").expect("renamed");
        assert_eq!(names(bottom), ["link", "renamed"]);
        let found = rustix::fs::statat(bottom, "renamed", AtFlags::empty()).expect("there");
        assert_eq!((found.st_mode & 0o7777, found.st_size, found.st_nlink), (0o640, 4, 2));
        drop(file);
        rustix::fs::renameat(&way[0], step.as_str(), &way[0], "top").expect("renamed");
        let read = rustix::fs::openat(bottom, "link", OFlags::RDONLY, Mode::empty()).expect("opened");
        assert_eq!(std::io::read_to_string(File::from(read)).expect("read"), "hell");
        for gone in ["link", "renamed"] {
            rustix::fs::unlinkat(bottom, gone, AtFlags::empty()).expect("removed");
        }
        for level in (0..depth).rev() {
            let name = if level == 0 { "top" } else { &step };
            rustix::fs::unlinkat(&way[level], name, AtFlags::REMOVEDIR).expect("removed");
        }
        assert!(names(&way[0]).is_empty());
    }
}
