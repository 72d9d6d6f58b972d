//! Random writes, reads and commits by several writers, while the origin fails, loses what it has not stored, and comes
//! back: against a model, which is the bytes.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use origin::Origin;
use origin::posix::PosixOrigin;
use types::{ByteRange, Caller, ErrorKind, FileId, SetAttr, Stability};

use crate::harness::{Mode, Random, Tier, in_every_mode, joined, tier_over_whole_files, writable_tier};

in_every_mode!(
    random_writers_see_and_store_what_they_wrote,
    random_writers_over_a_directory,
    random_writers_over_whole_files,
    one_writer_cuts_and_grows_the_file,
    one_writer_cuts_and_grows_a_whole_file,
);

/// Each writer has as many bytes of the file to itself; not a multiple of anything.
const REGION: u64 = 700_001;
const WRITERS: u64 = 4;

fn seeded(mode: Mode) -> Random {
    println!("{mode:?}");
    Random::seeded()
}

async fn random_writers_see_and_store_what_they_wrote(mode: Mode) {
    let mut random = seeded(mode);
    let t = Arc::new(writable_tier(mode, 3 << 20, |_| {}));
    let old = origin::memory::generated(9, ByteRange::new(0, WRITERS * REGION / 2)).to_vec();
    t.far.memory.write_file(b"file", &old).unwrap();
    let id = t.id(b"/file").await;
    let writers: Vec<_> = (0..WRITERS)
        .map(|n| tokio::spawn(writer(t.clone(), id, n, region_of(&old, n), Random::of(random.next()))))
        .collect();
    // Each costs the writers a pause: without an end to them there would be no end to the test.
    for fault in 0..25 {
        match random.below(3) {
            0 => t.far.memory.lose_unsynced(),
            1 => t.far.fail("write", ErrorKind::Unavailable, 1 + random.below(3)),
            2 => t.far.fail("commit", ErrorKind::OutcomeUnknown, 1),
            _ => {}
        }
        if fault == 12 {
            t.far.change_references();
        }
        tokio::time::sleep(Duration::from_millis(1 + random.below(10))).await;
    }
    let mut model = Vec::new();
    for (n, writer) in writers.into_iter().enumerate() {
        let region = writer.await.expect("no writer saw anything else than it wrote");
        place(&mut model, n as u64, &region);
    }
    t.commit(id).await.unwrap();
    t.far.memory.lose_unsynced();
    assert!(t.at_the_origin("file").await == model, "what is at the origin");
    assert!(t.read_path(b"/file").await.unwrap() == model, "what is read");
    assert_eq!(t.far.overlapped_writes(), 0);
    let t = Arc::into_inner(t).unwrap().after_a_restart().await;
    assert!(t.read_path(b"/file").await.unwrap() == model, "what is read after a restart");
}

async fn random_writers_over_a_directory(mode: Mode) {
    let mut random = seeded(mode);
    let dir = tempfile::tempdir().unwrap();
    let old = origin::memory::generated(9, ByteRange::new(0, WRITERS * REGION / 2)).to_vec();
    std::fs::write(dir.path().join("file"), &old).unwrap();
    let posix: Arc<dyn Origin> = Arc::new(PosixOrigin::open(dir.path()).unwrap());
    let t = Arc::new(writable_tier(mode, 3 << 20, |junction| junction.origin = posix));
    let id = t.id(b"/file").await;
    let writers: Vec<_> = (0..WRITERS)
        .map(|n| tokio::spawn(writer(t.clone(), id, n, region_of(&old, n), Random::of(random.next()))))
        .collect();
    let mut model = Vec::new();
    for (n, writer) in writers.into_iter().enumerate() {
        let region = writer.await.expect("no writer saw anything else than it wrote");
        place(&mut model, n as u64, &region);
    }
    t.commit(id).await.unwrap();
    assert!(std::fs::read(dir.path().join("file")).unwrap() == model, "what is in the directory");
    assert!(t.read_path(b"/file").await.unwrap() == model, "what is read");
}

/// What is written is at the origin long before it is part of the file there.
async fn random_writers_over_whole_files(mode: Mode) {
    let mut random = seeded(mode);
    let t = Arc::new(tier_over_whole_files(mode, 3 << 20));
    let old = origin::memory::generated(9, ByteRange::new(0, WRITERS * REGION / 2)).to_vec();
    t.far.memory.write_file(b"file", &old).unwrap();
    let id = t.id(b"/file").await;
    let writers: Vec<_> = (0..WRITERS)
        .map(|n| tokio::spawn(writer(t.clone(), id, n, region_of(&old, n), Random::of(random.next()))))
        .collect();
    for fault in 0..25 {
        match random.below(3) {
            0 => t.far.fail("write", ErrorKind::Unavailable, 1 + random.below(3)),
            1 => t.far.fail("commit", ErrorKind::OutcomeUnknown, 1),
            _ => {}
        }
        if fault == 12 {
            t.far.change_references();
        }
        tokio::time::sleep(Duration::from_millis(1 + random.below(10))).await;
    }
    let mut model = Vec::new();
    for (n, writer) in writers.into_iter().enumerate() {
        let region = writer.await.expect("no writer saw anything else than it wrote");
        place(&mut model, n as u64, &region);
    }
    t.commit(id).await.unwrap();
    assert!(t.at_the_origin("file").await == model, "what is at the origin");
    assert!(t.read_path(b"/file").await.unwrap() == model, "what is read");
    let t = Arc::into_inner(t).unwrap().after_a_restart().await;
    assert!(t.read_path(b"/file").await.unwrap() == model, "what is read after a restart");
}

