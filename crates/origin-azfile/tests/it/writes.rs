//! Bytes: written in any order and by many, read while others write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use origin::{Change, Origin};
use testkit::origin_contract::seed;
use types::{ByteRange, ErrorKind, SetAttr, TimeChange};

use crate::share::{
    Chance, MIB, connect, create, find, kind, pattern, put, read_all, remove, resize, root, start, write,
};

#[tokio::test(flavor = "multi_thread")]
async fn pieces_written_side_by_side_are_one_file() {
    let (stand_in, origin) = start().await;
    let bytes = Arc::new(pattern(21 * MIB + 12_345, 7));
    let file = create(&origin, &root(&origin).await, "file").await.expect("made");
    let mut writes = tokio::task::JoinSet::new();
    for at in 0..22 {
        let (origin, bytes, file) = (origin.clone(), bytes.clone(), file.reference.clone());
        writes.spawn(async move {
            let from = (at * 7 % 22) * MIB;
            write(&origin, &file, from, &bytes[from..(from + MIB).min(bytes.len())]).await
        });
    }
    while let Some(written) = writes.join_next().await {
        let written = written.expect("no panic").expect("written");
        // What one tells of before and after must be true, also where others of ours were under way.
        assert!(written.before.is_none_or(|_| written.after.is_some()));
    }
    let fresh = connect(&stand_in, "share", "").await;
    let seen = find(&fresh, "file").await.expect("there");
    assert_eq!(seen.attr.size, bytes.len() as u64);
    for at in (0..bytes.len()).step_by(4 * MIB) {
        let length = (4 * MIB).min(bytes.len() - at);
        let read = fresh.read(&seen.reference, seen.version, ByteRange::new(at as u64, length as u64)).await;
        assert!(read.expect("read") == bytes[at..at + length], "{length} bytes at {at}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_write_tells_what_was_before_it_and_what_is_after() {
    let (stand_in, ours) = start().await;
    let theirs = connect(&stand_in, "share", "").await;
    let file = put(&ours, &root(&ours).await, "file", b"base").await;
    let written = write(&ours, &file.reference, 2, &pattern(9 * MIB, 1)).await.expect("written");
    assert_eq!(written.before, Some(file.version));
    let now = theirs.getattr(&file.reference).await.expect("there");
    assert_eq!(written.after, Some(now.clone()));
    // Another's write shows in what was before the next one.
    write(&theirs, &file.reference, 0, b"theirs").await.expect("written");
    let theirs = theirs.getattr(&file.reference).await.expect("there");
    let written = write(&ours, &file.reference, 0, b"ours").await.expect("written");
    assert_eq!(written.before, Some(theirs.version));
    assert_ne!(theirs.version, now.version);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_has_another_in_its_place_is_not_written_to() {
    let (stand_in, ours) = start().await;
    let theirs = connect(&stand_in, "share", "").await;
    let top = root(&ours).await;
    let old = put(&ours, &top, "file", b"old").await;
    remove(&theirs, &top, "file").await.expect("removed");
    assert_eq!(kind(write(&ours, &old.reference, 0, b"x").await), ErrorKind::Stale);
    let new = put(&theirs, &top, "file", b"theirs").await;
    assert_eq!(kind(write(&ours, &old.reference, 0, b"x").await), ErrorKind::Stale);
    assert_eq!(kind(resize(&ours, &old.reference, 0).await), ErrorKind::Stale);
    assert_eq!(kind(read_all(&ours, &old).await), ErrorKind::Stale);
    assert_eq!(read_all(&theirs, &new).await.expect("read"), "theirs");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_bytes_of_the_version_that_is_asked_for_are_given() {
    let (stand_in, ours) = start().await;
    let theirs = connect(&stand_in, "share", "").await;
    let file = put(&ours, &root(&ours).await, "file", &pattern(300_001, 1)).await;
    write(&theirs, &file.reference, 0, &pattern(300_001, 2)).await.expect("written");
    assert_eq!(kind(read_all(&ours, &file).await), ErrorKind::VersionChanged);
    resize(&theirs, &file.reference, 10).await.expect("cut");
    assert_eq!(kind(read_all(&ours, &file).await), ErrorKind::VersionChanged);
    let behind = ours.read(&file.reference, file.version, ByteRange::new(200_000, 10)).await;
    assert_eq!(kind(behind), ErrorKind::VersionChanged);
    let now = ours.getattr(&file.reference).await.expect("there");
    assert!(read_all(&ours, &now).await.expect("read") == pattern(300_001, 2)[..10]);
}

/// One fills a file with its number again and again; who reads sees one number only, or is told that it changed.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_overwritten_while_it_is_read_is_never_a_mix() {
    let (stand_in, theirs) = start().await;
    let size = 8 * MIB;
    let file = put(&theirs, &root(&theirs).await, "file", &vec![0; size]).await.reference;
    let over = Arc::new(AtomicBool::new(false));
    let writer = {
        let (origin, file, over) = (theirs.clone(), file.clone(), over.clone());
        tokio::spawn(async move {
            let mut number = 0_u8;
            while !over.load(Ordering::Relaxed) {
                number = number.wrapping_add(1);
                // Each in one range: the smallest thing that the service changes at once.
                let bytes = vec![number; 4 * MIB];
                write(&origin, &file, 0, &bytes).await.expect("written");
                tokio::time::sleep(std::time::Duration::from_millis(15)).await;
            }
        })
    };
    let ours = connect(&stand_in, "share", "").await;
    let (mut whole, mut changed) = (0, 0);
    for _ in 0..300 {
        let seen = ours.getattr(&file).await.expect("there");
        // Read as a reader does that fetches ahead: in pieces, of one version.
        let piece = |at: usize| ours.read(&file, seen.version, ByteRange::new((at * MIB) as u64, MIB as u64));
        let (first, second, third) = tokio::join!(piece(0), piece(2), piece(3));
        match [first, second, third].into_iter().collect::<Result<Vec<_>, _>>() {
            Ok(pieces) => {
                let number = pieces[0][0];
                assert!(pieces.iter().all(|piece| piece.iter().all(|byte| *byte == number)), "a mix");
                whole += 1;
            }
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::VersionChanged, "{e}");
                changed += 1;
            }
        }
    }
    over.store(true, Ordering::Relaxed);
    writer.await.expect("no panic");
    assert!(whole > 0 && changed > 0, "{whole} whole, {changed} changed: nothing was tested");
}

#[tokio::test(flavor = "multi_thread")]
async fn setting_a_size_or_time_leaves_what_else_is_kept_with_a_file() {
    let (_stand_in, origin) = start().await;
    let file = put(&origin, &root(&origin).await, "file", b"twelve bytes").await.reference;
    let mode = SetAttr { mode: Some(0o640), ..SetAttr::default() };
    origin.change(&Change::Set { object: file.clone(), set: mode, guard: None }).await.expect("set");
    let mtime = SetAttr { mtime: TimeChange::Now, ..SetAttr::default() };
    origin.change(&Change::Set { object: file.clone(), set: mtime, guard: None }).await.expect("set");
    let cut = resize(&origin, &file, 6).await.expect("cut");
    assert_eq!((cut.attr.mode, cut.attr.size), (0o640, 6));
    let long = resize(&origin, &file, 8).await.expect("made longer");
    assert_eq!(read_all(&origin, &long).await.expect("read"), "twelve\0\0");
}

/// Writes and resizes of a file, some together, and the same on bytes in memory.
#[tokio::test(flavor = "multi_thread")]
async fn random_writes_end_as_they_do_in_memory() {
    let seed = seed();
    println!("seed {seed}");
    let mut chance = Chance(seed | 1);
    let (stand_in, origin) = start().await;
    let top = root(&origin).await;
    for round in 0..6 {
        let text = format!("file-{round}");
        let file = create(&origin, &top, &text).await.expect("made").reference;
        let mut model: Vec<u8> = Vec::new();
        let limit = [1000, 5 * MIB, 11 * MIB][round % 3];
        for step in 0..30 {
            if chance.below(4) == 0 {
                let size = chance.below(limit);
                resize(&origin, &file, size).await.expect("set");
                model.resize(size, 0);
            } else {
                // Side by side, so they must not overlap.
                let mut at = chance.below(limit);
                let mut writes = Vec::new();
                for part in 0..=chance.below(4) {
                    let most = if chance.below(4) == 0 { limit / 2 + 1 } else { 5000 };
                    let length = 1 + chance.below(most);
                    writes.push((at, pattern(length, (step * 8 + part) as u64)));
                    at += length + chance.below(3000);
                }
                for (at, bytes) in &writes {
                    model.resize(model.len().max(at + bytes.len()), 0);
                    model[*at..at + bytes.len()].copy_from_slice(bytes);
                }
                let mut under_way = tokio::task::JoinSet::new();
                for (at, bytes) in writes {
                    let (origin, file) = (origin.clone(), file.clone());
                    under_way.spawn(async move { write(&origin, &file, at, &bytes).await.map(drop) });
                }
                while let Some(written) = under_way.join_next().await {
                    written.expect("no panic").expect("written");
                }
            }
            if step % 5 == 4 {
                let fresh = connect(&stand_in, "share", "").await;
                let seen = find(&fresh, &text).await.expect("there");
                assert_eq!(seen.attr.size, model.len() as u64, "seed {seed}, round {round}, step {step}");
                let same = read_all(&fresh, &seen).await.expect("read") == model;
                assert!(same, "seed {seed}, round {round}, step {step}");
            }
        }
    }
}
