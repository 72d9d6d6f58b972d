//! Times that clients were told of what is written `back`: a flush moves none of them, though it moves the origin's ctime.

use std::collections::BTreeMap;
use std::sync::Arc;

use origin::posix::PosixOrigin;
use origin::{Change, Origin};
use types::{Caller, SetAttr, TimeChange, Timestamp};

use crate::back::{BackTier, NEVER, back_tier, find};
use crate::harness::AFTER_TTL;
use crate::writable::{name, names, with_mode};

/// Of all that is no directory: mtime and ctime.
pub async fn times(t: &BackTier) -> BTreeMap<String, (Timestamp, Timestamp)> {
    let (mut times, mut dirs) = (BTreeMap::new(), vec![(String::new(), t.vfs.root())]);
    while let Some((path, dir)) = dirs.pop() {
        for child in names(&t.vfs, dir).await {
            let node = t.vfs.lookup(&Caller::root(), dir, &name(&child)).await;
            let node = node.expect("what is listed is there");
            let path = format!("{path}/{child}");
            match node.attr.is_dir() {
                true => dirs.push((path, node.id)),
                false => drop(times.insert(path, (node.attr.mtime, node.attr.ctime))),
            }
        }
    }
    times
}

/// A file of each kind of change.
async fn change_all(t: &BackTier) {
    let (caller, root) = (Caller::root(), t.vfs.root());
    for path in ["/made", "/written", "/linked", "/replacing", "/replaced", "/dated"] {
        let file = t.create(path).await;
        t.write(file, 0, path.as_bytes()).await;
    }
    t.flush().await;
    t.write(t.id("/written").await, 3, b"again").await;
    t.vfs.setattr(&caller, t.id("/made").await, with_mode(0o600), None).await.expect("set");
    t.vfs.link(&caller, t.id("/linked").await, root, &name("other")).await.expect("linked");
    t.vfs.link(&caller, t.id("/replaced").await, root, &name("kept")).await.expect("linked");
    t.vfs.rename(&caller, root, &name("replacing"), root, &name("replaced")).await.expect("renamed");
    let at = Timestamp { seconds: 1_000_000_000, nanos: 5 };
    let set = SetAttr { mtime: TimeChange::To(at), ..SetAttr::default() };
    t.vfs.setattr(&caller, t.id("/dated").await, set, None).await.expect("set");
    let new = t.create("/new").await;
    t.write(new, 0, b"new").await;
    t.vfs.symlink(&caller, root, &name("link"), "to".into(), SetAttr::default()).await.expect("made");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flush_moves_no_time_that_clients_were_told() {
    let home = tempfile::tempdir().expect("a directory for the test");
    let origin: Arc<dyn Origin> = Arc::new(PosixOrigin::open(home.path()).expect("opened"));
    let t = back_tier(origin.clone(), NEVER);
    change_all(&t).await;
    let told = times(&t).await;
    assert_eq!(told.len(), 9, "{told:?}");
    t.flush().await;
    assert_eq!(times(&t).await, told);
    t.clock.advance(AFTER_TTL);
    assert_eq!(times(&t).await, told, "the origin was asked");
    for (path, (mtime, ctime)) in &told {
        let there = find(&*origin, path).await.expect("there").attr;
        assert_eq!(there.mtime, *mtime, "{path}");
        assert_ne!(there.ctime, *ctime, "{path}: nobody can set it");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_change_after_a_flush_has_the_ctime_of_the_origin() {
    let home = tempfile::tempdir().expect("a directory for the test");
    let origin: Arc<dyn Origin> = Arc::new(PosixOrigin::open(home.path()).expect("opened"));
    let t = back_tier(origin.clone(), NEVER);
    change_all(&t).await;
    t.flush().await;
    let told = times(&t).await;
    let object = find(&*origin, "/new").await.expect("there").reference;
    origin.change(&Change::Set { object, set: with_mode(0o640), guard: None }).await.expect("set");
    t.clock.advance(AFTER_TTL);
    let there = find(&*origin, "/new").await.expect("there").attr;
    let seen = t.vfs.getattr(t.id("/new").await).await.expect("there").attr;
    assert_eq!((seen.mode, seen.ctime), (0o640, there.ctime));
    assert_ne!(seen.ctime, told["/new"].1);
    let others = times(&t).await.into_iter().filter(|(path, _)| path != "/new");
    assert!(others.into_iter().all(|(path, times)| told[&path] == times));
}
