//! What a hostile or broken client may send: a protocol error or a closed connection, and nobody else notices.

use bytes::Bytes;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config as Runs, TestRunner};
use rpc_nfs3::nfs3::create::{CreateArgs, CreateHow3, MkdirArgs, MknodArgs, NodeData, SymlinkArgs};
use rpc_nfs3::nfs3::names::{LinkArgs, RenameArgs};
use rpc_nfs3::nfs3::setattr::{Sattr3, SetTime, SetattrArgs};
use rpc_nfs3::nfs3::write::{CommitArgs, StableHow, WriteArgs};
use rpc_nfs3::nfs3::{FileHandle, NfsStatus, Nfstime3, file, procedure};
use rpc_nfs3::rpc::ReplyStatus;
use rpc_nfs3::{XdrEncoder, record};
use tokio::io::AsyncWriteExt;

use crate::changes::{mode, place};
use crate::client::{Client, NFS, Served, call_message, serve, serve_writable, sys};

/// The server still answers others as it should.
async fn assert_serves(served: &Served, root: &FileHandle) {
    let mut client = Client::connect(served).await;
    let mut d = client.nfs(procedure::GETATTR, |e| root.encode(e)).await;
    assert!(file::decode_getattr(&mut d).expect("well-formed").is_ok());
}

/// Send each as a record on a connection of its own; whatever comes back must be well-formed (the client checks).
async fn send_all(served: &Served, messages: Vec<Vec<u8>>) {
    for message in messages {
        let mut client = Client::connect(served).await;
        client.send(&message).await;
        client.write.shutdown().await.expect("shut down");
        while client.answer().await.is_some() {}
    }
}

