//! WRITE and COMMIT against a server that loses unstable data, writes less than it is given, or takes long.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use origin::{Change, Origin, Reference};
use origin_nfs::{Config, NfsOrigin};
use rpc_nfs3::nfs3::attr::{Fattr3, FileType, Nfstime3};
use rpc_nfs3::nfs3::create::{self, CreateOk};
use rpc_nfs3::nfs3::wcc::{WccAttr, WccData};
use rpc_nfs3::nfs3::write::{self, CommitOk, StableHow, WriteArgs, WriteOk};
use rpc_nfs3::nfs3::{FileHandle, procedure};
use types::{ByteRange, CreateHow, ErrorKind, Name, SetAttr, Stability, Timestamp, Version};

use crate::server::{Act, Call, Server, Tree, results};

const FILE: &[u8] = b"file";

/// A file whose server may lose what is not stable.
#[derive(Default)]
struct Disk {
    bytes: Vec<u8>,
    starts: u8,
}

impl Disk {
    /// Forgets everything: all of it was unstable.
    fn restart(&mut self) {
        self.bytes.fill(0);
        self.starts += 1;
    }

    fn verifier(&self) -> [u8; 8] {
        [self.starts; 8]
    }

    /// At most `most` bytes of what is given.
    fn write(&mut self, args: &WriteArgs, most: usize, committed: StableHow) -> Bytes {
        let data = &args.data[..args.data.len().min(most)];
        let start = args.offset as usize;
        let end = start + data.len();
        let size = self.bytes.len().max(end);
        self.bytes.resize(size, 0);
        self.bytes[start..end].copy_from_slice(data);
        let (count, verifier) = (data.len() as u32, self.verifier());
        let ok = WriteOk { wcc: WccData::default(), count, committed, verifier };
        results(|e| write::encode_write(e, &Ok(ok)))
    }
}

fn args(call: &Call) -> WriteArgs {
    WriteArgs::decode(&mut call.args.clone(), 65_536).expect("WRITE arguments within the server's limit")
}

fn file() -> Reference {
    Reference(Bytes::from_static(FILE))
}

fn pattern(length: usize) -> Bytes {
    (0..length).map(|i| (i % 253) as u8 + 1).collect()
}

/// A server that answers WRITE with what `act` makes of the disk, the call and its arguments.
async fn serving(
    act: impl Fn(&mut Disk, &Call, WriteArgs) -> Act + Send + Sync + 'static,
) -> (Server, Arc<Mutex<Disk>>) {
    let disk = Arc::new(Mutex::new(Disk::default()));
    let behind = Arc::clone(&disk);
    let server = Server::start(Tree::sample(), move |call| {
        if !call.is(procedure::WRITE) {
            return Act::Honest;
        }
        act(&mut behind.lock().expect("disk"), call, args(call))
    })
    .await;
    (server, disk)
}

#[tokio::test]
async fn a_server_that_restarts_within_a_write_gets_all_of_it_again() {
    let (server, disk) = serving(|disk, call, args| {
        if call.before == 2 {
            disk.restart();
        }
        Act::Results(disk.write(&args, usize::MAX, StableHow::Unstable))
    })
    .await;
    let origin = server.connect().await;
    let data = pattern(200_000);
    let done = origin.write(&file(), 10, data.clone(), Stability::Unstable).await.expect("written");
    assert_eq!((done.stability, done.resent), (Stability::Unstable, true));
    assert_eq!(done.verifier, disk.lock().expect("disk").verifier());
    assert!(disk.lock().expect("disk").bytes[10..] == data[..]);
    assert_eq!(server.calls(procedure::WRITE), 3 + 4, "two pieces and the one that told, then all four");
}

#[tokio::test]
async fn stable_pieces_survive_a_restart_and_are_not_written_again() {
    let (server, disk) = serving(|disk, _, args| {
        disk.starts += 1;
        Act::Results(disk.write(&args, usize::MAX, StableHow::FileSync))
    })
    .await;
    let origin = server.connect().await;
    let data = pattern(200_000);
    let done = origin.write(&file(), 0, data.clone(), Stability::Unstable).await.expect("written");
    assert_eq!(done.stability, Stability::FileSync, "more than was asked for");
    assert_eq!(server.calls(procedure::WRITE), 4);
    assert!(disk.lock().expect("disk").bytes == data);
}

#[tokio::test]
async fn a_server_that_restarts_all_the_time_is_unavailable() {
    let (server, _) = serving(|disk, _, args| {
        disk.restart();
        Act::Results(disk.write(&args, usize::MAX, StableHow::Unstable))
    })
    .await;
    let origin = server.connect().await;
    let error =
        origin.write(&file(), 0, pattern(100_000), Stability::Unstable).await.expect_err("never whole");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert_eq!(server.calls(procedure::WRITE), 6);
}

