//! The disk of cache and metadata gets full, read-only or broken while clients are at work, and is well again: reads of cached
//! files go on meanwhile, changes go on by themselves afterwards, and nothing that was answered is lost.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use origin::{Change, Origin};
use testkit::lab::not_run;
use types::{ByteRange, CreateHow, ErrorKind, SetAttr, Stability};

use crate::failing_disk::{FailingDisk, Fault};
use crate::replaced::{Client, named};
use crate::tier::Tier;

const FILES: usize = 40;
/// How long the disk fails.
const FOR: Duration = Duration::from_secs(6);
/// A read of a cached file meanwhile, with the client's own waiting.
const READ_MAX: Duration = Duration::from_secs(5);
const AFTERWARDS: Duration = Duration::from_secs(45);
const LATER: Duration = Duration::from_millis(50);

fn content(number: usize) -> Bytes {
    Bytes::from(format!("file {number}|").into_bytes().repeat(2_000 + number))
}

/// What a writer was answered.
type Acknowledged = BTreeMap<usize, Bytes>;

struct Load {
    over: AtomicBool,
    reads: AtomicU64,
    slowest_read_ms: AtomicU64,
    writes: AtomicU64,
}

/// Reads files that are cached, one after the other.
async fn read_on(client: Client, load: Arc<Load>) {
    let mut number = 0;
    while !load.over.load(Ordering::SeqCst) {
        let begun = Instant::now();
        let path = format!("/dir/file{}", number % FILES);
        loop {
            let read = async {
                let file = client.find_once(&path).await?;
                client.0.read(&file.reference, file.version, ByteRange::new(0, file.attr.size)).await
            };
            match read.await {
                Ok(bytes) => {
                    assert!(bytes == content(number % FILES), "{path} has other bytes");
                    break;
                }
                Err(e) if e.kind() == ErrorKind::Busy => tokio::time::sleep(LATER).await,
                Err(e) => panic!("{path}: {e}"),
            }
        }
        load.reads.fetch_add(1, Ordering::SeqCst);
        load.slowest_read_ms.fetch_max(begun.elapsed().as_millis() as u64, Ordering::SeqCst);
        number += 7;
    }
}

