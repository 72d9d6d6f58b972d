//! Another storage answers at the origin's place: for each kind of origin, with real parts. What waits here stays here,
//! what is cached is served, nothing goes to the wrong place, and all of it goes home when the right one is back.

mod older_state;

use std::io;
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use origin::{Change, DirCursor, Object, Origin};
use origin_nfs::NfsOrigin;
use testkit::aws::{aws, is_installed};
use testkit::azfile;
use testkit::azurite::{self, Azurite};
use testkit::gcs::Gcs;
use testkit::lab::{NotRun, not_run};
use testkit::minio::Minio;
use types::{ByteRange, CreateHow, ErrorKind, Name, SetAttr, Stability};

use crate::crash::nfs::connect;
use crate::tier::Tier;

const HELD: &str =
    "write = \"back\"\nflush_delay = \"1h\"\nfiles = \"1s\"\ndirectories = \"1s\"\nnegative = \"1s\"";
/// So many files wait where a flush is to be under way when the storage is replaced.
const MANY: usize = 120;
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two tries.
const LATER: Duration = Duration::from_millis(100);
/// A look at the storage is good for so long.
const WINDOW: Duration = Duration::from_secs(3);

/// Where an origin is, and what can take its place.
trait Place {
    /// A junction's `origin`.
    fn url(&self) -> String;
    fn replace(&mut self);
    fn bring_back(&mut self);
    /// Seen by the administrator of the storage that took its place.
    fn is_untouched(&self) -> bool;
    /// Names are good in either: what is under way at the moment may come into the wrong one, too.
    fn may_have_strays(&self) -> bool {
        false
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    AtStart,
    WhileRunning,
    InAFlush,
}

/// A client of the tier.
pub struct Client(pub Arc<NfsOrigin>);

impl Client {
    pub async fn of(tier: &Tier) -> Client {
        let begun = Instant::now();
        loop {
            match connect(tier.nfs_port).await {
                Ok(client) => return Client(client),
                Err(e) => assert!(begun.elapsed() < PATIENCE, "connect: {e}"),
            }
            tokio::time::sleep(LATER).await;
        }
    }

    /// Tried again while the answer is that it is to be tried again, as clients do.
    pub async fn find(&self, path: &str) -> types::Result<Object> {
        let begun = Instant::now();
        loop {
            match self.find_once(path).await {
                Err(e) if e.kind() == ErrorKind::Busy && begun.elapsed() < PATIENCE => {}
                found => return found,
            }
            tokio::time::sleep(LATER).await;
        }
    }

    pub async fn find_once(&self, path: &str) -> types::Result<Object> {
        let mut found = self.0.root().await?;
        for name in path.split('/').filter(|name| !name.is_empty()) {
            found = self.0.lookup(&found.reference, &named(name)).await?;
        }
        Ok(found)
    }

    pub async fn change(&self, change: Change) {
        let what = format!("{change:?}");
        self.0.change(&change).await.unwrap_or_else(|e| panic!("{what}: {e}"));
    }

    pub async fn make(&self, path: &str, bytes: &[u8]) {
        let (dir, name) = path.rsplit_once('/').expect("absolute");
        let dir = self.find(dir).await.expect("there").reference;
        let (how, set) = (CreateHow::Guarded, SetAttr { mode: Some(0o644), ..SetAttr::default() });
        let made = self.0.change(&Change::Create { dir, name: named(name), how, set }).await;
        let made = made.and_then(origin::Changed::made).unwrap_or_else(|e| panic!("{path}: {e}"));
        self.write(&made, bytes).await;
    }

    pub async fn write(&self, file: &Object, bytes: &[u8]) {
        let bytes = Bytes::copy_from_slice(bytes);
        self.0.write(&file.reference, 0, bytes, Stability::FileSync).await.expect("written");
    }

