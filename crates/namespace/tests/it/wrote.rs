//! What a write of our own tells is known from then on, and nobody takes it for another's.

use bytes::Bytes;
use origin::Written;
use types::{FileId, Stability};

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
    let first = write(&t, id, 3, b" and new").await;
    let first = t.ns.wrote(id, first.before, &first.after.unwrap()).await.unwrap();
    assert!(first.alone);
    t.far.forget_calls();
    assert_eq!(t.getattr(id).await.unwrap().attr().size, 11);
    assert_eq!(t.far.calls_of_all_kinds(), 0);

    t.far.memory.write_file(b"file", b"foreign").unwrap();
    let second = write(&t, id, 0, b"F").await;
    let second = t.ns.wrote(id, second.before, &second.after.unwrap()).await.unwrap();
    assert!(!second.alone);
    assert_eq!(second.found.attr().size, 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_comes_late_does_not_make_the_file_older() {
    let t = tier();
    t.far.memory.write_file(b"file", b"").unwrap();
    let id = t.id(b"/file").await;
    let (first, second) = (write(&t, id, 0, b"ab").await, write(&t, id, 2, b"cd").await);
    let taken = t.ns.wrote(id, second.before, &second.after.unwrap()).await.unwrap();
    assert!(!taken.alone, "nobody has said yet who made the state before it");
    let late = t.ns.wrote(id, first.before, &first.after.unwrap()).await.unwrap();
    assert_eq!(late.found.attr().size, 4);
}
