//! A server that lies: errors, never panics, never an endless loop, never a bad name.

use std::time::Duration;

use bytes::Bytes;
use origin::{DirCursor, Origin};
use origin_nfs::{Config, NfsOrigin};
use rpc_nfs3::nfs3::readdir::{self, DirEntry3, ReaddirArgs, ReaddirOk};
use rpc_nfs3::nfs3::{NfsStatus, procedure};
use types::{ByteRange, ErrorKind};

use crate::calls::{find, names};
use crate::server::{Act, Call, Server, Tree, results};

fn entry(name: &[u8], cookie: u64) -> DirEntry3 {
    DirEntry3 { fileid: 5, name: Bytes::copy_from_slice(name), cookie, attr: None, handle: None }
}

fn page(entries: Vec<DirEntry3>, eof: bool) -> Act {
    let ok = Ok(ReaddirOk { dir_attr: None, verifier: [0; 8], entries, eof });
    Act::Results(results(|e| readdir::encode_readdir(e, &ok, true)))
}

/// Lists the root of a server that answers READDIRPLUS from cookie N with `page(N)`.
async fn listing(pages: impl Fn(u64) -> Act + Send + Sync + 'static) -> types::Result<Vec<String>> {
    let server = Server::start(Tree::sample(), move |call: &Call| {
        if !call.is(procedure::READDIRPLUS) {
            return Act::Honest;
        }
        pages(ReaddirArgs::decode(&mut call.args.clone(), true).expect("arguments").cookie)
    })
    .await;
    let origin = server.connect().await;
    let root = origin.root().await.expect("root").reference;
    tokio::time::timeout(Duration::from_secs(30), names(&*origin, &root)).await.expect("it must end")
}

#[tokio::test]
async fn unsafe_names_are_left_out_and_the_others_stay() {
    let got = listing(|_| {
        let long = vec![b'x'; 256];
        let absurd = vec![b'y'; 5000];
        let bad: [&[u8]; 8] =
            [b"", b".", b"..", b"a/b", b"/etc/passwd", b"nul\0", long.as_slice(), absurd.as_slice()];
        let mut entries: Vec<DirEntry3> =
            bad.iter().zip(1..).map(|(name, cookie)| entry(name, cookie)).collect();
        entries.push(entry(b"good", 100));
        entries.push(entry(b"\xff\xfe", 101));
        entries.push(entry(&[b'z'; 255], 102));
        page(entries, true)
    })
    .await
    .expect("a listing");
    assert_eq!(got, ["good".to_owned(), "\\xff\\xfe".to_owned(), "z".repeat(255)]);
}

