//! Random changes and writes through a tier that writes back, with flushes and crashes in between, against the same made
//! to a model: what is seen, and in the end what the origin has.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use origin::Origin;
use origin::memory::MemoryOrigin;
use origin::posix::PosixOrigin;
use types::{ByteRange, Caller, ErrorKind, FileKind, Stability};

use crate::back::{BackTier, back_tier, bytes_of, find};
use crate::changes_model::{Op, at_model, at_tier, op, path, tree_of_origin, tree_of_tier};
use crate::harness::{AFTER_TTL, Random, kind};
use crate::times::times;

#[tokio::test(flavor = "multi_thread")]
async fn random_changes_are_seen_at_once_and_reach_the_origin() {
    run(MemoryOrigin::new(), 60, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn random_changes_reach_a_directory_likewise() {
    let home = tempfile::tempdir().expect("a directory for the test");
    run(Arc::new(PosixOrigin::open(home.path()).expect("opened")), 30, false).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn random_changes_are_seen_through_crashes_and_reach_the_origin() {
    run(MemoryOrigin::new(), 60, true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn random_changes_through_crashes_reach_a_directory_likewise() {
    let home = tempfile::tempdir().expect("a directory for the test");
    run(Arc::new(PosixOrigin::open(home.path()).expect("opened")), 30, true).await;
}

/// With `crashes` it ends where the flush says that it cannot tell its own interrupted work from another's: from there on
/// two versions may stay (SEMANTICS.md). Without them nothing of the kind may be said.
async fn run(origin: Arc<dyn Origin>, rounds: u64, crashes: bool) {
    let mut random = Random::seeded();
    let model = MemoryOrigin::new();
    let delay = Duration::from_millis([0, 30, 3_600_000][random.below(3) as usize]);
    println!("delay {delay:?}");
    let mut t = back_tier(origin.clone(), delay);
    let mut said = false;
    for round in 0..rounds {
        for step in 0..1 + random.below(25) {
            let context = format!("round {round}.{step}");
            let mut differs = one_step(&t, &model, &mut random, &context).await;
            if differs.is_ok() && random.below(6) == 0 {
                differs = compare(&t, &model, &context).await;
            }
            said |= !t.vfs.unflushed().alarms.is_empty();
            if crashes && said {
                return println!("two versions may stay from here on: {context}");
            }
            differs.unwrap_or_else(|told| panic!("{told}"));
        }
        match random.below(6) {
            0 if crashes => t = t.after_a_crash().await,
            0 | 1 => t = t.after_a_restart().await,
            2 => flush_moves_no_time(&t).await,
            3 => t.clock.advance(AFTER_TTL),
            _ => tokio::time::sleep(Duration::from_millis(random.below(60))).await,
        }
    }
    t.flush().await;
    let differs = compare(&t, &model, "after the flush").await;
    let alarms = t.vfs.unflushed().alarms;
    if crashes && !alarms.is_empty() {
        return println!("two versions may stay: {alarms:?}");
    }
    differs.unwrap_or_else(|told| panic!("{told}"));
    assert!(alarms.is_empty(), "nobody else was there: {alarms:?}");
    assert_eq!(tree_of_origin(&*origin).await, tree_of_origin(&*model).await, "what is at the origin");
    for file in files(&*model).await {
        assert!(bytes_of(&*origin, &file).await == bytes_of(&*model, &file).await, "{file} at the origin");
    }
    t.clock.advance(AFTER_TTL);
    compare(&t, &model, "after the ttl").await.unwrap_or_else(|told| panic!("{told}"));
}

/// Unless the flush tells that it could not know its own work.
async fn flush_moves_no_time(t: &BackTier) {
    let told = times(t).await;
    t.flush().await;
    let seen = times(t).await;
    assert!(seen == told || !t.vfs.unflushed().alarms.is_empty(), "seen {seen:?}, told {told:?}");
}

type Same = std::result::Result<(), String>;

async fn one_step(t: &BackTier, model: &MemoryOrigin, random: &mut Random, context: &str) -> Same {
    if random.below(3) == 0 {
        return write(t, model, random, context).await;
    }
    let (path, op) = (path(random), op(random));
    let (done, expected) = (at_tier(&t.vfs, &path, &op).await, at_model(model, &path, &op).await);
    let context = format!("{context}: {op:?} {path}: {done:?}, {expected:?}");
    let one_of_many = matches!(op, Op::Rename(_) | Op::Link(_) | Op::Create(..));
    match (kind(done), kind(expected)) {
        (None, None) => Ok(()),
        (Some(kind), Some(expected)) if kind == expected || one_of_many => Ok(()),
        _ => Err(context),
    }
}

async fn write(t: &BackTier, model: &MemoryOrigin, random: &mut Random, context: &str) -> Same {
    let all = files(model).await;
    if all.is_empty() {
        return Ok(());
    }
    let path = &all[random.below(all.len() as u64) as usize];
    let (at, length) = (random.below(150_000), 1 + random.below(90_000));
    let data = Bytes::from(vec![random.next() as u8; length as usize]);
    let stability = if random.below(2) == 0 { Stability::Unstable } else { Stability::FileSync };
    let node = t.vfs.resolve(path.as_bytes()).await.map_err(|e| format!("{context}: {path}: {e}"))?;
    let id = node.id;
    let written = t.vfs.write(&Caller::root(), id, at, data.clone(), stability).await;
    written.map_err(|e| format!("{context}: {path}: {e}"))?;
    if stability == Stability::Unstable && random.below(2) == 0 {
        t.vfs.commit(&Caller::root(), id, ByteRange::new(0, 0)).await.expect("committed");
    }
    let file = find(model, path).await.expect("there").reference;
    model.write(&file, at, data, Stability::FileSync).await.expect("written");
    Ok(())
}

async fn files(origin: &dyn Origin) -> Vec<String> {
    let tree = tree_of_origin(origin).await;
    tree.into_iter().filter(|(_, seen)| seen.0 == FileKind::Regular).map(|(path, _)| path).collect()
}

async fn compare(t: &BackTier, model: &MemoryOrigin, context: &str) -> Same {
    let (seen, expected) = (tree_of_tier(&t.vfs).await, tree_of_origin(model).await);
    if seen != expected {
        return Err(format!("{context}: seen {seen:?}, expected {expected:?}"));
    }
    for file in files(model).await {
        let node = t.vfs.resolve(file.as_bytes()).await.map_err(|e| format!("{context}: {file}: {e}"))?;
        let (seen, expected) = (t.read(node.id).await, bytes_of(model, &file).await);
        let first = seen.iter().zip(&expected).position(|(one, other)| one != other);
        let sizes = (seen.len(), expected.len());
        if seen != expected {
            return Err(format!("{file}, {context}: sizes {sizes:?}, first difference at {first:?}"));
        }
    }
    match kind(t.vfs.resolve(b"/none").await) {
        Some(ErrorKind::NotFound) => Ok(()),
        other => Err(format!("{context}: what is not there: {other:?}")),
    }
}
