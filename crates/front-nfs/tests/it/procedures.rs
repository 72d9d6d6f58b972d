//! Each procedure, as a client uses it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use front_nfs::{ExportRule, ExportRules, Squash};
use origin::delay::Delay;
use rpc_nfs3::mount::{self, MountStatus};
use rpc_nfs3::nfs3::file::{self, AccessArgs, ReadArgs, access};
use rpc_nfs3::nfs3::readdir::{self, ReaddirArgs};
use rpc_nfs3::nfs3::{DirOp, FileHandle, NfsStatus, fs, procedure};
use rpc_nfs3::rpc::{Credentials, ReplyStatus};

use crate::client::{Client, MOUNT, NFS, call_message, serve, serve_with, sys};

async fn lookup(client: &mut Client, dir: &FileHandle, name: &[u8]) -> Result<file::LookupOk, NfsStatus> {
    let arguments = DirOp { dir: dir.clone(), name: Bytes::copy_from_slice(name) };
    let mut d = client.nfs(procedure::LOOKUP, |e| arguments.encode(e)).await;
    file::decode_lookup(&mut d).expect("well-formed").map_err(|(status, _)| status)
}

async fn read(
    client: &mut Client,
    handle: &FileHandle,
    offset: u64,
    count: u32,
) -> Result<file::ReadOk, NfsStatus> {
    let arguments = ReadArgs { file: handle.clone(), offset, count };
    let mut d = client.nfs(procedure::READ, |e| arguments.encode(e)).await;
    file::decode_read(&mut d, 2 << 20).expect("well-formed").map_err(|(status, _)| status)
}

