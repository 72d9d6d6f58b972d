//! Bytes that are written through the mount: where they are when, by whatever way they were written.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;

use crate::harness::*;

fn at_origin(tier: &Tier, name: &str) -> Vec<u8> {
    fs::read(tier.at_origin(name)).expect("there")
}

#[test]
fn what_is_closed_or_synced_is_at_the_origin() {
    let Some(tier) = mount_writable("what_is_closed_or_synced_is_at_the_origin") else { return };
    let wanted = bytes_of(1, 5 * MIB + 777);
    fs::write(tier.path("closed"), &wanted).expect("written");
    assert_same(&at_origin(&tier, "closed"), &wanted, "closed");
    assert_same(&fs::read(tier.path("closed")).expect("read"), &wanted, "read back");
    let mut file = File::create(tier.path("synced")).expect("made");
    file.write_all(&wanted).expect("written");
    file.sync_all().expect("stored");
    assert_same(&at_origin(&tier, "synced"), &wanted, "fsync");
    file.write_all_at(b"again", 100).expect("written");
    file.sync_data().expect("stored");
    assert_eq!(&at_origin(&tier, "synced")[100..105], b"again");
    for flags in [0o4_010_000, 0o10_000] {
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(flags); // O_SYNC, O_DSYNC
        let stable = options.open(tier.path("synced")).expect("opened");
        let text = format!("{flags:o}");
        stable.write_all_at(text.as_bytes(), 300).expect("written");
        assert_eq!(&at_origin(&tier, "synced")[300..300 + text.len()], text.as_bytes(), "no fsync, no close");
    }
    File::open(tier.mount_point()).expect("opened").sync_all().expect("a directory has nothing to wait for");
    let meta = fs::metadata(tier.path("synced")).expect("there");
    assert_eq!((meta.len(), meta.mtime_nsec()), {
        let meta = fs::metadata(tier.at_origin("synced")).expect("there");
        (meta.len(), meta.mtime_nsec())
    });
}

#[test]
fn appends_go_to_the_end_and_openings_cut() {
    let Some(tier) = mount_writable("appends_go_to_the_end_and_openings_cut") else { return };
    let append = || OpenOptions::new().append(true).create(true).open(tier.path("log")).expect("opened");
    let (mut one, mut other) = (append(), append());
    for i in 0..50 {
        writeln!(if i % 2 == 0 { &mut one } else { &mut other }, "{i:04}").expect("written");
    }
    let lines = fs::read_to_string(tier.path("log")).expect("read");
    assert_eq!(lines, (0..50).map(|i| format!("{i:04}\n")).collect::<String>());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut log = append();
                for _ in 0..100 {
                    log.write_all(b"abcdefgh\n").expect("written");
                }
            });
        }
    });
    assert_eq!(at_origin(&tier, "log").len(), 50 * 5 + 400 * 9, "no append of this mount is lost");
    let mut reader = File::open(tier.path("log")).expect("opened");
    drop(File::create(tier.path("log")).expect("cut"));
    assert_eq!((at_origin(&tier, "log").len(), reader.metadata().expect("told").len()), (0, 0));
    one.write_all(b"end").expect("an append after the cut goes to the new end");
    let mut text = String::new();
    reader.read_to_string(&mut text).expect("read");
    assert_eq!((text.as_str(), fs::read(tier.path("log")).expect("read")), ("end", b"end".to_vec()));
}

#[test]
fn files_are_cut_and_made_longer_by_name_and_by_descriptor() {
    let name = "files_are_cut_and_made_longer_by_name_and_by_descriptor";
    let Some(tier) = mount_writable(name) else { return };
    let path = tier.path("file");
    fs::write(&path, [7; 10_000]).expect("written");
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("opened");
    file.set_len(5000).expect("cut");
    assert_eq!(at_origin(&tier, "file"), [7; 5000]);
    file.set_len(9000).expect("longer");
    let mut wanted = vec![7; 5000];
    wanted.resize(9000, 0);
    assert_same(&fs::read(&path).expect("read"), &wanted, "zeros, not what was there before");
    let status =
        Command::new("truncate").args(["-s", "70000"]).arg(&path).status().expect("coreutils are installed");
    assert!(status.success());
    wanted.resize(70_000, 0);
    file.write_all_at(b"end", 69_999).expect("written");
    wanted.truncate(69_999);
    wanted.extend_from_slice(b"end");
    assert_same(&fs::read(&path).expect("read"), &wanted, "written past the end");
    drop(file);
    assert_same(&at_origin(&tier, "file"), &wanted, "at the origin");
    let refused = File::options().write(true).open(&path).expect("opened").set_len(u64::MAX >> 1);
    assert!(refused.is_err(), "no origin here has files of 8 EiB");
    assert_same(&at_origin(&tier, "file"), &wanted, "after it");
}

