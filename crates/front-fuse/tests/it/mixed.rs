//! Readers and writers of one file at the same time: who sees what.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::harness::*;

const SIZE: u64 = 3 * MIB;

fn all(file: &mut File) -> Vec<u8> {
    let mut bytes = Vec::new();
    file.rewind().expect("sought");
    file.read_to_end(&mut bytes).expect("read");
    bytes
}

fn writer(tier: &Tier) -> File {
    OpenOptions::new().read(true).write(true).open(tier.path("file")).expect("opened beside the readers")
}

fn with_file(name: &str) -> Option<Tier> {
    mount_writable_far(name, |far| {
        far.memory.chmod(b"", 0o777).expect("set");
        far.memory.generate_file(b"file", 1, SIZE).expect("written");
    })
}

#[test]
fn a_writer_beside_readers_of_the_cache_file_leaves_them_what_they_opened() {
    let name = "a_writer_beside_readers_of_the_cache_file_leaves_them_what_they_opened";
    let Some(tier) = with_file(name) else { return };
    tier.warm("/file");
    let (mut one, mut two) =
        (File::open(tier.path("file")).expect("opened"), File::open(tier.path("file")).expect("opened"));
    if tier.opens("passthrough") != 2 {
        return testkit::lab::not_run(name, "the kernel has no passthrough");
    }
    let (old, mut new) = (bytes_of(1, SIZE), bytes_of(1, SIZE));
    let mut file = writer(&tier);
    file.write_all_at(b"written", 1000).expect("written");
    new[1000..1007].copy_from_slice(b"written");
    assert_same(&all(&mut file), &new, "the writer");
    assert_same(
        &all(&mut File::open(tier.path("file")).expect("opened")),
        &new,
        "who opens while it is written",
    );
    assert_same(&all(&mut one), &old, "who reads the cache file has what he opened");
    assert_ne!(one.metadata().expect("told").ino(), file.metadata().expect("told").ino());
    drop(file);
    assert_same(&all(&mut File::open(tier.path("file")).expect("opened")), &new, "who opens after the close");
    assert_same(&all(&mut two), &old, "to the end");
    drop((one, two));
    assert_same(&fs::read(tier.path("file")).expect("read"), &new, "after all");
    tier.run(tier.vfs.evict(b"/file")).expect("evicted");
    assert_same(&fs::read(tier.path("file")).expect("read"), &new, "from the origin");
}

#[test]
fn a_cut_by_name_beside_readers_of_the_cache_file_leaves_them_what_they_opened() {
    let name = "a_cut_by_name_beside_readers_of_the_cache_file_leaves_them_what_they_opened";
    let Some(tier) = with_file(name) else { return };
    tier.warm("/file");
    let mut reader = File::open(tier.path("file")).expect("opened");
    if tier.opens("passthrough") != 1 {
        return testkit::lab::not_run(name, "the kernel has no passthrough");
    }
    let status = std::process::Command::new("truncate").args(["-s", "7"]).arg(tier.path("file")).status();
    assert!(status.expect("coreutils are installed").success());
    assert_eq!(fs::read(tier.path("file")).expect("read"), &bytes_of(1, SIZE)[..7]);
    assert_same(&all(&mut reader), &bytes_of(1, SIZE), "the reader");
    fs::remove_file(tier.path("file")).expect("removed");
    assert_same(&all(&mut reader), &bytes_of(1, SIZE), "the reader, to the end");
}

#[test]
fn readers_through_the_tier_see_what_is_written_here_at_once() {
    let name = "readers_through_the_tier_see_what_is_written_here_at_once";
    let Some(tier) = with_file(name) else { return };
    let mut early = File::open(tier.path("file")).expect("opened");
    let mut new = bytes_of(1, SIZE);
    assert_same(&all(&mut early), &new, "before");
    let file = writer(&tier);
    for round in 0..20 {
        let at = (round * 150_000) as usize;
        file.write_all_at(&[round as u8; 5000], at as u64).expect("written");
        new[at..at + 5000].fill(round as u8);
        assert_same(&all(&mut early), &new, "who had it open");
    }
    let asked = tier.metrics.read_bytes.get();
    assert_same(&all(&mut early), &new, "again");
    assert_eq!(
        tier.metrics.read_bytes.get(),
        asked,
        "what this mount wrote and read is in the kernel's pages"
    );
    drop(file);
    assert_same(&all(&mut early), &new, "after the close");
}

