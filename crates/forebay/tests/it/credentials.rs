//! Credentials are revoked and given back, or given anew, while a tier is under load: readers of cached files and writers go
//! on, an alarm and a metric tell why the rest waits, and nothing that was acknowledged is lost. Over each kind of store.

mod nfs;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use testkit::azurite::{self, Azurite};
use testkit::gcs::{Gcs, fresh_key};
use testkit::lab::{NotRun, not_run};
use testkit::minio::{Minio, profile};

use crate::tier::{Tier, forebay};

/// A loaded machine may do nothing for so long.
const PATIENCE: Duration = Duration::from_secs(90);
/// What has to go on under load after each turn.
const READS: u64 = 40;
const WRITES: u64 = 8;
const UNCACHED: usize = 16;
/// Files that are written again and again. (Whether a name that nobody had is free cannot be said in an outage.)
const SLOTS: u64 = 12;
/// A program on the mount waits so long for what the origin does not answer.
const MOUNT_PATIENCE: Duration = Duration::from_secs(8);
const POLICY: &str =
    "files = \"1s\"\ndirectories = \"1s\"\nnegative = \"1s\"\nwrite = \"back\"\nflush_delay = \"1s\"\n";

fn pattern(length: usize, seed: u64) -> Vec<u8> {
    (0..length as u64).map(|i| ((i + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn cached() -> Vec<u8> {
    pattern(700_001, 1)
}

fn uncached(number: usize) -> Vec<u8> {
    pattern(50_000, 100 + number as u64)
}

fn written(number: u64) -> String {
    format!("what was acknowledged as number {number}")
}

fn slot(root: &Path, number: u64) -> PathBuf {
    root.join(format!("written/slot{}", number % SLOTS))
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A mounted tier with a cache of its own.
struct Mounted {
    tier: Tier,
    root: PathBuf,
    _dir: tempfile::TempDir,
}

impl Mounted {
    fn new(url: &str) -> Mounted {
        let dir = tempfile::Builder::new().prefix("forebay-credentials-").tempdir().expect("a directory");
        let root = dir.path().join("mnt");
        fs::create_dir(&root).expect("made");
        let patience = MOUNT_PATIENCE.as_secs();
        let junction = format!(
            "[[junction]]\npath = \"/\"\norigin = \"{url}\"\n{POLICY}[mount]\npatience = \"{patience}s\"\n"
        );
        Mounted { tier: Tier::start_mounted(dir.path(), &junction, Some(&root)), root, _dir: dir }
    }

    /// Exit code and lines of `forebay status --check`.
    fn alarms(&self) -> (Option<i32>, String) {
        let output = forebay().args(["status", "--check", "--admin", &self.tier.admin.to_string()]).output();
        let output = output.expect("forebay runs");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn is_up(&self, reason: &str, up: u8) -> bool {
        let line = format!("forebay_junction_up{{junction=\"/\",reason=\"{reason}\"}} {up}");
        self.tier.get("/metrics").lines().any(|told| told == line)
    }

    fn operations(&self) -> u64 {
        let status: Value = self.tier.json(&["status"]);
        status["journal"]["operations"].as_u64().expect("a journal")
    }
}

#[derive(Default)]
struct Counts {
    stop: AtomicBool,
    /// Cached files that were read, right each time.
    read: AtomicU64,
    /// Changes that were acknowledged: 0 up to this.
    written: AtomicU64,
    /// Uncached files that are to be read, those that were, and tries that failed.
    wanted: AtomicU64,
    fetched: AtomicU64,
    failed: AtomicU64,
    slowest: Mutex<Duration>,
}

/// Readers and a writer; none of them may meet an error that says more than "not now".
struct Load {
    counts: Arc<Counts>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl Load {
    fn on(root: &Path) -> Load {
        let counts = Arc::new(Counts::default());
        let start = |work: fn(&Path, &Counts)| {
            let (root, counts) = (root.to_owned(), counts.clone());
            std::thread::spawn(move || work(&root, &counts))
        };
        let threads = vec![start(read_cached), start(write_files), start(read_uncached)];
        Load { counts, threads }
    }

    /// Waits until so much more was done.
    fn goes_on(&self, what: &str) {
        let counts = &self.counts;
        let (read, written) = (counts.read.load(Ordering::SeqCst), counts.written.load(Ordering::SeqCst));
        until(&format!("{what}: the load goes on"), || {
            assert!(!self.threads.iter().any(std::thread::JoinHandle::is_finished), "{what}: a call failed");
            counts.read.load(Ordering::SeqCst) >= read + READS
                && counts.written.load(Ordering::SeqCst) >= written + WRITES
        });
    }

    /// The number of changes that were acknowledged.
    fn end(self) -> u64 {
        self.counts.stop.store(true, Ordering::SeqCst);
        self.threads.into_iter().for_each(|thread| thread.join().expect("no call failed"));
        println!("the slowest read of a cached file took {:?}", self.counts.slowest.lock().expect("free"));
        self.counts.written.load(Ordering::SeqCst)
    }
}

fn read_cached(root: &Path, counts: &Counts) {
    let expected = cached();
    while !counts.stop.load(Ordering::SeqCst) {
        let begun = Instant::now();
        assert!(fs::read(root.join("cached")).expect("it is cached") == expected);
        let names = fs::read_dir(root.join("uncached")).expect("the names are known");
        assert_eq!(names.filter(|name| name.as_ref().is_ok()).count(), UNCACHED);
        let mut slowest = counts.slowest.lock().expect("free");
        *slowest = slowest.max(begun.elapsed());
        drop(slowest);
        counts.read.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn write_files(root: &Path, counts: &Counts) {
    while !counts.stop.load(Ordering::SeqCst) {
        let number = counts.written.load(Ordering::SeqCst);
        let begun = Instant::now();
        let taken = fs::write(slot(root, number), written(number));
        taken.unwrap_or_else(|e| {
            panic!("the journal takes number {number}: {e}, after {:?}", begun.elapsed())
        });
        counts.written.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(150));
    }
}

/// One after the other, each until it is there.
fn read_uncached(root: &Path, counts: &Counts) {
    while !counts.stop.load(Ordering::SeqCst) {
        let number = counts.fetched.load(Ordering::SeqCst);
        if number == counts.wanted.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(20));
            continue;
        }
        let number = usize::try_from(number).expect("few");
        match fs::read(root.join(format!("uncached/file{number}"))) {
            Ok(bytes) => {
                assert!(bytes == uncached(number));
                counts.fetched.fetch_add(1, Ordering::SeqCst);
            }
            Err(e) => {
                let is_answer = matches!(e.kind(), ErrorKind::NotFound | ErrorKind::PermissionDenied);
                assert!(!is_answer, "what nobody could ask for: {e}");
                counts.failed.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}

/// What is done to the store, and what ends it.
struct Turn<'a> {
    what: &'a str,
    refuse: &'a mut dyn FnMut(),
    admit: &'a mut dyn FnMut(),
}

fn seed(root: &Path) {
    fs::write(root.join("cached"), cached()).expect("written");
    fs::create_dir(root.join("uncached")).expect("made");
    fs::create_dir(root.join("written")).expect("made");
    for number in 0..SLOTS {
        fs::write(slot(root, number), "nothing yet").expect("written");
    }
    for number in 0..UNCACHED {
        fs::write(root.join(format!("uncached/file{number}")), uncached(number)).expect("written");
    }
}

/// Under load, all of the turns one after the other, from an origin that is empty.
fn survives(url: &str, turns: &mut [Turn<'_>]) {
    let mut first = Mounted::new(url);
    seed(&first.root);
    first.tier.json(&["flush", "--wait"]);
    assert_eq!(first.tier.stop(), Some(0));
    drop(first);

    let mut bed = Mounted::new(url);
    assert!(fs::read(bed.root.join("cached")).expect("read") == cached());
    assert_eq!(fs::read_dir(bed.root.join("uncached")).expect("listed").count(), UNCACHED);
    assert_eq!(fs::read_dir(bed.root.join("written")).expect("listed").count() as u64, SLOTS);
    // At S3 a listing does not tell all of a file; what nobody looked at is not known.
    (0..SLOTS).for_each(|number| assert!(fs::metadata(slot(&bed.root, number)).is_ok()));
    assert!(bed.is_up("none", 1));
    let load = Load::on(&bed.root);
    load.goes_on("at first");
    for (number, turn) in turns.iter_mut().enumerate() {
        let what = turn.what;
        println!("{what}");
        (turn.refuse)();
        until(&format!("{what}: the metric says it"), || bed.is_up("credentials", 0));
        let (code, alarms) = bed.alarms();
        assert_eq!(code, Some(1), "{what}: {alarms}");
        assert!(alarms.contains("ALARM     /: the origin refuses our credentials"), "{what}: {alarms}");
        load.goes_on(what);
        let waiting = bed.operations();
        assert!(waiting >= WRITES, "{what}: {waiting} operations wait");
        let fetched = load.counts.wanted.fetch_add(1, Ordering::SeqCst);
        // It takes as long as the mount has patience, and not half a minute.
        if number == 0 {
            let begun = Instant::now();
            until(&format!("{what}: what is not cached cannot be read"), || {
                load.counts.failed.load(Ordering::SeqCst) > 0
            });
            assert!(begun.elapsed() < MOUNT_PATIENCE * 3, "{what}: after {:?}", begun.elapsed());
        }
        assert_eq!(load.counts.fetched.load(Ordering::SeqCst), fetched, "{what}");
        assert!(bed.is_up("credentials", 0), "{what}: it is over by itself");

        (turn.admit)();
        until(&format!("{what}: over"), || bed.is_up("none", 1));
        until(&format!("{what}: what is not cached comes"), || {
            load.counts.fetched.load(Ordering::SeqCst) > fetched
        });
        load.goes_on(what);
        let flushed = bed.tier.ask(&["flush", "--wait"]);
        assert!(flushed.status.success(), "{what}: {flushed:?}");
        // That an interrupted flush went on is told for longer.
        until(&format!("{what}: the alarm is over"), || !bed.alarms().1.contains("credentials"));
    }
    let changes = load.end();
    bed.tier.json(&["flush", "--wait"]);
    assert_eq!(bed.operations(), 0);
    assert_eq!(bed.tier.stop(), Some(0));
    drop(bed);

    // By one that has never seen any of it.
    let mut fresh = Mounted::new(url);
    let names = fs::read_dir(fresh.root.join("written")).expect("listed").count();
    assert_eq!(names as u64, SLOTS, "and no copy of a conflict beside");
    for number in changes - SLOTS..changes {
        assert_eq!(fs::read_to_string(slot(&fresh.root, number)).expect("there"), written(number));
    }
    assert_eq!(fresh.tier.stop(), Some(0));
}

/// In one step, as tools that rotate keys do it.
fn put_file(path: &Path, text: &str) {
    let unfinished = path.with_extension("unfinished");
    fs::write(&unfinished, text).expect("written");
    fs::rename(unfinished, path).expect("renamed");
}

fn file(dir: &tempfile::TempDir, text: &str) -> PathBuf {
    let path = dir.path().join("credentials");
    put_file(&path, text);
    path
}

fn temporary() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_of_an_s3_store_is_disabled_and_another_one_takes_over() {
    let name = "a_user_of_an_s3_store_is_disabled_and_another_one_takes_over";
    let minio = match Minio::start() {
        Ok(minio) => minio,
        Err(NotRun(reason)) => return not_run(name, &reason),
    };
    minio.make_bucket("bucket");
    let own = "[{\"Effect\":\"Allow\",\"Action\":[\"s3:*\"],\"Resource\":[\"arn:aws:s3:::*\"]},\
               {\"Effect\":\"Deny\",\"Action\":[\"s3:*\"],\"Resource\":[\"arn:aws:s3:::bucket/denied*\"]}]";
    minio.add_policy("own", own);
    minio.add_user("first", "the-first-secret", "own");
    minio.add_user("second", "the-second-secret", "own");
    let dir = temporary();
    let path = file(&dir, &profile("first", "the-first-secret"));
    let url = format!("s3://bucket?endpoint={}&credentials={}", minio.endpoint(), path.display());
    survives(
        &url,
        &mut [
            Turn {
                what: "the user is disabled, and enabled",
                refuse: &mut || minio.enable_user("first", false),
                admit: &mut || minio.enable_user("first", true),
            },
            Turn {
                what: "the user may do nothing, and is given its rights back",
                refuse: &mut || minio.give_policy("first", "diagnostics"),
                admit: &mut || minio.give_policy("first", "own"),
            },
            Turn {
                what: "the user is disabled, and the file names another one",
                refuse: &mut || minio.enable_user("first", false),
                admit: &mut || put_file(&path, &profile("second", "the-second-secret")),
            },
        ],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_object_that_is_denied_is_no_outage_of_the_store() {
    let name = "one_object_that_is_denied_is_no_outage_of_the_store";
    let minio = match Minio::start() {
        Ok(minio) => minio,
        Err(NotRun(reason)) => return not_run(name, &reason),
    };
    minio.make_bucket("bucket");
    let root =
        format!("s3://bucket?endpoint={}&credentials={}", minio.endpoint(), minio.credentials().display());
    let mut first = Mounted::new(&root);
    fs::write(first.root.join("denied"), "not for you").expect("written");
    fs::write(first.root.join("granted"), "for you").expect("written");
    first.tier.json(&["flush", "--wait"]);
    assert_eq!(first.tier.stop(), Some(0));
    let own = "[{\"Effect\":\"Allow\",\"Action\":[\"s3:*\"],\"Resource\":[\"arn:aws:s3:::*\"]},\
               {\"Effect\":\"Deny\",\"Action\":[\"s3:*\"],\"Resource\":[\"arn:aws:s3:::bucket/denied*\"]}]";
    minio.add_policy("own", own);
    minio.add_user("user", "the-users-secret", "own");
    let dir = temporary();
    let path = file(&dir, &profile("user", "the-users-secret"));
    let url = format!("s3://bucket?endpoint={}&credentials={}", minio.endpoint(), path.display());
    let mut bed = Mounted::new(&url);
    for _ in 0..3 {
        let denied = fs::read(bed.root.join("denied")).expect_err("refused");
        assert_eq!(denied.kind(), ErrorKind::PermissionDenied, "{denied}");
        assert_eq!(fs::read(bed.root.join("granted")).expect("read"), b"for you");
        assert!(bed.is_up("none", 1));
        assert_eq!(bed.alarms().0, Some(0));
    }
    assert_eq!(bed.tier.stop(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_an_azure_account_is_changed_and_given_anew() {
    let name = "the_key_of_an_azure_account_is_changed_and_given_anew";
    let azurite = match Azurite::start() {
        Ok(azurite) => Mutex::new(azurite),
        Err(NotRun(reason)) => return not_run(name, &reason),
    };
    let azurite = || azurite.lock().expect("free");
    azurite().make_container("bucket");
    let dir = temporary();
    let by = |key: &str| format!("AZURE_STORAGE_KEY={key}\n");
    let path = file(&dir, &by(azurite::KEY));
    let (account, endpoint) = (azurite::ACCOUNT, azurite().endpoint());
    let url = format!("az://{account}/bucket?endpoint={endpoint}&credentials={}", path.display());
    survives(
        &url,
        &mut [Turn {
            what: "the account's key is changed, and the file has the new one",
            refuse: &mut || azurite().change_key(azurite::NEW_KEY),
            admit: &mut || put_file(&path, &by(azurite::NEW_KEY)),
        }],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_account_of_googles_is_shut_out_and_gets_another_key() {
    let name = "a_service_account_of_googles_is_shut_out_and_gets_another_key";
    let gcs = match Gcs::start() {
        Ok(gcs) => gcs,
        Err(NotRun(reason)) => return not_run(name, &reason),
    };
    gcs.make_bucket("private");
    let (path, new_key) = (gcs.credentials(), fresh_key().expect("another key"));
    let url = format!("gs://private?endpoint={}&credentials={}", gcs.endpoint(), path.display());
    survives(
        &url,
        &mut [
            Turn {
                what: "403: the service account may do nothing, and has its role again",
                refuse: &mut || gcs.forbid_all(true),
                admit: &mut || gcs.forbid_all(false),
            },
            Turn {
                what: "401: the service account has another key, and the file too",
                refuse: &mut || gcs.change_key(&new_key),
                admit: &mut || {
                    let new = gcs.credentials_with("new", &new_key);
                    fs::rename(new, &path).expect("renamed");
                },
            },
        ],
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_key_of_an_azure_file_share_is_changed_and_given_anew() {
    use testkit::azfile::{ACCOUNT, KEY, NEW_KEY, StandIn};
    let stand_in = StandIn::start(&["share"]).await;
    let dir = temporary();
    let path = file(&dir, &format!("AZURE_STORAGE_KEY={KEY}\n"));
    let by_string = format!("AZURE_STORAGE_CONNECTION_STRING=AccountName={ACCOUNT};AccountKey={NEW_KEY}\n");
    let url = stand_in.url("share", &format!("&credentials={}", path.display()));
    survives(
        &url,
        &mut [
            Turn {
                what: "the account's network rules shut us out, and let us in",
                refuse: &mut || stand_in.forbid_all(true),
                admit: &mut || stand_in.forbid_all(false),
            },
            Turn {
                what: "the account's key is changed, and the file has the new one in a connection string",
                refuse: &mut || stand_in.change_key(NEW_KEY),
                admit: &mut || put_file(&path, &by_string),
            },
        ],
    );
}
