//! What others, who know nothing of this tier, do at the store while something is renamed.

use super::*;
use crate::store::Store;

fn put(shelf: &Shelf, key: &str, data: &'static str) {
    shelf.keep(key, Bytes::from_static(data.as_bytes()), &Metadata::new(), Condition::Always).unwrap();
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

/// Copies of the others stayed, and nobody knew that they were copies.
#[tokio::test]
async fn a_directory_with_an_object_that_no_copy_can_be_made_of_stays_as_it_is() {
    let (shelf, origin) = tree().await;
    let long = vec![0; COPY_MAX as usize + 1].into();
    shelf.keep("d/z", long, &Metadata::new(), Condition::Always).unwrap();
    let before = shelf.keys();
    assert_eq!(kind(origin.change(&rename("d", "e")).await), ErrorKind::CrossDevice);
    assert_eq!(shelf.keys(), before);
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
