//! A changed file is seen in time, and who has it open never sees two states in one.

use std::fs::File;
use std::io::{Read, Seek};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::{Duration, Instant, SystemTime};

use namespace::Freshness;

use crate::harness::*;

const SIZE: usize = 3 << 20;

fn one_byte(bytes: &[u8], what: &str) -> u8 {
    assert_eq!(bytes.len(), SIZE, "{what}");
    assert!(bytes.iter().all(|byte| *byte == bytes[0]), "{what}: a mix of two states");
    bytes[0]
}

fn write(tier: &Tier, byte: u8) {
    tier.far.memory.write_file(b"file", &vec![byte; SIZE]).expect("written");
}

fn read(tier: &Tier) -> u8 {
    one_byte(&std::fs::read(tier.path("file")).expect("read"), "a new open")
}

fn short(o: &mut Options) {
    (o.files, o.directories) = (ttl(Duration::from_secs(1)), ttl(Duration::from_secs(1)));
}

#[test]
fn a_change_is_seen_after_the_ttl_and_not_before() {
    let name = "a_change_is_seen_after_the_ttl_and_not_before";
    let seconds = ttl(Duration::from_secs(3));
    let fill =
        |far: &testkit::far_origin::Far| far.memory.write_file(b"file", &vec![1; SIZE]).expect("written");
    let Some(tier) = mount_with(name, |o| (o.files, o.directories) = (seconds, seconds), fill) else {
        return;
    };
    assert_eq!(read(&tier), 1);
    let start = Instant::now();
    write(&tier, 2);
    let before = read(&tier);
    assert!(before == 1 || start.elapsed() > Duration::from_secs(2), "fresh for three seconds");
    eventually("the change is seen", || read(&tier) == 2);
    assert!(
        start.elapsed() < Duration::from_secs(10),
        "{:?}: the kernel's time is not added",
        start.elapsed()
    );
    let size = std::fs::metadata(tier.path("file")).expect("there").len();
    assert_eq!(size, SIZE as u64);
}

#[test]
fn with_always_a_change_is_seen_at_the_next_open() {
    let name = "with_always_a_change_is_seen_at_the_next_open";
    let always = |o: &mut Options| (o.files, o.directories) = (Freshness::Always, Freshness::Always);
    let fill =
        |far: &testkit::far_origin::Far| far.memory.write_file(b"file", &vec![0; SIZE]).expect("written");
    let Some(tier) = mount_with(name, always, fill) else { return };
    for byte in 1..20 {
        write(&tier, byte);
        assert_eq!(read(&tier), byte);
    }
}

#[test]
fn an_open_file_stays_the_version_it_was_and_a_new_open_is_the_new_one() {
    let name = "an_open_file_stays_the_version_it_was_and_a_new_open_is_the_new_one";
    for passthrough in [true, false] {
        let edit = |o: &mut Options| {
            (o.files, o.directories) = (Freshness::Always, Freshness::Always);
            o.config.passthrough = passthrough;
        };
        let fill =
            |far: &testkit::far_origin::Far| far.memory.write_file(b"file", &vec![1; SIZE]).expect("written");
        let Some(tier) = mount_with(name, edit, fill) else { return };
        tier.warm("/file");
        let mut old = File::open(tier.path("file")).expect("opened");
        let mut all = Vec::new();
        old.read_to_end(&mut all).expect("read");
        assert_eq!(tier.opens("passthrough"), u64::from(passthrough));
        write(&tier, 2);
        let mut new = File::open(tier.path("file")).expect("opened while the old one is");
        let mut bytes = Vec::new();
        new.read_to_end(&mut bytes).expect("read");
        assert_eq!(one_byte(&bytes, "the new open"), 2);
        all.clear();
        old.rewind().expect("sought");
        // The kernel's pages are not what keeps the old version.
        rustix::fs::fadvise(&old, 0, None, rustix::fs::Advice::DontNeed).expect("told");
        old.read_to_end(&mut all).expect("who has it open has all of it");
        assert_eq!(one_byte(&all, "the old open"), 1);
        let (old_meta, new_meta) = (old.metadata().expect("told"), new.metadata().expect("told"));
        assert!(old_meta.mtime_nsec() != new_meta.mtime_nsec(), "each shows its own state");
        assert_eq!(std::fs::metadata(tier.path("file")).expect("there").mtime_nsec(), new_meta.mtime_nsec());
        drop((old, new));
        assert_eq!(read(&tier), 2);
    }
}

