//! Mounting where it may not be, unmounting in every way, and what a killed tier leaves behind.

use std::fs::File;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use front_fuse::check_mount_point;
use types::ErrorKind;

use crate::harness::*;

fn refused(dir: &Path) -> String {
    let error = check_mount_point(dir).expect_err("refused");
    assert_eq!((error.kind(), error.to_string().lines().count()), (ErrorKind::Config, 1), "{error}");
    error.to_string()
}

#[test]
fn a_place_that_is_not_an_empty_directory_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().expect("a directory");
    let at = |name: &str| dir.path().join(name);
    std::fs::create_dir(at("full")).expect("made");
    std::fs::write(at("full/file"), b"x").expect("written");
    std::fs::create_dir(at("empty")).expect("made");
    symlink("empty", at("link")).expect("linked");
    let missing = refused(&at("missing"));
    assert!(missing.contains("mkdir -p") && missing.contains("missing"), "{missing}");
    assert!(refused(&at("no/such/parent")).contains("mkdir -p"));
    assert!(refused(&at("full")).contains("not empty"));
    assert!(refused(&at("full/file")).contains("not a directory"));
    let empty = check_mount_point(&at("empty")).expect("this one may");
    assert_eq!(check_mount_point(&at("link")).expect("where it leads"), empty);
}

#[test]
fn one_place_has_one_mount_and_it_goes_with_its_owner() {
    let name = "one_place_has_one_mount_and_it_goes_with_its_owner";
    let Some(mut tier) = mount(name, |far| far.memory.write_file(b"file", b"x").expect("written")) else {
        return;
    };
    let at = tier.mount_point();
    assert!(is_mounted(&at));
    assert!(refused(&at).contains("umount"));
    tier.unmount();
    assert!(!is_mounted(&at));
    tier.mount();
    assert_eq!(std::fs::read(tier.path("file")).expect("read"), b"x");
    drop(tier.mounted.take());
    assert!(!is_mounted(&at), "dropped");
}

#[test]
fn a_mount_in_use_leaves_the_tree_at_once() {
    let name = "a_mount_in_use_leaves_the_tree_at_once";
    let Some(mut tier) = mount(name, |far| far.memory.generate_file(b"file", 1, 30 * MIB).expect("written"))
    else {
        return;
    };
    let file = File::open(tier.path("file")).expect("opened");
    let mut block = [0; 4096];
    file.read_exact_at(&mut block, 0).expect("read");
    tier.unmount();
    assert!(!is_mounted(&tier.mount_point()));
    let _ = check_mount_point(&tier.mount_point()).expect("free for the next");
    file.read_exact_at(&mut block, 20 * MIB).expect("who has it open goes on while the process lives");
    assert_same(&block, &bytes_of(1, 20 * MIB + 4096)[20 * MIB as usize..], "after the unmount");
    tier.mount();
    assert!(tier.path("file").exists());
}

#[test]
fn an_unmount_by_somebody_else_ends_the_mount_and_not_the_next_one() {
    let name = "an_unmount_by_somebody_else_ends_the_mount_and_not_the_next_one";
    let Some(mut tier) = mount(name, |far| far.memory.write_file(b"file", b"x").expect("written")) else {
        return;
    };
    let at = tier.mount_point();
    let status = Command::new("umount").arg(&at).status().expect("util-linux is installed");
    assert!(status.success());
    let first = tier.mounted.take().expect("it was mounted");
    tier.run(async { tokio::time::timeout(Duration::from_secs(10), first.ended()).await }).expect("it ends");
    tier.mount();
    drop(first);
    assert!(is_mounted(&at), "the first one's end leaves the second one alone");
}