#[tokio::test]
async fn a_listing_that_stands_still_is_an_error() {
    let error = listing(|_| page(vec![entry(b"a", 7)], false)).await.expect_err("stands still");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    let error = listing(|_| page(Vec::new(), false)).await.expect_err("neither entries nor end");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

#[tokio::test]
async fn a_listing_that_runs_in_a_circle_is_an_error() {
    let circle = |from| page(vec![entry(b"a", if from == 1 { 2 } else { 1 })], false);
    assert_eq!(listing(circle).await.expect_err("a circle").kind(), ErrorKind::Corrupt);
}

#[tokio::test]
async fn a_listing_cut_short_is_an_error() {
    // status, no attributes, verifier, "an entry follows", and nothing.
    let cut = |_| Act::Results(results(|e| [0, 0, 0, 0, 1].iter().for_each(|w| e.u32(*w))));
    assert_eq!(listing(cut).await.expect_err("cut").kind(), ErrorKind::Corrupt);
}

#[tokio::test]
async fn a_cookie_that_is_no_longer_good_may_be_retried() {
    let bad =
        |_| Act::Results(results(|e| readdir::encode_readdir(e, &Err((NfsStatus::BAD_COOKIE, None)), true)));
    assert!(listing(bad).await.expect_err("bad cookie").is_retryable());
}

#[tokio::test]
async fn results_that_do_not_decode_fail_that_call_only() {
    let server = Server::start(Tree::sample(), |call| {
        let first = call.before == 0;
        match call.procedure {
            procedure::READ if first => Act::Results(Bytes::from_static(&[0xff; 64])),
            procedure::READLINK => Act::Results(Bytes::from_static(&[0, 0, 0, 0, 0, 0, 0, 1])),
            _ => Act::Honest,
        }
    })
    .await;
    let origin = server.connect().await;
    let file = find(&*origin, "file").await;
    let range = ByteRange::new(0, 10);
    assert!(origin.read(&file.reference, file.version, range).await.is_err());
    assert!(origin.read(&file.reference, file.version, range).await.is_ok());
    let link = find(&*origin, "link").await;
    let error = origin.readlink(&link.reference).await.expect_err("nonsense");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

#[tokio::test]
async fn more_data_than_was_asked_for_is_refused() {
    let server = Server::start(Tree::sample(), |call| {
        if !call.is(procedure::READ) {
            return Act::Honest;
        }
        // status, no attributes, count, not eof, then 16 bytes
        Act::Results(results(|e| [0, 0, 16, 0, 16, 1, 2, 3, 4].iter().for_each(|w| e.u32(*w))))
    })
    .await;
    let origin = server.connect().await;
    let file = find(&*origin, "file").await;
    let error = origin.read(&file.reference, file.version, ByteRange::new(0, 8)).await.expect_err("too much");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
}

/// Bytes that break the frame or the RPC header: the connection is made anew and the call sent again; a
/// server that does it every time ends in an error.
#[tokio::test]
async fn nonsense_instead_of_a_record_is_survived() {
    let nonsense = [
        vec![0xff; 64],                                           // a record of 2 GiB
        vec![0x80, 0, 0, 4, 1, 2, 3, 4],                          // a reply that ends after its xid
        vec![0x80, 0, 0, 12, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0], // a call
        vec![0; 4096],                                            // empty fragments without end
    ];
    for bytes in nonsense {
        let once = bytes.clone();
        let server = Server::start(Tree::sample(), move |call| {
            let garble = call.is(procedure::READ) && call.before == 0;
            if garble { Act::Bytes(once.clone()) } else { Act::Honest }
        })
        .await;
        let origin = server.connect().await;
        let file = find(&*origin, "file").await;
        let range = ByteRange::new(0, 10);
        assert!(origin.read(&file.reference, file.version, range).await.is_ok(), "{bytes:?}");

        let always = Server::start(Tree::sample(), move |call| {
            if call.is(procedure::READ) { Act::Bytes(bytes.clone()) } else { Act::Honest }
        })
        .await;
        let origin = always.connect().await;
        let error = origin.read(&file.reference, file.version, range).await.expect_err("nonsense for ever");
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(origin.root().await.is_ok(), "other calls go on");
    }
}

#[tokio::test]
async fn a_handle_of_more_than_64_bytes_is_refused() {
    let mut tree = Tree::sample();
    tree.exports = vec![("/export".into(), Ok(Bytes::from(vec![7; 68])))];
    let server = Server::start(tree, |_| Act::Honest).await;
    let config = Config { ..server.config() };
    assert_eq!(
        NfsOrigin::connect(config).await.map(|_| ()).expect_err("too long").kind(),
        ErrorKind::Corrupt
    );
}

#[tokio::test]
async fn a_cursor_from_nowhere_is_only_a_cookie() {
    let server = Server::start(Tree::sample(), |_| Act::Honest).await;
    let origin = server.connect().await;
    let root = origin.root().await.expect("root").reference;
    let cursor = DirCursor { cookie: u64::MAX, verifier: [0xff; 8] };
    let page = origin.readdir(&root, cursor).await.expect("an empty end");
    assert!(page.entries.is_empty() && page.next.is_none());
}
