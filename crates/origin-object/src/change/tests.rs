//! Renames, and what else is done meanwhile, over a store in memory that stops where it is told to.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::origin::{Copied, Origin, RenameLeftover, Written};
use tokio::task::JoinHandle;
use types::{ByteRange, Stability, TimeChange, Version};

use self::shelf::{COPY_MAX, Shelf};
use super::*;
use crate::geometry::PART;
use crate::url::Config;

mod interrupted;
mod others;
mod shelf;

const ALL: ByteRange = ByteRange { offset: 0, length: 0 };

fn reference(path: &str) -> Reference {
    Reference(Bytes::copy_from_slice(path.as_bytes()))
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes().to_vec()).unwrap()
}

/// The directory, with a slash at its end, and the name in it.
fn split(path: &str) -> (Reference, Name) {
    let cut = path.rfind('/').map_or(0, |at| at + 1);
    (reference(&path[..cut]), name(&path[cut..]))
}

fn rename(from: &str, to: &str) -> Change {
    let ((from_dir, from), (to_dir, to)) = (split(from), split(to));
    Change::Rename { from_dir, from, to_dir, to, identity: None }
}

async fn create(origin: &ObjectOrigin, path: &str) -> Result<Object> {
    let ((dir, name), how, set) = (split(path), CreateHow::Guarded, SetAttr::default());
    origin.change(&Change::Create { dir, name, how, set }).await?.made()
}

async fn write(origin: &ObjectOrigin, path: &str, data: &[u8], stability: Stability) -> Result<Written> {
    origin.write(&reference(path), 0, Bytes::copy_from_slice(data), stability).await
}

fn begin(origin: &Arc<ObjectOrigin>, change: Change) -> JoinHandle<Result<Changed>> {
    let origin = origin.clone();
    tokio::spawn(async move { origin.change(&change).await })
}

/// With the directory `d`, in which are `x` and `y`, and a file `f` beside it.
async fn tree() -> (Arc<Shelf>, Arc<ObjectOrigin>) {
    let shelf = Arc::new(Shelf::default());
    let config = Config::from_url("s3://bucket?attributes=stored&anonymous=yes").unwrap();
    let origin = ObjectOrigin::over(config, shelf.clone()).unwrap();
    let (dir, called) = split("d");
    origin.change(&Change::Mkdir { dir, name: called, set: SetAttr::default() }).await.unwrap();
    for path in ["d/x", "d/y", "f"] {
        create(&origin, path).await.unwrap();
        write(&origin, path, b"old", Stability::FileSync).await.unwrap();
    }
    (shelf, origin)
}

/// All that is done by itself is done.
async fn pause() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}

fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    result.expect_err("must fail").kind()
}

/// What somebody else does in the directory that is renamed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Deed {
    Write,
    WriteParts,
    Commit,
    Create,
    Mkdir,
    Symlink,
    SetMode,
    Cut,
    DescribeDirectory,
    Remove,
    RemoveLast,
}

const DEEDS: [Deed; 11] = [
    Deed::Write,
    Deed::WriteParts,
    Deed::Commit,
    Deed::Create,
    Deed::Mkdir,
    Deed::Symlink,
    Deed::SetMode,
    Deed::Cut,
    Deed::DescribeDirectory,
    Deed::Remove,
    Deed::RemoveLast,
];

async fn carry_out(origin: &ObjectOrigin, dir: &str, deed: Deed) -> Result<()> {
    let path = |below: &str| format!("{dir}/{below}");
    let set_of = SetAttr::default;
    let change = match deed {
        Deed::Write => return write(origin, &path("x"), b"new", Stability::FileSync).await.map(drop),
        Deed::WriteParts => {
            let long = vec![7; PART as usize + 5];
            write(origin, &path("x"), &long, Stability::Unstable).await?;
            return origin.commit(&reference(&path("x")), ALL).await.map(drop);
        }
        // What was written to it before the rename.
        Deed::Commit => return origin.commit(&reference(&path("x")), ALL).await.map(drop),
        Deed::Create => return create(origin, &path("z")).await.map(drop),
        Deed::Mkdir => Change::Mkdir { dir: reference(&path("")), name: name("z"), set: set_of() },
        Deed::Symlink => {
            let target = Bytes::from_static(b"to");
            Change::Symlink { dir: reference(&path("")), name: name("z"), target, set: set_of() }
        }
        Deed::SetMode | Deed::DescribeDirectory => {
            let object = reference(&path(if deed == Deed::SetMode { "x" } else { "" }));
            let mtime = TimeChange::To(Timestamp { seconds: 5, nanos: 0 });
            let set = SetAttr { mode: Some(0o600), mtime, ..set_of() };
            Change::Set { object, set, guard: None }
        }
        Deed::Cut => {
            let set = SetAttr { size: Some(1), ..set_of() };
            Change::Set { object: reference(&path("x")), set, guard: None }
        }
        Deed::Remove => Change::Remove { dir: reference(&path("")), name: name("y") },
        Deed::RemoveLast => {
            let gone = Change::Remove { dir: reference(&path("")), name: name("x") };
            origin.change(&gone).await?;
            Change::Remove { dir: reference(&path("")), name: name("y") }
        }
    };
    origin.change(&change).await.map(drop)
}

