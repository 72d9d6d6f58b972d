//! Extended attributes: the origin's, and what was written before one is set is there first.

use std::time::Duration;

use bytes::Bytes;
use testkit::far_origin::Far;
use types::Timeline;
use types::{Caller, ErrorKind, FileId, Result, SetXattr, Stability, XattrName};
use vfs::{Altered, Lend, Vfs};

use crate::back::{NEVER, back_tier, bytes_of};
use crate::harness::{AFTER_TTL, kind};
use crate::writable::{name, user, with_mode, writable};

fn xattr(text: &str) -> XattrName {
    XattrName::new(text.as_bytes().to_vec()).expect("a good name")
}

fn to(value: &'static str) -> SetXattr {
    SetXattr::To(Bytes::from_static(value.as_bytes()))
}

async fn set(vfs: &Vfs, id: FileId, name: &str, set: SetXattr) -> Result<Altered> {
    vfs.set_xattr(&Caller::root(), id, &xattr(name), &set).await
}

async fn all(vfs: &Vfs, id: FileId) -> Vec<(XattrName, Bytes)> {
    vfs.xattrs(&Caller::root(), id).await.expect("read")
}

fn shot(value: &'static str) -> Vec<(XattrName, Bytes)> {
    vec![(xattr("user.shot"), Bytes::from_static(value.as_bytes()))]
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_is_set_leaves_the_bytes_in_the_cache() {
    let (far, clock) = (Far::new("far:one"), Timeline::default());
    far.memory.write_file(b"file", b"bytes").unwrap();
    let t = writable(far.clone(), &clock);
    let file = t.id("/file").await;
    let read = async || {
        let read = t.vfs.read(&Caller::root(), file, 0, 100, Lend::Nothing).await.expect("read");
        read.data.iter().flat_map(|piece| piece.to_bytes().expect("bytes").to_vec()).collect::<Vec<u8>>()
    };
    assert_eq!(read().await, b"bytes");
    far.forget_calls();
    let altered = set(&t.vfs, file, "user.shot", to("sc010")).await.unwrap();
    assert_eq!(altered.node.version, t.vfs.getattr(file).await.unwrap().version);
    assert_eq!(read().await, b"bytes");
    assert_eq!((far.calls("set_xattr"), far.calls_of_all_kinds()), (1, 1));
    assert_eq!(all(&t.vfs, file).await, shot("sc010"));
    clock.advance(AFTER_TTL);
    assert_eq!(read().await, b"bytes");
    assert_eq!(far.calls("read"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_write_sets_none() {
    let far = Far::new("far:one");
    far.memory.write_file(b"file", b"").unwrap();
    far.memory.symlink(b"link", b"file").unwrap();
    far.memory.mkdir(b"sticky").unwrap();
    far.memory.chmod(b"sticky", 0o1777).unwrap();
    let t = writable(far.clone(), &Timeline::default());
    let by = async |uid, path: &str| {
        let set = t.vfs.set_xattr(&user(uid), t.id(path).await, &xattr("user.a"), &to("1")).await;
        kind(set)
    };
    assert_eq!(by(5, "/file").await, Some(ErrorKind::AccessDenied));
    assert_eq!(by(5, "/sticky").await, Some(ErrorKind::NotPermitted));
    assert_eq!(by(0, "/link").await, Some(ErrorKind::NotPermitted));
    assert_eq!((by(0, "/file").await, by(0, "/sticky").await), (None, None));
    far.memory.chmod(b"file", 0o600).unwrap();
    let file = t.id("/file").await;
    t.vfs.setattr(&Caller::root(), file, with_mode(0o600), None).await.unwrap();
    assert_eq!(kind(t.vfs.xattrs(&user(5), file).await), Some(ErrorKind::AccessDenied));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_back_goes_home_before_one_is_set() {
    let far = Far::new("far:one");
    let t = back_tier(far.clone(), NEVER);
    let (caller, root) = (Caller::root(), t.vfs.root());
    let dir = t.vfs.mkdir(&caller, root, &name("dir"), with_mode(0o755)).await.unwrap().node.id;
    let how = types::CreateHow::Guarded;
    let file = t.vfs.create(&caller, dir, &name("file"), how, with_mode(0o644)).await.unwrap().node.id;
    t.write(file, 0, b"written here").await;
    assert_eq!(all(&t.vfs, file).await, []);
    assert_eq!(far.calls("write"), 0);
    set(&t.vfs, file, "user.shot", to("sc010")).await.unwrap();
    assert_eq!(bytes_of(&*far.memory, "/dir/file").await, b"written here");
    assert_eq!(all(&t.vfs, file).await, shot("sc010"));
    // What is written to it later is no conflict with that.
    t.write(file, 8, b"there").await;
    set(&t.vfs, file, "user.shot", SetXattr::Replace(Bytes::from_static(b"sc020"))).await.unwrap();
    t.vfs.write(&caller, file, 0, Bytes::from_static(b"W"), Stability::FileSync).await.unwrap();
    t.flush().await;
    assert_eq!(bytes_of(&*far.memory, "/dir/file").await, b"Written there");
    assert_eq!(all(&t.vfs, file).await, shot("sc020"));
    let told = t.vfs.unflushed();
    assert_eq!((told.conflicts, told.alarms.len()), (0, 0), "{:?}", told.alarms);
    assert_eq!(kind(set(&t.vfs, file, "user.none", SetXattr::Remove).await), Some(ErrorKind::NotFound));
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_origin_is_away_none_is_set_and_nothing_is_lost() {
    let far = Far::new("far:one");
    far.memory.write_file(b"file", b"").unwrap();
    let t = back_tier(far.clone(), NEVER);
    let file = t.id("/file").await;
    t.write(file, 0, b"dark").await;
    far.set_down(true);
    let setting = set(&t.vfs, file, "user.shot", to("sc010"));
    assert!(tokio::time::timeout(Duration::from_millis(300), setting).await.is_err(), "it waits");
    far.set_down(false);
    set(&t.vfs, file, "user.shot", to("sc010")).await.unwrap();
    assert_eq!(bytes_of(&*far.memory, "/file").await, b"dark");
}
