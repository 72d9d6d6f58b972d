//! Bytes that are written here and there become an object, or nothing.

use std::sync::Arc;

use bytes::Bytes;
use origin::{Change, Origin, Reference};
use origin_object::ObjectOrigin;
use testkit::origin_contract::seed;
use types::{ByteRange, ErrorKind, SetAttr, Stability};

use crate::store::{create, find, name, names, on_each_bucket, overwrite, pattern, put, read_all, root};

const MIB: usize = 1 << 20;
const ALL: ByteRange = ByteRange { offset: 0, length: 0 };

async fn write(
    origin: &ObjectOrigin,
    file: &Reference,
    offset: usize,
    bytes: &[u8],
) -> types::Result<origin::Written> {
    origin.write(file, offset as u64, Bytes::copy_from_slice(bytes), Stability::Unstable).await
}

async fn resize(origin: &ObjectOrigin, file: &Reference, size: usize) {
    let set = SetAttr { size: Some(size as u64), ..SetAttr::default() };
    origin.change(&Change::Set { object: file.clone(), set, guard: None }).await.expect("resized");
}

#[tokio::test(flavor = "multi_thread")]
async fn parts_written_in_any_order_are_one_object_when_they_are_committed() {
    on_each_bucket(
        "parts_written_in_any_order_are_one_object_when_they_are_committed",
        |bucket| async move {
            let (origin, eyes) = (bucket.origin("").await, bucket.origin("").await);
            let bytes = Arc::new(pattern(37 * MIB + 12_345, 7));
            let file = create(&origin, &root(), "file").await.expect("made");
            let mut writes = tokio::task::JoinSet::new();
            for at in 0..38 {
                let (origin, bytes, file) = (origin.clone(), bytes.clone(), file.reference.clone());
                writes.spawn(async move {
                    let from = (at * 7 % 38) * MIB;
                    let to = (from + MIB).min(bytes.len());
                    write(&origin, &file, from, &bytes[from..to]).await
                });
            }
            while let Some(written) = writes.join_next().await {
                let written = written.expect("no panic").expect("written");
                assert_eq!((written.before, written.stability), (Some(file.version), Stability::Unstable));
            }
            // Nobody sees any of it yet.
            assert_eq!(find(&eyes, "file").await.expect("there").attr.size, 0);
            let committed = origin.commit(&file.reference, ALL).await.expect("committed");
            let after = committed.after.expect("told");
            assert_eq!((committed.before, after.attr.size), (Some(file.version), bytes.len() as u64));
            let seen = find(&eyes, "file").await.expect("there");
            assert_eq!((seen.version, &seen.identity), (after.version, &file.identity));
            assert!(read_all(&eyes, &seen).await.expect("read") == *bytes);
        },
    )
    .await;
}

