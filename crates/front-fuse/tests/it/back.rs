//! A mount that is written `back`: what the kernel keeps of what is not at its origin yet, and when it is told.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use crate::harness::{Options, Tier, eventually, mount_back, mount_with, ttl};

const FILES: u64 = 40;

fn name(n: u64) -> String {
    format!("dir/file{n}")
}

fn caller() -> types::Caller {
    types::Caller { trusted: true, ..types::Caller::root() }
}

fn named(name: &str) -> types::Name {
    types::Name::new(name.as_bytes().to_vec()).expect("a name")
}

/// Requests that are answered while `work` runs.
fn requests_of(tier: &Tier, work: impl FnOnce()) -> u64 {
    let before = tier.metrics.requests();
    work();
    tier.metrics.requests() - before
}

/// Without that each `stat` was a LOOKUP, and each step of the work was told to the kernel, which asked again.
#[test]
fn what_is_made_here_the_kernel_keeps_and_is_told_nothing_of() {
    let Some(tier) = mount_back("what_is_made_here_the_kernel_keeps_and_is_told_nothing_of") else { return };
    let made = requests_of(&tier, || {
        fs::create_dir(tier.path("dir")).expect("made");
        for n in 0..FILES {
            fs::write(tier.path(&name(n)), b"bytes").expect("written");
        }
    });
    // GETATTR of the directory, LOOKUP, CREATE, GETXATTR (for capabilities), WRITE, RELEASE.
    assert!(made <= 6 * FILES + 10, "{made} requests for {FILES} files");
    let sizes = || (0..FILES).map(|n| fs::metadata(tier.path(&name(n))).expect("there").size()).sum::<u64>();
    assert_eq!(sizes(), 5 * FILES);
    // The last RELEASE may come now.
    let looked = || requests_of(&tier, || assert_eq!(sizes(), 5 * FILES));
    eventually("the kernel knows them", || looked() == 0);
    let gone = requests_of(&tier, || fs::remove_dir_all(tier.path("dir")).expect("removed"));
    assert!(gone <= 2 * FILES + 20, "{gone} requests to remove {FILES} files");
    assert_eq!(tier.metrics.invalidations.get(), 0, "each answer said what is new");
}

/// A flush gives a file the origin's version, and no other bytes: a build that reads what was just unpacked does not read it again.
#[test]
fn what_is_written_here_and_flushed_is_read_from_the_kernels_pages() {
    // The kernel keeps the pages that it has as a whole.
    let page = |n: u64| n.to_be_bytes().repeat(512);
    let name_of_test = "what_is_written_here_and_flushed_is_read_from_the_kernels_pages";
    let short = ttl(Duration::from_millis(300));
    let edit = |o: &mut Options| (o.back, o.local, o.files, o.directories) = (true, true, short, short);
    let Some(tier) = mount_with(name_of_test, edit, |_| {}) else { return };
    fs::create_dir(tier.path("dir")).expect("made");
    for n in 0..FILES {
        fs::write(tier.path(&name(n)), page(n)).expect("written");
    }
    let open = fs::File::open(tier.path(&name(0))).expect("there");
    let number = open.metadata().expect("there").ino();
    tier.run(async {
        let refused = tier.vfs.flush_home(None).await.expect("begun").wait().await;
        assert!(refused.is_empty(), "{refused:?}");
    });
    let read_all = || {
        for n in 1..FILES {
            assert!(fs::read(tier.path(&name(n))).expect("read") == page(n), "{n}");
        }
    };
    let before = tier.requests("read");
    read_all();
    assert_eq!(tier.requests("read") - before, 0);
    assert_eq!(fs::metadata(tier.path(&name(0))).expect("there").ino(), number, "also of one that was open");
    assert!(fs::read(tier.at_origin(&name(3))).expect("flushed") == page(3));
    // What others write is no flush.
    fs::write(tier.at_origin(&name(0)), b"foreign").expect("written");
    eventually("it is seen", || fs::read(tier.path(&name(0))).expect("read") == b"foreign");
}

