//! Changes that are not made: each with the status that the RFC has for it, in the shape of its procedure.

use bytes::Bytes;
use front_nfs::{ExportRule, ExportRules, Squash};
use rpc_nfs3::nfs3::attr::FileType;
use rpc_nfs3::nfs3::create::{CreateHow3, NodeData};
use rpc_nfs3::nfs3::file::access;
use rpc_nfs3::nfs3::setattr::{Sattr3, SetTime};
use rpc_nfs3::nfs3::write::{StableHow, WriteArgs};
use rpc_nfs3::nfs3::{FileHandle, NfsResult, NfsStatus, Nfstime3, fs, procedure};
use rpc_nfs3::rpc::ReplyStatus;
use testkit::far_origin::Far;
use vfs::WritePolicy;

use crate::changes::{Tree, at_origin, made, mode, place, tree};
use crate::client::{Client, NFS, serve_junctions, serve_writable, sys};

fn status<T, F>(result: NfsResult<T, F>) -> Option<NfsStatus> {
    result.err().map(|(status, _)| status)
}

const GUARDED: CreateHow3 = CreateHow3::Guarded(Sattr3 {
    mode: Some(0o644),
    uid: None,
    gid: None,
    size: None,
    atime: SetTime::Keep,
    mtime: SetTime::Keep,
});