/// `count` values from the strategy, with a seed that proptest prints on failure and that is fixed otherwise.
fn samples<T: std::fmt::Debug>(strategy: impl Strategy<Value = T>, count: u32) -> Vec<T> {
    let mut runner = TestRunner::new_with_rng(
        Runs::default(),
        proptest::test_runner::TestRng::deterministic_rng(proptest::test_runner::RngAlgorithm::ChaCha),
    );
    (0..count).map(|_| strategy.new_tree(&mut runner).expect("a value").current()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn arbitrary_bytes_and_arguments_are_answered_or_refused() {
    send_arbitrary(serve(|m| m.write_file(b"file", b"x").expect("written")).await).await;
    send_arbitrary(serve_writable(|m| m.write_file(b"file", b"x").expect("written"), |_| {}).await.0).await;
}

async fn send_arbitrary(served: Served) {
    let root = Client::connect(&served).await.root().await;
    send_all(&served, samples(proptest::collection::vec(any::<u8>(), 0..600), 200)).await;
    let bytes = proptest::collection::vec(any::<u8>(), 0..300);
    let calls = samples((0..24_u32, 0..6_u32, any::<bool>(), bytes), 800);
    let messages = calls.into_iter().map(|(nfs, mount, is_nfs, tail)| {
        let (program, number) = if is_nfs { (NFS, nfs) } else { (crate::client::MOUNT, mount) };
        let head = call_message(1, program, number, sys(0), |e| {
            // Half of them get past the handle.
            if tail.len() % 2 == 0 && is_nfs {
                root.encode(e);
            }
        });
        [head.as_ref(), &tail].concat()
    });
    send_all(&served, messages.collect()).await;
    assert_serves(&served, &root).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cut_and_altered_calls_are_answered_or_refused() {
    let served = serve(|m| m.write_file(b"file", b"x").expect("written")).await;
    let root = Client::connect(&served).await.root().await;
    let whole = call_message(9, NFS, procedure::READDIRPLUS, sys(3), |e| {
        root.encode(e);
        e.u64(0);
        e.u64(0);
        e.u32(4096);
        e.u32(32768);
    });
    let cut = (0..whole.len()).map(|end| whole[..end].to_vec());
    let altered = (0..whole.len() * 8).step_by(3).map(|bit| {
        let mut message = whole.to_vec();
        message[bit / 8] ^= 1 << (bit % 8);
        message
    });
    send_all(&served, cut.chain(altered).collect()).await;
    assert_serves(&served, &root).await;
}

/// A whole call of each procedure that changes something, on the root of a tree.
fn changes(root: &FileHandle) -> Vec<Bytes> {
    let time = SetTime::To(Nfstime3 { seconds: 5, nanos: 6 });
    let attributes = Sattr3 { uid: Some(1), mtime: time, ..mode(0o644) };
    let call =
        |number, arguments: &dyn Fn(&mut XdrEncoder)| call_message(9, NFS, number, sys(0), |e| arguments(e));
    let named = |name: &[u8]| place(root, name);
    let target = Bytes::from_static(b"target");
    let write = WriteArgs {
        file: root.clone(),
        offset: 0,
        stable: StableHow::FileSync,
        data: Bytes::from_static(b"twelve bytes"),
    };
    let create = |how| CreateArgs { place: named(b"made"), how };
    let node = NodeData::CharDevice { attributes, rdev: (1, 2) };
    let set = SetattrArgs { object: root.clone(), attributes, guard: Some(Nfstime3::default()) };
    vec![
        call(procedure::SETATTR, &|e| set.encode(e)),
        call(procedure::WRITE, &|e| write.encode(e)),
        call(procedure::CREATE, &|e| create(CreateHow3::Guarded(attributes)).encode(e)),
        call(procedure::CREATE, &|e| create(CreateHow3::Exclusive([7; 8])).encode(e)),
        call(procedure::MKDIR, &|e| MkdirArgs { place: named(b"dir"), attributes }.encode(e)),
        call(procedure::SYMLINK, &|e| {
            SymlinkArgs { place: named(b"link"), attributes, target: target.clone() }.encode(e);
        }),
        call(procedure::MKNOD, &|e| MknodArgs { place: named(b"node"), node }.encode(e)),
        call(procedure::REMOVE, &|e| named(b"made").encode(e)),
        call(procedure::RMDIR, &|e| named(b"dir").encode(e)),
        call(procedure::RENAME, &|e| RenameArgs { from: named(b"file"), to: named(b"other") }.encode(e)),
        call(procedure::LINK, &|e| LinkArgs { object: root.clone(), place: named(b"name") }.encode(e)),
        call(procedure::COMMIT, &|e| {
            CommitArgs { file: root.clone(), offset: 0, count: 0 }.encode(e);
        }),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn cut_and_altered_changes_are_answered_or_refused() {
    let (served, _) = serve_writable(|m| m.write_file(b"file", b"x").expect("written"), |_| {}).await;
    let root = Client::connect(&served).await.root().await;
    for whole in changes(&root) {
        let cut = (0..whole.len()).step_by(3).map(|end| whole[..end].to_vec());
        // Two bits of each byte, and not those that make a file of 1 GiB in memory out of a small number.
        let altered = (0..whole.len() * 8).filter(|bit| matches!(bit % 8, 0 | 7)).map(|bit| {
            let mut message = whole.to_vec();
            message[bit / 8] ^= 1 << (bit % 8);
            message
        });
        send_all(&served, cut.chain(altered).collect()).await;
        assert_serves(&served, &root).await;
    }
}

/// What ends too early has changed nothing, and says that it was no call.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_is_cut_short_is_garbage() {
    let (served, far) = serve_writable(|m| m.write_file(b"file", b"x").expect("written"), |_| {}).await;
    let mut client = Client::connect(&served).await;
    let root = client.root().await;
    far.forget_calls();
    for whole in changes(&root) {
        client.send(&whole[..whole.len() - 4]).await;
        let (header, _) = client.answer().await.expect("answered");
        assert_eq!(header.status, ReplyStatus::GarbageArguments);
    }
    let made = ["set", "write", "create", "mkdir", "symlink", "mknod", "remove", "rmdir", "rename", "link"];
    assert_eq!(made.map(|kind| far.calls(kind)), [0; 10]);
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_lie_about_their_length_close_only_their_connection() {
    let served = serve(|_| {}).await;
    let root = Client::connect(&served).await.root().await;
    let huge = 0xffff_ffff_u32.to_be_bytes().to_vec();
    let empty_fragments = vec![0; 4 * 100_000];
    let never_ending = [0x0000_0400_u32.to_be_bytes().as_slice(), &[0; 1024]].concat().repeat(2000);
    for bytes in [huge, empty_fragments, never_ending] {
        let mut client = Client::connect(&served).await;
        let _ = client.write.write_all(&bytes).await;
        assert!(client.answer().await.is_none(), "the connection must be closed");
        assert_serves(&served, &root).await;
    }
    // Half a record that never goes on is dropped after the stall timeout (2 s here).
    let mut client = Client::connect(&served).await;
    client.write.write_all(&record::mark(1000)).await.expect("sent");
    assert!(client.answer().await.is_none());
    assert_serves(&served, &root).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_in_many_fragments_is_one_call() {
    let served = serve(|_| {}).await;
    let root = Client::connect(&served).await.root().await;
    let message = call_message(77, NFS, procedure::GETATTR, sys(0), |e| root.encode(e));
    let mut client = Client::connect(&served).await;
    let pieces: Vec<_> = message.chunks(7).collect();
    for (i, piece) in pieces.iter().enumerate() {
        let mut mark = record::mark(piece.len());
        if i + 1 < pieces.len() {
            mark[0] &= 0x7f;
        }
        client.write.write_all(&mark).await.expect("sent");
        client.write.write_all(piece).await.expect("sent");
    }
    assert_eq!(client.answer().await.expect("answered").0.xid, 77);
}

#[tokio::test(flavor = "multi_thread")]
async fn handles_cannot_be_guessed() {
    let served = serve(|m| m.write_file(b"file", b"x").expect("written")).await;
    let mut client = Client::connect(&served).await;
    let root = client.root().await;
    for bit in 0..root.0.len() * 8 {
        let mut bytes = root.0.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let forged = FileHandle(Bytes::from(bytes));
        let mut d = client.nfs(procedure::GETATTR, |e| forged.encode(e)).await;
        let status = NfsStatus(d.u32().expect("well-formed"));
        assert!(matches!(status, NfsStatus::STALE | NfsStatus::BADHANDLE), "bit {bit}: {status:?}");
    }
    for length in [0, 1, 39, 41, 64] {
        let forged = FileHandle(Bytes::from(vec![1; length]));
        let mut d = client.nfs(procedure::GETATTR, |e| forged.encode(e)).await;
        assert_eq!(NfsStatus(d.u32().expect("well-formed")), NfsStatus::BADHANDLE, "{length} bytes");
    }
}
