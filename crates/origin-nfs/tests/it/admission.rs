//! The server admits us no more: its export was withdrawn, squashes root since, or takes no such credentials.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use bytes::Bytes;
use origin::{Change, Origin};
use rpc_nfs3::mount::MountStatus;
use rpc_nfs3::nfs3::file::{self, AccessOk};
use rpc_nfs3::nfs3::{NfsStatus, procedure};
use types::{ErrorKind, Name, OutageReason, Result, SetAttr, Stability};

use crate::server::{Act, Server, Tree, results};

fn name(text: &str) -> Name {
    Name::new(text.as_bytes().to_vec()).expect("a name")
}

fn is_shut_out<T>(answer: Result<T>) -> bool {
    answer.is_err_and(|no| no.outage_reason() == Some(OutageReason::Credentials))
}

/// GETATTR, LOOKUP and so on: what begins with a status and a post-operation attribute that is not there.
fn refusal(number: u32, status: NfsStatus) -> Bytes {
    results(|e| {
        e.u32(status.0);
        // GETATTR fails without more.
        if number != procedure::GETATTR {
            e.u32(0);
        }
    })
}

#[tokio::test]
async fn an_export_that_is_withdrawn_is_an_outage_and_ends_when_it_is_back() {
    for status in [NfsStatus::ACCES, NfsStatus::STALE] {
        let withdrawn = Arc::new(AtomicBool::new(false));
        let seen = withdrawn.clone();
        let server = Server::start(Tree::sample(), move |call| {
            let refused = seen.load(SeqCst) && call.program == rpc_nfs3::nfs3::PROGRAM;
            if refused { Act::Results(refusal(call.procedure, status)) } else { Act::Honest }
        })
        .await;
        let origin = server.connect().await;
        let root = origin.root().await.expect("admitted");
        let file = origin.lookup(&root.reference, &name("file")).await.expect("there");
        withdrawn.store(true, SeqCst);
        let exports = vec![("/export".into(), Err(MountStatus::ACCESS))];
        server.change(|tree| tree.exports = exports);
        assert!(is_shut_out(origin.getattr(&file.reference).await), "{status:?}");
        assert!(is_shut_out(origin.lookup(&root.reference, &name("file")).await), "{status:?}");
        assert!(is_shut_out(origin.root().await), "{status:?}");
        let data = Bytes::from_static(b"x");
        assert!(is_shut_out(origin.write(&file.reference, 0, data, Stability::FileSync).await));
        withdrawn.store(false, SeqCst);
        server.change(|tree| tree.exports = vec![("/export".into(), Ok("root".into()))]);
        // What was asked a moment ago stands for a second.
        tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
        assert_eq!(origin.getattr(&file.reference).await.expect("admitted again").attr, file.attr);
    }
}

#[tokio::test]
async fn a_file_that_is_denied_or_gone_is_no_outage() {
    for (status, kind) in [(NfsStatus::ACCES, ErrorKind::AccessDenied), (NfsStatus::STALE, ErrorKind::Stale)]
    {
        let server = Server::start(Tree::sample(), move |call| match call.is(procedure::READ) {
            true => Act::Results(refusal(procedure::READ, status)),
            false => Act::Honest,
        })
        .await;
        let origin = server.connect().await;
        let root = origin.root().await.expect("admitted");
        let file = origin.lookup(&root.reference, &name("file")).await.expect("there");
        let range = types::ByteRange::new(0, 10);
        let answer = origin.read(&file.reference, file.version, range).await;
        assert_eq!(answer.expect_err("refused").kind(), kind);
        assert!(origin.getattr(&file.reference).await.is_ok());
    }
}

#[tokio::test]
async fn an_export_that_squashes_us_since_takes_no_changes() {
    let squashed = Arc::new(AtomicBool::new(false));
    let seen = squashed.clone();
    let server = Server::start(Tree::sample(), move |call| {
        let now = seen.load(SeqCst);
        if call.is(procedure::ACCESS) {
            let granted = if now { 0x03 } else { 0x1f };
            return Act::Results(results(|e| file::encode_access(e, &Ok(AccessOk { attr: None, granted }))));
        }
        let refused = now && call.is(procedure::READ);
        if refused { Act::Results(refusal(call.procedure, NfsStatus::ACCES)) } else { Act::Honest }
    })
    .await;
    let origin = server.connect().await;
    let root = origin.root().await.expect("admitted");
    let file = origin.lookup(&root.reference, &name("file")).await.expect("there");
    squashed.store(true, SeqCst);
    let range = types::ByteRange::new(0, 10);
    assert!(is_shut_out(origin.read(&file.reference, file.version, range).await));
    // Made by somebody else than us, it would be theirs.
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    let before = server.calls(procedure::SETATTR);
    let change = Change::Set { object: file.reference.clone(), set, guard: None };
    assert!(is_shut_out(origin.change(&change).await));
    assert_eq!(server.calls(procedure::SETATTR), before, "it was not even asked for");
    squashed.store(false, SeqCst);
    tokio::time::sleep(std::time::Duration::from_millis(1100)).await;
    assert_eq!(origin.read(&file.reference, file.version, range).await.expect("admitted again").len(), 10);
}