#[tokio::test]
async fn a_restart_between_calls_shows_in_the_verifiers() {
    let (server, disk) =
        serving(|disk, _, args| Act::Results(disk.write(&args, usize::MAX, StableHow::Unstable))).await;
    let origin = server.connect().await;
    let first = origin.write(&file(), 0, pattern(10), Stability::Unstable).await.expect("written");
    let second = origin.write(&file(), 10, pattern(10), Stability::Unstable).await.expect("written");
    assert_eq!(first.verifier, second.verifier);
    disk.lock().expect("disk").restart();
    let third = origin.write(&file(), 20, pattern(10), Stability::Unstable).await.expect("written");
    assert_ne!(first.verifier, third.verifier);
}

#[tokio::test]
async fn short_writes_are_continued() {
    let (server, disk) = serving(|disk, call, args| {
        Act::Results(disk.write(&args, 1 + call.before * 7000, StableHow::DataSync))
    })
    .await;
    let origin = server.connect().await;
    let data = pattern(150_000);
    let done = origin.write(&file(), 5, data.clone(), Stability::DataSync).await.expect("written");
    assert_eq!(done.stability, Stability::DataSync);
    assert!(disk.lock().expect("disk").bytes[5..] == data[..]);
}

#[tokio::test]
async fn a_server_that_writes_nothing_or_promises_too_little_is_an_error_and_no_loop() {
    let (nothing, _) = serving(|disk, _, args| Act::Results(disk.write(&args, 0, StableHow::FileSync))).await;
    let (unstable, _) =
        serving(|disk, _, args| Act::Results(disk.write(&args, usize::MAX, StableHow::Unstable))).await;
    for server in [nothing, unstable] {
        let origin = server.connect().await;
        let error = origin.write(&file(), 0, pattern(10), Stability::DataSync).await.expect_err("broken");
        assert_eq!(error.kind(), ErrorKind::Io, "{error}");
        assert_eq!(server.calls(procedure::WRITE), 1);
    }
}

fn second(size: u64, second: u32) -> WccAttr {
    let time = Nfstime3 { seconds: second, nanos: 7 };
    WccAttr { size, mtime: time, ctime: time }
}

/// A server that tells what the file was before and after each WRITE, a second of its clock for each; `foreign` writes
/// come between the first and the second.
async fn telling(foreign: u32) -> (Server, WccAttr) {
    let server = Server::start(Tree::sample(), move |call| {
        if !call.is(procedure::WRITE) {
            return Act::Honest;
        }
        let (args, at) = (args(call), call.before as u32);
        let skipped = if at == 0 { 0 } else { foreign };
        let size = args.offset + args.data.len() as u64;
        let after = Fattr3 {
            kind: FileType::Regular,
            mode: 0o644,
            nlink: 1,
            uid: 0,
            gid: 0,
            size,
            used: size,
            rdev: (0, 0),
            fsid: 1,
            fileid: 2,
            atime: Nfstime3::default(),
            mtime: second(0, at + 1 + skipped).mtime,
            ctime: second(0, at + 1 + skipped).ctime,
        };
        let wcc = WccData { before: Some(second(args.offset, at + skipped)), after: Some(after) };
        let (count, committed) = (args.data.len() as u32, StableHow::FileSync);
        let ok = WriteOk { wcc, count, committed, verifier: [1; 8] };
        Act::Results(results(|e| write::encode_write(e, &Ok(ok))))
    })
    .await;
    (server, second(0, 0))
}

#[tokio::test]
async fn a_write_tells_what_the_file_was_before_unless_others_came_between() {
    let version = |wcc: WccAttr| {
        let time = Timestamp { seconds: wcc.mtime.seconds.into(), nanos: wcc.mtime.nanos };
        Version::from_times(wcc.size, time, time)
    };
    for foreign in [0, 1] {
        let (server, first) = telling(foreign).await;
        let origin = server.connect().await;
        let written = origin.write(&file(), 0, pattern(100_000), Stability::FileSync).await.expect("written");
        assert_eq!(server.calls(procedure::WRITE), 2, "two pieces");
        assert_eq!(written.before, (foreign == 0).then_some(version(first)));
        let after = written.after.expect("told");
        assert_eq!((after.attr.size, after.version), (100_000, version(second(100_000, 2 + foreign))));
        assert_eq!(after.version, Version::from_attr(&after.attr));
        assert_eq!(after.reference, file());
    }
}