#[test]
fn what_another_writes_beside_our_writer_is_seen_and_not_hidden_by_our_pages() {
    let name = "what_another_writes_beside_our_writer_is_seen_and_not_hidden_by_our_pages";
    let Some(tier) = mount_writable(name) else { return };
    fs::write(tier.path("file"), vec![1; 100_000]).expect("written");
    let mut file = writer(&tier);
    assert_eq!(all(&mut file), vec![1; 100_000]);
    let caller = types::Caller { trusted: true, ..types::Caller::root() };
    let id = tier.run(tier.vfs.resolve(b"/file")).expect("there").id;
    let data = bytes::Bytes::from_static(&[2; 1000]);
    tier.run(tier.vfs.write(&caller, id, 50_000, data, types::Stability::FileSync))
        .expect("by another front");
    file.write_all_at(&[3; 1000], 70_000).expect("written");
    let mut wanted = vec![1; 100_000];
    wanted[50_000..51_000].fill(2);
    wanted[70_000..71_000].fill(3);
    eventually("both are seen", || all(&mut file) == wanted);
    drop(file);
    assert_same(&fs::read(tier.at_origin("file")).expect("there"), &wanted, "at the origin");
}

#[test]
fn chmod_link_and_rename_take_nothing_from_who_reads() {
    let name = "chmod_link_and_rename_take_nothing_from_who_reads";
    for warm in [true, false] {
        let Some(tier) = with_file(name) else { return };
        if warm {
            tier.warm("/file");
        }
        let mut file = File::open(tier.path("file")).expect("opened");
        let number = file.metadata().expect("told").ino();
        rustix::fs::fchmod(&file, rustix::fs::Mode::from(0o640)).expect("set");
        assert_eq!(file.metadata().expect("told").mode() & 0o777, 0o640);
        fs::hard_link(tier.path("file"), tier.path("other")).expect("linked");
        assert_eq!(file.metadata().expect("told").nlink(), 2);
        fs::rename(tier.path("file"), tier.path("moved")).expect("renamed");
        assert_same(&all(&mut file), &bytes_of(1, SIZE), "after all of it");
        assert_eq!(fs::metadata(tier.path("moved")).expect("there").ino(), number, "one file has one number");
    }
}

#[test]
fn readers_and_writers_in_any_order_see_what_was_written_there() {
    let name = "readers_and_writers_in_any_order_see_what_was_written_there";
    let Some(tier) = mount_writable(name) else { return };
    let (records, length) = (16_usize, 4096_usize);
    fs::write(tier.path("file"), vec![0; records * length]).expect("written");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..3 {
            let (tier, over) = (&tier, &over);
            scope.spawn(move || {
                let held = File::open(tier.path("file")).expect("opened");
                let mut round = reader;
                while !over.load(Relaxed) {
                    round += 1;
                    let record = round % records;
                    let written: Vec<bool> = (0..=255)
                        .map(|value| (0..2).any(|which| (value * 7 + which) % records == record))
                        .collect();
                    let at = (record * length) as u64;
                    let new = File::open(tier.path("file")).expect("opened at any time");
                    for file in [&held, &new] {
                        let mut bytes = vec![0; length];
                        file.read_exact_at(&mut bytes, at).expect("read");
                        // Of one write or of two: the kernel hands out pages while it writes to them, on every file system.
                        let foreign = bytes.iter().find(|byte| **byte != 0 && !written[usize::from(**byte)]);
                        assert_eq!(foreign, None, "never written to record {record}");
                    }
                }
            });
        }
        let writers: Vec<_> = (0..2_usize)
            .map(|which| {
                let tier = &tier;
                scope.spawn(move || {
                    for round in 0..150_usize {
                        let file = writer(tier);
                        let record = (round * 7 + which) % records;
                        file.write_all_at(&vec![round as u8; length], (record * length) as u64)
                            .expect("written");
                    }
                })
            })
            .collect();
        writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
        over.store(true, Relaxed);
    });
    let (here, there) = (fs::read(tier.path("file")), fs::read(tier.at_origin("file")));
    assert_same(&here.expect("read"), &there.expect("there"), "at the end");
}

/// The kernel was told of every change that came from itself: each cost look-ups of names that it knew, and waited for
/// directories that its callers held.
#[test]
fn what_is_done_here_takes_no_names_from_the_kernel() {
    const FILES: u64 = 100;
    let Some(tier) = mount_writable("what_is_done_here_takes_no_names_from_the_kernel") else { return };
    fs::create_dir_all(tier.path("above/dir")).expect("made");
    for dir in ["above", "above/dir"] {
        assert!(!tier.path(dir).join("absent").exists());
    }
    let before = tier.metrics.requests();
    for n in 0..FILES {
        let path = tier.path("above/dir").join(n.to_string());
        File::create(&path).expect("made");
        fs::rename(&path, path.with_extension("renamed")).expect("renamed");
        fs::remove_file(path.with_extension("renamed")).expect("removed");
        assert!(!tier.path("above/dir/absent").exists());
    }
    let asked = tier.metrics.requests() - before;
    println!("{asked} requests for {FILES} files");
    assert!(asked <= FILES * 10 + FILES / 10, "{asked} requests for {FILES} files");
}