async fn one_writer_cuts_and_grows_the_file(mode: Mode) {
    cut_and_grow(writable_tier(mode, 3 << 20, |_| {}), seeded(mode)).await;
}

async fn one_writer_cuts_and_grows_a_whole_file(mode: Mode) {
    cut_and_grow(tier_over_whole_files(mode, 3 << 20), seeded(mode)).await;
}

async fn cut_and_grow(t: Tier, mut random: Random) {
    let mut model = origin::memory::generated(9, ByteRange::new(0, REGION)).to_vec();
    t.far.memory.write_file(b"file", &model).unwrap();
    let (id, caller) = (t.id(b"/file").await, Caller::root());
    for step in 0..200 {
        match random.below(8) {
            0 | 1 => {
                let size = random.below(REGION);
                let set = SetAttr { size: Some(size), ..SetAttr::default() };
                let altered = t.vfs.setattr(&caller, id, set, None).await.unwrap();
                assert_eq!(altered.node.attr.size, size);
                model.resize(size as usize, 0);
            }
            2 => {
                let set = SetAttr { mode: Some(0o600 + random.below(8) as u32), ..SetAttr::default() };
                t.vfs.setattr(&caller, id, set, None).await.unwrap();
            }
            3 => drop(t.commit(id).await.unwrap()),
            _ => {
                let data = vec![step as u8; 1 + random.below(150_000) as usize];
                let at = random.below(REGION) as usize;
                t.unstable(id, at as u64, &data).await;
                model.resize(model.len().max(at + data.len()), 0);
                model[at..at + data.len()].copy_from_slice(&data);
            }
        }
        if random.below(4) == 0 {
            tokio::time::sleep(Duration::from_millis(random.below(30))).await;
        }
        let node = t.vfs.getattr(id).await.unwrap();
        assert_eq!(node.attr.size, model.len() as u64, "step {step}");
        assert!(t.read_path(b"/file").await.unwrap() == model, "step {step}");
    }
    t.commit(id).await.unwrap();
    assert!(t.at_the_origin("file").await == model, "what is at the origin");
    let t = t.after_a_restart().await;
    assert!(t.read_path(b"/file").await.unwrap() == model, "what is read after a restart");
}

fn region_of(bytes: &[u8], n: u64) -> Vec<u8> {
    let range = ByteRange::new(n * REGION, REGION).clamp_to(bytes.len() as u64);
    bytes[range.offset as usize..range.end() as usize].to_vec()
}

fn place(model: &mut Vec<u8>, n: u64, region: &[u8]) {
    if !region.is_empty() {
        model.resize(model.len().max((n * REGION) as usize), 0);
        model.truncate((n * REGION) as usize);
        model.extend_from_slice(region);
    }
}

/// Returns its region; what is behind its last byte is another's, or zeros.
async fn writer(t: Arc<Tier>, id: FileId, n: u64, mut region: Vec<u8>, mut random: Random) -> Vec<u8> {
    for step in 0..150_u64 {
        match random.below(10) {
            0..=5 => {
                let most = if random.below(4) == 0 { 400_000 } else { 5_000 };
                let range = ByteRange::new(random.below(REGION), 1 + random.below(most)).clamp_to(REGION);
                let value = random.next() as u8;
                let data = Bytes::from(vec![value; range.length as usize]);
                let stability = match random.below(5) {
                    0 => Stability::FileSync,
                    1 => Stability::DataSync,
                    _ => Stability::Unstable,
                };
                let (at, caller) = (n * REGION + range.offset, Caller::root());
                t.vfs.write(&caller, id, at, data, stability).await.expect("written");
                region.resize(region.len().max(range.end() as usize), 0);
                region[range.offset as usize..range.end() as usize].fill(value);
            }
            6 => drop(t.commit(id).await.expect("committed")),
            _ => {
                let range = ByteRange::new(random.below(REGION), random.below(300_000));
                let range = range.clamp_to(region.len() as u64);
                let read = t.read(id, n * REGION + range.offset, range.length as u32).await.expect("read");
                let same = joined(&read) == region[range.offset as usize..range.end() as usize];
                assert!(same, "writer {n}, step {step}, {range:?}");
            }
        }
    }
    // Whoever writes behind us makes zeros of what we have not written.
    region.resize(if n + 1 < WRITERS { REGION as usize } else { region.len() }, 0);
    region
}