async fn list(client: &mut Client, dir: &FileHandle, plus: bool, count: u32) -> Vec<readdir::DirEntry3> {
    let mut all = Vec::new();
    let mut cookie = 0;
    loop {
        let arguments =
            ReaddirArgs { dir: dir.clone(), cookie, verifier: [0; 8], dir_count: count, max_count: count };
        let number = if plus { procedure::READDIRPLUS } else { procedure::READDIR };
        let mut d = client.nfs(number, |e| arguments.encode(e, plus)).await;
        let size = d.remaining();
        assert!(size - 4 <= count as usize, "a result of {size} bytes where {count} were allowed");
        let ok = readdir::decode_readdir(&mut d, plus).expect("well-formed").expect("listed");
        cookie = ok.entries.last().map_or(cookie, |entry| entry.cookie);
        all.extend(ok.entries);
        if ok.eof {
            return all;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_mounts_looks_up_and_reads() {
    let served = serve(|m| {
        m.mkdir(b"sub").expect("made");
        m.write_file(b"sub/file", b"0123456789").expect("written");
        m.symlink(b"sub/link", b"file").expect("linked");
    })
    .await;
    let mut client = Client::connect(&served).await;
    let root = client.root().await;
    let sub = lookup(&mut client, &root, b"sub").await.expect("found").object;
    assert_eq!(client.mount(b"/sub").await.expect("a directory below can be mounted").handle, sub);
    let found = lookup(&mut client, &sub, b"file").await.expect("found");
    assert_eq!(found.attr.expect("told").size, 10);
    let ok = read(&mut client, &found.object, 3, 4).await.expect("read");
    assert_eq!((ok.data.as_ref(), ok.eof), (&b"3456"[..], false));
    let ok = read(&mut client, &found.object, 7, 100).await.expect("read");
    assert_eq!((ok.data.as_ref(), ok.eof), (&b"789"[..], true));
    let ok = read(&mut client, &found.object, 7, 0).await.expect("read");
    assert_eq!(ok.data.len(), 0);
    let ok = read(&mut client, &found.object, 1 << 40, 9).await.expect("read");
    assert_eq!((ok.data.len(), ok.eof), (0, true));
    assert_eq!(read(&mut client, &found.object, 1 << 63, 9).await, Err(NfsStatus::INVAL));
    assert_eq!(read(&mut client, &found.object, u64::MAX, u32::MAX).await, Err(NfsStatus::INVAL));
    assert_eq!(read(&mut client, &sub, 0, 9).await, Err(NfsStatus::ISDIR));
    let link = lookup(&mut client, &sub, b"link").await.expect("found").object;
    let mut d = client.nfs(procedure::READLINK, |e| link.encode(e)).await;
    assert_eq!(file::decode_readlink(&mut d).expect("well-formed").expect("read").target, "file");
    assert_eq!(lookup(&mut client, &sub, b"..").await.expect("found").object, root);
    assert_eq!(lookup(&mut client, &root, b"..").await.expect("found").object, root);
    for (name, status) in [
        (&b"missing"[..], NfsStatus::NOENT),
        (b"", NfsStatus::INVAL),
        (b"a/b", NfsStatus::INVAL),
        (b"a\0b", NfsStatus::INVAL),
        (&[b'n'; 256], NfsStatus::NAMETOOLONG),
    ] {
        assert_eq!(lookup(&mut client, &root, name).await, Err(status), "{}", name.escape_ascii());
    }
    assert_eq!(lookup(&mut client, &found.object, b"x").await, Err(NfsStatus::NOTDIR));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_change_is_refused_as_read_only() {
    let served = serve(|m| m.write_file(b"file", b"x").expect("written")).await;
    let mut client = Client::connect(&served).await;
    let root = client.root().await;
    let numbers = (procedure::WRITE..=procedure::LINK).chain([procedure::SETATTR, procedure::COMMIT]);
    for number in numbers {
        let mut d = client.nfs(number, |e| root.encode(e)).await;
        assert_eq!(d.u32(), Ok(NfsStatus::ROFS.0), "{:?}", procedure::name(number));
        let forged = FileHandle(Bytes::from_static(&[1; 40]));
        let mut d = client.nfs(number, |e| forged.encode(e)).await;
        assert_eq!(d.u32(), Ok(NfsStatus::STALE.0), "a forged handle comes first");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn listings_respect_the_clients_byte_counts_and_name_everything_once() {
    let served = serve(|m| {
        for i in 0..3000 {
            m.write_file(format!("file-{i:05}").as_bytes(), b"x").expect("written");
        }
    })
    .await;
    let mut client = Client::connect(&served).await;
    let root = client.root().await;
    for (plus, count) in [(false, 512), (false, 65536), (true, 1024), (true, 32768), (true, 1 << 20)] {
        let entries = list(&mut client, &root, plus, count).await;
        let names: BTreeSet<_> = entries.iter().map(|entry| entry.name.clone()).collect();
        assert_eq!((entries.len(), names.len()), (3002, 3002), "plus {plus}, {count} bytes");
        assert!(entries.iter().all(|entry| entry.cookie < 1 << 63));
        if plus {
            assert!(entries.iter().all(|entry| entry.attr.is_some() && entry.handle.is_some()));
        }
    }
    let arguments = ReaddirArgs { dir: root, cookie: 0, verifier: [0; 8], dir_count: 10, max_count: 10 };
    let mut d = client.nfs(procedure::READDIRPLUS, |e| arguments.encode(e, true)).await;
    assert_eq!(d.u32(), Ok(NfsStatus::TOOSMALL.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn permission_follows_the_callers_ids() {
    let served = serve(|m| {
        m.mkdir(b"private").expect("made");
        m.write_file(b"private/file", b"secret").expect("written");
        m.chmod(b"private", 0o700).expect("changed");
        m.write_file(b"mine", b"mine").expect("written");
        m.chown(b"mine", 7, 7).expect("changed");
        m.chmod(b"mine", 0o600).expect("changed");
    })
    .await;
    let mut client = Client::connect(&served).await;
    let root = client.root().await;
    let private = lookup(&mut client, &root, b"private").await.expect("found").object;
    let mine = lookup(&mut client, &root, b"mine").await.expect("found").object;
    assert!(lookup(&mut client, &private, b"file").await.is_ok(), "root may");
    client.credentials = sys(7);
    assert_eq!(lookup(&mut client, &private, b"file").await, Err(NfsStatus::ACCES));
    assert_eq!(read(&mut client, &mine, 0, 9).await.expect("the owner may").data, "mine");
    let arguments = AccessArgs { object: mine.clone(), wanted: u32::MAX };
    let mut d = client.nfs(procedure::ACCESS, |e| arguments.encode(e)).await;
    assert_eq!(file::decode_access(&mut d).expect("well-formed").expect("told").granted, access::READ);
    client.credentials = sys(8);
    assert_eq!(read(&mut client, &mine, 0, 9).await, Err(NfsStatus::ACCES));
}

#[tokio::test(flavor = "multi_thread")]
async fn export_rules_hold_on_every_call() {
    let nobody = ExportRules::new(vec![ExportRule {
        clients: vec!["10.0.0.0/8".parse().expect("valid")],
        ..ExportRule::default()
    }]);
    let served = serve_with(|_| {}, nobody, |origin| origin).await;
    let mut client = Client::connect(&served).await;
    assert_eq!(client.mount(b"/").await, Err(MountStatus::ACCESS));

    let squashing = ExportRules::new(vec![ExportRule { squash: Squash::Root, ..ExportRule::default() }]);
    let fill = |m: &origin::memory::MemoryOrigin| {
        m.write_file(b"root-only", b"x").expect("written");
        m.chmod(b"root-only", 0o600).expect("changed");
    };
    let served = serve_with(fill, squashing, |origin| origin).await;
    let mut client = Client::connect(&served).await;
    let root = client.root().await;
    let file = lookup(&mut client, &root, b"root-only").await.expect("found").object;
    assert_eq!(read(&mut client, &file, 0, 1).await, Err(NfsStatus::ACCES), "root is squashed");
    client.credentials = Credentials::None;
    let (status, _) = client.call(NFS, procedure::GETATTR, |e| root.encode(e)).await;
    assert_eq!(status, ReplyStatus::AuthError(5), "AUTH_NONE is too weak");
    let (status, _) = client.call(NFS, procedure::NULL, |_| {}).await;
    assert_eq!(status, ReplyStatus::Success, "but a ping needs nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_call_does_not_hold_up_a_fast_one() {
    let any = ExportRules::new(vec![ExportRule { squash: Squash::None, ..ExportRule::default() }]);
    let far = |origin| -> Arc<dyn origin::Origin> { Delay::new(origin, Duration::from_millis(300)) };
    let served = serve_with(|m| m.write_file(b"file", &[7; 100_000]).expect("written"), any, far).await;
    let mut client = Client::connect(&served).await;
    let root = client.root().await;
    let file = lookup(&mut client, &root, b"file").await.expect("found").object;
    let slow = ReadArgs { file, offset: 0, count: 100 };
    client.send(&call_message(501, NFS, procedure::READ, sys(0), |e| slow.encode(e))).await;
    client.send(&call_message(502, NFS, procedure::GETATTR, sys(0), |e| root.encode(e))).await;
    let (first, _) = client.answer().await.expect("answered");
    let (second, _) = client.answer().await.expect("answered");
    assert_eq!((first.xid, second.xid), (502, 501), "answers come as they are ready");
}

/// Large answers come from the cached file itself, between others from memory, while it is evicted and fetched again.
#[tokio::test(flavor = "multi_thread")]
async fn answers_lent_from_a_cached_file_have_its_bytes_whatever_is_done_to_it() {
    const SIZE: usize = 5_000_003;
    let bytes: Vec<u8> =
        (0..SIZE as u32).flat_map(|i| (i.wrapping_mul(2_654_435_761)).to_le_bytes()).take(SIZE).collect();
    let served = serve(|m| m.write_file(b"file", &bytes).expect("written")).await;
    let mut client = Client::connect(&served).await;
    let root = client.root().await;
    let file = lookup(&mut client, &root, b"file").await.expect("found").object;
    let vfs = served.vfs.clone();
    let evicting = tokio::spawn(async move {
        for _ in 0..20 {
            tokio::time::sleep(Duration::from_millis(20)).await;
            vfs.evict(b"/file").await.expect("evicted");
        }
    });
    let mut random = 1_u64;
    let mut xid = 1000;
    let mut rounds = 0;
    while !evicting.is_finished() || rounds < 50 {
        // A window of calls on their way at once: large, small, and some that are no reads.
        let mut asked = std::collections::HashMap::new();
        for _ in 0..8 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (offset, count) = ((random >> 20) % SIZE as u64, 1 << (10 + (random >> 60) % 11));
            xid += 2;
            asked.insert(xid, (offset, count));
            let read = ReadArgs { file: file.clone(), offset, count };
            client.send(&call_message(xid, NFS, procedure::READ, sys(0), |e| read.encode(e))).await;
            client.send(&call_message(xid + 1, NFS, procedure::GETATTR, sys(0), |e| file.encode(e))).await;
        }
        for _ in 0..16 {
            let (header, mut d) = client.answer().await.expect("answered");
            let Some((offset, count)) = asked.remove(&header.xid) else { continue };
            let got = file::decode_read(&mut d, 2 << 20).expect("well-formed").expect("read");
            let offset = offset as usize;
            let end = (offset + count as usize).min(SIZE);
            assert!(got.data == bytes[offset..end], "wrong bytes at {offset}, {count}");
        }
        assert!(asked.is_empty());
        rounds += 1;
    }
    let (all, lent) =
        (served.counted("forebay_nfs_read_bytes_total"), served.counted("forebay_nfs_read_lent_bytes_total"));
    assert!(lent > 0 && lent < all, "{lent} of {all} bytes were lent");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cached_file_that_is_cut_short_is_fetched_again_and_no_answer_is_short() {
    let bytes = vec![7; 3 << 20];
    let served = serve(|m| m.write_file(b"file", &bytes).expect("written")).await;
    let mut client = Client::connect(&served).await;
    let root = client.root().await;
    let file = lookup(&mut client, &root, b"file").await.expect("found").object;
    for round in 0..3 {
        for _ in 0..2 {
            for offset in [0, 1 << 20, 2 << 20] {
                let got = read(&mut client, &file, offset, 1 << 20).await.expect("read");
                assert!(got.data == bytes[..1 << 20], "round {round}");
            }
        }
        assert!(served.counted("forebay_nfs_read_lent_bytes_total") > 0);
        tokio::time::sleep(Duration::from_millis(20)).await; // two changes within a tick have one timestamp
        let cached = served.cached_files();
        assert_eq!(cached.len(), 1);
        for cached in cached {
            cached.set_len(1 << 20).expect("cut");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mount_tells_its_exports_and_remembers_its_clients() {
    let served = serve(|m| m.write_file(b"file", b"x").expect("written")).await;
    let mut client = Client::connect(&served).await;
    assert_eq!(client.mount(b"/missing").await, Err(MountStatus::NO_ENTRY));
    assert_eq!(client.mount(b"/file").await, Err(MountStatus::NOT_DIRECTORY));
    assert_eq!(client.mount(b"/../../etc").await, Err(MountStatus::INVALID));
    client.root().await;
    let (_, mut d) = client.call(MOUNT, mount::procedure::EXPORT, |_| {}).await;
    let exports = mount::decode_exports(&mut d).expect("well-formed");
    assert_eq!(exports.iter().map(|e| e.path.as_ref()).collect::<Vec<_>>(), [&b"/"[..]]);
    let dump = |d: &mut rpc_nfs3::XdrDecoder| mount::decode_mounts(d).expect("well-formed").len();
    let (_, mut d) = client.call(MOUNT, mount::procedure::DUMP, |_| {}).await;
    assert_eq!(dump(&mut d), 1);
    client.call(MOUNT, mount::procedure::UMNT, |e| e.opaque(b"/")).await;
    let (_, mut d) = client.call(MOUNT, mount::procedure::DUMP, |_| {}).await;
    assert_eq!(dump(&mut d), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_file_system_is_described() {
    let served = serve(|_| {}).await;
    let mut client = Client::connect(&served).await;
    let root = client.root().await;
    let mut d = client.nfs(procedure::FSINFO, |e| root.encode(e)).await;
    let info = fs::decode_fsinfo(&mut d).expect("well-formed").expect("told");
    assert_eq!((info.read_max, info.read_preferred), (1 << 20, 1 << 20));
    let mut d = client.nfs(procedure::FSSTAT, |e| root.encode(e)).await;
    assert!(fs::decode_fsstat(&mut d).expect("well-formed").expect("told").bytes_total > 0);
    let mut d = client.nfs(procedure::PATHCONF, |e| root.encode(e)).await;
    assert_eq!(fs::decode_pathconf(&mut d).expect("well-formed").expect("told").name_max, 255);
    let (status, _) = client.call((100_003, 4), 0, |_| {}).await;
    assert_eq!(status, ReplyStatus::ProgramMismatch { low: 3, high: 3 });
    let (status, _) = client.call((100_021, 4), 0, |_| {}).await;
    assert_eq!(status, ReplyStatus::ProgramUnavailable);
    let (status, _) = client.call(NFS, 22, |_| {}).await;
    assert_eq!(status, ReplyStatus::ProcedureUnavailable);
}