/// As a program's large file comes from a tier: many at a time, stored every now and then, looked at meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn commits_in_the_midst_of_writes_are_not_taken_for_those_of_others() {
    on_each_bucket("commits_in_the_midst_of_writes_are_not_taken_for_those_of_others", |bucket| async move {
        const PIECE: usize = 64 << 10;
        let origin = bucket.origin("").await;
        let bytes = Arc::new(pattern(12 * MIB, 11));
        let file = create(&origin, &root(), "file").await.expect("made").reference;
        let done = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let is_done = || done.load(std::sync::atomic::Ordering::Relaxed);
        let mut writes = tokio::task::JoinSet::new();
        for writer in 0..8 {
            let (origin, bytes, file) = (origin.clone(), bytes.clone(), file.clone());
            writes.spawn(async move {
                for at in (writer..bytes.len() / PIECE).step_by(8) {
                    let from = at * PIECE;
                    write(&origin, &file, from, &bytes[from..from + PIECE]).await.expect("written");
                    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
                }
            });
        }
        let commits = async {
            let mut commits = 0;
            while !is_done() {
                origin.commit(&file, ALL).await.expect("nobody else is there");
                commits += 1;
            }
            commits
        };
        let looks = async {
            while !is_done() {
                origin.getattr(&file).await.expect("there");
            }
        };
        let all_written = async {
            while let Some(written) = writes.join_next().await {
                written.expect("no panic");
            }
            done.store(true, std::sync::atomic::Ordering::Relaxed);
        };
        let (commits, (), ()) = tokio::join!(commits, looks, all_written);
        assert!(commits > 2, "{commits} commits among the writes");
        origin.commit(&file, ALL).await.expect("committed");
        let eyes = bucket.origin("").await;
        let seen = find(&eyes, "file").await.expect("there");
        assert!(read_all(&origin, &seen).await.expect("read") == *bytes);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_change_of_a_large_object_leaves_the_rest_of_it() {
    on_each_bucket("a_small_change_of_a_large_object_leaves_the_rest_of_it", |bucket| async move {
        let origin = bucket.origin("").await;
        let mut bytes = pattern(41 * MIB, 3);
        let file = put(&origin, &root(), "file", &bytes).await.reference;
        for (at, length) in [(17 * MIB + 5, 3), (0, 1), (40 * MIB, 2 * MIB), (9 * MIB, 16 * MIB)] {
            let new = pattern(length, at as u64);
            write(&origin, &file, at, &new).await.expect("written");
            bytes.resize(bytes.len().max(at + length), 0);
            bytes[at..at + length].copy_from_slice(&new);
            origin.commit(&file, ALL).await.expect("committed");
            let fresh = bucket.origin("").await;
            let seen = find(&fresh, "file").await.expect("there");
            assert!(read_all(&fresh, &seen).await.expect("read") == bytes, "{length} bytes at {at}");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_stored_meanwhile_is_never_overwritten() {
    on_each_bucket("what_others_stored_meanwhile_is_never_overwritten", |bucket| async move {
        let (ours, theirs) = (bucket.origin("").await, bucket.origin("").await);
        for length in [5, 20 * MIB] {
            let text = format!("file-{length}");
            let file = put(&ours, &root(), &text, b"base").await.reference;
            let first = write(&ours, &file, 0, &pattern(length, 1)).await.expect("written");
            overwrite(&theirs, &file, b"theirs").await;
            let lost = ours.commit(&file, ALL).await.expect_err("it is another object");
            assert_eq!(lost.kind(), ErrorKind::VersionChanged);
            let seen = find(&*bucket.origin("").await, &text).await.expect("there");
            assert_eq!(read_all(&theirs, &seen).await.expect("read"), "theirs");
            // What was taken is lost, and whoever asks is told.
            let committed = ours.commit(&file, ALL).await.expect("nothing to do");
            assert_ne!(committed.verifier, first.verifier);
            // Written again, on what is there now.
            write(&ours, &file, 0, b"ours").await.expect("written");
            ours.commit(&file, ALL).await.expect("committed");
            let seen = find(&ours, &text).await.expect("there");
            assert_eq!(read_all(&ours, &seen).await.expect("read"), "oursrs");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_goes_takes_with_it_what_was_written_to_it() {
    on_each_bucket("an_object_that_goes_takes_with_it_what_was_written_to_it", |bucket| async move {
        let origin = bucket.origin("").await;
        let file = create(&origin, &root(), "file").await.expect("made").reference;
        write(&origin, &file, 0, &pattern(17 * MIB, 1)).await.expect("written");
        origin.change(&Change::Remove { dir: root(), name: name("file") }).await.expect("removed");
        assert_eq!(origin.commit(&file, ALL).await.expect_err("gone").kind(), ErrorKind::Stale);
        assert_eq!(names(&origin, &root()).await, [""; 0]);
        // Renamed, it takes it along.
        let file = create(&origin, &root(), "old").await.expect("made").reference;
        write(&origin, &file, 0, b"written").await.expect("written");
        let (from_dir, from, to_dir, to) = (root(), name("old"), root(), name("new"));
        origin.change(&Change::Rename { from_dir, from, to_dir, to, identity: None }).await.expect("renamed");
        let seen = find(&*bucket.origin("").await, "new").await.expect("there");
        assert_eq!(read_all(&origin, &seen).await.expect("read"), "written");
    })
    .await;
}

/// A call that nobody waits for any more, as when its deadline is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_is_given_up_loses_nothing_that_the_next_one_does_not_tell_of() {
    let name = "a_commit_that_is_given_up_loses_nothing_that_the_next_one_does_not_tell_of";
    on_each_bucket(name, |bucket| async move {
        let origin = bucket.origin("").await;
        for tenths in 0..40 {
            let text = format!("file-{tenths}");
            let file = put(&origin, &root(), &text, b"base").await.reference;
            // Between bytes of the object, which have to be read for it.
            let written = write(&origin, &file, 1, b"X").await.expect("written");
            let patience = std::time::Duration::from_micros(tenths * 200);
            let _ = tokio::time::timeout(patience, origin.commit(&file, ALL)).await;
            let told = origin.commit(&file, ALL).await;
            if !told.is_ok_and(|told| told.verifier == written.verifier) {
                write(&origin, &file, 1, b"X").await.expect("written again");
                origin.commit(&file, ALL).await.expect("committed");
            }
            let seen = find(&*bucket.origin("").await, &text).await.expect("there");
            assert_eq!(read_all(&origin, &seen).await.expect("read"), "bXse", "given up after {patience:?}");
        }
    })
    .await;
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// Writes, resizes and commits of a file, and the same on bytes in memory.
#[tokio::test(flavor = "multi_thread")]
async fn random_writes_end_as_they_do_in_memory() {
    on_each_bucket("random_writes_end_as_they_do_in_memory", |bucket| async move {
        let seed = seed();
        println!("seed {seed}");
        let mut random = Random(seed | 1);
        for round in 0..6 {
            let origin = bucket.origin("").await;
            let text = format!("file-{round}");
            let file = create(&origin, &root(), &text).await.expect("made").reference;
            let mut model: Vec<u8> = Vec::new();
            // Around the edges of parts, and around those of the store's least size of one.
            let limit = [1000, 9 * MIB, 26 * MIB][round % 3];
            for step in 0..40 {
                match random.below(10) {
                    0..6 => {
                        let at = random.below(limit);
                        let most = if random.below(4) == 0 { limit / 2 + 1 } else { 5000 };
                        let length = 1 + random.below(most);
                        let bytes = pattern(length, step);
                        let data = Bytes::from(bytes.clone());
                        let stability =
                            if random.below(8) == 0 { Stability::FileSync } else { Stability::Unstable };
                        origin.write(&file, at as u64, data, stability).await.expect("written");
                        model.resize(model.len().max(at + length), 0);
                        model[at..at + length].copy_from_slice(&bytes);
                    }
                    6 => {
                        let size = random.below(limit);
                        resize(&origin, &file, size).await;
                        model.resize(size, 0);
                    }
                    _ => {
                        let committed = origin.commit(&file, ALL).await.expect("committed");
                        assert_eq!(committed.after.expect("told").attr.size, model.len() as u64);
                        let fresh = bucket.origin("").await;
                        let seen = find(&fresh, &text).await.expect("there");
                        let same = read_all(&fresh, &seen).await.expect("read") == model;
                        assert!(same, "seed {seed}, round {round}, step {step}");
                    }
                }
            }
        }
    })
    .await;
}

/// The time that somebody had set stayed that of the file, whatever was written to it afterwards.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_makes_an_end_of_the_time_that_was_set() {
    on_each_bucket("a_write_makes_an_end_of_the_time_that_was_set", |bucket| async move {
        let origin = bucket.origin("").await;
        let file = put(&origin, &root(), "file", b"base").await.reference;
        let old = types::Timestamp { seconds: 1_000_000_000, nanos: 5 };
        let mtime = types::TimeChange::To(old);
        let timed = SetAttr { mtime, ..SetAttr::default() };
        let set = |set| Change::Set { object: file.clone(), set, guard: None };
        origin.change(&set(timed)).await.expect("set");
        let seen = find(&*bucket.origin("").await, "file").await.expect("there");
        assert_eq!(seen.attr.mtime, old);
        write(&origin, &file, 0, b"more").await.expect("written");
        origin.commit(&file, ALL).await.expect("committed");
        let seen = find(&*bucket.origin("").await, "file").await.expect("there");
        assert!(seen.attr.mtime > old, "{:?}", seen.attr.mtime);
        // One that is given with what is written is its own, with small files and with those in parts.
        for length in [4, 20 * MIB] {
            write(&origin, &file, 0, b"a").await.expect("written");
            assert!(origin.set_at_commit(&file, &timed).await.expect("described"));
            write(&origin, &file, 1, &pattern(length - 1, 3)).await.expect("written");
            origin.commit(&file, ALL).await.expect("committed");
            let seen = find(&*bucket.origin("").await, "file").await.expect("there");
            assert_eq!((seen.attr.mtime, seen.attr.size), (old, length as u64));
        }
        assert!(!origin.set_at_commit(&file, &timed).await.expect("nothing is written"));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_is_told_as_others_see_it() {
    on_each_bucket("what_is_stored_is_told_as_others_see_it", |bucket| async move {
        let origin = bucket.origin("").await;
        let seen = async || find(&*bucket.origin("").await, "file").await.expect("there");
        let same = |told: origin::Object, seen: origin::Object| {
            assert_eq!(told.version, seen.version);
            // S3 tells when it answered, not when it stored.
            let late = told.attr.ctime.seconds - seen.attr.ctime.seconds;
            assert!((0..=1).contains(&late), "{late} s");
            assert_eq!(types::Attr { ctime: seen.attr.ctime, ..told.attr }, seen.attr);
        };
        let mtime = types::TimeChange::To(types::Timestamp { seconds: 1_000_000_000, nanos: 5 });
        let (dir, name, how) = (root(), name("file"), types::CreateHow::Guarded);
        let set = SetAttr { mode: Some(0o640), uid: Some(7), mtime, ..SetAttr::default() };
        let told = origin.change(&Change::Create { dir, name, how, set }).await;
        let made = told.and_then(origin::Changed::made).expect("made");
        let file = made.reference.clone();
        same(made, seen().await);
        for length in [4, 20 * MIB] {
            write(&origin, &file, 0, &pattern(length, 3)).await.expect("written");
            let told = origin.commit(&file, ALL).await.expect("committed").after.expect("told");
            same(told, seen().await);
        }
    })
    .await;
}

/// Azure copies it in parts.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_object_is_the_same_after_its_rename() {
    on_each_bucket("a_long_object_is_the_same_after_its_rename", |bucket| async move {
        let origin = bucket.origin("&attributes=stored").await;
        let bytes = pattern(66 * MIB + 7, 5);
        let before = put(&origin, &root(), "long", &bytes).await;
        let set = SetAttr { mode: Some(0o640), ..SetAttr::default() };
        let described = Change::Set { object: before.reference, set, guard: None };
        origin.change(&described).await.expect("set");
        let (from_dir, to_dir) = (root(), root());
        let rename = Change::Rename { from_dir, from: name("long"), to_dir, to: name("new"), identity: None };
        origin.change(&rename).await.expect("renamed");
        let eyes = bucket.origin("&attributes=stored").await;
        assert_eq!(names(&eyes, &root()).await, ["new"]);
        let after = find(&eyes, "new").await.expect("there");
        assert_eq!(after.attr.mode & 0o7777, 0o640);
        assert!(read_all(&eyes, &after).await.expect("read") == bytes);
    })
    .await;
}
