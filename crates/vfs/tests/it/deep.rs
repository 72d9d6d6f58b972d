//! Trees that are deeper than PATH_MAX, as every front sees them, under both policies.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use origin::Origin;
use origin::posix::PosixOrigin;
use types::Timeline;
use types::{Caller, CreateHow, FileId, SetAttr, Stability};
use vfs::{Lend, Vfs, WarmMode, WarmProgress};

use crate::back::{NEVER, back_tier};
use crate::writable::{name, names, with_mode, writable};

const GUARDED: CreateHow = CreateHow::Guarded;

fn origin_in(dir: &Path) -> Arc<dyn Origin> {
    Arc::new(PosixOrigin::open(dir).expect("opened"))
}

/// One directory in the other, from the root on.
async fn dug(vfs: &Vfs, depth: usize, length: usize) -> Vec<FileId> {
    let mut way = vec![vfs.root()];
    for level in 0..depth {
        let made = vfs.mkdir(&Caller::root(), way[level], &name(&"d".repeat(length)), with_mode(0o755)).await;
        way.push(made.unwrap_or_else(|e| panic!("level {level}: {e}")).node.id);
    }
    way
}

async fn read(vfs: &Vfs, id: FileId) -> Vec<u8> {
    let read = vfs.read(&Caller::root(), id, 0, 100, Lend::Nothing).await.expect("read");
    read.data.iter().flat_map(|piece| piece.to_bytes().expect("bytes")).collect()
}

/// A file at the bottom, changed in every way. Returns the directory above all and the file.
async fn work(vfs: &Vfs, depth: usize, length: usize) -> (Vec<FileId>, FileId) {
    let root = Caller::root();
    let way = dug(vfs, depth, length).await;
    let bottom = way[depth];
    let file =
        vfs.create(&root, bottom, &name("file"), GUARDED, with_mode(0o644)).await.expect("made").node.id;
    vfs.write(&root, file, 0, Bytes::from_static(b"hello"), Stability::FileSync).await.expect("written");
    let set = SetAttr { mode: Some(0o640), uid: Some(7), gid: Some(8), size: Some(4), ..SetAttr::default() };
    vfs.setattr(&root, file, set, None).await.expect("set");
    vfs.link(&root, file, bottom, &name("link")).await.expect("linked");
    vfs.rename(&root, bottom, &name("file"), bottom, &name("renamed")).await.expect("renamed");
    assert_eq!(names(vfs, bottom).await, ["link", "renamed"]);
    (way, file)
}

/// What lies below it is found under another path then.
async fn move_the_top(vfs: &Vfs, way: &[FileId], length: usize) {
    let from = name(&"d".repeat(length));
    vfs.rename(&Caller::root(), way[0], &from, way[0], &name("top")).await.expect("renamed");
    assert_eq!(names(vfs, way[0]).await, ["top"]);
}

async fn clear(vfs: &Vfs, way: &[FileId], length: usize) {
    let root = Caller::root();
    let (bottom, depth) = (way[way.len() - 1], way.len() - 1);
    for gone in ["link", "renamed"] {
        vfs.remove(&root, bottom, &name(gone)).await.expect("removed");
    }
    for level in (0..depth).rev() {
        let text = if level == 0 { "top".to_owned() } else { "d".repeat(length) };
        vfs.rmdir(&root, way[level], &name(&text)).await.unwrap_or_else(|e| panic!("level {level}: {e}"));
    }
    assert!(names(vfs, way[0]).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_deeper_than_path_max_is_worked_in_as_any_other_written_through() {
    for (depth, length) in [(60, 100), (25, 200)] {
        let dir = tempfile::tempdir().expect("a directory");
        let t = writable(origin_in(dir.path()), &Timeline::default());
        let (way, file) = work(&t.vfs, depth, length).await;
        let progress = Arc::new(WarmProgress::default());
        t.vfs.warm(&[b"/".to_vec()], WarmMode::Data, &progress).await;
        assert_eq!((progress.files_done.load(Relaxed), progress.last_error()), (2, None));
        move_the_top(&t.vfs, &way, length).await;
        assert_eq!(read(&t.vfs, file).await, b"hell");
        clear(&t.vfs, &way, length).await;
        assert_eq!(std::fs::read_dir(dir.path()).expect("read").count(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_deeper_than_path_max_is_worked_in_as_any_other_written_back() {
    for (depth, length) in [(60, 100), (25, 200)] {
        let dir = tempfile::tempdir().expect("a directory");
        let t = back_tier(origin_in(dir.path()), NEVER);
        let (way, file) = work(&t.vfs, depth, length).await;
        t.flush().await;
        // As another tier sees it.
        let other = writable(origin_in(dir.path()), &Timeline::default());
        let path = format!("/{}/renamed", vec!["d".repeat(length); depth].join("/"));
        let theirs = other.vfs.resolve(path.as_bytes()).await.expect("it went home").attr;
        assert_eq!((theirs.size, theirs.mode, theirs.nlink), (4, 0o640, 2));
        move_the_top(&t.vfs, &way, length).await;
        t.flush().await;
        assert_eq!(read(&t.vfs, file).await, b"hell");
        clear(&t.vfs, &way, length).await;
        t.flush().await;
        assert_eq!(std::fs::read_dir(dir.path()).expect("read").count(), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_warm_up_names_what_it_could_not_reach_and_brings_the_rest() {
    let far = testkit::far_origin::Far::new("far:one");
    far.memory.mkdir(b"dir").unwrap();
    for file in [&b"dir/good"[..], b"dir/out of reach", b"other"] {
        far.memory.write_file(file, b"bytes").unwrap();
    }
    far.list_without_object(b"out of reach");
    let t = writable(far.clone(), &Timeline::default());
    far.fail("lookup", types::ErrorKind::NameTooLong, u64::MAX);
    let progress = Arc::new(WarmProgress::default());
    t.vfs.warm(&[b"/".to_vec()], WarmMode::Data, &progress).await;
    assert_eq!((progress.files_done.load(Relaxed), progress.errors.load(Relaxed)), (2, 1));
    let told = progress.last_error().expect("told");
    assert!(told.contains("/dir/out of reach"), "{told}");
}
