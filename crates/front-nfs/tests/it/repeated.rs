//! Calls that come more than once: the origin sees one change, and every copy gets the same answer.

use std::time::{Duration, Instant};

use bytes::Bytes;
use origin::memory::MemoryOrigin;
use rpc_nfs3::XdrEncoder;
use rpc_nfs3::nfs3::create::{CreateArgs, CreateHow3, MkdirArgs, MknodArgs, NodeData, SymlinkArgs};
use rpc_nfs3::nfs3::names::{LinkArgs, RenameArgs};
use rpc_nfs3::nfs3::setattr::SetattrArgs;
use rpc_nfs3::nfs3::write::{self, StableHow, WriteArgs};
use rpc_nfs3::nfs3::{FileHandle, NfsStatus, procedure};
use testkit::far_origin::Far;

use crate::changes::{Tree, at_origin, made, mode, place, tree};
use crate::client::{Client, NFS, call_message, serve_writable, sys};

/// Below those that the client counts.
const XID: u32 = 77;

/// Writes the arguments of a call.
type Arguments = Box<dyn Fn(&mut XdrEncoder)>;

fn message(xid: u32, number: u32, arguments: impl FnOnce(&mut XdrEncoder)) -> Bytes {
    call_message(xid, NFS, number, sys(0), arguments)
}

fn mkdir(xid: u32, dir: &FileHandle, name: &[u8]) -> Bytes {
    let arguments = MkdirArgs { place: place(dir, name), attributes: mode(0o755) };
    message(xid, procedure::MKDIR, |e| arguments.encode(e))
}

/// The next answer as it came, behind its header.
async fn answer(client: &mut Client) -> Vec<u8> {
    let (header, results) = client.answer().await.expect("answered");
    assert_eq!(header.xid, XID);
    results.rest().to_vec()
}

