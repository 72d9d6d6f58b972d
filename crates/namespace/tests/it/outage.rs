//! What is answered while the origin cannot be reached.

use std::time::Duration;

use types::ErrorKind;

use crate::harness::{AFTER_TTL, kind, tier, tier_with};

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_is_never_absence() {
    let t = tier();
    t.far.memory.mkdir(b"dir").unwrap();
    t.far.memory.mkdir(b"never-listed").unwrap();
    t.far.memory.write_file(b"dir/file", b"abc").unwrap();
    let file = t.id(b"/dir/file").await;
    let unlisted = t.id(b"/never-listed").await;
    assert_eq!(kind(t.lookup(b"/dir/absent").await), Some(ErrorKind::NotFound));

    t.far.set_down(true);
    for _ in 0..3 {
        t.pass(AFTER_TTL);
        for path in [&b"/dir/absent"[..], b"/dir/unheard-of", b"/unheard-of", b"/never-listed/x"] {
            assert_eq!(kind(t.lookup(path).await), Some(ErrorKind::Unavailable), "{}", path.escape_ascii());
        }
        assert_eq!(kind(t.names(unlisted).await), Some(ErrorKind::Unavailable));
        assert_eq!(t.getattr(file).await.unwrap().attr().size, 3);
        assert_eq!(t.id(b"/dir/file").await, file);
    }
    t.far.set_down(false);
    t.pass(AFTER_TTL);
    // The first question that gets through ends the outage; it is asked in the background.
    for _ in 0..200 {
        if kind(t.lookup(b"/dir/absent").await) == Some(ErrorKind::NotFound) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(kind(t.lookup(b"/dir/absent").await), Some(ErrorKind::NotFound));
    assert_eq!(t.names(unlisted).await.unwrap(), Vec::<Vec<u8>>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_known_before_is_served_whole_in_an_outage() {
    let t = tier();
    for i in 0..50 {
        t.far.memory.write_file(format!("f{i}").as_bytes(), b"").unwrap();
    }
    let before = t.names(t.ns.root()).await.unwrap();
    t.far.set_down(true);
    t.pass(AFTER_TTL);
    assert_eq!(t.names(t.ns.root()).await.unwrap(), before);
    assert_eq!(before.len(), 50);
    let status = t.ns.junctions();
    assert!(status[0].outage.as_ref().is_some_and(|outage| outage.error.contains("switched off")));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_origin_is_asked_at_most_once_a_second() {
    let t = tier();
    t.far.memory.write_file(b"file", b"abc").unwrap();
    let file = t.id(b"/file").await;
    t.names(t.ns.root()).await.unwrap();
    t.far.set_down(true);
    t.pass(AFTER_TTL);
    t.getattr(file).await.unwrap();
    // From here on nobody may wait for the origin: what is asked of it hangs.
    let hung = t.far.gate.write().await;
    t.far.forget_calls();
    for _ in 0..100 {
        t.getattr(file).await.unwrap();
        t.lookup(b"/file").await.unwrap();
        t.names(t.ns.root()).await.unwrap();
    }
    let calls = t.far.calls_of_all_kinds();
    assert!(calls <= 5, "{calls} calls in 300 uses");
    drop(hung);
}

/// The directory is fresh but known to have changed when the origin goes away: nothing has failed yet.
#[tokio::test(flavor = "multi_thread")]
async fn the_first_to_meet_an_outage_is_served_what_is_known_too() {
    let t = tier_with(|junction| junction.files = namespace::Freshness::Ttl(Duration::from_secs(3600)));
    t.far.memory.mkdir(b"dir").unwrap();
    t.far.memory.write_file(b"dir/file", b"abc").unwrap();
    let (dir, file) = (t.id(b"/dir").await, t.id(b"/dir/file").await);
    t.names(dir).await.unwrap();
    t.pass(AFTER_TTL);
    t.far.memory.write_file(b"dir/other", b"").unwrap();
    t.getattr(dir).await.unwrap();
    t.far.set_down(true);
    assert_eq!(t.ns.lookup(dir, &crate::harness::name(b"file")).await.unwrap().id(), file);
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_if_error_bounds_what_an_outage_may_serve() {
    let t = tier_with(|junction| junction.stale_if_error = Some(Duration::from_secs(600)));
    t.far.memory.write_file(b"file", b"abc").unwrap();
    let root = t.ns.root();
    t.names(root).await.unwrap();
    let file = t.id(b"/file").await;
    t.far.set_down(true);

    t.pass(Duration::from_secs(590));
    assert_eq!(t.getattr(file).await.unwrap().attr().size, 3);
    assert_eq!(t.id(b"/file").await, file);
    assert_eq!(t.names(root).await.unwrap(), [b"file".to_vec()]);

    t.pass(Duration::from_secs(20));
    assert_eq!(kind(t.getattr(file).await), Some(ErrorKind::Unavailable));
    assert_eq!(kind(t.lookup(b"/file").await), Some(ErrorKind::Unavailable));
    assert_eq!(kind(t.names(root).await), Some(ErrorKind::Unavailable));

    t.far.set_down(false);
    assert_eq!(t.getattr(file).await.unwrap().attr().size, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_first_contact_in_an_outage_fails_and_succeeds_later() {
    let t = tier();
    t.far.set_down(true);
    assert_eq!(kind(t.getattr(t.ns.root()).await), Some(ErrorKind::Unavailable));
    t.far.set_down(false);
    assert!(t.getattr(t.ns.root()).await.unwrap().attr().is_dir());
}
