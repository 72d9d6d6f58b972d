//! The calls that change something, over a real server: what they leave behind is read back through the same
//! client. The server's directory is empty at first, and empty again afterwards.

use std::sync::Arc;

use bytes::Bytes;
use origin::{Object, Origin, Reference};
use origin_nfs::{CreateHow, NewNode, NfsOrigin, SetAttr, StableHow, TimeChange};
use types::{ByteRange, ErrorKind, FileKind, Name, Result, Timestamp};

use crate::calls::names;

pub async fn all(origin: &Arc<NfsOrigin>) {
    let root = origin.root().await.expect("root").reference;
    eight_mebibytes_in_pieces_side_by_side(origin, &root).await;
    what_is_larger_than_one_call_is_written_whole(origin, &root).await;
    files_are_created_as_asked(origin, &root).await;
    an_exclusive_create_may_be_repeated(origin, &root).await;
    directories_come_and_go(origin, &root).await;
    names_are_moved_linked_and_removed(origin, &root).await;
    links_and_special_files_are_what_they_were_made(origin, &root).await;
    attributes_are_set_to_the_nanosecond_and_under_guard(origin, &root).await;
    assert!(names(&**origin, &root).await.expect("listing").is_empty(), "nothing is left");
}

fn name(text: &str) -> Name {
    Name::new(Bytes::copy_from_slice(text.as_bytes())).expect("a valid name")
}

fn with_mode(mode: u32) -> SetAttr {
    SetAttr { mode: Some(mode), ..SetAttr::default() }
}

fn kind_of<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    result.expect_err("must fail").kind()
}

