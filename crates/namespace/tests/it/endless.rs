//! Storage whose directories have no end, or lead in a circle: bounded, told, and not asked for again all the time. What else
//! it has is served.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use origin::{DirCursor, DirEntry, DirPage, Identity, Origin, Reference};
use prometheus_client::registry::Registry;
use types::{ErrorKind, Version};

use crate::harness::{Tier, kind, name, tier_with};

const NAMES_MAX: u64 = 20_000;
const PAGE: u64 = 1000;

/// What a hostile directory says when it is asked at a cookie, for the so manieth time at all.
type Says = fn(u64, u64) -> (Vec<String>, Option<u64>);

/// Names that nobody saw before, for ever.
fn endless(_: u64, asked: u64) -> (Vec<String>, Option<u64>) {
    ((0..PAGE).map(|i| format!("k{}", asked * PAGE + i)).collect(), Some(asked + 1))
}

/// The same page again, under a cookie that is always another one.
fn circle(_: u64, asked: u64) -> (Vec<String>, Option<u64>) {
    ((0..3).map(|i| format!("same{i}")).collect(), Some(asked + 1))
}

/// Nothing, and to be gone on with.
fn nothing(_: u64, asked: u64) -> (Vec<String>, Option<u64>) {
    (Vec::new(), Some(asked + 1))
}

/// A tier whose origin has one hostile directory beside honest ones; how often that one was asked for.
async fn hostile(says: Says) -> (Tier, Arc<AtomicU64>) {
    let t = tier_with(|junction| junction.directory_names_max = NAMES_MAX);
    t.far.memory.mkdir(b"odd").expect("made");
    t.far.memory.write_file(b"odd/model", b"bytes").expect("made");
    t.far.memory.mkdir(b"good").expect("made");
    t.far.memory.write_file(b"good/file", b"bytes").expect("made");
    let root = t.far.root().await.expect("there").reference;
    let odd = t.far.lookup(&root, &name(b"odd")).await.expect("there").reference;
    let model = t.far.lookup(&odd, &name(b"model")).await.expect("there");
    let asked = Arc::new(AtomicU64::new(0));
    let count = asked.clone();
    t.far.lie_about_names(move |dir: &Reference, cursor: DirCursor| {
        if *dir != odd {
            return None;
        }
        let (names, next) = says(cursor.cookie, count.fetch_add(1, SeqCst));
        let entry = |text: String| {
            let mut object = model.clone();
            let bytes = bytes::Bytes::from(text.clone().into_bytes());
            (object.reference, object.identity) = (Reference(bytes.clone()), Identity(bytes));
            object.version = Version([1; 16]);
            DirEntry { name: name(text.as_bytes()), object: Some(object) }
        };
        let next = next.map(|cookie| DirCursor { cookie, verifier: [0; 8] });
        Some(DirPage { entries: names.into_iter().map(entry).collect(), next })
    });
    (t, asked)
}

fn given_up(t: &Tier) -> u64 {
    let mut registry = Registry::default();
    t.ns.register(&mut registry);
    let mut page = String::new();
    prometheus_client::encoding::text::encode(&mut page, &registry).expect("a page");
    let line = page.lines().find_map(|line| line.strip_prefix("forebay_namespace_listings_given_up_total "));
    line.expect("a metric").parse().expect("a number")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_without_an_end_is_given_up_and_the_others_are_served() {
    for (what, says, pages) in
        [("endless", endless as Says, NAMES_MAX / PAGE + 1), ("circle", circle, 17), ("nothing", nothing, 21)]
    {
        let (t, asked) = hostile(says).await;
        let odd = t.id(b"/odd").await;
        assert_eq!(kind(t.names(odd).await), Some(ErrorKind::Corrupt), "{what}");
        let once = asked.load(SeqCst);
        assert!(once <= pages, "{what}: {once} pages");
        assert_eq!(given_up(&t), 1);
        // In a loop, by clients and by look-ups that list ahead.
        for number in 0..200 {
            assert_eq!(kind(t.names(odd).await), Some(ErrorKind::Corrupt), "{what}");
            let absent = t.lookup(format!("/odd/absent{number}").as_bytes()).await;
            assert_eq!(kind(absent), Some(ErrorKind::NotFound), "{what}");
        }
        assert_eq!(asked.load(SeqCst), once, "{what}: it is not asked for again all the time");
        assert_eq!(t.lookup(b"/odd/model").await.expect("a single name").attr().size, 5);
        let good = t.id(b"/good").await;
        assert_eq!(t.names(good).await.expect("listed"), [b"file"]);
        assert_eq!(t.names(t.ns.root()).await.expect("listed"), [&b"good"[..], b"odd"]);
        assert!(t.ns.junctions()[0].outage.is_none(), "{what}: it answers");
        // And again after a while, longer each time.
        for (seconds, tries) in [(11, 2), (11, 2), (10, 3)] {
            t.pass(Duration::from_secs(seconds));
            // Twice: the first may join a listing ahead that was begun, and refused, before the time passed.
            for _ in 0..2 {
                assert_eq!(kind(t.names(odd).await), Some(ErrorKind::Corrupt), "{what}");
            }
            assert_eq!(given_up(&t), tries, "{what}");
        }
        assert!(asked.load(SeqCst) <= 3 * pages, "{what}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_endless_directory_brought_is_not_kept() {
    let (t, _) = hostile(endless).await;
    let odd = t.id(b"/odd").await;
    let model = t.id(b"/odd/model").await;
    let size = |t: &Tier| {
        let files = std::fs::read_dir(t.dir.path()).expect("listed").flatten();
        files.map(|file| file.metadata().map_or(0, |found| found.len())).sum::<u64>()
    };
    assert_eq!(kind(t.names(odd).await), Some(ErrorKind::Corrupt));
    let first = size(&t);
    for _ in 0..8 {
        t.pass(Duration::from_secs(700));
        assert_eq!(kind(t.names(odd).await), Some(ErrorKind::Corrupt));
    }
    assert_eq!(given_up(&t), 9);
    let last = size(&t);
    assert!(last <= 2 * first, "the database has {last} bytes after nine tries and had {first} after one");
    assert_eq!(t.getattr(model).await.expect("its handle is good").attr().size, 5);
    // When the directory is an honest one again, it is what it says.
    t.far.lie_about_names(|_, _| None);
    t.pass(Duration::from_secs(700));
    assert_eq!(t.names(odd).await.expect("listed"), [b"model"]);
    t.pass(Duration::from_secs(700));
    assert_eq!(t.names(odd).await.expect("listed"), [b"model"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_with_as_many_names_as_may_be_is_listed() {
    let t = tier_with(|junction| junction.directory_names_max = 3000);
    for number in 0..3000 {
        t.far.memory.write_file(format!("f{number}").as_bytes(), b"").expect("made");
    }
    assert_eq!(t.names(t.ns.root()).await.expect("listed").len(), 3000);
    t.far.memory.write_file(b"one-more", b"").expect("made");
    t.pass(Duration::from_secs(31));
    assert_eq!(kind(t.names(t.ns.root()).await), Some(ErrorKind::Corrupt));
    assert!(t.lookup(b"/one-more").await.is_ok(), "single names are asked for");
}