#[test]
fn fallocate_makes_files_longer_and_zeros() {
    let Some(tier) = mount_writable("fallocate_makes_files_longer_and_zeros") else { return };
    let path = tier.path("file");
    let mut wanted = bytes_of(3, 3 * MIB);
    fs::write(&path, &wanted).expect("written");
    let file = OpenOptions::new().read(true).write(true).open(&path).expect("opened");
    let allocate = |flags, offset, length| rustix::fs::fallocate(&file, flags, offset, length);
    allocate(FallocateFlags::empty(), MIB, MIB).expect("nothing to do");
    assert_eq!(file.metadata().expect("told").len(), 3 * MIB);
    allocate(FallocateFlags::empty(), 3 * MIB, 1000).expect("longer");
    wanted.resize(3 * MIB as usize + 1000, 0);
    allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 1000, 2 * MIB).expect("zeros");
    wanted[1000..1000 + 2 * MIB as usize].fill(0);
    assert_same(&fs::read(&path).expect("read"), &wanted, "a hole");
    allocate(FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, 3 * MIB + 990, MIB)
        .expect("past the end");
    allocate(FallocateFlags::ZERO_RANGE, 3 * MIB - 10, 2000).expect("zeros, and longer");
    wanted[3 * MIB as usize - 10..].fill(0);
    wanted.resize(3 * MIB as usize + 1990, 0);
    assert_same(&fs::read(&path).expect("read"), &wanted, "zeros to a new end");
    let refused = allocate(FallocateFlags::COLLAPSE_RANGE, 0, 4096);
    assert_eq!(refused, Err(Errno::OPNOTSUPP));
    assert_eq!(allocate(FallocateFlags::KEEP_SIZE, 0, 100 * MIB), Err(Errno::OPNOTSUPP), "no room is kept");
    drop(file);
    assert_same(&at_origin(&tier, "file"), &wanted, "at the origin");
}

/// In a process of its own: a mapping of a file that this process serves could deadlock it.
pub fn python(script: &str, arguments: &[&std::path::Path]) -> Option<std::process::Output> {
    match Command::new("python3").args(["-c", script]).args(arguments).output() {
        Ok(output) => Some(output),
        Err(e) => {
            testkit::lab::not_run("a mapping or a lock", &format!("Debian's python3 is not installed ({e})"));
            None
        }
    }
}

fn assert_done(output: &std::process::Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn what_is_written_through_a_mapping_is_stored_by_msync_and_by_close() {
    let name = "what_is_written_through_a_mapping_is_stored_by_msync_and_by_close";
    let Some(tier) = mount_writable(name) else { return };
    fs::write(tier.path("file"), vec![1; 300_000]).expect("written");
    let script = "\
import mmap, os, sys
path, origin = sys.argv[1:]
f = open(path, 'r+b')
m = mmap.mmap(f.fileno(), 0)
m[10:20] = b'0123456789'
m[200000:200003] = b'abc'
m.flush()
o = open(origin, 'rb').read()
assert o[10:20] == b'0123456789' and o[200000:200003] == b'abc', 'msync'
assert open(path, 'rb').read() == o, 'read'
m[30:33] = b'xyz'
f.close()
o = open(origin, 'rb').read()
os.pwrite(g := os.open(path, os.O_WRONLY), b'W', 40)
assert m[40:41] == b'W', 'a write shows in the mapping'
os.close(g)
m[50:53] = b'end'
m.close()
";
    let Some(output) = python(script, &[&tier.path("file"), &tier.at_origin("file")]) else { return };
    assert_done(&output);
    let mut wanted = vec![1; 300_000];
    wanted[10..20].copy_from_slice(b"0123456789");
    wanted[200_000..200_003].copy_from_slice(b"abc");
    wanted[30..33].copy_from_slice(b"xyz");
    wanted[40] = b'W';
    wanted[50..53].copy_from_slice(b"end");
    assert_same(&fs::read(tier.path("file")).expect("read"), &wanted, "here");
    eventually("what was written after the close is stored", || at_origin(&tier, "file") == wanted);
}

#[test]
fn locks_hold_between_processes_of_the_mount() {
    let Some(tier) = mount_writable("locks_hold_between_processes_of_the_mount") else { return };
    fs::write(tier.path("file"), b"0123456789").expect("written");
    let script = "\
import fcntl, os, subprocess, sys
path = sys.argv[1]
other = '''
import fcntl, sys
f = open(sys.argv[1], 'r+b')
try:
    if sys.argv[2] == 'flock': fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
    else: fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, int(sys.argv[2]))
except BlockingIOError: sys.exit(7)
'''
def try_(what): return subprocess.run([sys.executable, '-c', other, path, what]).returncode
f = open(path, 'r+b')
fcntl.flock(f, fcntl.LOCK_EX)
assert try_('flock') == 7, 'flock'
fcntl.flock(f, fcntl.LOCK_UN)
assert try_('flock') == 0, 'flock is free'
fcntl.lockf(f, fcntl.LOCK_EX, 5, 0)
assert try_('3') == 7, 'fcntl'
assert try_('5') == 0, 'another range'
f.close()
assert try_('0') == 0, 'closed'
";
    let Some(output) = python(script, &[&tier.path("file")]) else { return };
    assert_done(&output);
}

#[test]
fn a_read_only_tree_says_so_before_anything_is_asked() {
    let name = "a_read_only_tree_says_so_before_anything_is_asked";
    let Some(tier) = mount(name, |far| far.memory.write_file(b"file", b"x").expect("written")) else {
        return;
    };
    let options = fs::read_to_string("/proc/self/mountinfo").expect("Linux has it");
    let ours = options.lines().find(|line| line.contains(tier.mount_point().to_str().expect("text")));
    assert!(ours.expect("mounted").contains(" ro,"), "{ours:?}");
    assert_eq!(
        fs::write(tier.path("file"), b"y").expect_err("refused").kind(),
        ErrorKind::ReadOnlyFilesystem
    );
}

#[test]
fn a_writer_waits_through_an_outage_and_goes_on() {
    let name = "a_writer_waits_through_an_outage_and_goes_on";
    let edit = |o: &mut Options| (o.writable, o.config.deadline) = (true, SHORT_PATIENCE);
    let Some(tier) = mount_with(name, edit, |far| {
        far.memory.write_file(b"file", b"x").expect("written");
        far.memory.chmod(b"", 0o777).expect("set");
    }) else {
        return;
    };
    let wanted = bytes_of(5, 3 * MIB);
    let mut file = OpenOptions::new().write(true).open(tier.path("file")).expect("opened");
    tier.far.set_down(true);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            file.write_all(&wanted)?;
            file.sync_all()
        });
        std::thread::sleep(SHORT_PATIENCE + Duration::from_secs(1)); // more than reads wait here
        assert!(!writer.is_finished(), "it waits");
        tier.far.set_down(false);
        writer.join().expect("no panic").expect("and no error");
    });
    drop(file);
    assert_same(&fs::read(tier.path("file")).expect("read"), &wanted, "after the outage");
}