fn pattern(length: usize) -> Bytes {
    (0..length as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

async fn made(origin: &NfsOrigin, dir: &Reference, file: &str) -> Object {
    let done = origin.create(dir, &name(file), CreateHow::Guarded, with_mode(0o644)).await.expect("created");
    assert!(!done.resent);
    done.value
}

async fn gone(origin: &NfsOrigin, dir: &Reference, file: &str) {
    origin.remove(dir, &name(file)).await.expect("removed");
    assert_eq!(kind_of(origin.lookup(dir, &name(file)).await), ErrorKind::NotFound);
}

/// Its last name is gone. Linux's server goes on for a moment with a file that it has just written to.
async fn assert_no_more(origin: &NfsOrigin, file: &Reference) {
    match origin.getattr(file).await {
        Ok(object) => assert_eq!(object.attr.nlink, 0),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Stale),
    }
}

async fn contents(origin: &NfsOrigin, file: &Reference) -> Bytes {
    let now = origin.getattr(file).await.expect("there");
    origin.read(file, now.version, ByteRange::new(0, now.attr.size)).await.expect("read")
}

async fn eight_mebibytes_in_pieces_side_by_side(origin: &Arc<NfsOrigin>, root: &Reference) {
    let file = made(origin, root, "pieces").await.reference;
    let data = pattern(8 << 20);
    let piece = origin.write_max() as usize;
    let mut writes = tokio::task::JoinSet::new();
    // From the end, so that pieces arrive out of order.
    for at in (0..data.len()).step_by(piece).rev() {
        let (origin, file) = (Arc::clone(origin), file.clone());
        let bytes = data.slice(at..data.len().min(at + piece));
        writes.spawn(async move {
            let length = bytes.len() as u64;
            let done = origin.write(&file, at as u64, bytes, StableHow::Unstable).await.expect("written");
            assert_eq!(done.value.count, length);
            done.value
        });
    }
    let mut verifiers = Vec::new();
    while let Some(written) = writes.join_next().await {
        verifiers.push(written.expect("no panic").verifier);
    }
    let committed = origin.commit(&file, ByteRange::new(0, 0)).await.expect("committed").value;
    assert!(verifiers.iter().all(|verifier| *verifier == committed), "the server did not restart");
    assert!(contents(origin, &file).await == data);
    gone(origin, root, "pieces").await;
}

async fn what_is_larger_than_one_call_is_written_whole(origin: &NfsOrigin, root: &Reference) {
    let file = made(origin, root, "large").await.reference;
    let data = pattern(2 * origin.write_max() as usize + 12_345);
    let written = origin.write(&file, 3, data.clone(), StableHow::FileSync).await.expect("written").value;
    assert_eq!((written.count, written.committed), (data.len() as u64, StableHow::FileSync));
    let back = contents(origin, &file).await;
    assert!(back[..3] == [0, 0, 0] && back[3..] == data[..], "{} bytes", back.len());
    let nothing = origin.write(&file, 1, Bytes::new(), StableHow::Unstable).await.expect("written").value;
    assert_eq!(nothing.count, 0);
    for length in 0..=5 {
        let odd = data.slice(..length);
        let done = origin.write(&file, 100, odd, StableHow::DataSync).await.expect("written");
        assert_eq!(done.value.count, length as u64);
    }
    assert!(contents(origin, &file).await[100..105] == data[..5], "lengths that need padding");
    let beyond = origin.write(&file, u64::MAX, data.slice(..1), StableHow::Unstable).await;
    assert_eq!(kind_of(beyond), ErrorKind::InvalidArgument);
    gone(origin, root, "large").await;
}

async fn files_are_created_as_asked(origin: &NfsOrigin, root: &Reference) {
    let attributes = SetAttr { mode: Some(0o640), uid: Some(12), gid: Some(34), ..SetAttr::default() };
    let file = origin.create(root, &name("file"), CreateHow::Guarded, attributes).await.expect("new").value;
    let attr = file.attr;
    assert_eq!((attr.kind, attr.mode, attr.uid, attr.gid), (FileKind::Regular, 0o640, 12, 34));
    assert_eq!(origin.lookup(root, &name("file")).await.expect("there").identity, file.identity);
    let again = origin.create(root, &name("file"), CreateHow::Guarded, with_mode(0o600)).await;
    assert_eq!(kind_of(again), ErrorKind::Exists);
    origin.write(&file.reference, 0, pattern(1000), StableHow::FileSync).await.expect("written");
    let taken = origin.create(root, &name("file"), CreateHow::Unchecked, SetAttr::default()).await;
    let taken = taken.expect("it is there").value;
    assert_eq!((&taken.identity, taken.attr.size), (&file.identity, 1000), "taken as it is");
    let cut = SetAttr { size: Some(0), ..SetAttr::default() };
    origin.create(root, &name("file"), CreateHow::Unchecked, cut).await.expect("it is there");
    assert_eq!(origin.getattr(&file.reference).await.expect("there").attr.size, 0);
    let below_file = origin.create(&file.reference, &name("x"), CreateHow::Guarded, with_mode(0o600)).await;
    assert_eq!(kind_of(below_file), ErrorKind::NotADirectory);
    gone(origin, root, "file").await;
    assert_no_more(origin, &file.reference).await;
}

async fn an_exclusive_create_may_be_repeated(origin: &NfsOrigin, root: &Reference) {
    let (mine, theirs) = (CreateHow::Exclusive(*b"verifier"), CreateHow::Exclusive(*b"another1"));
    let create = |how, attributes| async move { origin.create(root, &name("only"), how, attributes).await };
    let first = create(mine, SetAttr::default()).await.expect("created").value;
    let second = create(mine, SetAttr::default()).await.expect("the same once more").value;
    assert_eq!(first.identity, second.identity);
    assert_eq!(kind_of(create(theirs, SetAttr::default()).await), ErrorKind::Exists);
    gone(origin, root, "only").await;
    let dressed = create(mine, with_mode(0o604)).await.expect("created").value;
    assert_eq!(dressed.attr.mode, 0o604);
    assert_eq!(kind_of(create(mine, SetAttr::default()).await), ErrorKind::Exists, "its times are set");
    gone(origin, root, "only").await;
}

async fn directories_come_and_go(origin: &NfsOrigin, root: &Reference) {
    let dir = origin.mkdir(root, &name("dir"), with_mode(0o750)).await.expect("made").value;
    assert_eq!((dir.attr.kind, dir.attr.mode), (FileKind::Directory, 0o750));
    assert_eq!(kind_of(origin.mkdir(root, &name("dir"), with_mode(0o750)).await), ErrorKind::Exists);
    made(origin, &dir.reference, "inside").await;
    assert_eq!(kind_of(origin.rmdir(root, &name("dir")).await), ErrorKind::NotEmpty);
    assert_eq!(kind_of(origin.rmdir(&dir.reference, &name("inside")).await), ErrorKind::NotADirectory);
    gone(origin, &dir.reference, "inside").await;
    origin.rmdir(root, &name("dir")).await.expect("empty now");
    assert_eq!(kind_of(origin.rmdir(root, &name("dir")).await), ErrorKind::NotFound);
    assert_eq!(kind_of(origin.mkdir(&dir.reference, &name("x"), with_mode(0o750)).await), ErrorKind::Stale);
    let long = name(&"n".repeat(255));
    origin.mkdir(root, &long, with_mode(0o700)).await.expect("255 bytes are a name");
    origin.rmdir(root, &long).await.expect("removed");
}

async fn names_are_moved_linked_and_removed(origin: &NfsOrigin, root: &Reference) {
    let dir = origin.mkdir(root, &name("dir"), with_mode(0o755)).await.expect("made").value.reference;
    let moved = made(origin, root, "from").await;
    let replaced = made(origin, &dir, "to").await;
    origin.rename(root, &name("from"), &dir, &name("to")).await.expect("over an existing file");
    let found = origin.lookup(&dir, &name("to")).await.expect("there");
    assert_eq!(found.identity, moved.identity);
    assert_eq!(kind_of(origin.lookup(root, &name("from")).await), ErrorKind::NotFound);
    assert_no_more(origin, &replaced.reference).await;
    assert_eq!(
        kind_of(origin.rename(root, &name("from"), root, &name("x")).await),
        ErrorKind::NotFound,
        "sent once, so the server's word stands"
    );
    origin.link(&moved.reference, root, &name("second")).await.expect("linked");
    let second = origin.lookup(root, &name("second")).await.expect("there");
    assert_eq!((second.identity, second.attr.nlink), (moved.identity.clone(), 2));
    assert_eq!(kind_of(origin.link(&moved.reference, root, &name("second")).await), ErrorKind::Exists);
    origin.remove(&dir, &name("to")).await.expect("removed");
    assert_eq!(origin.getattr(&moved.reference).await.expect("one name is left").attr.nlink, 1);
    gone(origin, root, "second").await;
    assert_no_more(origin, &moved.reference).await;
    assert_eq!(kind_of(origin.remove(root, &name("second")).await), ErrorKind::NotFound);
    origin.rmdir(root, &name("dir")).await.expect("removed");
}

async fn links_and_special_files_are_what_they_were_made(origin: &NfsOrigin, root: &Reference) {
    let link = origin.symlink(root, &name("link"), b"../some where/\xff", with_mode(0o777)).await;
    let link = link.expect("made").value;
    assert_eq!(link.attr.kind, FileKind::Symlink);
    assert_eq!(origin.readlink(&link.reference).await.expect("read"), &b"../some where/\xff"[..]);
    let again = origin.symlink(root, &name("link"), b"x", with_mode(0o777)).await;
    assert_eq!(kind_of(again), ErrorKind::Exists);
    let nowhere = origin.symlink(root, &name("nowhere"), b"", with_mode(0o777)).await;
    assert_eq!(kind_of(nowhere), ErrorKind::InvalidArgument);
    gone(origin, root, "link").await;
    let nodes = [
        (NewNode::Fifo, FileKind::Fifo, (0, 0)),
        (NewNode::Socket, FileKind::Socket, (0, 0)),
        (NewNode::CharDevice(1, 3), FileKind::CharDevice, (1, 3)),
        (NewNode::BlockDevice(259, 70_000), FileKind::BlockDevice, (259, 70_000)),
    ];
    for (node, kind, rdev) in nodes {
        let made = origin.mknod(root, &name("node"), node, with_mode(0o600)).await.expect("made").value;
        assert_eq!((made.attr.kind, made.attr.mode), (kind, 0o600));
        if rdev != (0, 0) {
            assert_eq!(made.attr.rdev, rdev);
        }
        gone(origin, root, "node").await;
    }
}

/// The server's file system holds about 1 MiB.
pub async fn a_full_disk_is_told(origin: &NfsOrigin) {
    let root = origin.root().await.expect("root").reference;
    let file = made(origin, &root, "file").await.reference;
    let full = origin.write(&file, 0, pattern(4 << 20), StableHow::FileSync).await;
    assert_eq!(kind_of(full), ErrorKind::NoSpace);
}

/// The server's export forbids changes, and has the directory `full` in it.
pub async fn a_read_only_export_is_told(origin: &NfsOrigin) {
    let root = origin.root().await.expect("root").reference;
    let (full, x) = (name("full"), name("x"));
    let dir = origin.lookup(&root, &full).await.expect("there").reference;
    let create = origin.create(&root, &x, CreateHow::Guarded, with_mode(0o600)).await;
    assert_eq!(kind_of(create), ErrorKind::ReadOnly);
    assert_eq!(kind_of(origin.mkdir(&root, &x, with_mode(0o700)).await), ErrorKind::ReadOnly);
    assert_eq!(kind_of(origin.rmdir(&root, &full).await), ErrorKind::ReadOnly);
    assert_eq!(kind_of(origin.rename(&root, &full, &root, &x).await), ErrorKind::ReadOnly);
    assert_eq!(kind_of(origin.setattr(&dir, with_mode(0o700), None).await), ErrorKind::ReadOnly);
    assert_eq!(kind_of(origin.symlink(&root, &x, b"y", with_mode(0o777)).await), ErrorKind::ReadOnly);
}

async fn attributes_are_set_to_the_nanosecond_and_under_guard(origin: &NfsOrigin, root: &Reference) {
    let file = made(origin, root, "file").await;
    let mtime = Timestamp { seconds: 1_234_567_890, nanos: 123_456_789 };
    let atime = Timestamp { seconds: 4_000_000_000, nanos: 1 };
    let set = SetAttr {
        mode: Some(0o1711),
        uid: Some(1000),
        gid: Some(1001),
        size: Some(70_000),
        atime: TimeChange::To(atime),
        mtime: TimeChange::To(mtime),
    };
    origin.setattr(&file.reference, set, None).await.expect("set");
    let attr = origin.getattr(&file.reference).await.expect("there").attr;
    assert_eq!((attr.mode, attr.uid, attr.gid, attr.size), (0o1711, 1000, 1001, 70_000));
    assert_eq!((attr.atime, attr.mtime), (atime, mtime));
    assert!(contents(origin, &file.reference).await.iter().all(|byte| *byte == 0));

    // Linux's server compares whole seconds.
    let old = Timestamp { seconds: attr.ctime.seconds - 1, ..attr.ctime };
    let guarded = origin.setattr(&file.reference, with_mode(0o600), Some(old)).await;
    assert_eq!(kind_of(guarded), ErrorKind::VersionChanged);
    assert_eq!(origin.getattr(&file.reference).await.expect("there").attr.mode, 0o1711, "nothing was set");
    let done = origin.setattr(&file.reference, with_mode(0o600), Some(attr.ctime)).await.expect("set");
    if let Some(told) = done.value {
        assert_eq!(told.mode, 0o600);
    }
    let now = SetAttr { mtime: TimeChange::Now, ..SetAttr::default() };
    origin.setattr(&file.reference, now, None).await.expect("set");
    let after = origin.getattr(&file.reference).await.expect("there").attr;
    assert!(after.mtime.seconds > mtime.seconds && after.atime == atime, "{after:?}");
    gone(origin, root, "file").await;
}
