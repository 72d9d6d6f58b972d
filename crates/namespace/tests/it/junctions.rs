//! Origins grafted into one tree.

use namespace::{Ask, Found, Freshness, Junction, Namespace};
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

/// What clients keep of a directory above the junctions, until its times are others.
async fn times_of(ns: &std::sync::Arc<Namespace>, path: &[u8]) -> (types::Timestamp, types::Timestamp) {
    let found = ns.resolve(path).await.expect("there");
    (found.attr().mtime, found.attr().ctime)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_junction_that_comes_is_there_at_once_and_one_that_goes_is_stale_for_who_knew_it() {
    let dir = tempfile::tempdir().unwrap();
    let ns = open(dir.path(), junctions(&[("/a", "far:a")]), &Timeline::default()).unwrap();
    assert_eq!(kind(ns.resolve(b"/show/b/file").await), Some(ErrorKind::NotFound));
    let before = times_of(&ns, b"/").await;
    let mut changes = ns.changes();
    let [added] = <[Junction; 1]>::try_from(junctions(&[("/show/b", "far:b")])).ok().expect("one");
    let id = ns.junction_id(&added).await.unwrap();
    ns.graft(id, added.clone()).unwrap();
    let mut told = Vec::new();
    while let Some(changed) = changes.try_next() {
        told.push(changed);
    }
    assert!(told.contains(&Some(ns.root())), "{told:?}");
    assert_ne!(times_of(&ns, b"/").await, before, "who keeps names until the times change");
    assert_eq!(names_in_pieces(&ns, ns.root(), 1).await.unwrap(), [b"a".to_vec(), b"show".to_vec()]);
    let file = ns.resolve(b"/show/b/file").await.unwrap();
    assert_eq!(file.junction(), id);
    assert_eq!(
        ns.parent(ns.root_of(id).unwrap()).await.unwrap().id(),
        ns.resolve(b"/show").await.unwrap().id()
    );

    let twice = ns.graft(id, added.clone());
    assert_eq!(kind(twice), Some(ErrorKind::Exists));
    ns.ungraft("/show/b").unwrap();
    assert_eq!(times_of(&ns, b"/").await, before);
    assert_eq!(kind(ns.resolve(b"/show/b/file").await), Some(ErrorKind::NotFound));
    assert_eq!(kind(ns.resolve(b"/show").await), Some(ErrorKind::NotFound));
    assert_eq!(kind(ns.getattr(file.id(), Ask::Use).await), Some(ErrorKind::Stale));
    assert_eq!(kind(ns.getattr_known(file.id())), Some(ErrorKind::Stale), "though it is known");
    assert_eq!(kind(ns.ungraft("/show/b")), Some(ErrorKind::NotFound));
    assert_eq!(ns.resolve(b"/a/file").await.unwrap().attr().size, 5, "its neighbour stays");

    ns.graft(ns.junction_id(&added).await.unwrap(), added).unwrap();
    assert_eq!(
        ns.getattr(file.id(), Ask::Use).await.unwrap().id(),
        file.id(),
        "handles of before are good again"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_junction_inside_another_or_at_the_top_does_not_come_while_others_are_served() {
    let dir = tempfile::tempdir().unwrap();
    let ns = open(dir.path(), junctions(&[("/a", "far:a")]), &Timeline::default()).unwrap();
    for (path, why) in [("/a/b", "/a/b lies inside /a"), ("/", "lies inside")] {
        let [added] = <[Junction; 1]>::try_from(junctions(&[(path, "far:b")])).ok().expect("one");
        let error = ns.graft(ns.junction_id(&added).await.unwrap(), added).expect_err("refused");
        assert!(error.to_string().contains(why), "{error}");
    }
    assert_eq!(ns.junctions().len(), 1);

    let other = tempfile::tempdir().unwrap();
    let alone = open(other.path(), junctions(&[("/", "far:a")]), &Timeline::default()).unwrap();
    let error = alone.ungraft("/").expect_err("refused");
    assert!(error.to_string().contains("restart"), "{error}");
    assert_eq!(alone.resolve(b"/file").await.unwrap().attr().size, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_rules_are_in_force_at_once_and_those_who_were_told_by_the_old_ones_hear_of_it() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Timeline::default();
    let far = Far::new("far:a");
    far.memory.write_file(b"file", b"old").unwrap();
    let rules = |files| namespace::JunctionRules {
        files,
        directories: files,
        negative_ttl: std::time::Duration::ZERO,
        stale_if_error: Some(std::time::Duration::from_secs(60)),
        directory_names_max: 1000,
    };
    let mut junction = Junction::new("/a", far.clone());
    (junction.files, junction.directories) = (Freshness::Immutable, Freshness::Immutable);
    let ns = open(dir.path(), vec![junction], &clock).unwrap();
    let size = async || ns.resolve(b"/a/file").await.map(|found| found.attr().size);
    assert_eq!(size().await.unwrap(), 3);
    far.memory.write_file(b"file", b"longer").unwrap();
    assert_eq!(size().await.unwrap(), 3, "it never changes");
    let mut changes = ns.changes();
    ns.set_rules("/a", rules(Freshness::Always)).unwrap();
    assert_eq!(changes.try_next(), Some(None), "anything may be otherwise now");
    assert_eq!(size().await.unwrap(), 6);
    assert_eq!(ns.junctions()[0].files, "always");

    far.set_down(true);
    assert_eq!(size().await.unwrap(), 6, "what is known is served in an outage");
    let failing = ns.junctions()[0].outage.clone().expect("it is away");
    clock.advance(std::time::Duration::from_secs(61));
    assert_eq!(kind(size().await), Some(ErrorKind::Unavailable), "but not for ever now");
    ns.set_rules("/a", namespace::JunctionRules { stale_if_error: None, ..rules(Freshness::Always) })
        .unwrap();
    assert_eq!(size().await.unwrap(), 6, "for ever again");
    let still = ns.junctions()[0].outage.clone().expect("what is known of the outage stays");
    assert_eq!(still.reason, failing.reason);
    assert_eq!(kind(ns.set_rules("/b", rules(Freshness::Always))), Some(ErrorKind::NotFound));
}

#[tokio::test(flavor = "multi_thread")]
async fn one_junction_s_learning_does_not_wait_for_another_s() {
    let dir = tempfile::tempdir().unwrap();
    let grafted = junctions(&[("/busy", "far:a"), ("/other", "far:b")]);
    let ns = open(dir.path(), grafted, &Timeline::default()).unwrap();
    let known = ns.resolve(b"/busy/file").await.unwrap().id();
    let busy = ns.resolve(b"/busy").await.unwrap().id();
    let (stand, standing) = tokio::sync::oneshot::channel();
    let (go_on, held) = std::sync::mpsc::sync_channel::<()>(1);
    // The operator's evict holds the order of its junction while it goes through what is known.
    let evict = tokio::spawn({
        let (ns, mut stand) = (ns.clone(), Some(stand));
        async move {
            ns.expire_tree(busy, move |_| {
                if let Some(stand) = stand.take() {
                    let _ = stand.send(());
                    tokio::task::block_in_place(|| held.recv()).expect("told to go on");
                }
            })
            .await
        }
    });
    standing.await.unwrap();

    let patience = std::time::Duration::from_secs(20);
    let other = tokio::time::timeout(patience, ns.resolve(b"/other/file")).await.expect("it does not wait");
    assert_eq!(other.unwrap().attr().size, 5);
    let mut same = tokio::spawn({
        let ns = ns.clone();
        async move { ns.refresh_changed(known).await }
    });
    let soon = tokio::time::timeout(std::time::Duration::from_millis(200), &mut same).await;
    assert!(soon.is_err(), "within one junction things are taken in one after the other");
    go_on.send(()).unwrap();
    evict.await.unwrap().unwrap();
    assert_eq!(same.await.unwrap().unwrap().attr().size, 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_evict_from_above_the_junctions_reaches_all_of_them() {
    let dir = tempfile::tempdir().unwrap();
    let grafted = junctions(&[("/show/a", "far:a"), ("/show/b", "far:b"), ("/lib", "far:c")]);
    let ns = open(dir.path(), grafted, &Timeline::default()).unwrap();
    let mut known = Vec::new();
    for path in ["/show/a/file", "/show/b/file", "/lib/file"] {
        known.push(ns.resolve(path.as_bytes()).await.unwrap().id());
    }
    let mut below_show = Vec::new();
    let show = ns.resolve(b"/show").await.unwrap().id();
    ns.expire_tree(show, |id| below_show.push(id)).await.unwrap();
    below_show.sort();
    let mut expected = known[..2].to_vec();
    expected.sort();
    assert_eq!(below_show, expected);
    let mut all = Vec::new();
    ns.expire_tree(ns.root(), |id| all.push(id)).await.unwrap();
    all.sort();
    known.sort();
    assert_eq!(all, known);
}
