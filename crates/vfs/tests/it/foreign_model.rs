//! Random writes through a tier that has room for few of them, and others who write to the same files at the origin
//! before and after: against a model, which is the bytes. Of an origin that does not tell what was before a write, too,
//! which every Linux NFS server is.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use origin::{Origin, Reference};
use testkit::far_origin::Far;
use types::{ByteRange, Caller, FileId, Name, SetAttr, Stability};
use vfs::{Lend, Vfs};

use crate::back::{NEVER, back_tier};
use crate::harness::{AFTER_TTL, DEADLINE, Mode, Random, in_every_mode, joined, writable_tier};

in_every_mode!(
    others_write_to_a_silent_origin_before_and_after_us,
    others_write_to_an_origin_that_tells_before_and_after_us,
);

const FILES: u64 = 4;
const LONGEST: u64 = 600_000;
/// What the tier believes of what it was told lately: who writes within it is not noticed (SEMANTICS.md).
const LOOKED_LATELY: Duration = Duration::from_millis(3_001);

async fn others_write_to_a_silent_origin_before_and_after_us(mode: Mode) {
    run(mode, true).await;
}

async fn others_write_to_an_origin_that_tells_before_and_after_us(mode: Mode) {
    run(mode, false).await;
}

async fn run(mode: Mode, silent: bool) {
    println!("{mode:?}, silent: {silent}");
    let mut random = Random::seeded();
    // Less than a write may be long, a few of them, and many.
    let bytes_max = [100_000, 400_000, 3 << 20][random.below(3) as usize];
    println!("room for {bytes_max} bytes");
    let mut t = writable_tier(mode, bytes_max, |_| {});
    if silent {
        t.far.be_silent();
    }
    let mut models = made(&t.far, &mut random);
    for round in 0..25 {
        if silent {
            t.pass(LOOKED_LATELY);
        }
        others(&t.far, &mut models, &mut random).await;
        if random.below(5) == 0 {
            t.pass(AFTER_TTL);
        }
        models = ours(&t.vfs, models, &mut random).await;
        if random.below(3) == 0 {
            t = t.after_a_restart().await;
        }
        t.pass(AFTER_TTL);
        compare(&t.vfs, &t.far, &models, &mut random, &format!("round {round}")).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn others_write_to_a_silent_origin_before_and_after_the_flush() {
    run_back(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn others_write_to_an_origin_that_tells_before_and_after_the_flush() {
    run_back(false).await;
}

/// Others write when nothing is dirty, and we when that can be known: there is nothing to be in conflict.
async fn run_back(silent: bool) {
    let mut random = Random::seeded();
    let delay = [Duration::ZERO, Duration::from_millis(30), NEVER][random.below(3) as usize];
    println!("silent: {silent}, delay {delay:?}");
    let far = Far::new("far:one");
    if silent {
        far.be_silent();
    }
    let mut models = made(&far, &mut random);
    let mut t = back_tier(far.clone(), delay);
    for round in 0..25 {
        others(&far, &mut models, &mut random).await;
        t.clock.advance(AFTER_TTL);
        models = ours(&t.vfs, models, &mut random).await;
        if random.below(4) == 0 {
            t = t.after_a_restart().await;
        }
        t.flush().await;
        let alarms = t.vfs.unflushed().alarms;
        assert!(alarms.is_empty(), "round {round}: {alarms:?}");
        if random.below(2) == 0 {
            t.clock.advance(AFTER_TTL);
        }
        compare(&t.vfs, &far, &models, &mut random, &format!("round {round}")).await;
    }
}

fn made(far: &Far, random: &mut Random) -> Vec<Vec<u8>> {
    let bytes = |(n, length)| origin::memory::generated(n, ByteRange::new(0, length)).to_vec();
    let models: Vec<_> = (0..FILES).map(|n| (n, random.below(LONGEST))).map(bytes).collect();
    for (n, model) in (0..FILES).zip(&models) {
        far.memory.write_file(name(n).as_bytes(), model).unwrap();
    }
    models
}

async fn others(far: &Far, models: &mut [Vec<u8>], random: &mut Random) {
    for (n, model) in (0..FILES).zip(models) {
        for _ in 0..random.below(3) {
            others_change(far, n, model, random).await;
        }
    }
    match random.below(4) {
        0 => far.memory.lose_unsynced(),
        1 => far.change_references(),
        _ => {}
    }
}

/// All files at the same time.
async fn ours(vfs: &Arc<Vfs>, models: Vec<Vec<u8>>, random: &mut Random) -> Vec<Vec<u8>> {
    let begin = |(n, model)| {
        let (vfs, random) = (vfs.clone(), Random::of(random.next()));
        tokio::spawn(async move { we_change(&vfs, n, model, random).await })
    };
    let all: Vec<_> = (0..FILES).zip(models).map(begin).collect();
    let mut models = Vec::new();
    for ours in all {
        let ours = tokio::time::timeout(DEADLINE, ours).await.expect("nobody waits for ever");
        models.push(ours.expect("nobody saw anything else than what was written"));
    }
    models
}

/// What is read and what the origin has, of half of the files.
async fn compare(vfs: &Arc<Vfs>, far: &Far, models: &[Vec<u8>], random: &mut Random, context: &str) {
    for (n, model) in (0..FILES).zip(models) {
        if random.below(2) == 0 {
            let file = reference(far, n).await;
            let found = far.memory.getattr(&file).await.unwrap();
            let all = ByteRange::new(0, found.attr.size);
            let there = far.memory.read(&file, found.version, all).await.unwrap();
            assert_same(&there, model, &format!("{context}, {n} at the origin"));
            assert_same(&read_all(vfs, n).await, model, &format!("{context}, {n} read"));
        }
    }
}

async fn read_all(vfs: &Arc<Vfs>, n: u64) -> Vec<u8> {
    let id = vfs.resolve(format!("/{}", name(n)).as_bytes()).await.expect("there").id;
    let mut all = Vec::new();
    loop {
        let read =
            vfs.read(&Caller::root(), id, all.len() as u64, 128 << 10, Lend::From(1)).await.expect("read");
        all.extend(joined(&read));
        if read.eof {
            return all;
        }
    }
}

fn name(n: u64) -> String {
    format!("file{n}")
}

fn assert_same(seen: &[u8], expected: &[u8], context: &str) {
    let first = seen.iter().zip(expected).position(|(one, other)| one != other);
    let sizes = (seen.len(), expected.len());
    assert!(seen == expected, "{context}: sizes {sizes:?}, first difference at {first:?}");
}

async fn reference(far: &Far, n: u64) -> Reference {
    let root = far.memory.root().await.unwrap().reference;
    far.memory.lookup(&root, &Name::new(name(n)).unwrap()).await.unwrap().reference
}

async fn others_change(far: &Far, n: u64, model: &mut Vec<u8>, random: &mut Random) {
    if random.below(4) == 0 {
        model.truncate(random.below(LONGEST) as usize);
        far.memory.write_file(name(n).as_bytes(), model).unwrap();
        return;
    }
    let (at, data) = some_bytes(random);
    let file = reference(far, n).await;
    far.memory.write(&file, at, data.clone(), Stability::FileSync).await.unwrap();
    put(model, at, &data);
}

fn some_bytes(random: &mut Random) -> (u64, Bytes) {
    let most = if random.below(4) == 0 { 200_000 } else { 5_000 };
    let data = vec![1 + random.below(255) as u8; 1 + random.below(most) as usize];
    (random.below(LONGEST), Bytes::from(data))
}

fn put(model: &mut Vec<u8>, at: u64, data: &[u8]) {
    let at = at as usize;
    model.resize(model.len().max(at + data.len()), 0);
    model[at..at + data.len()].copy_from_slice(data);
}

/// Ends when the origin has stored it. What is written here is seen at once; what others did, at the latest when we
/// wrote to the file and that is stored.
async fn we_change(vfs: &Arc<Vfs>, n: u64, mut model: Vec<u8>, mut random: Random) -> Vec<u8> {
    let id = vfs.resolve(format!("/{}", name(n)).as_bytes()).await.expect("there").id;
    let mut written = None;
    let mut did = Vec::new();
    for _ in 0..random.below(15) {
        match random.below(12) {
            0..=5 => {
                let (at, data) = some_bytes(&mut random);
                let stability = [Stability::Unstable, Stability::Unstable, Stability::FileSync];
                let stability = stability[random.below(3) as usize];
                did.push(format!("write {stability:?} {at}+{}", data.len()));
                vfs.write(&Caller::root(), id, at, data.clone(), stability).await.expect("written");
                put(&mut model, at, &data);
                written = Some((at, data.len()));
            }
            6 => {
                let size = random.below(LONGEST);
                did.push(format!("cut to {size}, was {}", model.len()));
                set(vfs, id, SetAttr { size: Some(size), ..SetAttr::default() }).await;
                model.resize(size as usize, 0);
                written = None;
            }
            7 => {
                did.push("mode".to_owned());
                let mode = 0o600 + random.below(8) as u32;
                set(vfs, id, SetAttr { mode: Some(mode), ..SetAttr::default() }).await;
            }
            8 => {
                did.push("commit".to_owned());
                vfs.commit(&Caller::root(), id, ByteRange::new(0, 0)).await.expect("committed");
            }
            9 => tokio::time::sleep(Duration::from_millis(random.below(30))).await,
            // What lies below may be what was there before others wrote; it is in the cache then, or fetched anew.
            10 => {
                let at = random.below(LONGEST);
                did.push(format!("read {at}"));
                drop(vfs.read(&Caller::root(), id, at, 100_000, Lend::Nothing).await);
            }
            _ => {
                let Some((at, length)) = written else { continue };
                let read = joined(
                    &vfs.read(&Caller::root(), id, at, length as u32, Lend::Nothing).await.expect("read"),
                );
                let expected = &model[at as usize..][..length];
                assert_same(&read, expected, &format!("{n}: what was written at {at}, {did:?}"));
            }
        }
    }
    vfs.commit(&Caller::root(), id, ByteRange::new(0, 0)).await.expect("committed");
    if written.is_some() {
        let read = read_all(vfs, n).await;
        assert_same(&read, &model, &format!("{n}, stored, {did:?}"));
    }
    model
}

async fn set(vfs: &Arc<Vfs>, id: FileId, set: SetAttr) {
    vfs.setattr(&Caller::root(), id, set, None).await.expect("set");
}