#[test]
fn what_another_front_changes_of_what_waits_the_kernel_hears_of() {
    let Some(tier) = mount_back("what_another_front_changes_of_what_waits_the_kernel_hears_of") else {
        return;
    };
    fs::create_dir(tier.path("dir")).expect("made");
    for n in 0..4 {
        fs::write(tier.path(&name(n)), b"old").expect("written");
        assert_eq!(fs::metadata(tier.path(&name(n))).expect("there").size(), 3);
    }
    assert!(!tier.path("dir/new").exists());
    let start = Instant::now();
    tier.run(async {
        let (by, vfs) = (caller(), &tier.vfs);
        let dir = vfs.lookup(&by, vfs.root(), &named("dir")).await.expect("there").id;
        let file = vfs.lookup(&by, dir, &named("file0")).await.expect("there").id;
        let data = bytes::Bytes::from_static(b"newer");
        vfs.write(&by, file, 0, data, types::Stability::FileSync).await.expect("written");
        vfs.remove(&by, dir, &named("file1")).await.expect("removed");
        vfs.rename(&by, dir, &named("file2"), dir, &named("file3")).await.expect("renamed");
        vfs.mkdir(&by, dir, &named("new"), types::SetAttr::default()).await.expect("made");
    });
    let number = fs::metadata(tier.path("dir/file0")).expect("there").ino();
    eventually("the bytes are seen", || fs::read(tier.path("dir/file0")).expect("there") == b"newer");
    assert_eq!(fs::metadata(tier.path("dir/file0")).expect("there").ino(), number);
    eventually("the name is gone", || !tier.path("dir/file1").exists());
    eventually("the old name is gone", || !tier.path("dir/file2").exists());
    eventually("the name is seen", || tier.path("dir/new").is_dir());
    assert!(start.elapsed() < Duration::from_secs(25), "by its timer");
}

/// The file that lost its name to the rename was not told of, and its name led to it until its time was over.
#[test]
fn a_name_that_another_front_gives_to_another_file_leads_there() {
    let Some(tier) = mount_back("a_name_that_another_front_gives_to_another_file_leads_there") else {
        return;
    };
    for name in ["one", "other"] {
        fs::write(tier.path(name), name).expect("written");
    }
    let number = |name: &str| fs::metadata(tier.path(name)).expect("there").ino();
    let (one, other) = (number("one"), number("other"));
    assert_ne!(one, other);
    let start = Instant::now();
    let root = tier.vfs.root();
    tier.run(tier.vfs.rename(&caller(), root, &named("one"), root, &named("other"))).expect("renamed");
    eventually("the name leads to the other file", || number("other") == one);
    assert!(start.elapsed() < Duration::from_secs(25), "by its timer");
    assert_eq!(fs::read(tier.path("other")).expect("there"), b"one");
}

#[test]
fn what_one_mount_changes_the_kernel_hears_of_for_the_other_mounts_of_the_tier() {
    let name = "what_one_mount_changes_the_kernel_hears_of_for_the_other_mounts_of_the_tier";
    let Some(tier) = mount_back(name) else { return };
    let place = tempfile::Builder::new().prefix("forebay-fuse-").tempdir().expect("a directory");
    let too = tier.mount_too(place.path());
    let there = |name: &str| place.path().join(name);
    fs::write(tier.path("file"), b"old").expect("written");
    fs::write(tier.path("gone"), b"old").expect("written");
    assert_eq!(fs::metadata(there("file")).expect("there").size(), 3);
    assert!(there("gone").exists() && !there("new").exists());
    let start = Instant::now();
    fs::write(tier.path("file"), b"newer").expect("written");
    fs::remove_file(tier.path("gone")).expect("removed");
    fs::create_dir(tier.path("new")).expect("made");
    eventually("the size is seen", || fs::metadata(there("file")).expect("there").size() == 5);
    eventually("the name is gone", || !there("gone").exists());
    eventually("the name is seen", || there("new").is_dir());
    assert!(start.elapsed() < Duration::from_secs(25), "by its timer");
    tier.run(too.unmount());
}

/// What is here only is told to hold as long as the rule says; that must be over when others can change it.
#[test]
fn what_came_home_and_is_changed_there_is_seen_after_its_ttl() {
    let name = "what_came_home_and_is_changed_there_is_seen_after_its_ttl";
    let short = ttl(Duration::from_millis(300));
    let edit = |o: &mut Options| (o.back, o.local, o.files, o.directories) = (true, true, short, short);
    let Some(tier) = mount_with(name, edit, |_| {}) else { return };
    for file in ["file", "gone"] {
        fs::write(tier.path(file), b"bytes").expect("written");
        assert_eq!(fs::metadata(tier.path(file)).expect("there").size(), 5);
    }
    tier.run(async {
        let refused = tier.vfs.flush_home(None).await.expect("begun").wait().await;
        assert!(refused.is_empty(), "{refused:?}");
    });
    assert_eq!(fs::read(tier.at_origin("file")).expect("there"), b"bytes");
    fs::write(tier.at_origin("file"), b"changed there").expect("written");
    fs::remove_file(tier.at_origin("gone")).expect("removed");
    eventually("the change is seen", || fs::read(tier.path("file")).expect("there") == b"changed there");
    eventually("the name is gone", || !tier.path("gone").exists());
}
