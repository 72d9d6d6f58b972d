//! What the origin can never take is refused at the call, and nothing of it is kept.

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use origin::posix::PosixOrigin;
use origin::{Origin, OriginLimits};
use testkit::far_origin::Far;
use types::{Caller, CreateHow, ErrorKind, FileId, NewNode, SetAttr, Stability, Timeline};
use vfs::Vfs;

use crate::back::{BackTier, NEVER, back_tier};
use crate::harness::kind;
use crate::writable::{name, with_mode, writable};

const GUARDED: CreateHow = CreateHow::Guarded;

fn size(size: u64) -> SetAttr {
    SetAttr { size: Some(size), ..SetAttr::default() }
}

fn operations(vfs: &Vfs) -> u64 {
    vfs.unflushed().journal.expect("a journal").operations
}

async fn made(vfs: &Vfs, text: &str) -> FileId {
    let made = vfs.create(&Caller::root(), vfs.root(), &name(text), GUARDED, with_mode(0o644)).await;
    made.expect("made").node.id
}

async fn made_longer_than_can_be(vfs: &Vfs, max: u64) {
    let (root, file) = (Caller::root(), made(vfs, "file").await);
    let refused = vfs.setattr(&root, file, size(max + 1), None).await;
    assert_eq!(kind(refused), Some(ErrorKind::FileTooLarge));
    for stability in [Stability::Unstable, Stability::FileSync] {
        let refused = vfs.write(&root, file, max - 3, Bytes::from_static(b"four"), stability).await;
        assert_eq!(kind(refused), Some(ErrorKind::FileTooLarge));
    }
    vfs.setattr(&root, file, size(max), None).await.expect("as long as can be");
    vfs.write(&root, file, max - 4, Bytes::from_static(b"four"), Stability::FileSync).await.expect("written");
    vfs.setattr(&root, file, size(0), None).await.expect("cut");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_longer_than_the_origin_can_have_is_refused_at_the_call_under_both_policies() {
    let far = Far::new("far:one");
    far.memory.set_limits(OriginLimits { file_size_max: Some(1 << 20), ..OriginLimits::default() });
    let t = back_tier(far.clone(), NEVER);
    made_longer_than_can_be(&t.vfs, 1 << 20).await;
    let how = vfs_create_of(&t, 1 << 21).await;
    assert_eq!(how, Some(ErrorKind::FileTooLarge));
    t.flush().await;
    let t = writable(far, &Timeline::default());
    t.vfs.remove(&Caller::root(), t.vfs.root(), &name("file")).await.expect("removed");
    made_longer_than_can_be(&t.vfs, 1 << 20).await;
}

async fn vfs_create_of(t: &BackTier, bytes: u64) -> Option<ErrorKind> {
    let set = SetAttr { mode: Some(0o644), ..size(bytes) };
    let made = t.vfs.create(&Caller::root(), t.vfs.root(), &name("long"), GUARDED, set).await;
    made.err().map(|e| e.kind())
}

#[tokio::test(flavor = "multi_thread")]
async fn the_largest_file_of_a_directorys_file_system_is_found_out_and_holds() {
    let dir = tempfile::tempdir().expect("a directory");
    let origin = PosixOrigin::open(dir.path()).expect("opened");
    let Some(max) = origin.limits().await.expect("told").file_size_max else { return };
    assert_eq!(std::fs::read_dir(dir.path()).expect("read").count(), 0, "without a trace");
    let file = std::fs::File::create(dir.path().join("longest")).expect("made");
    file.set_len(max).expect("as long as can be");
    if max < i64::MAX.cast_unsigned() {
        assert!(file.set_len(max + 1).is_err(), "{max} is not the most");
        let t = back_tier(Arc::new(origin), NEVER);
        made_longer_than_can_be(&t.vfs, max).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_acknowledged_for_an_origin_that_is_read_only_until_it_is_not() {
    let far = Far::new("far:one");
    far.memory.mkdir(b"dir").expect("made");
    far.memory.write_file(b"file", b"bytes").expect("written");
    far.memory.set_limits(OriginLimits { read_only: true, ..OriginLimits::default() });
    let t = back_tier(far.clone(), NEVER);
    let (vfs, root, top) = (&t.vfs, Caller::root(), t.vfs.root());
    let file = vfs.lookup(&root, top, &name("file")).await.expect("there").id;
    let set = with_mode(0o600);
    let kinds = [
        vfs.create(&root, top, &name("new"), GUARDED, set).await.err(),
        vfs.mkdir(&root, top, &name("new"), set).await.err(),
        vfs.symlink(&root, top, &name("new"), "target".into(), set).await.err(),
        vfs.link(&root, file, top, &name("new")).await.err(),
        vfs.remove(&root, top, &name("file")).await.err(),
        vfs.rmdir(&root, top, &name("dir")).await.err(),
        vfs.rename(&root, top, &name("file"), top, &name("new")).await.err(),
        vfs.setattr(&root, file, set, None).await.err(),
        vfs.setattr(&root, file, size(0), None).await.err(),
        vfs.write(&root, file, 0, "x".into(), Stability::Unstable).await.err(),
    ];
    for (at, refused) in kinds.iter().enumerate() {
        assert_eq!(refused.as_ref().map(|e| e.kind()), Some(ErrorKind::ReadOnly), "call {at}");
    }
    assert_eq!(operations(vfs), 0);
    far.memory.set_limits(OriginLimits::default());
    // Whoever is refused has it asked again, once a second.
    let deadline = std::time::Instant::now() + crate::harness::DEADLINE;
    while vfs.setattr(&root, file, set, None).await.is_err() {
        assert!(std::time::Instant::now() < deadline, "it is taken for read-only for ever");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert_eq!(operations(vfs), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_links_and_kinds_that_the_origin_cannot_have_are_refused_at_the_call() {
    let far = Far::new("far:one");
    far.memory.set_limits(OriginLimits { name_max: Some(20), links_max: Some(2), ..OriginLimits::default() });
    let t = back_tier(far.clone(), NEVER);
    let (vfs, root, top) = (&t.vfs, Caller::root(), t.vfs.root());
    let file = made(vfs, &"f".repeat(20)).await;
    let (long, before) = (name(&"n".repeat(21)), operations(vfs));
    let refused = vfs.create(&root, top, &long, GUARDED, with_mode(0o644)).await;
    assert_eq!(kind(refused), Some(ErrorKind::NameTooLong));
    assert_eq!(kind(vfs.mkdir(&root, top, &long, with_mode(0o755)).await), Some(ErrorKind::NameTooLong));
    assert_eq!(kind(vfs.link(&root, file, top, &long).await), Some(ErrorKind::NameTooLong));
    let renamed = vfs.rename(&root, top, &name(&"f".repeat(20)), top, &long).await;
    assert_eq!(kind(renamed), Some(ErrorKind::NameTooLong));
    assert_eq!(operations(vfs), before);
    vfs.link(&root, file, top, &name("second")).await.expect("two names");
    assert_eq!(kind(vfs.link(&root, file, top, &name("third")).await), Some(ErrorKind::TooManyLinks));

    let far = Far::new("far:two");
    let plain = OriginLimits { links_max: Some(1), no_special_files: true, ..OriginLimits::default() };
    far.memory.set_limits(plain);
    let t = back_tier(far.clone(), NEVER);
    let file = made(&t.vfs, "file").await;
    let linked = t.vfs.link(&root, file, t.vfs.root(), &name("second")).await;
    assert_eq!(kind(linked), Some(ErrorKind::NotSupported));
    let special = t.vfs.mknod(&root, t.vfs.root(), &name("pipe"), NewNode::Fifo, with_mode(0o600)).await;
    assert_eq!(kind(special), Some(ErrorKind::NotSupported));
    assert_eq!(operations(&t.vfs), 1);
}

fn origin_in(dir: &Path) -> Arc<dyn Origin> {
    Arc::new(PosixOrigin::open(dir).expect("opened"))
}

/// As far down as can be; returns the last directory, and how long its path is.
async fn at_the_bottom(vfs: &Vfs, length: usize) -> (FileId, usize) {
    let (mut at, mut long) = (vfs.root(), 0);
    while long < 1 << 16 {
        let made = vfs.mkdir(&Caller::root(), at, &name(&"d".repeat(length)), with_mode(0o755)).await;
        match made {
            Ok(made) => (at, long) = (made.node.id, long + length + usize::from(long > 0)),
            Err(e) if e.kind() == ErrorKind::NameTooLong => return (at, long),
            Err(e) => panic!("{long} bytes down: {e}"),
        }
    }
    panic!("{long} bytes down, and nothing is refused");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_the_origin_cannot_reach_is_refused_at_the_call() {
    let dir = tempfile::tempdir().expect("a directory");
    let t = back_tier(origin_in(dir.path()), NEVER);
    let (vfs, root, top) = (&t.vfs, Caller::root(), t.vfs.root());
    let (bottom, long) = at_the_bottom(vfs, 250).await;
    assert!(long <= 16_424 && long + 251 > 16_424, "{long}");
    let before = operations(vfs);
    let file = made(vfs, "file").await;
    let moved = vfs.rename(&root, top, &name("file"), bottom, &name(&"f".repeat(250))).await;
    assert_eq!(kind(moved), Some(ErrorKind::NameTooLong));
    let linked = vfs.link(&root, file, bottom, &name(&"f".repeat(250))).await;
    assert_eq!(kind(linked), Some(ErrorKind::NameTooLong));
    assert_eq!(operations(vfs), before + 1);
    // All that was acknowledged can be had there.
    t.flush().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_known_after_a_restart_without_the_origin() {
    let far = Far::new("far:one");
    far.memory.set_limits(OriginLimits { file_size_max: Some(1000), ..OriginLimits::default() });
    let t = back_tier(far.clone(), NEVER);
    let file = made(&t.vfs, "file").await;
    far.set_down(true);
    let t = t.after_a_restart().await;
    let refused = t.vfs.setattr(&Caller::root(), file, size(1001), None).await;
    assert_eq!(kind(refused), Some(ErrorKind::FileTooLarge));
    t.vfs.setattr(&Caller::root(), file, size(1000), None).await.expect("an outage holds up no client");
}
