//! Files that are open and lose their name.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::harness::*;

fn open(tier: &Tier, name: &str) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(tier.path(name))
        .expect("opened")
}

fn hidden(tier: &Tier, dir: &str) -> usize {
    let entries = fs::read_dir(tier.at_origin(dir)).expect("listed");
    entries
        .filter(|e| e.as_ref().expect("one").file_name().as_encoded_bytes().starts_with(b".forebay-"))
        .count()
}

fn listed(tier: &Tier, dir: &str) -> Vec<std::ffi::OsString> {
    let mut names: Vec<_> =
        fs::read_dir(tier.path(dir)).expect("listed").map(|e| e.expect("one").file_name()).collect();
    names.sort();
    names
}

fn all(file: &mut File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.rewind().expect("sought");
    file.read_to_end(&mut bytes).expect("read");
    bytes
}

#[test]
fn a_removed_file_goes_on_for_who_has_it_open_and_ends_with_the_last_close() {
    let name = "a_removed_file_goes_on_for_who_has_it_open_and_ends_with_the_last_close";
    let Some(tier) = mount_writable(name) else { return };
    let mut file = open(&tier, "file");
    file.write_all(b"before").expect("written");
    let mut reader = File::open(tier.path("file")).expect("opened");
    fs::remove_file(tier.path("file")).expect("removed");
    assert!(!tier.path("file").exists() && !tier.at_origin("file").exists());
    assert_eq!((hidden(&tier, ""), listed(&tier, "").len()), (1, 0), "hidden from our own listings");
    assert_eq!(file.metadata().expect("told").nlink(), 0);
    file.write_all(b" and after").expect("written");
    assert_eq!(all(&mut reader), b"before and after");
    file.set_len(3).expect("cut");
    rustix::fs::fchmod(&file, Mode::from(0o600)).expect("set");
    file.sync_all().expect("stored");
    assert_eq!((all(&mut file), file.metadata().expect("told").mode() & 0o777), (b"bef".to_vec(), 0o600));
    // The name is free.
    fs::write(tier.path("file"), b"another").expect("written");
    assert_eq!(
        (fs::read(tier.path("file")).expect("read"), all(&mut reader)),
        (b"another".to_vec(), b"bef".to_vec())
    );
    drop(file);
    assert_eq!(all(&mut reader), b"bef");
    drop(reader);
    eventually("the hidden name is removed", || hidden(&tier, "") == 0);
    assert_eq!(fs::read(tier.at_origin("file")).expect("there"), b"another");
}

#[test]
fn a_rename_over_an_open_file_leaves_it_to_who_has_it_open() {
    let name = "a_rename_over_an_open_file_leaves_it_to_who_has_it_open";
    let Some(tier) = mount_writable(name) else { return };
    let mut old = open(&tier, "file");
    old.write_all(b"old").expect("written");
    fs::write(tier.path("new"), b"new").expect("written");
    fs::rename(tier.path("new"), tier.path("file")).expect("renamed");
    assert_eq!(fs::read(tier.path("file")).expect("read"), b"new");
    assert_eq!(old.metadata().expect("told").nlink(), 0);
    old.write_all(b" goes on").expect("written");
    assert_eq!(all(&mut old), b"old goes on");
    assert_eq!((hidden(&tier, ""), listed(&tier, "")), (1, vec!["file".into()]));
    // What is open moves with its name.
    let mut moved = open(&tier, "file");
    fs::rename(tier.path("file"), tier.path("moved")).expect("renamed");
    moved.write_all(b"NEW").expect("written");
    drop(moved);
    assert_eq!(fs::read(tier.at_origin("moved")).expect("there"), b"NEW");
    drop(old);
    eventually("the hidden name is removed", || hidden(&tier, "") == 0);
    assert_eq!(fs::metadata(tier.path("moved")).expect("there").nlink(), 1);
    // A rename that fails leaves nothing hidden.
    fs::create_dir(tier.path("dir")).expect("made");
    let held = open(&tier, "moved");
    let refused = fs::rename(tier.path("dir"), tier.path("moved")).expect_err("refused");
    assert_eq!(refused.raw_os_error(), Some(Errno::NOTDIR.raw_os_error()));
    assert_eq!((hidden(&tier, ""), held.metadata().expect("told").nlink()), (0, 1));
}

