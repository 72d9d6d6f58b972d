//! Complete files are read by the kernel itself; all others through us; and never the wrong bytes on the way.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use front_fuse::Config;
use types::{BLOCK_SIZE, ByteRange};

use crate::harness::*;

#[test]
fn a_complete_file_is_read_by_the_kernel_itself_and_a_partial_one_is_not() {
    let name = "a_complete_file_is_read_by_the_kernel_itself_and_a_partial_one_is_not";
    let size = 40 * MIB + 12_345;
    let Some(tier) = mount(name, |far| far.memory.generate_file(b"file", 3, size).expect("written")) else {
        return;
    };
    let mut first = [0; 100];
    File::open(tier.path("file")).expect("opened").read_exact_at(&mut first, 5).expect("read");
    assert_eq!((tier.opens("passthrough"), tier.opens("snapshot")), (0, 1));
    tier.warm("/file");
    let asked = tier.metrics.read_bytes.get();
    let file = File::open(tier.path("file")).expect("opened");
    assert_eq!(tier.opens("passthrough"), 1);
    let mut all = Vec::new();
    (&file).read_to_end(&mut all).expect("read");
    assert_same(&all, &bytes_of(3, size), "through the kernel");
    assert_eq!(file.metadata().expect("there").len(), size);
    assert_eq!((&file).seek(SeekFrom::End(-7)).expect("sought"), size - 7);
    assert_eq!(tier.metrics.read_bytes.get(), asked, "not one byte went through us");
    let again = File::open(tier.path("file")).expect("opened while it is open");
    again.read_exact_at(&mut first, 5).expect("read");
    assert_eq!(tier.opens("passthrough"), 2);
}

#[test]
fn without_passthrough_all_is_read_through_us_and_pages_are_kept() {
    let name = "without_passthrough_all_is_read_through_us_and_pages_are_kept";
    let size = 5 * MIB;
    let off = |o: &mut Options| o.config = Config { passthrough: false, ..o.config.clone() };
    let Some(tier) =
        mount_with(name, off, |far| far.memory.generate_file(b"file", 3, size).expect("written"))
    else {
        return;
    };
    tier.warm("/file");
    for _ in 0..3 {
        assert_same(&std::fs::read(tier.path("file")).expect("read"), &bytes_of(3, size), "through us");
    }
    assert_eq!((tier.opens("passthrough"), tier.opens("snapshot")), (0, 3));
    assert_eq!(tier.metrics.read_bytes.get(), size, "once: the kernel keeps the pages of a version");
}

/// A reader of the file in a process of its own (python3), which compares what it sees through `mmap` with what it
/// must be, until its input is closed. Mapping a file that this process serves, in this process, could deadlock it.
fn mmap_reader(file: &std::path::Path, wanted: &std::path::Path) -> Option<std::process::Child> {
    let script = "\
import mmap, random, sys, threading
f, w = open(sys.argv[1], 'rb'), open(sys.argv[2], 'rb').read()
m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
r, n = random.Random(1), 0
while not over.is_set() or n < 100:
    a = r.randrange(len(w)); b = min(len(w), a + r.choice([1, 100, 5000, 300000]))
    if m[a:b] != w[a:b]: sys.exit('other bytes at %d' % a)
    n += 1
if m[:] != w: sys.exit('other bytes')
";
    let child = Command::new("python3")
        .args(["-c", script])
        .args([file, wanted])
        .stdin(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn();
    match child {
        Ok(child) => Some(child),
        Err(e) => {
            testkit::lab::not_run("mmap", &format!("Debian's python3 is not installed ({e})"));
            None
        }
    }
}

#[test]
fn a_file_that_is_completed_while_it_is_read_stays_right_for_all_its_readers() {
    let name = "a_file_that_is_completed_while_it_is_read_stays_right_for_all_its_readers";
    let size = 48 * MIB + 777;
    let Some(tier) = mount(name, |far| far.memory.generate_file(b"file", 9, size).expect("written")) else {
        return;
    };
    let wanted = bytes_of(9, size);
    let copy = tier.dir.path().join("wanted");
    std::fs::write(&copy, &wanted).expect("written");
    let path = tier.path("file");
    let mut start = [0; 4096];
    let early = File::open(&path).expect("opened");
    early.read_exact_at(&mut start, 0).expect("read");
    let mapped = mmap_reader(&path, &copy);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for reader in 0..3 {
            let (path, wanted, over) = (&path, &wanted, &over);
            scope.spawn(move || {
                let held = File::open(path).expect("opened");
                let mut seed: u64 = 77 + reader;
                while !over.load(Relaxed) {
                    // Of the same open, and of a new one.
                    let new = File::open(path).expect("opened at any time");
                    for file in [&held, &new] {
                        seed = types::FileId::derive(types::JunctionId(1), &seed.to_le_bytes()).fileid64();
                        let range = ByteRange::new(seed % size, seed >> 44).clamp_to(size);
                        let mut bytes = vec![0; range.length as usize];
                        file.read_exact_at(&mut bytes, range.offset).expect("read");
                        let right = &wanted[range.offset as usize..range.end() as usize];
                        assert_same(&bytes, right, "a random read");
                    }
                }
            });
        }
        scope.spawn(|| {
            for at in (0..size).step_by(4 * MIB as usize) {
                let range = ByteRange::new(at, BLOCK_SIZE).clamp_to(size);
                let mut bytes = vec![0; range.length as usize];
                early.read_exact_at(&mut bytes, at).expect("read");
                std::thread::sleep(Duration::from_millis(20));
            }
            tier.warm("/file");
            std::thread::sleep(Duration::from_millis(500));
            over.store(true, Relaxed);
        });
    });
    let mut all = Vec::new();
    (&early).read_to_end(&mut all).expect("read");
    assert_same(&all, &wanted, "who had it open from the start");
    assert_eq!(tier.opens("passthrough"), 0, "one inode is open in one way only");
    if let Some(mut mapped) = mapped {
        drop(mapped.stdin.take());
        assert!(mapped.wait().expect("our child").success(), "mmap showed other bytes");
    }
    drop(early);
    eventually("the next open is passed through", || {
        let file = File::open(&path).expect("opened");
        file.read_exact_at(&mut start, 0).expect("read");
        assert_same(&start, &wanted[..4096], "through the kernel");
        tier.opens("passthrough") > 0
    });
    if let Some(mut mapped) = mmap_reader(&path, &copy) {
        std::thread::sleep(Duration::from_millis(300));
        drop(mapped.stdin.take());
        assert!(mapped.wait().expect("our child").success(), "mmap showed other bytes");
    }
}