/// A directory `dir`, not empty, and a file `file`.
async fn furnished() -> (Tree, FileHandle, FileHandle) {
    let mut tree = tree().await;
    let (dir, _) = made(tree.client.mkdir(&tree.root, b"dir").await);
    made(tree.client.mkdir(&dir, b"inside").await);
    let (file, _) = made(tree.client.create(&tree.root, b"file", GUARDED).await);
    (tree, dir, file)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_cannot_be_made_is_refused() {
    let (Tree { mut client, root, served: _served, .. }, _, file) = furnished().await;
    for (name, expected) in [
        (&b"file"[..], NfsStatus::EXIST),
        (b".", NfsStatus::EXIST),
        (b"..", NfsStatus::EXIST),
        (b"", NfsStatus::INVAL),
        (b"a/b", NfsStatus::INVAL),
        (b"a\0b", NfsStatus::INVAL),
        (&[b'n'; 256], NfsStatus::NAMETOOLONG),
    ] {
        let shown = name.escape_ascii();
        let all = [
            status(client.create(&root, name, GUARDED).await),
            status(client.mkdir(&root, name).await),
            status(client.symlink(&root, name, b"target").await),
            status(client.mknod(&root, name, NodeData::Socket(mode(0o600))).await),
            status(client.link(&file, place(&root, name)).await),
        ];
        assert_eq!(all, [Some(expected); 5], "{shown}");
    }
    let (refused, wcc) = client.mkdir(&root, b"file").await.expect_err("it is there");
    assert_eq!(refused, NfsStatus::EXIST);
    assert!(wcc.after.is_some_and(|dir| dir.kind == FileType::Directory), "the directory is known here");
    assert_eq!(status(client.mkdir(&file, b"x").await), Some(NfsStatus::NOTDIR));
    assert_eq!(
        status(client.mknod(&root, b"x", NodeData::Other(FileType::Regular)).await),
        Some(NfsStatus::BADTYPE)
    );
    assert_eq!(status(client.symlink(&root, b"x", b"").await), Some(NfsStatus::INVAL));
    assert_eq!(status(client.symlink(&root, b"x", b"a\0b").await), Some(NfsStatus::INVAL));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_cannot_be_removed_or_renamed_is_refused() {
    let (Tree { mut client, root, served: _served, .. }, dir, file) = furnished().await;
    let missing = [
        status(client.remove(&root, b"missing").await),
        status(client.rmdir(&root, b"missing").await),
        status(client.rename(place(&root, b"missing"), place(&root, b"x")).await),
    ];
    assert_eq!(missing, [Some(NfsStatus::NOENT); 3]);
    assert_eq!(status(client.remove(&root, b"dir").await), Some(NfsStatus::ISDIR));
    assert_eq!(status(client.rmdir(&root, b"dir").await), Some(NfsStatus::NOTEMPTY));
    assert_eq!(status(client.rmdir(&root, b"file").await), Some(NfsStatus::NOTDIR));
    assert_eq!(status(client.remove(&root, b".").await), Some(NfsStatus::ACCES));
    assert_eq!(status(client.remove(&dir, b"..").await), Some(NfsStatus::ACCES));
    assert_eq!(status(client.rmdir(&root, b".").await), Some(NfsStatus::INVAL));
    assert_eq!(status(client.rmdir(&dir, b"..").await), Some(NfsStatus::EXIST));
    assert_eq!(status(client.rename(place(&root, b"."), place(&root, b"x")).await), Some(NfsStatus::INVAL));
    assert_eq!(
        status(client.rename(place(&root, b"file"), place(&dir, b"..")).await),
        Some(NfsStatus::INVAL)
    );
    let onto_dir = client.rename(place(&root, b"file"), place(&root, b"dir")).await;
    assert_eq!(status(onto_dir), Some(NfsStatus::ISDIR));
    let into_itself = client.rename(place(&root, b"dir"), place(&dir, b"x")).await;
    assert_eq!(status(into_itself), Some(NfsStatus::INVAL));
    let (refused, wcc) = client.link(&dir, place(&root, b"x")).await.expect_err("a directory");
    assert!(matches!(refused, NfsStatus::PERM | NfsStatus::ISDIR | NfsStatus::INVAL), "{refused:?}");
    assert!(wcc.dir.after.is_some());
    assert_eq!(client.find(&root, b"file").await, Ok(file));
}

#[tokio::test(flavor = "multi_thread")]
async fn values_that_no_file_can_have_are_refused() {
    let (Tree { mut client, root, far, served: _served }, dir, file) = furnished().await;
    let size = |size| Sattr3 { size: Some(size), ..Sattr3::default() };
    assert_eq!(status(client.setattr(&file, size(1 << 63), None).await), Some(NfsStatus::FBIG));
    let how = CreateHow3::Unchecked(size(u64::MAX));
    assert_eq!(status(client.create(&root, b"new", how).await), Some(NfsStatus::FBIG));
    let no_time = SetTime::To(Nfstime3 { seconds: 0, nanos: 1_000_000_000 });
    let set = Sattr3 { mtime: no_time, ..Sattr3::default() };
    assert_eq!(status(client.setattr(&file, set, None).await), Some(NfsStatus::INVAL));
    for offset in [1 << 63, u64::MAX, (1 << 63) - 3] {
        let written = client.write_at(&file, offset, b"12345", StableHow::FileSync).await;
        assert_eq!(status(written), Some(NfsStatus::FBIG), "{offset}");
    }
    assert!(client.commit(&file, u64::MAX, u32::MAX).await.is_ok(), "there is nothing to store");
    let into_dir = status(client.write_at(&dir, 0, b"x", StableHow::FileSync).await);
    assert!(matches!(into_dir, Some(NfsStatus::ISDIR | NfsStatus::INVAL)), "{into_dir:?}");
    assert_eq!(at_origin(&far, &["file"]).await.expect("there"), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn lengths_that_lie_are_garbage() {
    let (Tree { mut client, root, far, served: _served }, _, file) = furnished().await;
    let mut garbage = async |number, arguments: &dyn Fn(&mut rpc_nfs3::XdrEncoder)| {
        let (status, _) = client.call(NFS, number, |e| arguments(e)).await;
        assert_eq!(status, ReplyStatus::GarbageArguments, "{:?}", procedure::name(number));
    };
    let more = Bytes::from(vec![1; (1 << 20) + 4]);
    let (offset, stable) = (0, StableHow::FileSync);
    let write = |data: Bytes| WriteArgs { file: file.clone(), offset, stable, data };
    garbage(procedure::WRITE, &|e| write(more.clone()).encode(e)).await;
    garbage(procedure::WRITE, &|e| {
        file.encode(e);
        e.u64(0);
        e.u32(9); // the count, and then five bytes
        e.u32(2);
        e.opaque(b"12345");
    })
    .await;
    garbage(procedure::CREATE, &|e| {
        place(&root, b"x").encode(e);
        e.u32(3); // no createmode
    })
    .await;
    garbage(procedure::MKNOD, &|e| {
        place(&root, b"x").encode(e);
        e.u32(99); // no ftype
    })
    .await;
    garbage(procedure::REMOVE, &|e| root.encode(e)).await;
    assert_eq!(at_origin(&far, &["file"]).await.expect("there"), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_write_may_not_change() {
    let (Tree { mut client, root, served: _served, .. }, dir, file) = furnished().await;
    client.credentials = sys(7);
    let all = [
        status(client.create(&root, b"x", GUARDED).await),
        status(client.mkdir(&root, b"x").await),
        status(client.symlink(&root, b"x", b"target").await),
        status(client.link(&file, place(&root, b"x")).await),
        status(client.remove(&root, b"file").await),
        status(client.rmdir(&dir, b"inside").await),
        status(client.rename(place(&root, b"file"), place(&root, b"x")).await),
        status(client.write_at(&file, 0, b"x", StableHow::FileSync).await),
    ];
    assert_eq!(all, [Some(NfsStatus::ACCES); 8]);
    assert_eq!(status(client.setattr(&file, mode(0o777), None).await), Some(NfsStatus::PERM));
    assert_eq!(client.granted(&root).await, access::READ | access::LOOKUP);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_moves_from_one_junction_to_another() {
    let (one, two) = (Far::new("far:one"), Far::new("far:two"));
    let junctions: Vec<(_, std::sync::Arc<dyn origin::Origin>, _)> =
        vec![("/one", one, WritePolicy::Through), ("/two", two, WritePolicy::Through)];
    let served = serve_junctions(junctions, |_| {}).await;
    let mut client = Client::connect(&served).await;
    let root = client.root().await;
    let one = client.find(&root, b"one").await.expect("found");
    let two = client.find(&root, b"two").await.expect("found");
    let (file, _) = made(client.create(&one, b"file", GUARDED).await);
    let moved = client.rename(place(&one, b"file"), place(&two, b"file")).await;
    assert_eq!(status(moved), Some(NfsStatus::XDEV));
    assert_eq!(status(client.link(&file, place(&two, b"file")).await), Some(NfsStatus::XDEV));
    assert_eq!(status(client.mkdir(&root, b"x").await), Some(NfsStatus::ROFS), "above the junctions");
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_a_read_only_rule_change_nothing() {
    let fill = |m: &origin::memory::MemoryOrigin| m.write_file(b"file", b"x").expect("written");
    let rule = ExportRule { squash: Squash::None, read_only: true, ..ExportRule::default() };
    let (served, far) = serve_writable(fill, |config| config.exports = ExportRules::new(vec![rule])).await;
    let mut client = Client::connect(&served).await;
    let root = client.root().await;
    let file = client.find(&root, b"file").await.expect("found");
    assert_eq!(status(client.mkdir(&root, b"x").await), Some(NfsStatus::ROFS));
    assert_eq!(status(client.remove(&root, b"file").await), Some(NfsStatus::ROFS));
    assert_eq!(status(client.setattr(&file, mode(0o600), None).await), Some(NfsStatus::ROFS));
    assert_eq!(status(client.write_at(&file, 0, b"y", StableHow::FileSync).await), Some(NfsStatus::ROFS));
    assert_eq!(status(client.link(&file, place(&root, b"y")).await), Some(NfsStatus::ROFS));
    assert_eq!(client.granted(&root).await, access::READ | access::LOOKUP);
    assert_eq!(client.granted(&file).await, access::READ);
    assert_eq!(client.fsinfo(&root).await.properties & fs::properties::CAN_SET_TIME, 0);
    assert_eq!(at_origin(&far, &["file"]).await.expect("there"), "x");
}