    pub async fn read(&self, path: &str) -> types::Result<Bytes> {
        let file = self.find(path).await?;
        self.0.read(&file.reference, file.version, ByteRange::new(0, file.attr.size)).await
    }

    pub async fn names(&self, path: &str) -> Vec<String> {
        let dir = self.find(path).await.expect("there").reference;
        let (mut names, mut cursor) = (Vec::new(), DirCursor::default());
        loop {
            let page = self.0.readdir(&dir, cursor).await.expect("listed");
            names.extend(
                page.entries.iter().map(|it| String::from_utf8_lossy(it.name.as_bytes()).into_owned()),
            );
            match page.next {
                Some(next) => cursor = next,
                None => break,
            }
        }
        names.sort();
        names
    }
}

pub fn named(name: &str) -> Name {
    Name::new(name.as_bytes().to_vec()).expect("a good name")
}

/// What the origin has at first, and clients have read.
async fn fill(tier: &Tier) {
    let client = Client::of(tier).await;
    let root = client.0.root().await.expect("there").reference;
    let set = SetAttr { mode: Some(0o755), ..SetAttr::default() };
    client.change(Change::Mkdir { dir: root, name: named("dir"), set }).await;
    for name in ["changed", "moved", "removed", "clean"] {
        client.make(&format!("/dir/{name}"), b"old contents").await;
    }
    tier.json(&["flush", "--wait"]);
    for name in ["changed", "moved", "removed", "clean"] {
        assert_eq!(client.read(&format!("/dir/{name}")).await.expect("read"), &b"old contents"[..]);
    }
}

/// Of each kind one change, and more files if they are to be many.
async fn dirty(tier: &Tier, more: usize) {
    let client = Client::of(tier).await;
    let changed = client.find("/dir/changed").await.expect("there");
    client.write(&changed, b"new").await;
    let dir = client.find("/dir").await.expect("there").reference;
    let (from, to) = (named("moved"), named("there"));
    let (from_dir, to_dir) = (dir.clone(), dir.clone());
    client.change(Change::Rename { from_dir, from, to_dir, to, identity: None }).await;
    client.change(Change::Remove { dir, name: named("removed") }).await;
    for path in ["/dir/made", "/top"] {
        client.make(path, b"made here").await;
    }
    for number in 0..more {
        client.make(&format!("/dir/more{number}"), format!("number {number}").as_bytes()).await;
    }
}

/// As clients see it.
async fn shows_all(tier: &Tier, more: usize) {
    let client = Client::of(tier).await;
    for (path, bytes) in [
        ("/dir/changed", &b"new contents"[..]),
        ("/dir/there", b"old contents"),
        ("/dir/clean", b"old contents"),
        ("/dir/made", b"made here"),
        ("/top", b"made here"),
    ] {
        assert_eq!(client.read(path).await.unwrap_or_else(|e| panic!("{path}: {e}")), bytes, "{path}");
    }
    for path in ["/dir/moved", "/dir/removed"] {
        assert_eq!(client.find(path).await.expect_err(path).kind(), ErrorKind::NotFound, "{path}");
    }
    for number in 0..more {
        let path = format!("/dir/more{number}");
        assert_eq!(client.read(&path).await.expect(&path), format!("number {number}").as_bytes());
    }
}

fn outage(tier: &Tier) -> Option<String> {
    Some(tier.json(&["status"])["junctions"][0]["outage"].as_str()?.to_owned())
}

fn operations(tier: &Tier) -> u64 {
    tier.json(&["status"])["journal"]["operations"].as_u64().expect("written back")
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "{what}: it takes too long");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn junction(url: &str, more: &str) -> String {
    format!("[[junction]]\npath = \"/\"\norigin = \"{url}\"\n{more}\n")
}

async fn replaced(place: &mut dyn Place, when: When) {
    println!("{} {when:?}", place.url());
    let dir = tempfile::tempdir().expect("temporary directory");
    let mut tier = Tier::start(dir.path(), &junction(&place.url(), HELD));
    fill(&tier).await;
    let more = if when == When::InAFlush { MANY } else { 0 };
    dirty(&tier, more).await;
    let all = operations(&tier);
    match when {
        When::AtStart => {
            assert_eq!(tier.stop(), Some(0));
            place.replace();
            tier.start_again();
            tier.json(&["flush"]);
        }
        When::WhileRunning => {
            place.replace();
            tier.json(&["flush"]);
        }
        When::InAFlush => {
            tier.json(&["flush"]);
            wait_until("the flush begins", || operations(&tier) < all);
            place.replace();
        }
    }
    // A flush may have been through before anything was replaced.
    wait_until("it is noticed", || {
        outage(&tier).as_deref() == Some("replaced") || (when == When::InAFlush && operations(&tier) == 0)
    });
    // What was flushed before it was noticed, or was in doubt at that moment, nobody may know before the origin is back.
    if when != When::InAFlush && operations(&tier) == all {
        shows_all(&tier, more).await;
        let way_out = "forebay junction accept /";
        wait_until("it is told what to do", || {
            let told = tier.json(&["status"])["junctions"][0]["error"].clone();
            told.as_str().is_some_and(|told| told.contains(way_out))
        });
        let line = "forebay_junction_up{junction=\"/\",reason=\"replaced\"} 0";
        wait_until(line, || tier.get("/metrics").contains(line));
    }
    let must_be_untouched = when == When::AtStart || !place.may_have_strays();
    assert!(!must_be_untouched || place.is_untouched(), "something went to the wrong place");
    place.bring_back();
    tier.json(&["flush", "--wait"]);
    wait_until("the outage is over", || outage(&tier).is_none());
    let status = tier.json(&["status"]);
    for nothing in ["operations", "refused"] {
        assert_eq!(status["journal"][nothing], 0, "{nothing}: {:#}", status["journal"]);
    }
    // What was on its way at that very moment may look like another's at a store whose names are good in either: both stay
    // then, and it is said. That nothing is lost by it, a tier that has never seen any of it shows below.
    let conflicts = status["journal"]["conflicts"].as_u64().expect("told");
    let may_be_beside = when == When::InAFlush && place.may_have_strays();
    assert!(conflicts == 0 || may_be_beside, "{:#}", status["journal"]);
    if conflicts == 0 {
        shows_all(&tier, more).await;
    }
    assert_eq!(tier.stop(), Some(0));
    assert!(!must_be_untouched || place.is_untouched(), "something went to the wrong place");
    // By a tier that has never seen any of it.
    let other = tempfile::tempdir().expect("temporary directory");
    let fresh = Tier::start(other.path(), &junction(&place.url(), ""));
    shows_all(&fresh, more).await;
    let mut names: Vec<String> = ["changed", "clean", "made", "there"].map(str::to_owned).into();
    names.extend((0..more).map(|number| format!("more{number}")));
    names.sort();
    let (beside, there): (Vec<_>, Vec<_>) = Client::of(&fresh)
        .await
        .names("/dir")
        .await
        .into_iter()
        .partition(|name| name.contains(".conflict-"));
    assert_eq!(there, names, "and nothing else");
    assert!(beside.len() as u64 <= conflicts, "{beside:?} of {conflicts}");
}

/// Each time in a place of its own.
async fn at_all_times<P: Place>(name: &str, place: impl Fn() -> Result<P, NotRun>) {
    at(&[When::AtStart, When::WhileRunning, When::InAFlush], name, place).await;
}

async fn at<P: Place>(times: &[When], name: &str, place: impl Fn() -> Result<P, NotRun>) {
    for when in times.iter().copied() {
        match place() {
            Ok(mut place) => replaced(&mut place, when).await,
            Err(NotRun(reason)) => return not_run(name, &reason),
        }
    }
}

/// A directory that is not there, and a bare one in its place.
struct Renamed(tempfile::TempDir);

impl Renamed {
    fn new() -> Renamed {
        let dir = tempfile::tempdir().expect("temporary directory");
        std::fs::create_dir(dir.path().join("origin")).expect("made");
        Renamed(dir)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

impl Place for Renamed {
    fn url(&self) -> String {
        format!("file://{}", self.at("origin").display())
    }

    fn replace(&mut self) {
        std::fs::rename(self.at("origin"), self.at("away")).expect("renamed");
        std::fs::create_dir(self.at("origin")).expect("made");
    }

    fn bring_back(&mut self) {
        std::fs::rename(self.at("origin"), self.at("bare")).expect("renamed");
        std::fs::rename(self.at("away"), self.at("origin")).expect("renamed");
    }

    fn is_untouched(&self) -> bool {
        let bare = if self.at("bare").exists() { self.at("bare") } else { self.at("origin") };
        is_empty(&bare)
    }
}

fn is_empty(dir: &Path) -> bool {
    std::fs::read_dir(dir).expect("listed").count() == 0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bare_directory_in_place_of_the_origins() {
    at_all_times("a_bare_directory_in_place_of_the_origins", || Ok(Renamed::new())).await;
}

/// A file system that is unmounted: the directory below it is bare.
struct Mounted(tempfile::TempDir);

impl Mounted {
    fn new() -> Result<Mounted, NotRun> {
        let dir = tempfile::tempdir().expect("temporary directory");
        for sub in ["disk", "origin"] {
            std::fs::create_dir(dir.path().join(sub)).expect("made");
        }
        let place = Mounted(dir);
        place.run("mount", &["-t", "tmpfs", "none"], &["disk"])?;
        place.run("mount", &["--bind"], &["disk", "origin"])?;
        Ok(place)
    }

    fn run(&self, program: &str, arguments: &[&str], places: &[&str]) -> Result<(), NotRun> {
        let places = places.iter().map(|place| self.0.path().join(place));
        let done = Command::new(program).args(arguments).args(places).output();
        let done = done.map_err(|e| NotRun(format!("{program}: {e}")))?;
        let said = String::from_utf8_lossy(&done.stderr);
        if done.status.success() { Ok(()) } else { Err(NotRun(format!("{program}: {}", said.trim()))) }
    }
}

impl Place for Mounted {
    fn url(&self) -> String {
        format!("file://{}", self.0.path().join("origin").display())
    }

    fn replace(&mut self) {
        assert!(self.run("umount", &["-l"], &["origin"]).is_ok(), "unmounted");
    }

    fn bring_back(&mut self) {
        assert!(self.is_untouched());
        assert!(self.run("mount", &["--bind"], &["disk", "origin"]).is_ok(), "mounted");
    }

    fn is_untouched(&self) -> bool {
        // Once it is mounted again nobody writes below the mount.
        let origin = self.0.path().join("origin");
        is_empty(&origin) || origin.join("dir").exists()
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        for place in ["origin", "disk"] {
            let _ = self.run("umount", &["-l"], &[place]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_system_that_is_not_mounted() {
    at_all_times("a_file_system_that_is_not_mounted", Mounted::new).await;
}

/// A NAS that exports another directory at the same address.
struct Nas {
    dir: tempfile::TempDir,
    nas: Option<Tier>,
    port: u16,
}

impl Nas {
    fn new() -> Nas {
        let dir = tempfile::tempdir().expect("temporary directory");
        for sub in ["right", "wrong", "right-tier", "wrong-tier"] {
            std::fs::create_dir(dir.path().join(sub)).expect("made");
        }
        let mut nas = Nas { dir, nas: None, port: testkit::ports::free_port() };
        nas.export("right");
        nas
    }

    fn export(&mut self, which: &str) {
        if let Some(mut nas) = self.nas.take() {
            nas.kill_nine();
        }
        let url = format!("file://{}", self.dir.path().join(which).display());
        let rules = "write = \"through\"\nfiles = \"always\"\ndirectories = \"always\"";
        let own = self.dir.path().join(format!("{which}-tier"));
        self.nas = Some(Tier::start_at_port(&own, &junction(&url, rules), self.port));
    }
}

impl Place for Nas {
    fn url(&self) -> String {
        format!("nfs://127.0.0.1:{port}/?mountport={port}", port = self.port)
    }

    fn replace(&mut self) {
        self.export("wrong");
    }

    fn bring_back(&mut self) {
        self.export("right");
    }

    fn is_untouched(&self) -> bool {
        is_empty(&self.dir.path().join("wrong"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_exports_something_else() {
    at_all_times("a_server_that_exports_something_else", || Ok(Nas::new())).await;
}

/// Two stores behind one address.
struct Stores<S> {
    url: String,
    switch: Switch,
    right: SocketAddr,
    wrong: SocketAddr,
    is_untouched: Box<dyn Fn(&S) -> bool + Send>,
    stores: [S; 2],
}

impl<S> Place for Stores<S> {
    fn url(&self) -> String {
        self.url.clone()
    }

    fn replace(&mut self) {
        self.switch.to(self.wrong);
    }

    fn bring_back(&mut self) {
        self.switch.to(self.right);
    }

    fn is_untouched(&self) -> bool {
        (self.is_untouched)(&self.stores[1])
    }

    fn may_have_strays(&self) -> bool {
        true
    }
}

/// Hands connections on to one of several servers. Those that are open when it is set break.
struct Switch {
    address: SocketAddr,
    shared: Arc<Mutex<(SocketAddr, Vec<TcpStream>)>>,
}

impl Switch {
    fn new(first: SocketAddr) -> Switch {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let shared = Arc::new(Mutex::new((first, Vec::new())));
        let handing_on = Arc::downgrade(&shared);
        std::thread::spawn(move || {
            for incoming in listener.incoming().flatten() {
                let Some(shared) = handing_on.upgrade() else { return };
                let mut shared = shared.lock().expect("no panic holds it");
                let Ok(onward) = TcpStream::connect(shared.0) else { continue };
                for (from, to) in [(&incoming, &onward), (&onward, &incoming)] {
                    let (mut from, mut to) =
                        (from.try_clone().expect("cloned"), to.try_clone().expect("cloned"));
                    std::thread::spawn(move || {
                        let _ = io::copy(&mut from, &mut to); // until one of them is gone
                        let _ = to.shutdown(Shutdown::Write);
                    });
                }
                shared.1.extend([incoming, onward]);
            }
        });
        Switch { address, shared }
    }

    fn to(&self, server: SocketAddr) {
        let mut shared = self.shared.lock().expect("no panic holds it");
        shared.0 = server;
        for open in shared.1.drain(..) {
            let _ = open.shutdown(Shutdown::Both);
        }
    }

    fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }
}

fn buckets() -> Result<Stores<Minio>, NotRun> {
    let stores = [Minio::start()?, Minio::start()?];
    for store in &stores {
        // By its interface, so that it has a date.
        match is_installed("another_bucket_of_the_same_name") {
            true => drop(aws(&store.endpoint(), &["s3api", "create-bucket", "--bucket", "bucket"])),
            false => store.make_bucket("bucket"),
        }
    }
    let [right, wrong] = [stores[0].address(), stores[1].address()];
    let switch = Switch::new(right);
    let credentials = stores[0].credentials();
    let url = format!("s3://bucket?endpoint={}&credentials={}", switch.endpoint(), credentials.display());
    let is_untouched = Box::new(|wrong: &Minio| wrong.names("bucket").is_empty());
    Ok(Stores { url, switch, right, wrong, is_untouched, stores })
}

#[tokio::test(flavor = "multi_thread")]
async fn another_bucket_of_the_same_name() {
    at_all_times("another_bucket_of_the_same_name", buckets).await;
}

fn google_buckets() -> Result<Stores<Gcs>, NotRun> {
    let stores = [Gcs::start()?, Gcs::start()?];
    for store in &stores {
        store.make_bucket("bucket");
        std::thread::sleep(Duration::from_millis(2)); // dates have milliseconds
    }
    let [right, wrong] = [stores[0].address(), stores[1].address()];
    let switch = Switch::new(right);
    let url = format!("gs://bucket?endpoint={}&anonymous=yes", switch.endpoint());
    let is_untouched = Box::new(|wrong: &Gcs| wrong.keys("bucket").is_empty());
    Ok(Stores { url, switch, right, wrong, is_untouched, stores })
}

#[tokio::test(flavor = "multi_thread")]
async fn another_google_bucket_of_the_same_name() {
    at_all_times("another_google_bucket_of_the_same_name", google_buckets).await;
}

fn containers() -> Result<Stores<Azurite>, NotRun> {
    let stores = [Azurite::start()?, Azurite::start()?];
    stores.iter().for_each(|store| store.make_container("bucket"));
    let [right, wrong] = [stores[0].address(), stores[1].address()];
    let switch = Switch::new(right);
    let account = azurite::ACCOUNT;
    let (endpoint, credentials) = (switch.endpoint(), stores[0].credentials());
    let url = format!("az://{account}/bucket?endpoint={endpoint}&credentials={}", credentials.display());
    let is_untouched = Box::new(|wrong: &Azurite| wrong.is_empty("bucket"));
    Ok(Stores { url, switch, right, wrong, is_untouched, stores })
}

#[tokio::test(flavor = "multi_thread")]
async fn another_container_of_the_same_name() {
    at_all_times("another_container_of_the_same_name", containers).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_share_of_the_same_name() {
    let keys = tempfile::tempdir().expect("temporary directory");
    for when in [When::AtStart, When::WhileRunning, When::InAFlush] {
        let stores = [azfile::StandIn::start(&["share"]).await, azfile::StandIn::start(&["share"]).await];
        let [right, wrong] = [stores[0].address(), stores[1].address()];
        let switch = Switch::new(right);
        let (account, endpoint) = (azfile::ACCOUNT, switch.endpoint());
        let credentials = azfile::credentials(keys.path());
        let url =
            format!("azfile://{account}/share?endpoint={endpoint}&credentials={}", credentials.display());
        let is_untouched = Box::new(|wrong: &azfile::StandIn| wrong.is_empty("share"));
        let mut place = Stores { url, switch, right, wrong, is_untouched, stores };
        replaced(&mut place, when).await;
    }
}

/// The service keeps no date of a container, and its ETag changes with its metadata, too.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_whose_metadata_is_changed_is_the_same_and_one_that_was_made_again_is_not() {
    let name = "a_container_whose_metadata_is_changed_is_the_same_and_one_that_was_made_again_is_not";
    let azurite = match Azurite::start() {
        Ok(azurite) => azurite,
        Err(NotRun(reason)) => return not_run(name, &reason),
    };
    azurite.make_container("bucket");
    let (endpoint, credentials) = (azurite.endpoint(), azurite.credentials());
    let account = azurite::ACCOUNT;
    let url = format!("az://{account}/bucket?endpoint={endpoint}&credentials={}", credentials.display());
    let dir = tempfile::tempdir().expect("temporary directory");
    let tier = Tier::start(dir.path(), &junction(&url, HELD));
    fill(&tier).await;
    dirty(&tier, 0).await;
    azurite.describe_container("bucket");
    std::thread::sleep(WINDOW);
    tier.json(&["flush", "--wait"]);
    assert_eq!(outage(&tier), None);
    assert!(azurite.blob("bucket", "top").contains("made here"));

    shows_all(&tier, 0).await;
    let client = Client::of(&tier).await;
    client.make("/last", b"dirty").await;
    std::thread::sleep(WINDOW);
    azurite.remove_container("bucket");
    azurite.make_container("bucket");
    for name in ["top", "dir/clean", "last"] {
        azurite.put_blob("bucket", name, "theirs");
    }
    tier.json(&["flush"]);
    wait_until("it is noticed", || outage(&tier).as_deref() == Some("replaced"));
    assert_eq!(client.read("/top").await.expect("cached"), &b"made here"[..]);
    assert_eq!(client.read("/last").await.expect("here"), &b"dirty"[..]);
    assert!(azurite.blob("bucket", "last").contains("theirs"));
    let accepted = tier.json(&["junction", "accept", "/"]);
    assert!(accepted["origin"].as_str().is_some_and(|origin| origin.contains("ETag")), "{accepted}");
    tier.json(&["flush", "--wait"]);
    // What was written here is kept beside what is there.
    assert!(azurite.blob("bucket", "last").contains("theirs"));
    let names = client.names("/").await;
    let beside = names.iter().find(|name| name.starts_with("last.conflict-")).expect("a copy beside");
    assert_eq!(client.read(&format!("/{beside}")).await.expect("read"), &b"dirty"[..]);
}

/// The one that it was is gone for good.
#[tokio::test(flavor = "multi_thread")]
async fn a_bucket_that_was_made_again_is_an_outage_until_it_is_accepted() {
    let minio = match Minio::start() {
        Ok(minio) => minio,
        Err(NotRun(reason)) => {
            return not_run("a_bucket_that_was_made_again_is_an_outage_until_it_is_accepted", &reason);
        }
    };
    if !is_installed("a_bucket_that_was_made_again_is_an_outage_until_it_is_accepted") {
        return;
    }
    aws(&minio.endpoint(), &["s3api", "create-bucket", "--bucket", "bucket"]);
    let url =
        format!("s3://bucket?endpoint={}&credentials={}", minio.endpoint(), minio.credentials().display());
    let dir = tempfile::tempdir().expect("temporary directory");
    let tier = Tier::start(dir.path(), &junction(&url, HELD));
    fill(&tier).await;
    dirty(&tier, 0).await;
    std::thread::sleep(WINDOW);
    minio.remove_bucket("bucket");
    aws(&minio.endpoint(), &["s3api", "create-bucket", "--bucket", "bucket"]);
    tier.json(&["flush"]);
    wait_until("it is noticed", || outage(&tier).as_deref() == Some("replaced"));
    shows_all(&tier, 0).await;
    assert!(minio.names("bucket").is_empty(), "{:?}", minio.names("bucket"));
    let before = operations(&tier);
    assert!(!tier.ask(&["junction", "accept", "/elsewhere"]).status.success());
    assert_eq!(operations(&tier), before);
    let accepted = tier.json(&["junction", "accept", "/"]);
    assert!(accepted["origin"].as_str().is_some_and(|origin| origin.contains("made at")), "{accepted}");
    tier.json(&["flush", "--wait"]);
    let audited = std::fs::read_to_string(dir.path().join("cache/audit.log")).expect("written");
    let line = audited.lines().rfind(|line| line.contains("junction/accept")).expect("a line");
    assert!(line.contains("made at"), "{line}");
    // What was written is there, if beside the place that it had; what was removed is not, and said.
    let names = minio.names("bucket");
    assert!(names.iter().any(|name| name == "top"), "{names:?}");
    let status = tier.json(&["status"]);
    let alarms = status["journal"]["alarms"].as_array().expect("told").clone();
    assert!(!alarms.is_empty(), "{status:#}");
    let client = Client::of(&tier).await;
    let mut kept = Vec::new();
    for name in client.names("/").await {
        if let Ok(bytes) = client.read(&format!("/{name}")).await {
            kept.push(bytes);
        }
    }
    for wanted in [&b"new contents"[..], b"made here"] {
        assert!(kept.iter().any(|bytes| bytes == wanted), "{names:?}");
    }
}
