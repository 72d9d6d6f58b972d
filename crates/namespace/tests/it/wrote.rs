//! What a write of our own tells is known from then on, and nobody takes it for another's.

use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use origin::{Origin as _, Written};
use types::{FileId, Name, SetAttr, Stability};

use crate::harness::{Tier, tier};

async fn write(t: &Tier, id: FileId, offset: u64, data: &'static [u8]) -> Written {
    let namespace::Found::Node(node) = t.ns.getattr_known(id).unwrap() else { panic!("is no file") };
    let (origin, reference) = t.ns.origin_of(&node).unwrap();
    origin.write(&reference, offset, Bytes::from_static(data), Stability::FileSync).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_write_is_known_without_asking_and_a_foreign_one_before_it_is_noticed() {
    let t = tier();
    t.far.memory.write_file(b"file", b"old").unwrap();
    let id = t.id(b"/file").await;
    let asked = t.ns.asking();
    let first = write(&t, id, 3, b" and new").await;
    let first = t.ns.wrote(id, asked, first.before, &first.after.unwrap()).await.unwrap();
    assert!(first.alone);
    t.far.forget_calls();
    assert_eq!(t.getattr(id).await.unwrap().attr().size, 11);
    assert_eq!(t.far.calls_of_all_kinds(), 0);

    t.far.memory.write_file(b"file", b"foreign").unwrap();
    let asked = t.ns.asking();
    let second = write(&t, id, 0, b"F").await;
    let second = t.ns.wrote(id, asked, second.before, &second.after.unwrap()).await.unwrap();
    assert!(!second.alone);
    assert_eq!(second.found.attr().size, 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_comes_late_does_not_make_the_file_older() {
    let t = tier();
    t.far.memory.write_file(b"file", b"").unwrap();
    let id = t.id(b"/file").await;
    let asked = t.ns.asking();
    let (first, second) = (write(&t, id, 0, b"ab").await, write(&t, id, 2, b"cd").await);
    let taken = t.ns.wrote(id, asked, second.before, &second.after.unwrap()).await.unwrap();
    assert!(!taken.alone, "nobody has said yet who made the state before it");
    let late = t.ns.wrote(id, asked, first.before, &first.after.unwrap()).await.unwrap();
    assert_eq!(late.found.attr().size, 4);
}

/// What was set stayed unknown: its ctime was before that of a write that had been answered already. So the flush took its
/// own work for another's.
#[tokio::test(flavor = "multi_thread")]
async fn a_clock_of_the_origin_that_is_set_back_does_not_hide_what_is_done_after_it() {
    let t = tier();
    t.far.memory.write_file(b"file", b"").unwrap();
    let id = t.id(b"/file").await;
    t.far.memory.set_clock(UNIX_EPOCH + Duration::from_secs(4_000_000_000));
    let asked = t.ns.asking();
    let (first, second) = (write(&t, id, 0, b"ab").await, write(&t, id, 2, b"cd").await);
    // The answer that would make the row does not come in between.
    t.ns.wrote(id, asked, second.before, &second.after.unwrap()).await.unwrap();
    t.ns.wrote(id, asked, first.before, &first.after.unwrap()).await.unwrap();
    write(&t, id, 4, b"e").await;
    t.far.memory.set_clock(UNIX_EPOCH + Duration::from_secs(2_000_000_000));
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let altered = t.ns.set(id, set, None).await.unwrap();
    assert_eq!((altered.found.attr().mode, altered.found.attr().size), (0o600, 5));
    assert_eq!(t.getattr(id).await.unwrap().attr().ctime.seconds, 2_000_000_000);
}

/// What others did just after our change was known before the change was answered: the answer made the file older, and
/// what it was then passed for what we had left.
#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_others_overtook_is_told_and_does_not_make_the_file_older() {
    let t = tier();
    t.far.memory.write_file(b"file", b"").unwrap();
    let id = t.id(b"/file").await;
    t.far.answer_late(Duration::from_millis(300));
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let setting = tokio::spawn({
        let ns = t.ns.clone();
        async move { ns.set(id, set, None).await }
    });
    let (root, name) = (t.far.memory.root().await.unwrap().reference, Name::new("file").unwrap());
    while t.far.memory.lookup(&root, &name).await.unwrap().attr.mode != 0o600 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    t.far.answer_late(Duration::ZERO);
    t.far.memory.write_file(b"file", b"by others").unwrap();
    t.ns.refresh_changed(id).await.unwrap();
    assert!(!setting.is_finished());
    let altered = setting.await.unwrap().unwrap();
    assert_eq!((altered.told.attr.mode, altered.told.attr.size), (0o600, 0));
    assert_eq!(altered.found.attr().size, 9);
    assert_eq!(t.ns.getattr_known(id).unwrap().attr().size, 9);
}
