//! Random writes through a tier that has room for few of them, and others who write to the same files at the origin
//! before and after: against a model, which is the bytes. Of an origin that does not tell what was before a write, too,
//! which every Linux NFS server is.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use origin::{Origin, Reference};
use types::{ByteRange, Caller, FileId, Name, SetAttr, Stability};

use crate::harness::{AFTER_TTL, DEADLINE, Mode, Random, Tier, in_every_mode, joined, writable_tier};

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
    let mut t = Arc::new(writable_tier(mode, bytes_max, |_| {}));
    if silent {
        t.far.be_silent();
    }
    let mut models = Vec::new();
    for n in 0..FILES {
        models.push(origin::memory::generated(n, ByteRange::new(0, random.below(LONGEST))).to_vec());
        t.far.memory.write_file(name(n).as_bytes(), &models[n as usize]).unwrap();
    }
    for round in 0..25 {
        if silent {
            t.pass(LOOKED_LATELY);
        }
        for (n, model) in (0..FILES).zip(&mut models) {
            for _ in 0..random.below(3) {
                others_change(&t, n, model, &mut random).await;
            }
        }
        match random.below(5) {
            0 => t.far.memory.lose_unsynced(),
            1 => t.far.change_references(),
            2 => t.pass(AFTER_TTL),
            _ => {}
        }
        let ours: Vec<_> = (0..FILES)
            .zip(models)
            .map(|(n, model)| {
                let (t, random) = (t.clone(), Random::of(random.next()));
                tokio::spawn(async move { we_change(&t, n, model, random).await })
            })
            .collect();
        models = Vec::new();
        for ours in ours {
            let ours = tokio::time::timeout(DEADLINE, ours).await.expect("nobody waits for ever");
            models.push(ours.expect("nobody saw anything else than what was written"));
        }
        if random.below(3) == 0 {
            t = Arc::new(Arc::into_inner(t).expect("all are done").after_a_restart().await);
        }
        t.pass(AFTER_TTL);
        for (n, model) in (0..FILES).zip(&models) {
            if random.below(2) == 0 {
                assert_same(
                    &t.at_the_origin(&name(n)).await,
                    model,
                    &format!("round {round}, {n} at the origin"),
                );
                let read = t.read_path(format!("/{}", name(n)).as_bytes()).await.unwrap();
                assert_same(&read, model, &format!("round {round}, {n} read after the ttl"));
            }
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

async fn reference(t: &Tier, n: u64) -> Reference {
    let root = t.far.memory.root().await.unwrap().reference;
    t.far.memory.lookup(&root, &Name::new(name(n)).unwrap()).await.unwrap().reference
}

async fn others_change(t: &Tier, n: u64, model: &mut Vec<u8>, random: &mut Random) {
    if random.below(4) == 0 {
        model.truncate(random.below(LONGEST) as usize);
        t.far.memory.write_file(name(n).as_bytes(), model).unwrap();
        return;
    }
    let (at, data) = some_bytes(random);
    let file = reference(t, n).await;
    t.far.memory.write(&file, at, data.clone(), Stability::FileSync).await.unwrap();
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
async fn we_change(t: &Tier, n: u64, mut model: Vec<u8>, mut random: Random) -> Vec<u8> {
    let path = format!("/{}", name(n));
    let id = t.id(path.as_bytes()).await;
    let mut written = None;
    let mut did = Vec::new();
    for _ in 0..random.below(15) {
        match random.below(12) {
            0..=5 => {
                let (at, data) = some_bytes(&mut random);
                let stability = [Stability::Unstable, Stability::Unstable, Stability::FileSync];
                let stability = stability[random.below(3) as usize];
                did.push(format!("write {stability:?} {at}+{}", data.len()));
                t.vfs.write(&Caller::root(), id, at, data.clone(), stability).await.expect("written");
                put(&mut model, at, &data);
                written = Some((at, data.len()));
            }
            6 => {
                let size = random.below(LONGEST);
                did.push(format!("cut to {size}, was {}", model.len()));
                set(t, id, SetAttr { size: Some(size), ..SetAttr::default() }).await;
                model.resize(size as usize, 0);
                written = None;
            }
            7 => {
                did.push("mode".to_owned());
                let mode = 0o600 + random.below(8) as u32;
                set(t, id, SetAttr { mode: Some(mode), ..SetAttr::default() }).await;
            }
            8 => {
                did.push("commit".to_owned());
                t.commit(id).await.expect("committed");
            }
            9 => tokio::time::sleep(Duration::from_millis(random.below(30))).await,
            // What lies below may be what was there before others wrote; it is in the cache then, or fetched anew.
            10 => {
                let at = random.below(LONGEST);
                did.push(format!("read {at}"));
                drop(t.read(id, at, 100_000).await);
            }
            _ => {
                let Some((at, length)) = written else { continue };
                let read = joined(&t.read(id, at, length as u32).await.expect("read"));
                let expected = &model[at as usize..][..length];
                assert_same(&read, expected, &format!("{n}: what was written at {at}, {did:?}"));
            }
        }
    }
    t.commit(id).await.expect("committed");
    if written.is_some() {
        let read = t.read_path(path.as_bytes()).await.unwrap();
        assert_same(&read, &model, &format!("{n}, stored, {did:?}"));
    }
    model
}

async fn set(t: &Tier, id: FileId, set: SetAttr) {
    t.vfs.setattr(&Caller::root(), id, set, None).await.expect("set");
}