#[tokio::test]
async fn a_write_cut_in_the_middle_goes_out_again_whole() {
    let (server, disk) = serving(|disk, call, args| match call.before {
        0 => Act::Cut,
        _ => Act::Results(disk.write(&args, usize::MAX, StableHow::FileSync)),
    })
    .await;
    let origin = server.connect().await;
    // One byte over a multiple of four: with padding.
    let data = pattern(50_001);
    let done = origin.write(&file(), 0, data.clone(), Stability::FileSync).await.expect("written");
    assert!(done.resent);
    assert!(disk.lock().expect("disk").bytes == data);
}

#[tokio::test]
async fn writes_and_other_calls_on_one_connection_keep_their_frames() {
    let (server, disk) =
        serving(|disk, _, args| Act::Results(disk.write(&args, usize::MAX, StableHow::FileSync))).await;
    let origin = NfsOrigin::connect(Config { nconnect: 1, ..server.config() }).await.expect("connect");
    let data = pattern(40 * 1001);
    let mut calls = tokio::task::JoinSet::new();
    for i in 0..40 {
        let (origin, piece) = (Arc::clone(&origin), data.slice(i * 1001..(i + 1) * 1001));
        calls.spawn(async move {
            origin.write(&file(), i as u64 * 1001, piece, Stability::FileSync).await.expect("written");
            origin.getattr(&file()).await.expect("there");
        });
    }
    while let Some(call) = calls.join_next().await {
        call.expect("no panic");
    }
    assert!(disk.lock().expect("disk").bytes == data);
    assert_eq!(server.calls(procedure::WRITE), 40, "nothing had to be sent again");
}

fn committed() -> Bytes {
    results(|e| write::encode_commit(e, &Ok(CommitOk { wcc: WccData::default(), verifier: [7; 8] })))
}

#[tokio::test]
async fn a_commit_that_takes_longer_than_a_stall_is_waited_for() {
    let server = Server::start(Tree::sample(), |call| match call.procedure {
        procedure::COMMIT => Act::ResultsAfter(Duration::from_millis(1500), committed()),
        _ => Act::Honest,
    })
    .await;
    let config = Config { stall_timeout: Duration::from_millis(300), nconnect: 1, ..server.config() };
    let origin = NfsOrigin::connect(config).await.expect("connect");
    let before = server.calls(procedure::NULL);
    let done = origin.commit(&file(), ByteRange::new(0, 1 << 40)).await.expect("committed");
    assert_eq!((done.verifier, done.resent), ([7; 8], false));
    assert_eq!(server.calls(procedure::COMMIT), 1);
    assert!(server.calls(procedure::NULL) > before, "the connection was asked whether it lives");
}

#[tokio::test]
async fn a_commit_on_a_dead_connection_goes_out_on_another() {
    // The connection that saw the COMMIT answers nothing any more.
    let dead = Arc::new(Mutex::new(None));
    let server = Server::start(Tree::sample(), move |call| {
        let mut dead = dead.lock().expect("dead");
        if call.is(procedure::COMMIT) {
            dead.get_or_insert(call.connection);
        }
        match *dead {
            Some(connection) if connection == call.connection => Act::Silence,
            _ if call.is(procedure::COMMIT) => Act::Results(committed()),
            _ => Act::Honest,
        }
    })
    .await;
    let (stall_timeout, connect_timeout) = (Duration::from_millis(300), Duration::from_secs(1));
    let config = Config { stall_timeout, connect_timeout, nconnect: 1, ..server.config() };
    let origin = NfsOrigin::connect(config).await.expect("connect");
    let done = origin.commit(&file(), ByteRange::new(0, 0)).await.expect("committed");
    assert!(done.resent);
    assert_eq!(server.calls(procedure::COMMIT), 2);
}

#[tokio::test]
async fn what_a_server_leaves_out_about_a_new_file_is_asked_for() {
    let with_handle = AtomicBool::new(false);
    let server = Server::start(Tree::sample(), move |call| {
        if !call.is(procedure::CREATE) {
            return Act::Honest;
        }
        let object = with_handle.fetch_not(Ordering::Relaxed).then(|| FileHandle(Bytes::from_static(FILE)));
        let ok = CreateOk { object, attr: None, dir_wcc: WccData::default() };
        Act::Results(results(|e| create::encode_create(e, &Ok(ok))))
    })
    .await;
    let origin = server.connect().await;
    let (root, name) = (Reference("root".into()), Name::new("file").expect("name"));
    for _ in 0..2 {
        let (dir, name, how, set) = (root.clone(), name.clone(), CreateHow::Guarded, SetAttr::default());
        let made = origin.change(&Change::Create { dir, name, how, set }).await.expect("made");
        let made = made.made().expect("it is told");
        assert_eq!((made.reference, made.attr.size), (file(), 300_000));
    }
    assert_eq!((server.calls(procedure::LOOKUP), server.calls(procedure::GETATTR)), (1, 1));
}
