//! Changes whose answers are lost, seen by the caller: the calls go out again under their old number, and
//! what nobody can know is not pretended to be known.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use origin::retry::{Retry, RetryConfig};
use origin::{Change, Origin, Reference};
use origin_nfs::{Config, NfsOrigin};
use rpc_nfs3::XdrEncoder;
use rpc_nfs3::nfs3::names::{self, LinkWcc, RenameWcc};
use rpc_nfs3::nfs3::wcc::{self, WccData};
use rpc_nfs3::nfs3::{NfsStatus, create, procedure};
use types::{ByteRange, CreateHow, Error, ErrorKind, Name, NewNode, Result, SetAttr, Stability, Timestamp};

use crate::calls::find;
use crate::server::{Act, Call, Server, Tree, results};

/// Number and source port of each call of the procedure.
type Seen = Arc<Mutex<Vec<(u32, u16)>>>;

/// A server that carries out the first call of `number` but cuts the connection instead of answering, and
/// answers all later ones with `second`.
async fn losing(number: u32, second: Bytes) -> (Server, Seen) {
    let seen = Seen::default();
    let noted = Arc::clone(&seen);
    let server = Server::start(Tree::sample(), move |call: &Call| {
        if !call.is(number) {
            return Act::Honest;
        }
        noted.lock().expect("seen").push((call.xid, call.peer.port()));
        if call.before == 0 { Act::Cut } else { Act::Results(second.clone()) }
    })
    .await;
    (server, seen)
}

fn failure(number: u32, status: NfsStatus) -> Bytes {
    let wcc = WccData::default();
    results(|e: &mut XdrEncoder| match number {
        procedure::RENAME => names::encode_rename(e, &Err((status, RenameWcc::default()))),
        procedure::LINK => names::encode_link(e, &Err((status, LinkWcc::default()))),
        procedure::CREATE | procedure::MKDIR | procedure::SYMLINK | procedure::MKNOD => {
            create::encode_create(e, &Err((status, wcc)));
        }
        _ => wcc::encode_wcc_result(e, &Err((status, wcc))),
    })
}

fn name(text: &'static str) -> Name {
    Name::new(text).expect("a valid name")
}

/// One call of the procedure, as a caller makes it.
async fn ask(origin: &NfsOrigin, number: u32) -> Result<bool> {
    let (dir, name, set) = (Reference("root".into()), name("x"), SetAttr::default());
    let change = match number {
        procedure::CREATE => Change::Create { dir, name, how: CreateHow::Guarded, set },
        procedure::MKDIR => Change::Mkdir { dir, name, set },
        procedure::SYMLINK => Change::Symlink { dir, name, target: "y".into(), set },
        procedure::MKNOD => Change::Mknod { dir, name, node: NewNode::Fifo, set },
        procedure::REMOVE => Change::Remove { dir, name },
        procedure::RMDIR => Change::Rmdir { dir, name },
        procedure::RENAME => {
            let to = Name::new("y").expect("a valid name");
            Change::Rename { from_dir: dir.clone(), from: name, to_dir: dir, to, identity: None }
        }
        procedure::LINK => Change::Link { file: Reference("file".into()), dir, name },
        procedure::SETATTR => {
            let guard = Some(Timestamp { seconds: 1_700_000_000, nanos: 5 });
            Change::Set { object: dir, set, guard }
        }
        other => panic!("procedure {other} is not asked here"),
    };
    origin.change(&change).await.map(|changed| changed.resent)
}

#[tokio::test]
async fn a_failure_that_may_speak_of_the_first_sending_is_no_answer() {
    let cases = [
        (procedure::CREATE, NfsStatus::EXIST, ErrorKind::Exists),
        (procedure::MKDIR, NfsStatus::EXIST, ErrorKind::Exists),
        (procedure::SYMLINK, NfsStatus::EXIST, ErrorKind::Exists),
        (procedure::MKNOD, NfsStatus::EXIST, ErrorKind::Exists),
        (procedure::REMOVE, NfsStatus::NOENT, ErrorKind::NotFound),
        (procedure::RMDIR, NfsStatus::NOENT, ErrorKind::NotFound),
        (procedure::RENAME, NfsStatus::NOENT, ErrorKind::NotFound),
        (procedure::LINK, NfsStatus::EXIST, ErrorKind::Exists),
        (procedure::SETATTR, NfsStatus::NOT_SYNC, ErrorKind::VersionChanged),
        // "Try again later" must not make anybody try again either.
        (procedure::REMOVE, NfsStatus::JUKEBOX, ErrorKind::Busy),
    ];
    let mut from_the_same_port = 0;
    for (number, status, kind) in cases {
        let (server, seen) = losing(number, failure(number, status)).await;
        let origin = server.connect().await;
        let error = ask(&origin, number).await.expect_err("nobody knows");
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "procedure {number}: {error}");
        assert_eq!(error.doubtful_answer().map(Error::kind), Some(kind));
        assert!(!error.is_retryable());
        let calls = seen.lock().expect("seen").clone();
        assert_eq!(calls.len(), 2, "procedure {number}");
        assert_eq!(calls[0].0, calls[1].0, "the number is the same");
        from_the_same_port += usize::from(calls[0].1 == calls[1].1);
        // The server knows the answer to the second, which went out once.
        let plain = ask(&origin, number).await.expect_err("refused");
        assert_eq!(plain.kind(), kind, "procedure {number}");
    }
    // Somebody else may have got one of them in between.
    assert!(from_the_same_port > cases.len() / 2, "{from_the_same_port} of {} ports", cases.len());
}