async fn eventually(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

async fn is_reached(far: &Far, kind: &str) {
    eventually("the origin is asked", || far.calls(kind) > 0).await;
}

fn is_ok(results: &[u8]) -> bool {
    results.starts_with(&NfsStatus::OK.0.to_be_bytes())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_joins_the_call_that_is_running_and_both_connections_are_answered() {
    let Tree { served, far, mut client, root } = tree().await;
    let mut other = Client::connect(&served).await;
    let call = mkdir(XID, &root, b"dir");
    let held = far.gate.write().await;
    client.send(&call).await;
    is_reached(&far, "mkdir").await;
    client.send(&call).await;
    other.send(&call).await;
    eventually("both join", || served.counted("forebay_nfs_joins_total") == 2).await;
    drop(held);
    let first = answer(&mut client).await;
    assert!(is_ok(&first));
    assert_eq!(answer(&mut client).await, first);
    assert_eq!(answer(&mut other).await, first);
    assert_eq!(far.calls("mkdir"), 1);
    let mut later = Client::connect(&served).await;
    later.send(&call).await;
    assert_eq!(answer(&mut later).await, first, "after it was done, over a new connection");
    assert_eq!((far.calls("mkdir"), served.counted("forebay_nfs_replays_total")), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_that_makes_a_difference_twice_is_made_once() {
    let Tree { served, far, mut client, root } = tree().await;
    let (file, attr) = made(client.create(&root, b"file", CreateHow3::Guarded(mode(0o644))).await);
    made(client.mkdir(&root, b"empty").await);
    made(client.create(&root, b"old", CreateHow3::Guarded(mode(0o644))).await);
    let guard = Some(attr.ctime);
    let target = Bytes::from_static(b"target");
    let attributes = mode(0o600);
    let how = CreateHow3::Guarded(attributes);
    let node = NodeData::Fifo(attributes);
    let calls: Vec<(u32, &str, Arguments)> = vec![
        {
            let arguments = SetattrArgs { object: file.clone(), attributes, guard };
            (procedure::SETATTR, "set", Box::new(move |e| arguments.encode(e)))
        },
        {
            let arguments = CreateArgs { place: place(&root, b"new"), how };
            (procedure::CREATE, "create", Box::new(move |e| arguments.encode(e)))
        },
        {
            let arguments = MkdirArgs { place: place(&root, b"dir"), attributes };
            (procedure::MKDIR, "mkdir", Box::new(move |e| arguments.encode(e)))
        },
        {
            let arguments = SymlinkArgs { place: place(&root, b"link"), attributes, target };
            (procedure::SYMLINK, "symlink", Box::new(move |e| arguments.encode(e)))
        },
        {
            let arguments = MknodArgs { place: place(&root, b"fifo"), node };
            (procedure::MKNOD, "mknod", Box::new(move |e| arguments.encode(e)))
        },
        {
            let arguments = LinkArgs { object: file.clone(), place: place(&root, b"second") };
            (procedure::LINK, "link", Box::new(move |e| arguments.encode(e)))
        },
        {
            let arguments = RenameArgs { from: place(&root, b"old"), to: place(&root, b"renamed") };
            (procedure::RENAME, "rename", Box::new(move |e| arguments.encode(e)))
        },
        {
            let arguments = place(&root, b"file");
            (procedure::REMOVE, "remove", Box::new(move |e| arguments.encode(e)))
        },
        {
            let arguments = place(&root, b"empty");
            (procedure::RMDIR, "rmdir", Box::new(move |e| arguments.encode(e)))
        },
    ];
    for (number, kind, arguments) in calls {
        far.forget_calls();
        let call = message(XID, number, |e| arguments(e));
        client.send(&call).await;
        let first = answer(&mut client).await;
        assert!(is_ok(&first), "{kind}: {:?}", &first[..4]);
        let mut other = Client::connect(&served).await;
        for again in [&mut client, &mut other] {
            again.send(&call).await;
            assert_eq!(answer(again).await, first, "{kind}");
        }
        assert_eq!(far.calls(kind), 1, "{kind}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reused_xid_with_other_arguments_or_another_user_is_another_call() {
    let Tree { served, mut client, root, .. } = tree().await;
    for name in [b"one", b"two"] {
        client.send(&mkdir(XID, &root, name)).await;
        assert!(is_ok(&answer(&mut client).await));
        assert!(client.find(&root, name).await.is_ok());
    }
    let arguments = MkdirArgs { place: place(&root, b"one"), attributes: mode(0o755) };
    let by_another = call_message(XID, NFS, procedure::MKDIR, sys(7), |e| arguments.encode(e));
    client.send(&by_another).await;
    assert!(!is_ok(&answer(&mut client).await), "what was answered to root is not for others");
    assert_eq!(served.counted("forebay_nfs_replays_total"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_goes_on_when_its_connection_closes_and_a_copy_learns_how_it_ended() {
    let Tree { served, far, mut client, root } = tree().await;
    let call = mkdir(XID, &root, b"dir");
    let held = far.gate.write().await;
    client.send(&call).await;
    is_reached(&far, "mkdir").await;
    drop(client);
    drop(held);
    let mut client = Client::connect(&served).await;
    // It joins, or it is made already.
    client.send(&call).await;
    assert!(is_ok(&answer(&mut client).await));
    assert!(client.find(&root, b"dir").await.is_ok());
    assert_eq!(far.calls("mkdir"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_is_waited_for_past_the_deadline_of_other_calls() {
    let deadline = Duration::from_millis(100);
    let (served, far) = serve_writable(|_| {}, |config| config.call_deadline = deadline).await;
    let mut client = Client::connect(&served).await;
    let root = client.root().await;
    client.getattr(&root).await;
    let held = far.gate.write().await;
    client.send(&mkdir(XID, &root, b"dir")).await;
    is_reached(&far, "mkdir").await;
    tokio::time::sleep(4 * deadline).await;
    drop(held);
    assert!(is_ok(&answer(&mut client).await));
}

/// It was not made, and the client that is told "later" may use its xid again.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_put_off_is_not_remembered() {
    let Tree { far, mut client, root, served: _served } = tree().await;
    let call = mkdir(XID, &root, b"dir");
    far.set_down(true);
    client.send(&call).await;
    assert_eq!(answer(&mut client).await[..4], NfsStatus::JUKEBOX.0.to_be_bytes());
    far.set_down(false);
    client.send(&call).await;
    assert!(is_ok(&answer(&mut client).await));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_copy_of_a_running_write_joins_it_and_one_of_a_finished_write_is_written_again() {
    let (served, far) = serve_writable(|m| m.write_file(b"file", b"old").expect("written"), |_| {}).await;
    let mut client = Client::connect(&served).await;
    let root = client.root().await;
    let file = client.find(&root, b"file").await.expect("found");
    let data = Bytes::from(vec![7; 100_000]);
    let arguments = WriteArgs { file, offset: 0, stable: StableHow::FileSync, data: data.clone() };
    let call = message(XID, procedure::WRITE, |e| arguments.encode(e));
    // The first write asks what the origin can have, too; the next ones know.
    client.send(&call).await;
    assert!(is_ok(&answer(&mut client).await));
    let written = far.calls("write");
    let mut other = Client::connect(&served).await;
    let held = far.gate.write().await;
    client.send(&call).await;
    eventually("the origin is asked", || far.calls("write") > written).await;
    other.send(&call).await;
    eventually("it joins", || served.counted("forebay_nfs_joins_total") == 1).await;
    drop(held);
    let first = answer(&mut client).await;
    assert!(is_ok(&first));
    assert_eq!(answer(&mut other).await, first);
    assert_eq!(served.counted("forebay_nfs_written_bytes_total"), 200_000);
    other.send(&call).await;
    let again = answer(&mut other).await;
    let mut d = rpc_nfs3::XdrDecoder::new(again.into());
    let ok = write::decode_write(&mut d, 100_000).expect("well-formed").expect("written");
    assert_eq!((ok.count, served.counted("forebay_nfs_replays_total")), (100_000, 0));
    assert_eq!(at_origin(&far, &["file"]).await.expect("there"), data);
}

/// What there is no room for stays at its client, and small calls of others go on.
#[tokio::test(flavor = "multi_thread")]
async fn large_writes_wait_for_room_and_small_calls_do_not() {
    // Room for one.
    let fill = |m: &MemoryOrigin| m.write_file(b"file", b"old").expect("written");
    let (served, far) = serve_writable(fill, |config| {
        config.shared_budgets = fair::SharedBudgets::with_bytes(8 << 20, 1 << 20)
    })
    .await;
    let mut client = Client::connect(&served).await;
    let root = client.root().await;
    let file = client.find(&root, b"file").await.expect("found");
    let write = |offset| {
        let data = Bytes::from(vec![7; 1 << 20]);
        let arguments = WriteArgs { file: file.clone(), offset, stable: StableHow::FileSync, data };
        message(XID, procedure::WRITE, |e| arguments.encode(e))
    };
    let held = far.gate.write().await;
    client.send(&write(0)).await;
    is_reached(&far, "write").await;
    let mut second = Client::connect(&served).await;
    let sent = {
        let call = write(1 << 20);
        tokio::spawn(async move {
            second.send(&call).await;
            answer(&mut second).await
        })
    };
    let mut small = Client::connect(&served).await;
    for _ in 0..20 {
        small.nfs(procedure::NULL, |_| {}).await;
        assert!(!sent.is_finished());
    }
    drop(held);
    assert!(is_ok(&answer(&mut client).await));
    assert!(is_ok(&sent.await.expect("no panic")));
    assert_eq!(small.getattr(&file).await.size, 2 << 20);
}