#[test]
fn what_cannot_be_had_of_an_open_version_is_an_error_and_not_another_version() {
    let name = "what_cannot_be_had_of_an_open_version_is_an_error_and_not_another_version";
    let fill =
        |far: &testkit::far_origin::Far| far.memory.write_file(b"file", &[1; 64 << 20]).expect("written");
    let Some(tier) = mount_with(name, short, fill) else { return };
    let old = File::open(tier.path("file")).expect("opened");
    let mut block = [0; 4096];
    old.read_exact_at(&mut block, 0).expect("read");
    tier.far.memory.write_file(b"file", &[2; 64 << 20]).expect("written");
    let error = old.read_exact_at(&mut block, 60 << 20).expect_err("nobody has it");
    assert_eq!(error.raw_os_error(), Some(rustix::io::Errno::STALE.raw_os_error()), "{error}");
    let new = eventually_open(&tier, 2);
    new.read_exact_at(&mut block, 60 << 20).expect("read");
    assert_eq!(block, [2; 4096]);
}

fn eventually_open(tier: &Tier, byte: u8) -> File {
    let mut found = None;
    eventually("a new open is the new version", || {
        let file = File::open(tier.path("file")).expect("opened");
        let mut block = [0; 10];
        let read = file.read_exact_at(&mut block, 0);
        let new = read.is_ok() && block == [byte; 10];
        found = Some(file);
        new
    });
    found.expect("found")
}

#[test]
fn readers_under_a_storm_of_changes_never_see_a_mix() {
    let name = "readers_under_a_storm_of_changes_never_see_a_mix";
    let always = |o: &mut Options| (o.files, o.directories) = (Freshness::Always, Freshness::Always);
    let fill =
        |far: &testkit::far_origin::Far| far.memory.write_file(b"file", &vec![0; SIZE]).expect("written");
    let Some(tier) = mount_with(name, always, fill) else { return };
    let over = std::sync::atomic::AtomicBool::new(false);
    let stale = Some(rustix::io::Errno::STALE.raw_os_error());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let (mut whole, mut last) = (0, 0);
                while !over.load(std::sync::atomic::Ordering::Relaxed) || whole == 0 {
                    match std::fs::read(tier.path("file")) {
                        Ok(bytes) => {
                            let byte = one_byte(&bytes, "under a storm");
                            assert!(byte >= last, "time does not run backwards");
                            (whole, last) = (whole + 1, byte);
                        }
                        Err(e) => assert_eq!(e.raw_os_error(), stale, "{e}"),
                    }
                }
            });
        }
        for byte in 1..60 {
            write(&tier, byte);
            std::thread::sleep(Duration::from_millis(40));
        }
        over.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    assert_eq!(read(&tier), 59);
}

#[test]
fn a_file_being_written_shows_what_comes_to_who_has_it_open() {
    let name = "a_file_being_written_shows_what_comes_to_who_has_it_open";
    let fill = |far: &testkit::far_origin::Far| {
        far.memory.set_clock(SystemTime::now());
        far.memory.write_file(b"log", b"one\n").expect("written");
    };
    let Some(tier) = mount_with(name, short, fill) else { return };
    let mut log = File::open(tier.path("log")).expect("opened");
    let mut text = String::new();
    log.read_to_string(&mut text).expect("read");
    assert_eq!((text.as_str(), tier.opens("following")), ("one\n", 1));
    tier.far.memory.write_file(b"log", b"one\ntwo\n").expect("written");
    // As `tail -f` does: by the descriptor only.
    eventually("the descriptor shows the growth", || log.metadata().expect("told").len() == 8);
    log.read_to_string(&mut text).expect("read");
    assert_eq!(text, "one\ntwo\n");
    // The same length: nothing but the kernel being told makes it drop the pages.
    tier.far.memory.write_file(b"log", b"ONE\nTWO\n").expect("written");
    eventually("pages of the old state are dropped", || {
        let mut bytes = [0; 8];
        log.read_exact_at(&mut bytes, 0).expect("read");
        assert!([b"one\ntwo\n", b"ONE\nTWO\n"].contains(&&bytes), "a mix");
        &bytes == b"ONE\nTWO\n"
    });
}

#[test]
fn what_the_tier_learns_by_another_way_the_kernel_is_told() {
    let name = "what_the_tier_learns_by_another_way_the_kernel_is_told";
    let fill = |far: &testkit::far_origin::Far| {
        far.memory.mkdir(b"dir").expect("made");
        far.memory.write_file(b"dir/file", b"old").expect("written");
    };
    let Some(tier) = mount(name, fill) else { return };
    let look = || std::fs::metadata(tier.path("dir/file")).map(|meta| meta.len());
    assert_eq!(look().expect("there"), 3);
    tier.far.memory.write_file(b"dir/file", b"new and longer").expect("written");
    assert_eq!(look().expect("there"), 3, "within its 30 s");
    tier.clock.advance(Duration::from_secs(31)); // of which the kernel knows nothing
    let known = tier.run(tier.vfs.resolve(b"/dir/file")).expect("as another front would");
    assert_eq!(known.attr.size, 14);
    eventually("the kernel lets go", || look().expect("there") == 14);
    tier.far.memory.write_file(b"dir/file", b"newest").expect("written");
    tier.run(tier.vfs.evict(b"/dir")).expect("evicted");
    eventually("evict ends all staleness", || look().expect("there") == 6);
}