#[tokio::test]
async fn a_server_that_remembers_its_replies_makes_a_lost_one_good() {
    let done = results(|e| wcc::encode_wcc_result(e, &Ok(WccData::default())));
    let (server, _) = losing(procedure::REMOVE, done).await;
    let origin = server.connect().await;
    assert!(ask(&origin, procedure::REMOVE).await.expect("removed"), "it was sent again, and says so");
    assert!(!ask(&origin, procedure::REMOVE).await.expect("removed"), "this one was not");
}

#[tokio::test]
async fn behind_the_retry_what_is_gone_was_removed_and_what_is_there_is_not_removed_again() {
    let dir = Reference("root".into());
    let (server, seen) = losing(procedure::REMOVE, failure(procedure::REMOVE, NfsStatus::NOENT)).await;
    let retry = Retry::new(server.connect().await, RetryConfig::default());
    let removed = retry.change(&Change::Remove { dir: dir.clone(), name: name("x") }).await;
    assert!(removed.expect("there is no x any more").resent);
    let (server, also_seen) = losing(procedure::REMOVE, failure(procedure::REMOVE, NfsStatus::JUKEBOX)).await;
    let retry = Retry::new(server.connect().await, RetryConfig::default());
    let error = retry.change(&Change::Remove { dir, name: name("file") }).await.expect_err("it is there");
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    for seen in [seen, also_seen] {
        assert_eq!(seen.lock().expect("seen").len(), 2, "the client's two sendings, and none by the retry");
    }
}

#[tokio::test]
async fn silence_after_a_change_was_sent_is_no_outage() {
    let server = Server::start(Tree::sample(), |call| match call.procedure {
        procedure::RMDIR | procedure::WRITE | procedure::COMMIT => Act::Silence,
        _ => Act::Honest,
    })
    .await;
    let config = Config { call_timeout: Duration::from_millis(300), ..server.config() };
    let origin = NfsOrigin::connect(config).await.expect("connect");
    let error = ask(&origin, procedure::RMDIR).await.expect_err("no reply");
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
    assert!(error.to_string().contains("no reply in 0.3 s"), "{error}");
    // These may be done twice: the caller may just ask again.
    let file = find(&*origin, "file").await.reference;
    let write = origin.write(&file, 0, Bytes::from_static(b"x"), Stability::FileSync).await;
    assert_eq!(write.expect_err("no reply").kind(), ErrorKind::Unavailable);
    let commit = origin.commit(&file, ByteRange::new(0, 0)).await;
    assert_eq!(commit.expect_err("no reply").kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn a_change_that_never_went_out_was_not_made() {
    let server = Server::start(Tree::sample(), |_| Act::Honest).await;
    let origin = server.connect().await;
    server.stop().await;
    while origin.root().await.is_ok() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let error = ask(&origin, procedure::REMOVE).await.expect_err("down");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.is_retryable());
}

#[tokio::test]
async fn an_outage_after_a_change_was_sent_leaves_the_outcome_open() {
    let arrived = Arc::new(tokio::sync::Notify::new());
    let noted = Arc::clone(&arrived);
    let server = Server::start(Tree::sample(), move |call| {
        if !call.is(procedure::REMOVE) {
            return Act::Honest;
        }
        noted.notify_one();
        Act::Silence
    })
    .await;
    let origin = server.connect().await;
    let removal = tokio::spawn(async move { ask(&origin, procedure::REMOVE).await });
    arrived.notified().await;
    server.stop().await;
    let error = removal.await.expect("no panic").expect_err("the server is gone");
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    assert_eq!(error.doubtful_answer().map(Error::kind), Some(ErrorKind::Unavailable));
}

#[tokio::test]
async fn an_answer_that_makes_no_sense_leaves_the_outcome_open() {
    let server = Server::start(Tree::sample(), |call| {
        // Success, and then nothing of what belongs to it.
        if call.is(procedure::REMOVE) { Act::Results(results(|e| e.u32(0))) } else { Act::Honest }
    })
    .await;
    let origin = server.connect().await;
    let error = ask(&origin, procedure::REMOVE).await.expect_err("nonsense");
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
    assert_eq!(error.doubtful_answer().map(Error::kind), Some(ErrorKind::Corrupt));
}