/// It is done in that directory.
async fn check(origin: &ObjectOrigin, shelf: &Shelf, dir: &str, deed: Deed) {
    let bytes = |below: &str| shelf.bytes(&format!("{dir}/{below}"));
    let mode = async |path: String| origin.getattr(&reference(&path)).await.expect("there").attr.mode;
    match deed {
        Deed::Write | Deed::Commit => assert_eq!(bytes("x").expect("there"), "new"),
        Deed::WriteParts => assert!(bytes("x").expect("there") == vec![7; PART as usize + 5]),
        Deed::Create | Deed::Symlink => assert!(bytes("z").is_some()),
        Deed::Mkdir => assert!(bytes("z/").is_some()),
        Deed::SetMode => assert_eq!(mode(format!("{dir}/x")).await, 0o600),
        Deed::DescribeDirectory => assert_eq!(mode(format!("{dir}/")).await, 0o600),
        Deed::Cut => assert_eq!(bytes("x").expect("there"), "o"),
        Deed::Remove => assert!(bytes("x").is_some() && bytes("y").is_none()),
        Deed::RemoveLast => assert_eq!(shelf.keys(), [format!("{dir}/"), "f".to_owned()]),
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_done_below_a_directory_that_is_renamed_is_done_at_its_new_place_or_told() {
    for deed in DEEDS {
        for call in ["copy", "copied", "delete"] {
            println!("{deed:?} at the first {call}");
            let (shelf, origin) = tree().await;
            if deed == Deed::Commit {
                write(&origin, "d/x", b"new", Stability::Unstable).await.unwrap();
            }
            let (reached, go) = shelf.stop_at(call);
            let renamed = begin(&origin, rename("d", "e"));
            reached.await.unwrap();
            let doer = origin.clone();
            let done = tokio::spawn(async move { carry_out(&doer, "d", deed).await });
            pause().await;
            go.send(()).unwrap();
            renamed.await.unwrap().expect("renamed");
            match done.await.unwrap() {
                Ok(()) => {}
                Err(e) => {
                    assert_eq!(e.kind(), ErrorKind::Stale, "{e}");
                    carry_out(&origin, "e", deed).await.expect("found anew");
                }
            }
            check(&origin, &shelf, "e", deed).await;
            let left: Vec<_> = shelf.keys().into_iter().filter(|key| key.starts_with("d/")).collect();
            assert_eq!(left, [""; 0]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_written_to_a_file_that_is_renamed_is_at_its_new_place_or_told() {
    for call in ["copy", "copied", "delete"] {
        for to in ["e", "d/x"] {
            println!("to {to}, at the {call}");
            let (shelf, origin) = tree().await;
            let (reached, go) = shelf.stop_at(call);
            let renamed = begin(&origin, rename("f", to));
            reached.await.unwrap();
            let writing = ["f", "d/x"].map(|path| {
                let origin = origin.clone();
                tokio::spawn(async move { write(&origin, path, b"new", Stability::FileSync).await })
            });
            pause().await;
            go.send(()).unwrap();
            renamed.await.unwrap().expect("renamed");
            let [moved, other] = writing;
            let moved = moved.await.unwrap();
            // Of what was replaced nothing comes into what replaced it.
            assert_eq!(other.await.unwrap().is_ok(), to != "d/x");
            if moved.is_ok() {
                assert_eq!(shelf.bytes(to).expect("there"), "new");
            } else {
                assert_eq!(kind(moved), ErrorKind::Stale);
                assert_eq!(shelf.bytes(to).expect("there"), "old");
            }
            assert_eq!(shelf.bytes("f"), None);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_rename_waits_until_what_is_stored_below_is_there() {
    let (shelf, origin) = tree().await;
    let (reached, go) = shelf.stop_at("put");
    let writer = origin.clone();
    let written = tokio::spawn(async move { write(&writer, "d/x", b"new", Stability::FileSync).await });
    reached.await.unwrap();
    let renamed = begin(&origin, rename("d", "e"));
    pause().await;
    assert!(!renamed.is_finished());
    go.send(()).unwrap();
    written.await.unwrap().expect("written");
    renamed.await.unwrap().expect("renamed");
    assert_eq!(shelf.bytes("e/x").expect("there"), "new");
    assert_eq!(shelf.keys(), ["e/", "e/x", "e/y", "f"]);
}

#[tokio::test(start_paused = true)]
async fn who_is_elsewhere_does_not_wait_for_a_rename() {
    let (shelf, origin) = tree().await;
    let (reached, go) = shelf.stop_at("delete");
    let renamed = begin(&origin, rename("d", "e"));
    reached.await.unwrap();
    write(&origin, "f", b"new", Stability::FileSync).await.expect("written");
    create(&origin, "d1").await.expect("made");
    origin.change(&rename("f", "g")).await.expect("renamed");
    assert!(!renamed.is_finished());
    go.send(()).unwrap();
    renamed.await.unwrap().expect("renamed");
    assert_eq!(shelf.keys(), ["d1", "e/", "e/x", "e/y", "g"]);
}

#[tokio::test(start_paused = true)]
async fn who_gives_a_rename_up_lets_the_others_go_on() {
    let (shelf, origin) = tree().await;
    let (reached, _go) = shelf.stop_at("copy");
    let renamed = begin(&origin, rename("d", "e"));
    reached.await.unwrap();
    let writer = origin.clone();
    let written = tokio::spawn(async move { write(&writer, "d/x", b"new", Stability::FileSync).await });
    pause().await;
    assert!(!written.is_finished());
    renamed.abort();
    written.await.unwrap().expect("it is where it was");
    assert_eq!(shelf.bytes("d/x").expect("there"), "new");
}

#[tokio::test(start_paused = true)]
async fn renames_into_and_out_of_each_other_come_one_after_the_other() {
    let (shelf, origin) = tree().await;
    let (reached, go) = shelf.stop_at("delete");
    let first = begin(&origin, rename("d", "e"));
    reached.await.unwrap();
    let second = begin(&origin, rename("d/x", "g"));
    let third = begin(&origin, rename("f", "d/f"));
    pause().await;
    assert!(!second.is_finished() && !third.is_finished());
    go.send(()).unwrap();
    first.await.unwrap().expect("renamed");
    assert_eq!([kind(second.await.unwrap()), kind(third.await.unwrap())], [ErrorKind::Stale; 2]);
    assert_eq!(shelf.keys(), ["e/", "e/x", "e/y", "f"]);
    let [one, other] = [rename("e", "f1"), rename("f", "e")].map(|change| begin(&origin, change));
    one.await.unwrap().expect("renamed");
    other.await.unwrap().expect("renamed");
    assert_eq!(shelf.keys(), ["e", "f1/", "f1/x", "f1/y"]);
}

/// Who looks a name up where its directory was must not take it for removed.
#[tokio::test(start_paused = true)]
async fn what_went_with_its_directory_is_not_told_to_be_removed() {
    let (shelf, origin) = tree().await;
    assert_eq!(kind(origin.lookup(&reference("d/"), &name("no")).await), ErrorKind::NotFound);
    let (reached, go) = shelf.stop_at("delete");
    let renamed = begin(&origin, rename("d", "e"));
    reached.await.unwrap();
    assert_eq!(kind(origin.lookup(&reference("d/"), &name("no")).await), ErrorKind::Stale);
    go.send(()).unwrap();
    renamed.await.unwrap().expect("renamed");
    assert_eq!(kind(origin.lookup(&reference("d/"), &name("x")).await), ErrorKind::Stale);
    assert_eq!(kind(origin.lookup(&reference("e/"), &name("no")).await), ErrorKind::NotFound);
    let (dir, called) = split("d");
    origin.change(&Change::Mkdir { dir, name: called, set: SetAttr::default() }).await.expect("made");
    assert_eq!(kind(origin.lookup(&reference("d/"), &name("x")).await), ErrorKind::NotFound);
}

/// A file that was to be replaced or removed, and is there still, has what was written to it.
#[tokio::test(start_paused = true)]
async fn what_was_written_stays_where_a_removal_or_a_rename_over_it_fails() {
    let (dir, called) = split("d/x");
    let removal = Change::Remove { dir, name: called };
    for (change, call) in [(rename("f", "d/x"), "copy"), (removal, "delete")] {
        let (shelf, origin) = tree().await;
        let written = write(&origin, "d/x", b"new", Stability::Unstable).await.expect("written");
        *shelf.fails.lock().unwrap() = Some((call, ErrorKind::Unavailable));
        origin.change(&change).await.expect_err("the store did not answer");
        let told = origin.commit(&reference("d/x"), ALL).await.expect("committed");
        assert_eq!(told.verifier, written.verifier);
        assert_eq!(shelf.bytes("d/x").expect("there"), "new");
    }
}

/// Others changed the object: what was written to it is lost, and whoever commits it at its new place is told.
#[tokio::test(start_paused = true)]
async fn what_was_lost_before_a_rename_is_told_behind_it() {
    for (from, to, file, moved) in [("f", "g", "f", "g"), ("d", "e", "d/x", "e/x")] {
        let (shelf, origin) = tree().await;
        let written = write(&origin, file, b"new", Stability::Unstable).await.expect("written");
        let theirs = Bytes::from_static(b"theirs");
        shelf.keep(file, theirs, &Metadata::new(), Precondition::Always).expect("put");
        let change = rename(from, to);
        assert_eq!(kind(origin.change(&change).await), ErrorKind::VersionChanged);
        origin.change(&change).await.expect("renamed");
        let told = origin.commit(&reference(moved), ALL).await.expect("committed");
        assert_ne!(told.verifier, written.verifier);
        assert_eq!(shelf.bytes(moved).expect("there"), "theirs");
    }
}

/// Writers of files whose directory is renamed again and again: what was acknowledged last is in them, and they are
/// nowhere else.
#[tokio::test(start_paused = true)]
async fn at_random_what_was_acknowledged_is_where_its_directory_went() {
    for seed in 1..=100_u64 {
        println!("seed {seed}");
        let (shelf, origin) = tree().await;
        *shelf.random.lock().unwrap() = Some(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let place = Arc::new(Mutex::new("d"));
        let writers = ["x", "y"].map(|file| {
            let (origin, place) = (origin.clone(), place.clone());
            tokio::spawn(async move {
                let mut number = 0;
                while number < 20 {
                    let path = format!("{}/{file}", place.lock().unwrap());
                    let data = format!("{number:03}");
                    let (stability, two_steps) = match number % 2 {
                        0 => (Stability::FileSync, false),
                        _ => (Stability::Unstable, true),
                    };
                    let written = write(&origin, &path, data.as_bytes(), stability).await;
                    let answer = match written {
                        Ok(_) if two_steps => origin.commit(&reference(&path), ALL).await.map(drop),
                        other => other.map(drop),
                    };
                    match answer {
                        Ok(()) => number += 1,
                        Err(e) => assert_eq!(e.kind(), ErrorKind::Stale, "seed {seed}: {e}"),
                    }
                    tokio::task::yield_now().await;
                }
            })
        });
        let mover = {
            let (origin, place) = (origin.clone(), place.clone());
            tokio::spawn(async move {
                for to in ["e", "d", "e", "a", "d", "b"] {
                    let from = *place.lock().unwrap();
                    origin.change(&rename(from, to)).await.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
                    *place.lock().unwrap() = to;
                    for _ in 0..7 {
                        tokio::task::yield_now().await;
                    }
                }
            })
        };
        mover.await.unwrap();
        for writer in writers {
            writer.await.unwrap();
        }
        assert_eq!(shelf.keys(), ["b/", "b/x", "b/y", "f"], "seed {seed}");
        for key in ["b/x", "b/y"] {
            assert_eq!(shelf.bytes(key).expect("there"), "019", "seed {seed}, {key}");
        }
    }
}

/// What is wrong with one object was told to whoever wrote to another when memory was full.
#[tokio::test]
async fn what_cannot_be_stored_to_make_room_is_told_to_its_own_writers() {
    for refused in [ErrorKind::AccessDenied, ErrorKind::VersionChanged] {
        let (shelf, origin) = tree().await;
        let first = write(&origin, "f", b"long bytes", Stability::Unstable).await.unwrap();
        let mine = reference("d/x");
        write(&origin, "d/x", b"few", Stability::Unstable).await.unwrap();
        *shelf.fails.lock().unwrap() = Some(("put", refused));
        origin.free_memory(12, &mine).await.unwrap();
        let after = origin.commit(&reference("f"), ALL).await.unwrap();
        assert_ne!(after.verifier, first.verifier, "its writers send it again: {refused:?}");
        origin.free_memory(12, &mine).await.expect("there is room now");
        // What is wrong with one's own is.
        *shelf.fails.lock().unwrap() = Some(("put", ErrorKind::AccessDenied));
        assert_eq!(kind(origin.free_memory(2, &mine).await), ErrorKind::AccessDenied);
    }
}