#[test]
fn a_file_with_another_name_needs_no_hidden_one() {
    let Some(tier) = mount_writable("a_file_with_another_name_needs_no_hidden_one") else { return };
    let mut file = open(&tier, "one");
    file.write_all(b"bytes").expect("written");
    fs::hard_link(tier.path("one"), tier.path("two")).expect("linked");
    fs::remove_file(tier.path("one")).expect("removed");
    assert_eq!((hidden(&tier, ""), file.metadata().expect("told").nlink()), (0, 1));
    assert_eq!(all(&mut file), b"bytes");
    fs::remove_file(tier.path("two")).expect("removed");
    assert_eq!((hidden(&tier, ""), file.metadata().expect("told").nlink()), (1, 0));
    assert_eq!(all(&mut file), b"bytes");
    drop(file);
    eventually("the hidden name is removed", || hidden(&tier, "") == 0);
}

#[test]
fn a_directory_is_removed_after_the_files_that_were_closed_in_it() {
    let name = "a_directory_is_removed_after_the_files_that_were_closed_in_it";
    let Some(tier) = mount_writable(name) else { return };
    for round in 0..20 {
        fs::create_dir(tier.path("dir")).expect("made");
        for file in ["a", "b", "c"] {
            fs::write(tier.path("dir").join(file), [round]).expect("written");
            fs::read(tier.path("dir").join(file)).expect("read");
        }
        fs::remove_dir_all(tier.path("dir")).expect("removed");
        assert!(!tier.at_origin("dir").exists());
    }
    fs::create_dir(tier.path("dir")).expect("made");
    let file = open(&tier, "dir/file");
    fs::remove_file(tier.path("dir/file")).expect("removed");
    let refused = fs::remove_dir(tier.path("dir")).expect_err("as over NFS");
    assert_eq!(refused.raw_os_error(), Some(Errno::NOTEMPTY.raw_os_error()));
    drop(file);
    eventually("it can be removed", || fs::remove_dir(tier.path("dir")).is_ok());
}

/// The kernel tells of a close when it comes to it, and a process that was just started has the files of the one before.
#[test]
fn a_directory_goes_or_is_replaced_with_a_file_in_it_that_is_closed_a_moment_later() {
    let name = "a_directory_goes_or_is_replaced_with_a_file_in_it_that_is_closed_a_moment_later";
    let Some(tier) = mount_writable(name) else { return };
    let with_late_close = |dir: &str| {
        fs::create_dir(tier.path(dir)).expect("made");
        let file = open(&tier, &format!("{dir}/file"));
        fs::remove_file(tier.path(dir).join("file")).expect("removed");
        assert_eq!(hidden(&tier, dir), 1);
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(100));
            drop(file);
        })
    };
    let closing = with_late_close("removed");
    fs::remove_dir(tier.path("removed")).expect("removed");
    closing.join().expect("closed");
    fs::create_dir(tier.path("new")).expect("made");
    let closing = with_late_close("replaced");
    fs::rename(tier.path("new"), tier.path("replaced")).expect("replaced");
    closing.join().expect("closed");
    assert_eq!(listed(&tier, ""), ["replaced"]);
}

#[test]
fn an_unmount_leaves_no_hidden_names() {
    let Some(mut tier) = mount_writable("an_unmount_leaves_no_hidden_names") else { return };
    for i in 0..50 {
        let file = open(&tier, &format!("file-{i}"));
        file.write_all_at(b"bytes", 0).expect("written");
        fs::remove_file(tier.path(&format!("file-{i}"))).expect("removed");
    }
    tier.unmount();
    eventually("all are removed", || hidden(&tier, "") == 0);
}

/// `scandir` asks a directory that it has opened for its attributes: ESTALE, where another thread had removed it since.
#[test]
fn a_removed_directory_can_be_asked_about_and_is_empty_for_who_has_it_open() {
    let name = "a_removed_directory_can_be_asked_about_and_is_empty_for_who_has_it_open";
    let Some(tier) = mount_writable(name) else { return };
    for dir in ["removed", "replaced", "other"] {
        fs::create_dir(tier.path(dir)).expect("made");
    }
    let of = |name| rustix::fs::open(tier.path(name), OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty());
    let (removed, replaced) = (of("removed").expect("opened"), of("replaced").expect("opened"));
    let before = rustix::fs::fstat(&removed).expect("told");
    fs::remove_dir(tier.path("removed")).expect("removed");
    fs::rename(tier.path("other"), tier.path("replaced")).expect("replaced");
    for dir in [removed, replaced] {
        let now = rustix::fs::fstat(&dir).expect("told");
        assert_eq!((now.st_nlink, now.st_mode, now.st_uid), (0, before.st_mode, before.st_uid));
        let names = rustix::fs::Dir::read_from(&dir).expect("opened").count();
        assert_eq!(names, 0);
    }
    assert!(!tier.path("removed").exists() && tier.path("replaced").exists());
    assert_eq!(fs::metadata(tier.path("replaced")).expect("told").nlink(), 2);
}
