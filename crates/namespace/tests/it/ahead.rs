//! Metadata at a distance: many answers per question, asked before they are needed.

use std::time::Duration;

use types::ErrorKind;

use crate::harness::*;

async fn tree(directories: usize, files: usize) -> Tier {
    let t = tier();
    for d in 0..directories {
        t.far.memory.mkdir(format!("d{d}").as_bytes()).unwrap();
        for f in 0..files {
            t.far.memory.write_file(format!("d{d}/f{f}").as_bytes(), b"x").unwrap();
        }
    }
    t
}

async fn calls_reach(t: &Tier, kind: &str, calls: u64) -> u64 {
    for _ in 0..500 {
        if t.far.calls(kind) >= calls {
            break;
        }
        tokio::time::sleep(Duration::from_millis(4)).await;
    }
    t.far.calls(kind)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_walker_of_a_tree_finds_the_next_directories_listed() {
    walk_finds_directories_listed(false).await;
    walk_finds_directories_listed(true).await;
}

async fn walk_finds_directories_listed(backwards: bool) {
    let t = tree(40, 5).await;
    let listed = t.ns.readdir(t.ns.root(), 0, 1000).await.unwrap();
    let mut dirs: Vec<_> = listed.entries.iter().filter_map(|e| e.child.as_ref().map(|c| c.id())).collect();
    if backwards {
        dirs.reverse();
    }
    assert_eq!(dirs.len(), 40);
    // The walker has listed three; then all are.
    for dir in &dirs[..3] {
        assert_eq!(t.names(*dir).await.unwrap().len(), 5);
    }
    assert_eq!(calls_reach(&t, "readdir", 41).await, 41, "once each");
    let before = t.far.calls_of_all_kinds();
    for dir in &dirs {
        assert_eq!(t.names(*dir).await.unwrap().len(), 5);
        for file in 0..5 {
            let name = name(format!("f{file}").as_bytes());
            t.ns.lookup(*dir, &name).await.unwrap();
        }
    }
    assert_eq!(t.far.calls_of_all_kinds(), before, "the rest of the walk asks nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_lists_one_directory_of_many_costs_the_origin_a_few() {
    let t = tree(40, 1).await;
    let listed = t.ns.readdir(t.ns.root(), 0, 1000).await.unwrap();
    let first = listed.entries[0].child.as_ref().unwrap().id();
    t.names(first).await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(t.far.calls("readdir") <= 2 + 9, "{}", t.far.calls("readdir"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_missing_names_costs_the_origin_a_question_or_two_per_directory() {
    let t = tree(10, 10).await;
    for d in 0..10 {
        let dir = t.id(format!("/d{d}").as_bytes()).await;
        for n in 0..100 {
            let wanted = name(format!("f{}", n * 7 % 100).as_bytes());
            let found = t.ns.lookup(dir, &wanted).await;
            assert!(found.is_ok() || kind(found) == Some(ErrorKind::NotFound));
        }
    }
    let calls = t.far.calls("lookup") + t.far.calls("getattr");
    assert!(calls <= 10 + 12, "{calls} single questions in 10 directories");
    assert!(t.far.calls("readdir") <= 11, "{} listings", t.far.calls("readdir"));
}

#[tokio::test(flavor = "multi_thread")]
async fn when_the_ttl_is_over_a_directory_is_asked_about_once_and_not_each_file() {
    let t = tree(1, 100).await;
    let dir = t.id(b"/d0").await;
    t.names(dir).await.unwrap();
    t.pass(AFTER_TTL);
    t.far.forget_calls();
    for f in 0..100 {
        let found = t.ns.lookup(dir, &name(format!("f{f}").as_bytes())).await.unwrap();
        t.getattr(found.id()).await.unwrap();
    }
    assert!(t.far.calls("getattr") + t.far.calls("lookup") <= 3, "{}", t.far.calls_of_all_kinds());
    assert!(t.far.calls("readdir") <= 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_search_that_mostly_misses_costs_one_call_for_each_directory() {
    let t = tree(30, 5).await;
    for round in 0..3 {
        for d in 0..30 {
            let dir = t.ns.lookup(t.ns.root(), &name(format!("d{d}").as_bytes())).await.unwrap().id();
            for miss in 0..9 {
                let error = t.ns.lookup(dir, &name(format!("lib{round}-{miss}.so").as_bytes())).await.err();
                assert_eq!(error.expect("it is not there").kind(), ErrorKind::NotFound);
            }
            t.ns.lookup(dir, &name(b"f3")).await.unwrap();
        }
    }
    assert_eq!((t.far.calls("readdir"), t.far.calls("lookup")), (31, 0), "the root and each directory, once");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_comes_first_finds_a_small_root_listed() {
    let t = tree(3, 2).await;
    t.ns.look_at_roots();
    assert_eq!(calls_reach(&t, "readdir", 1).await, 1);
    // The listing is committed a moment after its last answer.
    for _ in 0..500 {
        if t.ns.listed_at(t.ns.root()).is_some() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(4)).await;
    }
    let before = t.far.calls_of_all_kinds();
    t.lookup(b"d1").await.unwrap();
    assert_eq!(t.far.calls_of_all_kinds(), before, "nothing is asked for it");
}
