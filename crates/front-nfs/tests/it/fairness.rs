//! One client cannot use up what all share.

use bytes::Bytes;
use fair::{Offence, SharedBudgets};
use front_nfs::{ExportRule, ExportRules, Squash};
use origin::Origin;
use origin::memory::MemoryOrigin;
use rpc_nfs3::mount::{self, MountStatus};
use rpc_nfs3::nfs3::write::{StableHow, WriteArgs};
use rpc_nfs3::nfs3::{FileHandle, NfsStatus, procedure, readdir};
use rpc_nfs3::rpc::ReplyStatus;
use rpc_nfs3::{XdrDecoder, XdrEncoder};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use vfs::WritePolicy;

use crate::client::{
    Client, MOUNT, NFS, Served, call_message, serve_junctions, serve_with, serve_writable, sys,
};

const HOSTILE: [u8; 4] = [127, 0, 0, 66];
const MIB: usize = 1 << 20;

fn named(host: [u8; 4], shared_budgets: &SharedBudgets, offence: Offence) -> u64 {
    let recent = shared_budgets.offenders.recent();
    let of_host = recent.iter().filter(|o| o.address == std::net::IpAddr::from(host) && o.offence == offence);
    of_host.map(|o| o.count).sum()
}

async fn write(client: &mut Client, file: &FileHandle, length: usize) -> bool {
    let data = Bytes::from(vec![7; length]);
    let arguments = WriteArgs { file: file.clone(), offset: 0, stable: StableHow::FileSync, data };
    let mut d = client.nfs(procedure::WRITE, |e| arguments.encode(e)).await;
    d.u32().expect("well-formed") == 0
}

/// A record of 1 MiB of which so much comes.
async fn begin_record(served: &Served, bytes: usize) -> Client {
    let mut client = Client::connect_from(served, HOSTILE).await;
    client.write.write_all(&rpc_nfs3::record::mark(MIB)).await.expect("sent");
    client.write.write_all(&vec![0; bytes]).await.expect("sent");
    client
}

#[tokio::test(flavor = "multi_thread")]
async fn with_unfinished_records_of_others_an_honest_write_is_answered() {
    let shared_budgets = SharedBudgets::with_bytes(8 * MIB, 8 * MIB);
    let budgets = shared_budgets.clone();
    let fill = |m: &MemoryOrigin| m.write_file(b"file", b"old").expect("written");
    let (served, _far) = serve_writable(fill, |config| config.shared_budgets = budgets).await;
    let mut honest = Client::connect(&served).await;
    let root = honest.root().await;
    let file = honest.find(&root, b"file").await.expect("found");
    let mut held = Vec::new();
    for _ in 0..30 {
        held.push(begin_record(&served, 8).await);
    }
    assert!(write(&mut honest, &file, MIB).await);
    assert_eq!(shared_budgets.requests.used(), 0, "a record that has only begun holds nothing");
    for _ in 0..6 {
        held.push(begin_record(&served, 64 << 10).await);
    }
    for _ in 0..10 {
        assert!(write(&mut honest, &file, MIB).await);
        assert!(
            shared_budgets.requests.used() <= 3 * MIB,
            "the others hold a quarter at most, and the write its own"
        );
    }
    // Each of them ends: by its deadline, and it is told whose it was.
    for client in &mut held {
        assert!(client.answer().await.is_none());
    }
    assert_eq!(named(HOSTILE, &shared_budgets, Offence::Unfinished), 36);
}

/// As many as there may be from each of four hosts, half sent and no more.
async fn half_sent_records(served: &Served, of_each: usize) -> Vec<Client> {
    let mut held = Vec::new();
    for i in 0..of_each * 4 {
        let mut client = Client::connect_from(served, [127, 0, 0, 33 + (i % 4) as u8]).await;
        client.write.write_all(&rpc_nfs3::record::mark(MIB)).await.expect("sent");
        client.write.write_all(&vec![0; 64 << 10]).await.expect("sent");
        held.push(client);
    }
    held
}

fn is_anybody_named(shared_budgets: &SharedBudgets) -> bool {
    !shared_budgets.offenders.recent().is_empty()
}

