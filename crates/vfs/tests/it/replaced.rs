//! The origin is not the one it was, while something waits for it: nothing is dropped, nothing goes to the wrong place.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use origin::Origin;
use origin::memory::MemoryOrigin;
use testkit::far_origin::{Far, Replaced};
use types::{Caller, CreateHow, ErrorKind, OutageReason, Stability, Timeline};
use vfs::AlarmKind;

use crate::back::{BackTier, NEVER, back_tier, bytes_of, find};
use crate::harness::{AFTER_TTL, kind};
use crate::writable::{name, with_mode, writable};

const OLD: &[u8] = b"old contents";

/// Of each kind one change, acknowledged and not flushed.
async fn dirty(far: &Arc<Far>) -> BackTier {
    far.memory.mkdir(b"dir").unwrap();
    for path in [&b"dir/changed"[..], b"dir/moved", b"dir/removed", b"dir/clean"] {
        far.memory.write_file(path, OLD).unwrap();
    }
    let t = back_tier(far.clone(), NEVER);
    for file in ["changed", "moved", "removed", "clean"] {
        let file = t.id(&format!("/dir/{file}")).await;
        assert_eq!(t.read(file).await, OLD);
    }
    let (caller, dir) = (Caller::root(), t.id("/dir").await);
    let changed = t.id("/dir/changed").await;
    t.write(changed, 0, b"new").await;
    t.vfs.rename(&caller, dir, &name("moved"), dir, &name("there")).await.unwrap();
    t.vfs.remove(&caller, dir, &name("removed")).await.unwrap();
    for path in ["/dir/made", "/top"] {
        let made = t.create(path).await;
        t.write(made, 0, b"made here").await;
    }
    t
}

async fn shows_all(t: &BackTier) {
    for (path, bytes) in [
        ("/dir/changed", &b"new contents"[..]),
        ("/dir/there", OLD),
        ("/dir/clean", OLD),
        ("/dir/made", b"made here"),
        ("/top", b"made here"),
    ] {
        let file = t.id(path).await;
        assert_eq!(t.read(file).await, bytes, "{path}");
    }
    for path in ["/dir/moved", "/dir/removed"] {
        assert_eq!(kind(t.vfs.resolve(path.as_bytes()).await), Some(ErrorKind::NotFound), "{path}");
    }
}

async fn has_all(origin: &dyn Origin) {
    for (path, bytes) in [
        ("/dir/changed", &b"new contents"[..]),
        ("/dir/there", OLD),
        ("/dir/clean", OLD),
        ("/dir/made", b"made here"),
        ("/top", b"made here"),
    ] {
        assert_eq!(bytes_of(origin, path).await, bytes, "{path}");
    }
    for path in ["/dir/moved", "/dir/removed"] {
        assert_eq!(kind(find(origin, path).await), Some(ErrorKind::NotFound), "{path}");
    }
}

fn is_replaced(t: &BackTier) -> bool {
    let outage = t.vfs.junctions().remove(0).outage;
    outage.is_some_and(|outage| outage.reason == OutageReason::Replaced)
}

