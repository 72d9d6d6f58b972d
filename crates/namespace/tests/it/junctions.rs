//! Origins grafted into one tree.

use namespace::{Ask, Found, Junction, Namespace};
use testkit::far_origin::Far;
use types::Timeline;
use types::{ErrorKind, JunctionId};

use crate::harness::{kind, name, names_in_pieces, open, reopen};

fn junctions(paths: &[(&str, &str)]) -> Vec<Junction> {
    let far = |url: &str| {
        let far = Far::new(url);
        far.memory.write_file(b"file", url.as_bytes()).unwrap();
        far
    };
    paths.iter().map(|(path, url)| Junction::new(*path, far(url))).collect()
}

fn ids(ns: &Namespace) -> Vec<(String, JunctionId)> {
    ns.junctions().into_iter().map(|j| (j.url, j.id)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn junction_ids_are_stable_and_never_used_for_another_origin() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Timeline::default();
    let first = reopen(dir.path(), || junctions(&[("/a", "far:a"), ("/b", "far:b")]), &clock).await;
    let known = ids(&first);
    first.shutdown().await;
    drop(first);

    let second = reopen(dir.path(), || junctions(&[("/a", "far:c"), ("/b", "far:b")]), &clock).await;
    let now = ids(&second);
    assert_eq!(now[1], known[1]);
    assert!(known.iter().all(|(_, id)| *id != now[0].1), "another URL is another junction");
    second.shutdown().await;
    drop(second);

    let third = reopen(dir.path(), || junctions(&[("/b", "far:b"), ("/a", "far:a")]), &clock).await;
    assert_eq!(ids(&third), known, "in whatever order they are given");
}

#[tokio::test(flavor = "multi_thread")]
async fn handles_of_a_junction_that_is_no_longer_served_are_stale() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Timeline::default();
    let first = reopen(dir.path(), || junctions(&[("/a", "far:a")]), &clock).await;
    let file = first.resolve(b"/a/file").await.unwrap().id();
    first.shutdown().await;
    drop(first);
    let second = reopen(dir.path(), || junctions(&[("/a", "far:other")]), &clock).await;
    assert_eq!(kind(second.getattr(file, Ask::Open).await), Some(ErrorKind::Stale));
    assert_ne!(second.resolve(b"/a/file").await.unwrap().id(), file);
}

#[tokio::test(flavor = "multi_thread")]
async fn duplicate_and_nested_junctions_are_refused_by_name() {
    let cases = [
        [("/show", "far:a"), ("/show", "far:b")],
        [("/show", "far:a"), ("/show/tex", "far:b")],
        [("/show/tex/old", "far:a"), ("/show", "far:b")],
        [("/", "far:a"), ("/show", "far:b")],
    ];
    for case in cases {
        let dir = tempfile::tempdir().unwrap();
        let error = open(dir.path(), junctions(&case), &Timeline::default()).err().expect("refused");
        assert_eq!(error.kind(), ErrorKind::Config);
        let message = error.to_string();
        assert!(case.iter().all(|(path, _)| message.contains(path)), "{message}");
    }
    let dir = tempfile::tempdir().unwrap();
    let beside = junctions(&[("/show", "far:a"), ("/show-2", "far:b"), ("/s", "far:c")]);
    open(dir.path(), beside, &Timeline::default()).expect("a common beginning of names is no nesting");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_directories_above_junctions_list_look_up_and_know_their_parents() {
    let dir = tempfile::tempdir().unwrap();
    let grafted = junctions(&[("/show/tex", "far:a"), ("/show/geo", "far:b"), ("/lib", "far:c")]);
    let ns = open(dir.path(), grafted, &Timeline::default()).unwrap();
    let root = ns.root();
    assert_eq!(names_in_pieces(&ns, root, 1).await.unwrap(), [b"lib".to_vec(), b"show".to_vec()]);
    let show = ns.lookup(root, &name(b"show")).await.unwrap();
    assert!(matches!(show, Found::Virtual { .. }));
    assert_eq!(show.attr().nlink, 4);
    assert_eq!(names_in_pieces(&ns, show.id(), 1).await.unwrap(), [b"geo".to_vec(), b"tex".to_vec()]);
    let tex = ns.lookup(show.id(), &name(b"tex")).await.unwrap();
    assert!(matches!(tex, Found::Node(_)));
    assert_eq!(ns.parent(tex.id()).await.unwrap().id(), show.id());
    assert_eq!(ns.parent(show.id()).await.unwrap().id(), root);
    assert_eq!(ns.parent(root).await.unwrap().id(), root);
    assert_eq!(kind(ns.lookup(show.id(), &name(b"none")).await), Some(ErrorKind::NotFound));
    assert_eq!(ns.resolve(b"/show/tex/file").await.unwrap().attr().size, 5);
    let (a, b) = (ns.resolve(b"/show/tex/file").await.unwrap(), ns.resolve(b"/show/geo/file").await.unwrap());
    assert_ne!(a.id(), b.id(), "the same file of two origins is two files");
    assert_ne!(a.junction(), b.junction());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_junction_at_the_root_is_the_root() {
    let dir = tempfile::tempdir().unwrap();
    let ns = open(dir.path(), junctions(&[("/", "far:a")]), &Timeline::default()).unwrap();
    let root = ns.root();
    assert_eq!(ns.parent(root).await.unwrap().id(), root);
    assert_eq!(names_in_pieces(&ns, root, 10).await.unwrap(), [b"file".to_vec()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_origin_that_is_away_does_not_hide_its_neighbour_or_itself() {
    let dir = tempfile::tempdir().unwrap();
    let (near, away) = (Far::new("far:near"), Far::new("far:away"));
    away.set_down(true);
    let grafted = vec![Junction::new("/near", near.clone()), Junction::new("/away", away)];
    let ns = open(dir.path(), grafted, &Timeline::default()).unwrap();
    let listed = ns.readdir(ns.root(), 0, 10).await.unwrap();
    assert_eq!(listed.entries.len(), 2);
    for entry in listed.entries {
        assert_eq!(entry.child.is_some(), entry.name == b"near"[..]);
    }
    assert_eq!(kind(ns.resolve(b"/away").await), Some(ErrorKind::Unavailable));
    ns.resolve(b"/near").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_junction_is_known_once_it_was_served() {
    let dir = tempfile::tempdir().unwrap();
    assert!(!namespace::knows_junction(dir.path(), "/a", "far:a"));
    let ns = open(dir.path(), junctions(&[("/a", "far:a")]), &Timeline::default()).unwrap();
    ns.shutdown().await;
    drop(ns);
    assert!(namespace::knows_junction(dir.path(), "/a", "far:a"));
    assert!(!namespace::knows_junction(dir.path(), "/a", "far:b"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tier_that_is_dropped_without_a_shutdown_can_be_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Timeline::default();
    let first = open(dir.path(), junctions(&[("/", "far:a")]), &clock).unwrap();
    let file = first.resolve(b"/file").await.unwrap().id();
    drop(first);
    let second = reopen(dir.path(), || junctions(&[("/", "far:a")]), &clock).await;
    assert_eq!(second.getattr(file, Ask::Open).await.unwrap().id(), file);
}