#[tokio::test(flavor = "multi_thread")]
async fn beside_four_hosts_that_hold_all_they_get_a_write_is_answered_and_nobody_need_be_cut() {
    let shared_budgets = SharedBudgets::with_bytes(64 * MIB, 64 * MIB);
    let budgets = shared_budgets.clone();
    let fill = |m: &MemoryOrigin| m.write_file(b"file", b"old").expect("written");
    let (served, _far) = serve_writable(fill, |config| {
        (config.shared_budgets, config.stall_timeout) = (budgets, Duration::from_secs(600));
    })
    .await;
    let mut honest = Client::connect(&served).await;
    let root = honest.root().await;
    let file = honest.find(&root, b"file").await.expect("found");
    let _held = half_sent_records(&served, 20).await;
    // Each has something, and what is left is for who comes.
    while shared_budgets.requests.used() < 40 * MIB {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    for _ in 0..20 {
        assert!(write(&mut honest, &file, MIB).await);
    }
    assert!(!is_anybody_named(&shared_budgets));
}

#[tokio::test(flavor = "multi_thread")]
async fn when_nothing_is_left_who_holds_and_does_not_go_on_is_cut_for_who_waits() {
    // Room for the first pieces of four, and no more.
    let shared_budgets = SharedBudgets::with_bytes(4 * MIB, 4 * MIB);
    let budgets = shared_budgets.clone();
    let fill = |m: &MemoryOrigin| m.write_file(b"file", b"old").expect("written");
    let (served, _far) = serve_writable(fill, |config| {
        (config.shared_budgets, config.stall_timeout) = (budgets, Duration::from_secs(600));
    })
    .await;
    let mut honest = Client::connect(&served).await;
    let root = honest.root().await;
    let file = honest.find(&root, b"file").await.expect("found");
    let _held = half_sent_records(&served, 1).await;
    while shared_budgets.requests.used() < 4 * MIB {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(write(&mut honest, &file, MIB).await);
    let named = |host: u8| named([127, 0, 0, host], &shared_budgets, Offence::Unfinished);
    assert!((33..37).map(named).sum::<u64>() > 0, "whose it was is told");
    assert_eq!(named(1), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_in_many_tiny_fragments_ends_its_connection() {
    let shared_budgets = SharedBudgets::default();
    let shared = shared_budgets.clone();
    let (served, _far) = serve_writable(|_| {}, |config| config.shared_budgets = shared).await;
    let mut client = Client::connect_from(&served, HOSTILE).await;
    for _ in 0..60 {
        let _ = client.write.write_all(&[0, 0, 0, 1, 7]).await;
    }
    assert!(client.answer().await.is_none(), "closed");
    assert_eq!(named(HOSTILE, &shared_budgets, Offence::Malformed), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_that_is_added_while_serving_has_a_bound_of_its_own() {
    let shared_budgets = SharedBudgets::default();
    let shared = shared_budgets.clone();
    let rule =
        |host: &str| ExportRule { clients: vec![host.parse().expect("valid")], ..ExportRule::default() };
    let exports = ExportRules::new(vec![rule("127.0.0.1")]);
    let live = exports.clone();
    let junctions: Vec<(_, Arc<dyn Origin>, _)> = vec![("/", MemoryOrigin::new(), WritePolicy::ReadOnly)];
    let served = serve_junctions(junctions, |config| {
        (config.exports, config.shared_budgets, config.connections_max) = (exports, shared, 16);
    })
    .await;
    let mut honest = Client::connect(&served).await;
    let root = honest.root().await;
    // In front, so that the first one has another place.
    live.replace(ExportRules::new(vec![rule("127.0.0.66"), rule("127.0.0.1")]));
    let mut many = Vec::new();
    for _ in 0..14 {
        let mut client = Client::connect_from(&served, HOSTILE).await;
        let (status, _) = client.call(NFS, procedure::NULL, |_| {}).await;
        assert_eq!(status, ReplyStatus::Success);
        many.push(client);
        tokio::time::sleep(Duration::from_millis(100)).await; // one that is just at work is not closed
    }
    assert!(
        many[0].answer().await.is_none() && many[1].answer().await.is_none(),
        "12 of 16 are for one rule"
    );
    assert!(named(HOSTILE, &shared_budgets, Offence::TooManyConnections) >= 2);
    honest.getattr(&root).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_no_rule_admits_has_one_answer_and_is_closed() {
    let rule = ExportRule {
        clients: vec!["127.0.0.1".parse().expect("valid")],
        squash: Squash::None,
        ..ExportRule::default()
    };
    let shared_budgets = SharedBudgets::default();
    let shared = shared_budgets.clone();
    let junctions: Vec<(_, Arc<dyn Origin>, _)> = vec![("/", MemoryOrigin::new(), WritePolicy::ReadOnly)];
    let served = serve_junctions(junctions, |config| {
        (config.exports, config.shared_budgets, config.strangers_max) =
            (ExportRules::new(vec![rule]), shared, 4);
    })
    .await;
    let mut honest = Client::connect(&served).await;
    let root = honest.root().await;
    let mut stranger = Client::connect_from(&served, HOSTILE).await;
    assert_eq!(stranger.mount(b"/").await, Err(MountStatus::ACCESS));
    assert!(stranger.answer().await.is_none(), "closed");
    let mut stranger = Client::connect_from(&served, HOSTILE).await;
    let (_, mut d) = stranger.call(MOUNT, mount::procedure::DUMP, |_| {}).await;
    assert_eq!(mount::decode_mounts(&mut d).expect("well-formed"), [], "who mounted what is not for all");
    let mut stranger = Client::connect_from(&served, HOSTILE).await;
    let (_, mut d) = stranger.call(NFS, procedure::GETATTR, |e| root.encode(e)).await;
    assert_eq!(NfsStatus(d.u32().expect("well-formed")), NfsStatus::ACCES);
    let mut many = Vec::new();
    for _ in 0..10 {
        many.push(Client::connect_from(&served, HOSTILE).await);
    }
    // Of those that ask for nothing only the last few are kept.
    for client in &mut many[..6] {
        assert!(client.answer().await.is_none());
    }
    assert_eq!(honest.getattr(&root).await.kind, rpc_nfs3::nfs3::attr::FileType::Directory);
    assert_eq!(named(HOSTILE, &shared_budgets, Offence::NotAdmitted), 13);
}

#[tokio::test(flavor = "multi_thread")]
async fn when_slots_run_out_the_least_active_of_who_has_most_is_closed() {
    let shared_budgets = SharedBudgets::default();
    let shared = shared_budgets.clone();
    let junctions: Vec<(_, Arc<dyn Origin>, _)> = vec![("/", MemoryOrigin::new(), WritePolicy::ReadOnly)];
    let served = serve_junctions(junctions, |config| {
        (config.connections_max, config.shared_budgets) = (8, shared);
    })
    .await;
    let mut honest = Client::connect(&served).await;
    let root = honest.root().await;
    let mut idle = Vec::new();
    for _ in 0..8 {
        idle.push(Client::connect_from(&served, HOSTILE).await);
    }
    let mut second = Client::connect_from(&served, [127, 0, 0, 2]).await;
    second.getattr(&root).await;
    honest.getattr(&root).await;
    assert!(idle[0].answer().await.is_none(), "the first of the idle ones had to go");
    assert!(named(HOSTILE, &shared_budgets, Offence::TooManyConnections) >= 1);
    assert_eq!(named([127, 0, 0, 1], &shared_budgets, Offence::TooManyConnections), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_are_not_taken_stay_within_a_quarter_of_the_budget() {
    let shared_budgets = SharedBudgets::with_bytes(16 * MIB, 16 * MIB);
    let shared = shared_budgets.clone();
    let memory = MemoryOrigin::new();
    for i in 0..3000 {
        memory.write_file(format!("{i:04}-{}", "x".repeat(200)).as_bytes(), b"").expect("written");
    }
    let junctions: Vec<(_, Arc<dyn Origin>, _)> = vec![("/", memory, WritePolicy::ReadOnly)];
    let served = serve_junctions(junctions, |config| config.shared_budgets = shared).await;
    let mut honest = Client::connect(&served).await;
    let root = honest.root().await;
    let list = |e: &mut XdrEncoder| {
        root.encode(e);
        e.u64(0);
        e.u64(0);
        e.u32(u32::MAX);
        e.u32(u32::MAX);
    };
    let mut held = Vec::new();
    for _ in 0..6 {
        let mut client = Client::connect_from(&served, HOSTILE).await;
        for xid in 0..20 {
            client.send(&call_message(xid, NFS, procedure::READDIRPLUS, sys(0), list)).await;
        }
        held.push(client);
    }
    for _ in 0..5 {
        let mut d = honest.nfs(procedure::READDIRPLUS, list).await;
        let listed = readdir::decode_readdir(&mut d, true).expect("well-formed").expect("listed");
        assert!(listed.entries.len() > 1000);
        assert!(shared_budgets.replies.used() <= 8 * MIB, "{} bytes", shared_budgets.replies.used());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_closed_connection_asked_for_is_not_worked_on_any_more() {
    let shared_budgets = SharedBudgets::with_bytes(4 * MIB, 4 * MIB);
    let shared = shared_budgets.clone();
    let fill = |m: &MemoryOrigin| {
        for i in 0..3000 {
            m.write_file(format!("{i:04}-{}", "x".repeat(200)).as_bytes(), b"").expect("written");
        }
    };
    let (served, _far) = serve_writable(fill, |config| {
        (config.shared_budgets, config.stall_timeout) = (shared, Duration::from_secs(600));
    })
    .await;
    let mut honest = Client::connect(&served).await;
    let root = honest.root().await;
    let list = |e: &mut XdrEncoder| {
        root.encode(e);
        e.u64(0);
        e.u64(0);
        e.u32(u32::MAX);
        e.u32(u32::MAX);
    };
    honest.nfs(procedure::READDIRPLUS, list).await;
    let listed = || served.counted("forebay_nfs_call_seconds_count{procedure=\"READDIRPLUS\"}");
    let before = listed();
    let mut gone = Vec::new();
    for _ in 0..8 {
        let mut client = Client::connect_from(&served, HOSTILE).await;
        for xid in 0..40 {
            client.send(&call_message(xid, NFS, procedure::READDIRPLUS, sys(0), list)).await;
        }
        gone.push(client);
    }
    // The kernel takes a few answers for each connection; then some are held, and the other calls wait for room.
    let mut last = (0, 0);
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let now = (shared_budgets.replies.used(), listed());
        if now.0 > 0 && now == last {
            break;
        }
        last = now;
    }
    drop(gone);
    while shared_budgets.replies.used() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    honest.nfs(procedure::READDIRPLUS, list).await;
    assert!(listed() - before < 100, "{} of 320", listed() - before);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_list_of_mounts_is_bounded_for_each_client() {
    let any = ExportRules::new(vec![ExportRule::default()]);
    let served = serve_with(|_| {}, any, |origin| origin).await;
    let mut client = Client::connect(&served).await;
    for i in 1..=100 {
        assert!(client.mount("/".repeat(i).as_bytes()).await.is_ok());
    }
    let mut other = Client::connect_from(&served, [127, 0, 0, 2]).await;
    assert!(other.mount(b"/").await.is_ok());
    let (_, mut d) = client.call(MOUNT, mount::procedure::DUMP, |_| {}).await;
    assert_eq!(mount::decode_mounts(&mut d).expect("well-formed").len(), 65);
}

/// With credentials of these bytes in place of its own.
fn with_credentials(root: &FileHandle, flavor: u32, body: &[u8]) -> Vec<u8> {
    let mut e = XdrEncoder::default();
    for word in [4711, 0, 2, NFS.0, NFS.1, procedure::GETATTR, flavor] {
        e.u32(word);
    }
    e.opaque(body);
    e.u64(0);
    root.encode(&mut e);
    e.finish().to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_credentials_are_answered_as_such() {
    let served = serve_with(|_| {}, ExportRules::new(vec![ExportRule::default()]), |origin| origin).await;
    let mut client = Client::connect(&served).await;
    let root = client.root().await;
    let sys = |name: usize, groups: u32| {
        let mut e = XdrEncoder::default();
        e.u32(0);
        e.opaque(&vec![b'h'; name]);
        [1, 1, groups].into_iter().for_each(|word| e.u32(word));
        (0..groups).for_each(|group| e.u32(group));
        e.finish().to_vec()
    };
    for (flavor, body, why) in [
        (1, sys(4, 17), "17 groups"),
        (1, sys(256, 0), "a name of 256 bytes"),
        (1, Vec::new(), "no body"),
        (1, vec![0; 9], "half a body"),
        (0, vec![0; 404], "more than any has"),
    ] {
        client.send(&with_credentials(&root, flavor, &body)).await;
        let (header, _) = client.answer().await.expect(why);
        assert_eq!((header.xid, header.status), (4711, ReplyStatus::AuthError(1)), "{why}");
    }
    client.send(&with_credentials(&root, 1, &sys(255, 16))).await;
    let (header, _) = client.answer().await.expect("as many as there may be");
    assert_eq!(header.status, ReplyStatus::Success);
}

#[tokio::test(flavor = "multi_thread")]
async fn junctions_that_a_client_may_not_use_have_no_names_for_it() {
    let memory = || -> Arc<dyn Origin> { MemoryOrigin::new() };
    let paths = ["/open", "/closed", "/both/open", "/both/closed", "/dark/closed"];
    let junctions = paths.map(|path| (path, memory(), WritePolicy::ReadOnly)).into();
    let served = serve_junctions(junctions, |_| {}).await;
    let rule = |path: &str, clients: &str| ExportRule {
        junction: served.vfs.junctions().iter().find(|j| j.path == path).map(|j| j.id),
        clients: vec![clients.parse().expect("valid")],
        squash: Squash::None,
        ..ExportRule::default()
    };
    let exports: Vec<_> = paths
        .iter()
        .map(|path| rule(path, if path.ends_with("open") { "127.0.0.0/8" } else { "127.0.0.1" }))
        .collect();
    let junctions = paths.map(|path| (path, memory(), WritePolicy::ReadOnly)).into();
    let served = serve_junctions(junctions, |config| config.exports = ExportRules::new(exports)).await;
    let names = async |client: &mut Client, dir: &FileHandle, plus: bool| {
        let number = if plus { procedure::READDIRPLUS } else { procedure::READDIR };
        let mut d: XdrDecoder = client
            .nfs(number, |e| {
                dir.encode(e);
                e.u64(0);
                e.u64(0);
                e.u32(4096);
                if plus {
                    e.u32(32768);
                }
            })
            .await;
        let listed = readdir::decode_readdir(&mut d, plus).expect("well-formed").expect("listed");
        assert!(listed.eof);
        let names = listed.entries.into_iter().map(|entry| String::from_utf8_lossy(&entry.name).into_owned());
        let mut names: Vec<_> = names.filter(|name| !name.starts_with('.')).collect();
        names.sort();
        names
    };
    let mut all = Client::connect(&served).await;
    let mut some = Client::connect_from(&served, [127, 0, 0, 2]).await;
    let root = all.root().await;
    for plus in [false, true] {
        assert_eq!(names(&mut all, &root, plus).await, ["both", "closed", "dark", "open"]);
        assert_eq!(names(&mut some, &root, plus).await, ["both", "open"]);
    }
    let both = some.find(&root, b"both").await.expect("found");
    assert_eq!(names(&mut some, &both, false).await, ["open"]);
    for (dir, name) in [(&root, &b"closed"[..]), (&root, b"dark"), (&both, b"closed"), (&root, b"missing")] {
        assert_eq!(some.find(dir, name).await, Err(NfsStatus::NOENT), "{}", name.escape_ascii());
    }
    assert!(all.find(&root, b"dark").await.is_ok() && some.find(&both, b"open").await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn mount_of_the_empty_path_is_mount_of_the_root() {
    let served = serve_with(|_| {}, ExportRules::new(vec![ExportRule::default()]), |origin| origin).await;
    let mut client = Client::connect(&served).await;
    let root = client.root().await;
    assert_eq!(client.mount(b"").await.expect("mounted").handle, root);
}