async fn until_it_is_noticed(t: &BackTier) {
    for _ in 0..1000 {
        if is_replaced(t) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("nobody noticed: {:?}", t.vfs.junctions());
}

/// The flush is on, the origin another: then it is the right one again.
async fn gets_home(t: &BackTier, far: &Far, another: &MemoryOrigin) {
    let flushing = t.vfs.flush_home(None).await.unwrap();
    until_it_is_noticed(t).await;
    t.clock.advance(AFTER_TTL);
    shows_all(t).await;
    comes_back(t, far, another, flushing).await;
}

async fn comes_back(t: &BackTier, far: &Far, another: &MemoryOrigin, flushing: vfs::FlushRequest) {
    assert!(another.is_empty().await.unwrap(), "nothing goes to the wrong place");
    far.bring_back();
    assert!(flushing.wait().await.is_empty());
    has_all(&*far.memory).await;
    t.clock.advance(AFTER_TTL);
    shows_all(t).await;
    // A flush that was cut off in the midst of a file says so.
    let alarms = t.vfs.unflushed().alarms;
    let is_known = alarms.iter().all(|alarm| alarm.kind == AlarmKind::Resumed);
    assert!(is_known, "nothing was in conflict: {alarms:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_flushed_to_another_origin_and_all_of_it_when_the_right_one_is_back() {
    for how in [Replaced::Wholly, Replaced::InSilence] {
        let (far, another) = (Far::new("far:one"), MemoryOrigin::new());
        let t = dirty(&far).await;
        far.replace_with(another.clone(), how);
        // As a connection that was lost is noticed.
        far.fail("getattr", ErrorKind::Unavailable, 1);
        let clean = t.id("/dir/clean").await;
        t.clock.advance(AFTER_TTL);
        t.vfs.getattr(clean).await.unwrap();
        gets_home(&t, &far, &another).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_flushed_after_a_start_on_another_origin_until_the_right_one_is_back() {
    for how in [Replaced::Wholly, Replaced::InSilence] {
        let (far, another) = (Far::new("far:one"), MemoryOrigin::new());
        let t = dirty(&far).await;
        far.replace_with(another.clone(), how);
        let t = t.after_a_restart().await;
        gets_home(&t, &far, &another).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_origin_that_is_replaced_in_the_middle_of_a_flush_is_noticed_before_anything_is_done() {
    for call in ["remove", "rename", "write", "getattr", "commit", "set"] {
        let (far, another) = (Far::new("far:one"), MemoryOrigin::new());
        let t = dirty(&far).await;
        let (now, then) = (far.clone(), another.clone());
        far.before(call, move || now.replace_with(then, Replaced::Wholly));
        let flushing = t.vfs.flush_home(None).await.unwrap();
        until_it_is_noticed(&t).await;
        comes_back(&t, &far, &another, flushing).await;
    }
}

/// A server that comes back with another disk, between a look and the changes that follow it: its keys are names, and so
/// they are good in any bucket.
#[tokio::test(flavor = "multi_thread")]
async fn what_came_into_another_bucket_before_it_was_noticed_gets_into_the_right_one_too() {
    for call in ["create", "remove", "rename", "write", "commit", "set"] {
        let (far, another) = (Far::new("far:one"), MemoryOrigin::new());
        another.mkdir(b"dir").unwrap();
        for path in [&b"dir/changed"[..], b"dir/moved", b"dir/removed", b"dir/clean"] {
            another.write_file(path, OLD).unwrap();
        }
        let t = dirty(&far).await;
        let (now, then) = (far.clone(), another.clone());
        far.before(call, move || now.replace_with(then, Replaced::Bucket));
        let flushing = t.vfs.flush_home(None).await.unwrap();
        until_it_is_noticed(&t).await;
        far.bring_back();
        let refused = flushing.wait().await;
        assert!(refused.is_empty(), "{call}: {refused:?}");
        has_all(&*far.memory).await;
        t.clock.advance(AFTER_TTL);
        shows_all(&t).await;
        let alarms = t.vfs.unflushed().alarms;
        let is_known = alarms.iter().all(|alarm| alarm.kind == AlarmKind::Resumed);
        assert!(is_known, "{call}: nothing was in conflict: {alarms:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_is_kept_beside_when_another_origin_is_accepted_and_the_rest_is_told() {
    let (far, another) = (Far::new("far:one"), MemoryOrigin::new());
    another.write_file(b"its own", b"its own").unwrap();
    let t = dirty(&far).await;
    far.replace_with(another.clone(), Replaced::Wholly);
    let t = t.after_a_restart().await;
    t.clock.advance(AFTER_TTL);
    let _ = t.vfs.resolve(b"/unheard-of").await; // somebody asks
    until_it_is_noticed(&t).await;
    t.vfs.accept_origin("/").await.unwrap();
    t.flush().await;
    let own = t.id("/its own").await;
    assert_eq!(t.read(own).await, b"its own");
    assert_eq!(bytes_of(&*another, "/top").await, b"made here");
    let root = another.root().await.unwrap().reference;
    let listed = another.readdir(&root, origin::DirCursor::default()).await.unwrap();
    let kept: Vec<_> = listed.entries.iter().map(|it| String::from_utf8_lossy(it.name.as_bytes())).collect();
    let conflict = kept.iter().find(|name| name.starts_with("changed.conflict-")).expect("kept beside");
    assert_eq!(bytes_of(&*another, conflict).await, b"new contents");
    assert!(kept.iter().any(|name| name.starts_with("made.conflict-")), "{kept:?}");
    let alarms = t.vfs.unflushed().alarms;
    // Where their directory was nobody knows any more.
    for lost in ["/removed", "/moved"] {
        let told = alarms.iter().any(|alarm| alarm.text.starts_with(lost));
        assert!(told, "{lost}: {alarms:?}");
    }
}

/// One question is good for a second, and while the next one is under way for two more.
#[tokio::test(flavor = "multi_thread")]
async fn under_load_an_origin_is_asked_once_a_second_which_storage_it_is() {
    let far = Far::new("far:one");
    far.memory.write_file(b"stays", b"abc").unwrap();
    let t = writable(far.clone(), &Timeline::default());
    let (caller, root) = (Caller::root(), t.vfs.root());
    let (begun, before) = (Instant::now(), far.identified());
    let mut done = 0;
    while begun.elapsed() < Duration::from_millis(2_500) {
        let (file, how) = (name(&format!("file{done}")), CreateHow::Guarded);
        let made = t.vfs.create(&caller, root, &file, how, with_mode(0o644)).await.unwrap().node.id;
        let data = Bytes::from_static(b"abc");
        t.vfs.write(&caller, made, 0, data, Stability::FileSync).await.unwrap();
        assert_eq!(kind(t.vfs.lookup(&caller, root, &name("absent")).await), Some(ErrorKind::NotFound));
        t.vfs.remove(&caller, root, &file).await.unwrap();
        done += 1;
    }
    let (asked, seconds) = (far.identified() - before, begun.elapsed().as_secs());
    assert!((1..=seconds + 2).contains(&asked), "{asked} questions in {seconds} s, for {done} files");
}

/// As after a snapshot was restored: nothing tells it from changes that others made.
#[tokio::test(flavor = "multi_thread")]
async fn in_an_older_state_of_the_origin_what_was_acknowledged_is_kept_and_removals_are_told() {
    let far = Far::new("far:one");
    let t = dirty(&far).await;
    for path in [&b"dir/changed"[..], b"dir/moved", b"dir/removed"] {
        far.memory.remove(path).unwrap();
    }
    t.flush().await;
    let alarms = t.vfs.unflushed().alarms;
    for lost in ["/dir/removed", "/dir/moved"] {
        let told = alarms.iter().any(|alarm| alarm.kind == AlarmKind::Dropped && alarm.text.contains(lost));
        assert!(told, "{lost}: {alarms:?}");
    }
    assert!(alarms.iter().any(|alarm| alarm.kind == AlarmKind::KeptBoth), "{alarms:?}");
    assert_eq!(bytes_of(&*far.memory, "/dir/made").await, b"made here");
}