/// Makes files and writes to them, each as often as it is told to try again.
async fn write_on(client: Client, load: Arc<Load>) -> Acknowledged {
    let dir = client.find("/dir").await.expect("there").reference;
    let mut all = Acknowledged::new();
    for number in 0.. {
        if load.over.load(Ordering::SeqCst) {
            break;
        }
        let name = format!("made{number}");
        let bytes = content(number % 50);
        loop {
            let set = SetAttr { mode: Some(0o644), ..SetAttr::default() };
            let made =
                Change::Create { dir: dir.clone(), name: named(&name), how: CreateHow::Unchecked, set };
            let written = async {
                let made = client.0.change(&made).await.and_then(origin::Changed::made)?;
                client.0.write(&made.reference, 0, bytes.clone(), Stability::FileSync).await
            };
            match written.await {
                Ok(_) => break,
                Err(e) if e.kind() == ErrorKind::Busy => {}
                Err(e) => panic!("{name}: {e}"),
            }
            tokio::time::sleep(LATER).await;
        }
        all.insert(number, bytes);
        load.writes.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    all
}

async fn check(tier: &Tier, all: &Acknowledged) {
    let client = Client::of(tier).await;
    for number in 0..FILES {
        let path = format!("/dir/file{number}");
        assert!(client.read(&path).await.expect(&path) == content(number), "{path} has other bytes");
    }
    for (number, bytes) in all {
        let path = format!("/dir/made{number}");
        assert!(client.read(&path).await.expect(&path) == *bytes, "{path} has other bytes");
    }
}

fn trouble(tier: &Tier) -> serde_json::Value {
    tier.json(&["status"])["metadata"].clone()
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < AFTERWARDS, "{what}: it takes too long");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// `journal`: on a disk of its own, which stays well.
async fn fails_and_is_well_again(name: &str, fault: Fault, policy: &str, journal: bool) {
    let dir = tempfile::tempdir().expect("temporary directory");
    let near = dir.path().join("near");
    let disk = match FailingDisk::mount(&dir.path().join("backing"), near.join("cache")) {
        Ok(disk) => disk,
        Err(why) => return not_run(name, &why),
    };
    let tree = dir.path().join("tree");
    std::fs::create_dir_all(tree.join("dir")).expect("made");
    for number in 0..FILES {
        std::fs::write(tree.join(format!("dir/file{number}")), content(number)).expect("written");
    }
    let own = match journal {
        true => format!("[journal]\ndir = \"{}\"\n", dir.path().join("journal").display()),
        false => String::new(),
    };
    let junction = format!(
        "{own}[[junction]]\npath = \"/\"\norigin = \"file://{}\"\nwrite = \"{policy}\"\n{}",
        tree.display(),
        if policy == "back" { "flush_delay = \"1h\"\n" } else { "" }
    );
    let mut tier = Tier::start(&near, &junction);
    check(&tier, &Acknowledged::new()).await;
    let load = Arc::new(Load {
        over: AtomicBool::new(false),
        reads: AtomicU64::new(0),
        slowest_read_ms: AtomicU64::new(0),
        writes: AtomicU64::new(0),
    });
    let readers: Vec<_> = [Client::of(&tier).await, Client::of(&tier).await]
        .map(|client| tokio::spawn(read_on(client, load.clone())))
        .into();
    let writer = tokio::spawn(write_on(Client::of(&tier).await, load.clone()));
    let count = |counted: &AtomicU64| counted.load(Ordering::SeqCst);
    until("the load begins", || count(&load.reads) > 50 && count(&load.writes) > 5);

    disk.set(fault);
    let begun = Instant::now();
    let (before, written) = (count(&load.reads), count(&load.writes));
    load.slowest_read_ms.store(0, Ordering::SeqCst);
    let mut told = false;
    while begun.elapsed() < FOR {
        told |= !trouble(&tier)["trouble"].is_null() || tier.log_tail().contains("writers wait");
        std::thread::sleep(Duration::from_millis(200));
    }
    let (reads, slowest) = (count(&load.reads) - before, count(&load.slowest_read_ms));
    println!("{fault:?}, {policy}: {reads} reads meanwhile, the slowest {slowest} ms, told: {told}");
    // What is written back to a disk that is well needs the other one for nothing.
    let goes_on = count(&load.writes) > written + 20;
    assert!(told || policy == "back" && journal && goes_on, "{:#}", tier.json(&["status"]));
    assert!(reads > 100, "{reads} reads in {FOR:?}");
    assert!(slowest < READ_MAX.as_millis() as u64, "a read took {slowest} ms");
    assert!(tier.ended().is_none());

    disk.set(Fault::Nothing);
    let written = count(&load.writes);
    until("changes go on", || count(&load.writes) > written + 5);
    until("it is over", || trouble(&tier)["trouble"].is_null());
    assert!(trouble(&tier)["lost"].is_null(), "{:#}", trouble(&tier));
    load.over.store(true, Ordering::SeqCst);
    for reader in readers {
        reader.await.expect("a reader that reads what is there");
    }
    let all = writer.await.expect("a writer that goes on");
    check(&tier, &all).await;
    if policy == "back" {
        assert_eq!(tier.stop(), Some(0));
        tier.start_again();
        check(&tier, &all).await;
        tier.json(&["flush", "--wait"]);
    }
    at_home(&tree.join("dir"), &all);
    assert_eq!(tier.stop(), Some(0));
    tier.start_again();
    check(&tier, &all).await;
    assert_eq!(tier.stop(), Some(0));
    assert!(!tier.log_tail().contains("panicked"), "{}", tier.log_tail());
}

fn at_home(dir: &Path, all: &Acknowledged) {
    for (number, bytes) in all {
        let at_home = std::fs::read(dir.join(format!("made{number}"))).expect("at the origin");
        assert!(at_home == *bytes, "made{number} has other bytes at the origin");
    }
}

macro_rules! cases {
    ($($name:ident: $fault:ident, $policy:literal, $journal:literal;)*) => {$(
        #[tokio::test(flavor = "multi_thread")]
        async fn $name() {
            fails_and_is_well_again(stringify!($name), Fault::$fault, $policy, $journal).await;
        }
    )*};
}

cases! {
    a_full_disk_under_load_is_waited_for_written_through: Full, "through", false;
    a_full_disk_under_load_is_waited_for_written_back: Full, "back", false;
    a_read_only_disk_under_load_is_waited_for_written_through: ReadOnly, "through", false;
    a_read_only_disk_under_load_is_waited_for_written_back: ReadOnly, "back", false;
    a_disk_that_fails_to_write_under_load_is_waited_for_written_through: BrokenForWriting, "through", false;
    a_disk_that_fails_to_write_under_load_is_waited_for_written_back: BrokenForWriting, "back", true;
    a_disk_that_fails_under_load_is_waited_for_written_through: Broken, "through", false;
    a_disk_that_fails_under_load_is_waited_for_written_back: Broken, "back", true;
}
