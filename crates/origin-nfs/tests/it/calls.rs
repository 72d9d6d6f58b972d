//! What the calls answer.

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use origin::{DirCursor, Object, Origin, Reference};
use rpc_nfs3::nfs3::file::{self, ReadOk};
use rpc_nfs3::nfs3::{NfsStatus, procedure, readdir};
use types::{ByteRange, ErrorKind, FileKind, FsStat, Name, Version};

use crate::server::{Act, Server, Tree, content, read_of, results};

pub async fn find(origin: &dyn Origin, name: &str) -> Object {
    let root = origin.root().await.expect("root");
    let name = Name::new(name.as_bytes().to_vec()).expect("name");
    origin.lookup(&root.reference, &name).await.expect("lookup")
}

pub async fn names(origin: &dyn Origin, dir: &Reference) -> types::Result<Vec<String>> {
    let (mut out, mut cursor) = (Vec::new(), DirCursor::default());
    loop {
        let page = origin.readdir(dir, cursor).await?;
        out.extend(page.entries.iter().map(|e| e.name.to_string()));
        match page.next {
            Some(next) => cursor = next,
            None => return Ok(out),
        }
    }
}

#[tokio::test]
async fn an_honest_tree_is_seen_as_it_is() {
    let server = Server::start(Tree::sample(), |_| Act::Honest).await;
    let origin = server.connect().await;
    let root = origin.root().await.expect("root");
    assert!(root.attr.is_dir());
    let file = find(&*origin, "file").await;
    assert_eq!((file.attr.kind, file.attr.size, file.attr.uid), (FileKind::Regular, 300_000, 10));
    assert_eq!(origin.getattr(&file.reference).await.expect("getattr"), file);
    let link = find(&*origin, "link").await;
    assert_eq!(origin.readlink(&link.reference).await.expect("readlink"), "target");
    assert_eq!(names(&*origin, &root.reference).await.expect("listing"), ["file", "dir", "link"]);
    let missing = Name::new("missing").expect("name");
    let error = origin.lookup(&root.reference, &missing).await.expect_err("missing");
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let gone = origin.getattr(&Reference(Bytes::from_static(b"gone"))).await.expect_err("gone");
    assert_eq!(gone.kind(), ErrorKind::Stale);
    let too_long = origin.getattr(&Reference(Bytes::from(vec![1; 65]))).await.expect_err("no handle");
    assert_eq!(too_long.kind(), ErrorKind::InvalidArgument);
    let free = origin.statfs(&root.reference).await.expect("statfs");
    let told =
        FsStat { bytes_total: 1000, bytes_free: 500, bytes_available: 400, files_total: 30, files_free: 20 };
    assert_eq!(free, told);
    assert_eq!(origin.traits().read_max, 65_536);
}

#[tokio::test]
async fn a_range_larger_than_one_read_arrives_whole() {
    let server = Server::start(Tree::sample(), |_| Act::Honest).await;
    let origin = server.connect().await;
    let file = find(&*origin, "file").await;
    for (offset, length) in [(0, 300_000), (1, 65_536), (65_535, 131_075), (299_999, 1), (7, 0)] {
        let got = origin.read(&file.reference, file.version, ByteRange::new(offset, length)).await;
        let (start, end) = (offset as usize, (offset + length) as usize);
        assert_eq!(got.expect("read"), content()[start..end]);
    }
}

#[tokio::test]
async fn short_reads_are_continued() {
    let node = Tree::sample().nodes[&b"file"[..]].clone();
    let server = Server::start(Tree::sample(), move |call| {
        if !call.is(procedure::READ) {
            return Act::Honest;
        }
        let args = call.read_args();
        let short = read_of(&node, args.offset, (args.count as usize).min(1 + call.before * 7000));
        Act::Results(results(|e| file::encode_read(e, &Ok(short))))
    })
    .await;
    let origin = server.connect().await;
    let file = find(&*origin, "file").await;
    let got = origin.read(&file.reference, file.version, ByteRange::new(5, 100_000)).await.expect("read");
    assert_eq!(got, content()[5..100_005]);
    assert!(server.calls(procedure::READ) > 3);
}

#[tokio::test]
async fn another_version_than_the_wanted_one_is_never_given() {
    let server = Server::start(Tree::sample(), |_| Act::Honest).await;
    let origin = server.connect().await;
    let file = find(&*origin, "file").await;
    server.change(|tree| tree.nodes.get_mut(&b"file"[..]).expect("file").attr.mtime.nanos += 1);
    let range = ByteRange::new(0, 10);
    let error = origin.read(&file.reference, file.version, range).await.expect_err("changed");
    assert_eq!(error.kind(), ErrorKind::VersionChanged);
    let now = origin.getattr(&file.reference).await.expect("getattr");
    assert_ne!(now.version, file.version);
    assert_eq!(origin.read(&file.reference, now.version, range).await.expect("read"), content()[..10]);
}

#[tokio::test]
async fn a_change_between_two_parts_of_a_range_is_noticed() {
    let node = Tree::sample().nodes[&b"file"[..]].clone();
    let server = Server::start(Tree::sample(), move |call| {
        if !call.is(procedure::READ) || call.before == 0 {
            return Act::Honest;
        }
        let mut changed = node.clone();
        changed.attr.ctime.seconds += 1;
        let args = call.read_args();
        let ok = read_of(&changed, args.offset, args.count as usize);
        Act::Results(results(|e| file::encode_read(e, &Ok(ok))))
    })
    .await;
    let origin = server.connect().await;
    let file = find(&*origin, "file").await;
    let error =
        origin.read(&file.reference, file.version, ByteRange::new(0, 200_000)).await.expect_err("a mix");
    assert_eq!(error.kind(), ErrorKind::VersionChanged);
}

