//! Files that are made whole before they have a name.

use std::sync::Arc;

use bytes::Bytes;
use origin::{Change, Draft, Object, Origin, Reference, Replacing};
use origin_object::ObjectOrigin;
use types::{ByteRange, ErrorKind, Result, SetAttr, Stability};

use crate::store::{find, mkdir, name, names, on_each_bucket, overwrite, pattern, put, read_all, root};

const MIB: usize = 1 << 20;
const LENGTHS: [usize; 4] = [0, 5, 8 * MIB, 20 * MIB + 77];

async fn draft(origin: &ObjectOrigin, dir: &Reference, text: &str, bytes: &[u8]) -> Draft {
    let set = SetAttr { mode: Some(0o640), ..SetAttr::default() };
    let draft = origin.draft(dir, &name(text), &set).await.expect("begun").expect("there are drafts");
    // In any order.
    let mut pieces: Vec<_> = bytes.chunks(MIB).enumerate().collect();
    pieces.reverse();
    for (at, piece) in pieces {
        write(origin, &draft, at * MIB, piece).await.expect("written");
    }
    draft
}

async fn write(origin: &ObjectOrigin, draft: &Draft, at: usize, bytes: &[u8]) -> Result<origin::Written> {
    origin.write(&draft.reference, at as u64, Bytes::copy_from_slice(bytes), Stability::Unstable).await
}

async fn publish(
    origin: &ObjectOrigin,
    draft: &Draft,
    dir: &Reference,
    text: &str,
    over: Replacing,
) -> Result<Object> {
    let (draft, dir, name) = (draft.reference.clone(), dir.clone(), name(text));
    origin.change(&Change::Publish { draft, dir, name, over }).await?.made()
}

fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    result.expect_err("must fail").kind()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draft_is_seen_by_nobody_before_it_is_published_and_then_as_a_whole() {
    on_each_bucket(
        "a_draft_is_seen_by_nobody_before_it_is_published_and_then_as_a_whole",
        |bucket| async move {
            let stored = "&attributes=stored";
            let (origin, eyes) = (bucket.origin(stored).await, bucket.origin(stored).await);
            for (seed, length) in LENGTHS.into_iter().enumerate() {
                let (bytes, text) = (pattern(length, seed as u64), format!("file-{length}"));
                let before = names(&eyes, &root()).await;
                let begun = draft(&origin, &root(), &text, &bytes).await;
                assert_eq!(names(&eyes, &root()).await, before);
                assert_eq!(kind(origin.getattr(&begun.reference).await), ErrorKind::Stale);
                let made = publish(&origin, &begun, &root(), &text, Replacing::Nothing).await.expect("made");
                assert_eq!((&made.identity, made.attr.mode), (&begun.identity, 0o640));
                let seen = find(&eyes, &text).await.expect("there");
                assert_eq!((seen.version, seen.attr.size), (made.version, length as u64));
                assert!(read_all(&eyes, &seen).await.expect("read") == bytes);
                // It is asked for again.
                let again = publish(&origin, &begun, &root(), &text, Replacing::Nothing).await.expect("made");
                assert_eq!(again, made);
                origin.discard(&begun.reference).await.expect("forgotten");
                assert_eq!(find(&eyes, &text).await.expect("stays").version, made.version);
                assert_eq!(kind(write(&origin, &begun, 0, b"more").await), ErrorKind::Stale);
                let over = Replacing::Anything;
                assert_eq!(kind(publish(&origin, &begun, &root(), &text, over).await), ErrorKind::Stale);
            }
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_store_decides_what_a_draft_replaces() {
    on_each_bucket("the_store_decides_what_a_draft_replaces", |bucket| async move {
        let (origin, theirs) = (bucket.origin("").await, bucket.origin("").await);
        for (seed, length) in LENGTHS.into_iter().enumerate() {
            let (bytes, text) = (pattern(length, seed as u64 + 9), format!("file-{length}"));
            let begin = async || draft(&origin, &root(), &text, &bytes).await;
            // Others were first.
            let first = put(&theirs, &root(), &text, b"theirs").await;
            let begun = begin().await;
            let refused = publish(&origin, &begun, &root(), &text, Replacing::Nothing).await;
            assert_eq!(kind(refused), ErrorKind::Exists);
            let begun = begin().await;
            let theirs_now = overwrite(&theirs, &first.reference, b"theirs again").await;
            let over = Replacing::Version(first.version);
            assert_eq!(kind(publish(&origin, &begun, &root(), &text, over).await), ErrorKind::VersionChanged);
            assert_eq!(find(&theirs, &text).await.expect("stays").version, theirs_now.version);
            // It is what it is thought to be.
            let begun = begin().await;
            let over = Replacing::Version(theirs_now.version);
            let made = publish(&origin, &begun, &root(), &text, over).await.expect("made");
            assert!(read_all(&theirs, &made).await.expect("read") == bytes);
            // Whatever it is.
            find(&theirs, &text).await.expect("ours");
            overwrite(&theirs, &first.reference, b"theirs").await;
            let begun = begin().await;
            let made = publish(&origin, &begun, &root(), &text, Replacing::Anything).await.expect("made");
            assert!(read_all(&theirs, &made).await.expect("read") == bytes);
        }
        let dir = mkdir(&origin, &root(), "dir").await.expect("made").reference;
        put(&origin, &dir, "below", b"it").await;
        let begun = draft(&origin, &root(), "dir", b"no").await;
        let refused = publish(&origin, &begun, &root(), "dir", Replacing::Anything).await;
        assert_eq!(kind(refused), ErrorKind::IsADirectory);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draft_that_is_given_up_leaves_nothing() {
    on_each_bucket("a_draft_that_is_given_up_leaves_nothing", |bucket| async move {
        let origin = bucket.origin("").await;
        for length in LENGTHS {
            let begun = draft(&origin, &root(), "file", &pattern(length, 3)).await;
            origin.discard(&begun.reference).await.expect("given up");
            let over = Replacing::Anything;
            assert_eq!(kind(publish(&origin, &begun, &root(), "file", over).await), ErrorKind::Stale);
            assert_eq!(kind(write(&origin, &begun, 0, b"more").await), ErrorKind::Stale);
        }
        assert_eq!(names(&origin, &root()).await, Vec::<String>::new());
        if let testkit::stores::RealStore::S3(minio) = &bucket.store {
            assert_eq!(minio.uploads(), 0);
        }
    })
    .await;
}

/// As an S3 client's PUT beside an NFS client that has the file open.
#[tokio::test(flavor = "multi_thread")]
async fn who_writes_to_a_file_that_a_draft_replaces_is_told() {
    on_each_bucket("who_writes_to_a_file_that_a_draft_replaces_is_told", |bucket| async move {
        let origin = bucket.origin("").await;
        let file = put(&origin, &root(), "file", b"base").await.reference;
        let data = Bytes::from_static(b"lost");
        let written = origin.write(&file, 1, data, Stability::Unstable).await.expect("written");
        let begun = draft(&origin, &root(), "file", b"all of it").await;
        let made = publish(&origin, &begun, &root(), "file", Replacing::Anything).await.expect("made");
        assert_eq!(kind(origin.commit(&file, ByteRange::new(0, 0)).await), ErrorKind::VersionChanged);
        let again = origin.write(&file, 1, Bytes::new(), Stability::Unstable).await.expect("written");
        assert_ne!(again.verifier, written.verifier);
        assert!(read_all(&origin, &made).await.expect("read") == b"all of it"[..]);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_draft_does_not_come_to_a_directory_that_was_renamed() {
    on_each_bucket("a_draft_does_not_come_to_a_directory_that_was_renamed", |bucket| async move {
        let origin = bucket.origin("").await;
        let dir = mkdir(&origin, &root(), "dir").await.expect("made").reference;
        let begun = draft(&origin, &dir, "file", b"bytes").await;
        let rename = Change::Rename {
            from_dir: root(),
            from: name("dir"),
            to_dir: root(),
            to: name("moved"),
            identity: None,
        };
        let moved = origin.change(&rename).await.expect("renamed").made().expect("told").reference;
        let refused = publish(&origin, &begun, &moved, "file", Replacing::Anything).await;
        assert_eq!(kind(refused), ErrorKind::Busy);
        assert_eq!(names(&origin, &moved).await, Vec::<String>::new());
        // It is still what it was begun for.
        let made = publish(&origin, &begun, &dir, "file", Replacing::Anything).await.expect("made");
        assert!(read_all(&origin, &made).await.expect("read") == b"bytes"[..]);
    })
    .await;
}

/// What waits in memory is bounded: parts that are full go to the store.
#[tokio::test(flavor = "multi_thread")]
async fn pieces_of_a_draft_that_come_at_once_are_one_file() {
    on_each_bucket("pieces_of_a_draft_that_come_at_once_are_one_file", |bucket| async move {
        let origin = bucket.origin("").await;
        let bytes = Arc::new(pattern(40 * MIB + 9, 5));
        let begun = draft(&origin, &root(), "file", b"").await;
        let mut writes = tokio::task::JoinSet::new();
        for at in (0..41).map(|at| at * 17 % 41) {
            let (origin, bytes, begun) = (origin.clone(), bytes.clone(), begun.clone());
            writes.spawn(async move {
                let piece = &bytes[at * MIB..bytes.len().min((at + 1) * MIB)];
                write(&origin, &begun, at * MIB, piece).await
            });
        }
        while let Some(written) = writes.join_next().await {
            written.expect("no panic").expect("written");
        }
        let made = publish(&origin, &begun, &root(), "file", Replacing::Nothing).await.expect("made");
        assert!(read_all(&origin, &made).await.expect("read") == *bytes);
    })
    .await;
}