#[test]
fn what_is_evicted_while_the_kernel_reads_it_stays_right_to_the_last_close() {
    let name = "what_is_evicted_while_the_kernel_reads_it_stays_right_to_the_last_close";
    let size = 20 * MIB;
    let Some(tier) = mount(name, |far| far.memory.generate_file(b"file", 4, size).expect("written")) else {
        return;
    };
    tier.warm("/file");
    let held = File::open(tier.path("file")).expect("opened");
    assert_eq!(tier.opens("passthrough"), 1);
    tier.run(tier.vfs.evict(b"/file")).expect("evicted");
    let mut all = Vec::new();
    (&held).read_to_end(&mut all).expect("read");
    assert_same(&all, &bytes_of(4, size), "evicted");
    // The version is the same, so this open shares the file behind it.
    assert_same(&std::fs::read(tier.path("file")).expect("read"), &bytes_of(4, size), "opened after it");
    drop(held);
    eventually("it is read through us again", || {
        assert_same(&std::fs::read(tier.path("file")).expect("read"), &bytes_of(4, size), "fetched again");
        tier.opens("snapshot") > 0
    });
}

#[test]
fn many_open_and_close_at_once_without_a_conflict() {
    let name = "many_open_and_close_at_once_without_a_conflict";
    let Some(tier) = mount(name, |far| far.memory.generate_file(b"file", 4, 3 * MIB).expect("written"))
    else {
        return;
    };
    let wanted = bytes_of(4, 3 * MIB);
    let together = std::sync::Barrier::new(8);
    std::thread::scope(|scope| {
        for reader in 0..8 {
            let (tier, wanted, together) = (&tier, &wanted, &together);
            scope.spawn(move || {
                for round in 0..100 {
                    if round % 10 == 0 {
                        together.wait(); // all is closed
                        if reader == 0 {
                            std::thread::sleep(Duration::from_millis(50)); // and the tier has heard of it
                            tier.run(tier.vfs.evict(b"/file")).expect("evicted");
                            if round % 20 == 10 {
                                tier.warm("/file");
                            }
                        }
                        together.wait();
                    }
                    let file = File::open(tier.path("file")).expect("opened at any time");
                    let at = (reader * 100 + round) * 3000;
                    let mut bytes = [0; 2000];
                    file.read_exact_at(&mut bytes, at).expect("read");
                    assert_same(&bytes, &wanted[at as usize..at as usize + 2000], "a read");
                }
            });
        }
    });
    assert!(tier.opens("passthrough") > 0 && tier.opens("snapshot") > 0, "both ways were seen");
}
