//! What others, who know nothing of this tier, do at the store while something is renamed.

use super::*;
use crate::store::ObjectStore;

fn put(shelf: &Shelf, key: &str, data: &'static str) {
    shelf.keep(key, Bytes::from_static(data.as_bytes()), &Metadata::new(), Precondition::Always).unwrap();
}

/// What they stored between its copy and its removal was removed.
#[tokio::test(start_paused = true)]
async fn what_others_store_before_the_old_name_is_removed_goes_along() {
    for (from, to, key, new) in [("f", "g", "f", "g"), ("d", "e", "d/x", "e/x")] {
        let (shelf, origin) = tree().await;
        let (reached, go) = shelf.stop_at("copied");
        let renamed = begin(&origin, rename(from, to));
        reached.await.unwrap();
        pause().await;
        // Once more, when that is copied, too.
        let (again, go_again) = shelf.stop_at("copied");
        put(&shelf, key, "others'");
        go.send(()).unwrap();
        again.await.unwrap();
        put(&shelf, key, "others', the second");
        go_again.send(()).unwrap();
        renamed.await.unwrap().expect("renamed");
        assert_eq!(shelf.bytes(key), None, "{key}");
        assert_eq!(shelf.bytes(new).expect("there"), "others', the second");
        let found = origin.lookup(&split(new).0, &split(new).1).await.unwrap();
        let read = origin.read(&found.reference, found.version, ByteRange::new(0, 19)).await;
        assert_eq!(read.unwrap(), "others', the second");
    }
}

/// A copy may fail so though what it is of stays: the store gave the upload up, or there was another change under way.
#[tokio::test(start_paused = true)]
async fn what_others_store_is_not_removed_before_it_is_copied() {
    for kind in [ErrorKind::VersionChanged, ErrorKind::NotFound, ErrorKind::Busy] {
        let (shelf, origin) = tree().await;
        let (reached, go) = shelf.stop_at("copied");
        let renamed = begin(&origin, rename("f", "g"));
        reached.await.unwrap();
        put(&shelf, "f", "others'");
        *shelf.fails.lock().unwrap() = Some(("copy", kind));
        go.send(()).unwrap();
        renamed.await.unwrap().expect("renamed");
        assert_eq!((shelf.bytes("f"), shelf.bytes("g").as_deref()), (None, Some(&b"others'"[..])));
    }
}

/// It was copied again each time.
#[tokio::test(start_paused = true)]
async fn what_is_the_same_is_not_copied_again_when_its_removal_is_refused() {
    let (shelf, origin) = tree().await;
    let (reached, go) = shelf.stop_at("copied");
    let renamed = begin(&origin, rename("f", "g"));
    reached.await.unwrap();
    let copy = shelf.head("g").await.unwrap().expect("there").etag;
    *shelf.fails.lock().unwrap() = Some(("delete", ErrorKind::VersionChanged));
    go.send(()).unwrap();
    renamed.await.unwrap().expect("renamed");
    assert_eq!(shelf.bytes("f"), None);
    assert_eq!(shelf.head("g").await.unwrap().expect("there").etag, copy);
}

#[tokio::test(start_paused = true)]
async fn what_others_remove_before_the_old_name_is_removed_is_renamed() {
    let (shelf, origin) = tree().await;
    let (reached, go) = shelf.stop_at("copied");
    let renamed = begin(&origin, rename("d", "e"));
    reached.await.unwrap();
    pause().await;
    shelf.delete("d/x", None).await.unwrap();
    go.send(()).unwrap();
    renamed.await.unwrap().expect("renamed");
    assert_eq!(shelf.keys(), ["e/", "e/x", "e/y", "f"]);
}

/// It could not be renamed, and a rename that was acknowledged before it was flushed never came to its end.
#[tokio::test(start_paused = true)]
async fn what_is_too_long_for_one_copy_is_renamed_in_parts() {
    let (shelf, origin) = tree().await;
    let long: Vec<u8> = (0..2 * COPY_MAX + 5).map(|at| (at / 4096) as u8).collect();
    let metadata = Metadata::from([("colour".to_owned(), "blue".to_owned())]);
    shelf.keep("d/z", long.clone().into(), &metadata, Precondition::Always).unwrap();
    *shelf.fails.lock().unwrap() = Some(("part", ErrorKind::AccessDenied));
    assert_eq!(kind(origin.change(&rename("d", "e")).await), ErrorKind::AccessDenied);
    assert_eq!((shelf.bytes("d/z").map(|bytes| bytes == long), shelf.bytes("e/z")), (Some(true), None));
    assert!(shelf.parts.lock().unwrap().is_empty(), "what is given up leaves nothing");
    for key in ["e/", "e/x", "e/y"] {
        shelf.delete(key, None).await.unwrap();
    }
    origin.change(&rename("d", "e")).await.expect("renamed");
    assert!(shelf.bytes("e/z").expect("there") == long);
    assert_eq!(shelf.head("e/z").await.unwrap().expect("there").metadata, metadata);
    assert_eq!(shelf.keys(), ["e/", "e/x", "e/y", "e/z", "f"]);
}

/// Of many keys that were removed a store may tell a page of none.
#[tokio::test]
async fn a_listing_that_begins_with_an_empty_page_is_no_empty_directory() {
    let (shelf, origin) = tree().await;
    shelf.empty_pages.store(true, Ordering::SeqCst);
    assert!(origin.lookup(&reference(""), &name("d")).await.unwrap().attr.is_dir());
    let rmdir = Change::Rmdir { dir: reference(""), name: name("d") };
    assert_eq!(kind(origin.change(&rmdir).await), ErrorKind::NotEmpty);
    origin.change(&rename("d", "e")).await.expect("renamed");
    assert_eq!(shelf.keys(), ["e/", "e/x", "e/y", "f"]);
    put(&shelf, "a/x", "others'");
    assert_eq!(kind(origin.change(&rename("e", "a")).await), ErrorKind::NotEmpty);
}
