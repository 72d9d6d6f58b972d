//! Exports inside the export: never an empty directory in place of a file system.

use origin::{DirCursor, Origin};
use rpc_nfs3::mount::{self, MountStatus};
use types::{ErrorKind, Name};

use crate::calls::{find, names};
use crate::server::{Act, Server, Tree};

/// `/export/dir` is an export of its own, on file system 2, with one file in it; LOOKUP shows the empty
/// directory below.
fn tree(mounts: Result<&str, MountStatus>) -> Tree {
    let mut tree = Tree::sample();
    tree.directory("inner", 2);
    tree.file("inner", "treasure", b"gold");
    tree.export("/export/dir", mounts);
    tree
}

fn name(name: &str) -> Name {
    Name::new(name.as_bytes().to_vec()).expect("name")
}

#[tokio::test]
async fn a_nested_export_that_lookup_does_not_enter_is_mounted() {
    let server = Server::start(tree(Ok("inner")), |_| Act::Honest).await;
    let origin = server.connect().await;
    for _ in 0..2 {
        let dir = find(&*origin, "dir").await;
        assert_eq!((dir.attr.fsid, dir.reference.0.as_ref()), (2, &b"inner"[..]));
        assert_eq!(names(&*origin, &dir.reference).await.expect("listing"), ["treasure"]);
    }
    assert_eq!(
        server.calls_of(mount::PROGRAM, mount::procedure::MNT),
        2,
        "ours and the nested one, once each"
    );
}

#[tokio::test]
async fn a_listing_does_not_tell_what_lies_under_a_nested_export() {
    let server = Server::start(tree(Ok("inner")), |_| Act::Honest).await;
    let origin = server.connect().await;
    let root = origin.root().await.expect("root").reference;
    let (mut cursor, mut seen) = (Some(DirCursor::default()), Vec::new());
    while let Some(at) = cursor {
        let page = origin.readdir(&root, at).await.expect("page");
        seen.extend(page.entries.into_iter().map(|e| (e.name.to_string(), e.object.is_some())));
        cursor = page.next;
    }
    assert_eq!(seen, [("file".to_owned(), true), ("dir".to_owned(), false), ("link".to_owned(), true)]);
}

#[tokio::test]
async fn a_nested_export_that_cannot_be_mounted_is_an_error_and_not_an_empty_directory() {
    let cases = [
        (MountStatus::ACCESS, ErrorKind::AccessDenied),
        (MountStatus::NO_ENTRY, ErrorKind::Unavailable),
        (MountStatus::SERVER_FAULT, ErrorKind::Unavailable),
    ];
    for (status, kind) in cases {
        let server = Server::start(tree(Err(status)), |_| Act::Honest).await;
        let origin = server.connect().await;
        let root = origin.root().await.expect("root").reference;
        let error = origin.lookup(&root, &name("dir")).await.expect_err("not mountable");
        assert_eq!(error.kind(), kind, "{error}");
        // It recovers when the server does.
        server.change(|t| t.exports = tree(Ok("inner")).exports);
        assert_eq!(find(&*origin, "dir").await.attr.fsid, 2);
    }
}

#[tokio::test]
async fn a_server_that_lets_us_walk_in_but_not_mount_is_walked() {
    let mut tree = Tree::sample();
    tree.add_directory("root", "sub", "sub", 2);
    tree.export("/export/sub", Err(MountStatus::ACCESS));
    let server = Server::start(tree, |_| Act::Honest).await;
    let origin = server.connect().await;
    for _ in 0..3 {
        assert_eq!(find(&*origin, "sub").await.attr.fsid, 2);
    }
    assert_eq!(server.calls_of(mount::PROGRAM, mount::procedure::MNT), 2, "ours, and one attempt");
}

/// nfs-ganesha: LOOKUP shows the other file system's attributes, but its handle is stale at the next call.
#[tokio::test]
async fn a_server_that_shows_a_nested_export_but_gives_a_useless_handle_is_mounted() {
    let mut tree = tree(Ok("inner"));
    tree.nodes.get_mut(&b"dir"[..]).expect("dir").attr.fsid = 2;
    let server = Server::start(tree, |_| Act::Honest).await;
    let origin = server.connect().await;
    let dir = find(&*origin, "dir").await;
    assert_eq!(names(&*origin, &dir.reference).await.expect("listing"), ["treasure"]);
}

#[tokio::test]
async fn an_exported_subdirectory_of_the_same_file_system_stays_what_it_is() {
    let mut tree = Tree::sample();
    tree.export("/export/dir", Ok("dir"));
    let server = Server::start(tree, |_| Act::Honest).await;
    let origin = server.connect().await;
    for _ in 0..3 {
        assert_eq!(find(&*origin, "dir").await.reference.0, "dir");
    }
    assert_eq!(server.calls_of(mount::PROGRAM, mount::procedure::MNT), 2, "ours, and once to compare");
}

#[tokio::test]
async fn a_directory_kept_from_before_a_restart_still_leads_into_a_nested_export() {
    let mut tree = Tree::sample();
    tree.add_directory("dir", "deep", "deep", 1);
    tree.directory("inner", 2);
    tree.export("/export/dir/deep", Ok("inner"));
    let server = Server::start(tree, |_| Act::Honest).await;
    // Nobody has walked to `dir` with this origin: its handle was stored.
    let origin = server.connect().await;
    let dir = origin::Reference(bytes::Bytes::from_static(b"dir"));
    assert_eq!(origin.lookup(&dir, &name("deep")).await.expect("lookup").attr.fsid, 2);
}