#[tokio::test]
async fn a_file_that_ends_inside_its_size_is_a_changed_file() {
    let node = Tree::sample().nodes[&b"file"[..]].clone();
    let server = Server::start(Tree::sample(), move |call| {
        if !call.is(procedure::READ) {
            return Act::Honest;
        }
        let data = node.data.slice(..100);
        Act::Results(results(|e| {
            file::encode_read(e, &Ok(ReadOk { attr: Some(node.attr), eof: true, data }))
        }))
    })
    .await;
    let origin = server.connect().await;
    let file = find(&*origin, "file").await;
    let error = origin.read(&file.reference, file.version, ByteRange::new(0, 200)).await.expect_err("short");
    assert_eq!(error.kind(), ErrorKind::VersionChanged);
}

#[tokio::test]
async fn a_range_outside_the_file_is_refused() {
    let server = Server::start(Tree::sample(), |_| Act::Honest).await;
    let origin = server.connect().await;
    let file = find(&*origin, "file").await;
    for range in [ByteRange::new(299_999, 2), ByteRange::new(u64::MAX - 5, 5)] {
        let error = origin.read(&file.reference, file.version, range).await.expect_err("outside");
        assert_eq!(error.kind(), ErrorKind::InvalidArgument);
    }
}

#[tokio::test]
async fn a_server_that_leaves_attributes_out_of_read_is_asked_after_it() {
    let node = Tree::sample().nodes[&b"file"[..]].clone();
    let server = Server::start(Tree::sample(), move |call| {
        if !call.is(procedure::READ) {
            return Act::Honest;
        }
        let args = call.read_args();
        let ok = ReadOk { attr: None, ..read_of(&node, args.offset, args.count as usize) };
        Act::Results(results(|e| file::encode_read(e, &Ok(ok))))
    })
    .await;
    let origin = server.connect().await;
    let file = find(&*origin, "file").await;
    let range = ByteRange::new(10, 100);
    assert_eq!(origin.read(&file.reference, file.version, range).await.expect("read"), content()[10..110]);
    let error = origin.read(&file.reference, Version([1; 16]), range).await.expect_err("another version");
    assert_eq!(error.kind(), ErrorKind::VersionChanged);
}

#[tokio::test]
async fn a_server_without_readdirplus_is_listed_with_readdir_and_asked_only_once() {
    let server = Server::start(Tree::sample(), |call| {
        if !call.is(procedure::READDIRPLUS) {
            return Act::Honest;
        }
        Act::Results(results(|e| readdir::encode_readdir(e, &Err((NfsStatus::NOTSUPP, None)), true)))
    })
    .await;
    let origin = server.connect().await;
    let root = origin.root().await.expect("root").reference;
    assert_eq!(names(&*origin, &root).await.expect("listing"), ["file", "dir", "link"]);
    assert_eq!(names(&*origin, &root).await.expect("listing"), ["file", "dir", "link"]);
    assert_eq!(server.calls(procedure::READDIRPLUS), 1);
}

#[tokio::test]
async fn a_server_that_finds_readdirplus_too_small_is_listed_with_readdir() {
    let server = Server::start(Tree::sample(), |call| {
        if !call.is(procedure::READDIRPLUS) {
            return Act::Honest;
        }
        Act::Results(results(|e| readdir::encode_readdir(e, &Err((NfsStatus::TOOSMALL, None)), true)))
    })
    .await;
    let origin = server.connect().await;
    let root = origin.root().await.expect("root").reference;
    assert_eq!(names(&*origin, &root).await.expect("listing"), ["file", "dir", "link"]);
}

#[tokio::test]
async fn a_file_on_tape_is_busy_and_may_be_retried() {
    let first = AtomicBool::new(true);
    let server = Server::start(Tree::sample(), move |call| {
        if call.is(procedure::READ) && first.swap(false, Ordering::Relaxed) {
            return Act::Results(results(|e| file::encode_read(e, &Err((NfsStatus::JUKEBOX, None)))));
        }
        Act::Honest
    })
    .await;
    let origin = server.connect().await;
    let file = find(&*origin, "file").await;
    let range = ByteRange::new(0, 3);
    let error = origin.read(&file.reference, file.version, range).await.expect_err("on tape");
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert!(error.is_retryable());
    assert!(origin.read(&file.reference, file.version, range).await.is_ok());
}

#[tokio::test]
async fn a_root_gone_stale_is_mounted_again() {
    let server = Server::start(Tree::sample(), |_| Act::Honest).await;
    let origin = server.connect().await;
    server.change(|tree| {
        let root = tree.nodes.remove(&b"root"[..]).expect("root");
        tree.nodes.insert("root2".into(), root);
        tree.exports = vec![("/export".into(), Ok("root2".into()))];
    });
    assert_eq!(origin.root().await.expect("root").reference.0, "root2");
    assert_eq!(find(&*origin, "file").await.attr.size, 300_000);
}