#[test]
fn who_may_not_write_is_refused_by_the_kernel_and_an_open_descriptor_goes_on() {
    let name = "who_may_not_write_is_refused_by_the_kernel_and_an_open_descriptor_goes_on";
    let Some(tier) = mount_writable(name) else { return };
    fs::write(tier.path("file"), b"0123456789").expect("written");
    let file = OpenOptions::new().read(true).write(true).open(tier.path("file")).expect("opened");
    fs::set_permissions(tier.path("file"), fs::Permissions::from_mode(0o000)).expect("set");
    file.write_all_at(b"ab", 3).expect("it was checked at the open");
    file.sync_all().expect("stored");
    assert_eq!(at_origin(&tier, "file"), b"012ab56789");
}

#[test]
fn holes_copies_and_positions_are_as_on_any_file_system() {
    let name = "holes_copies_and_positions_are_as_on_any_file_system";
    let Some(tier) = mount_writable(name) else { return };
    let mut file =
        OpenOptions::new().read(true).write(true).create_new(true).open(tier.path("file")).expect("made");
    file.seek(SeekFrom::Start(3 * MIB)).expect("sought");
    file.write_all(b"far").expect("written");
    let mut wanted = vec![0; 3 * MIB as usize];
    wanted.extend_from_slice(b"far");
    assert_same(&fs::read(tier.path("file")).expect("read"), &wanted, "a hole reads as zeros");
    let copied = fs::copy(tier.path("file"), tier.path("copy")).expect("copied");
    assert_eq!(copied, wanted.len() as u64);
    assert_same(&at_origin(&tier, "copy"), &wanted, "the copy");
    assert_eq!(rustix::fs::seek(&file, rustix::fs::SeekFrom::Data(0)).expect("sought"), 0);
    let mut direct = OpenOptions::new();
    let direct = direct.read(true).write(true).custom_flags(OFlags::DIRECT.bits() as i32);
    let direct = direct.open(tier.path("file")).expect("opened");
    direct.write_all_at(&[9; 8192], 4096).expect("written past the pages");
    wanted[4096..12288].fill(9);
    let mut seen = vec![0; 8192];
    file.read_exact_at(&mut seen, 4096).expect("read");
    assert_same(&seen, &wanted[4096..12288], "who reads by pages sees it");
    let start = Instant::now();
    assert!(fs::metadata(tier.path("file")).expect("there").size() == wanted.len() as u64);
    assert!(start.elapsed() < DEADLINE);
}
