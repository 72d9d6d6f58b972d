//! A namespace over one far origin, with a clock that the test turns.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use namespace::{Ask, Config, Found, Freshness, Junction, Namespace};
use testkit::far_origin::Far;
use types::Timeline;
use types::{Error, ErrorKind, FileId, Name, Result};

pub const TTL: Duration = Duration::from_secs(30);
/// Long enough for anything under `TTL` to be outdated.
pub const AFTER_TTL: Duration = Duration::from_secs(31);

pub struct Tier {
    pub ns: Arc<Namespace>,
    pub far: Arc<Far>,
    pub clock: Timeline,
    pub dir: tempfile::TempDir,
}

/// A tier with the defaults over an empty origin at `/`.
pub fn tier() -> Tier {
    tier_with(|_| {})
}

pub fn tier_with(edit: impl FnOnce(&mut Junction)) -> Tier {
    let far = Far::new("far:one");
    let mut junction = Junction::new("/", far.clone());
    edit(&mut junction);
    let (clock, dir) = (Timeline::default(), tempfile::tempdir().expect("a directory for the test"));
    let ns = open(dir.path(), vec![junction], &clock).expect("opens");
    Tier { ns, far, clock, dir }
}

pub fn open(dir: &Path, junctions: Vec<Junction>, clock: &Timeline) -> Result<Arc<Namespace>> {
    let config = Config { dir: dir.to_owned(), ..Config::default() };
    Namespace::open_with_clock(config, junctions, clock.clone())
}

pub fn name(bytes: &[u8]) -> Name {
    Name::new(bytes.to_vec()).expect("a good name")
}

/// All rules the same.
pub fn rule(rule: Freshness) -> impl FnOnce(&mut Junction) {
    move |junction| (junction.files, junction.directories) = (rule, rule)
}

pub fn kind<T>(result: Result<T>) -> Option<ErrorKind> {
    result.err().as_ref().map(Error::kind)
}

impl Tier {
    pub async fn lookup(&self, path: &[u8]) -> Result<Found> {
        self.ns.resolve(path).await
    }

    pub async fn id(&self, path: &[u8]) -> FileId {
        self.lookup(path).await.expect("is there").id()
    }

    pub async fn getattr(&self, id: FileId) -> Result<Found> {
        self.ns.getattr(id, Ask::Open).await
    }

    pub async fn names(&self, dir: FileId) -> Result<Vec<Vec<u8>>> {
        names_in_pieces(&self.ns, dir, 1000).await
    }

    pub fn pass(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// What a `kill -9` leaves, opened by another tier: the database as it is now, without a shutdown.
    pub fn after_a_crash(self) -> Tier {
        self.after_a_crash_with(|_| {})
    }

    pub fn after_a_crash_with(self, edit: impl FnOnce(&mut Junction)) -> Tier {
        let dir = tempfile::tempdir().expect("a directory for the test");
        for file in std::fs::read_dir(self.dir.path()).expect("lists") {
            let file = file.expect("lists");
            std::fs::copy(file.path(), dir.path().join(file.file_name())).expect("copies");
        }
        let mut junction = Junction::new("/", self.far.clone());
        edit(&mut junction);
        let ns = open(dir.path(), vec![junction], &self.clock).expect("opens");
        Tier { ns, dir, ..self }
    }

    pub async fn after_a_restart(self) -> Tier {
        let Tier { ns, far, clock, dir } = self;
        ns.shutdown().await;
        drop(ns);
        let ns = reopen(dir.path(), || vec![Junction::new("/", far.clone())], &clock).await;
        Tier { ns, far, clock, dir }
    }
}

/// Open a database that somebody closes in the background at this moment.
pub async fn reopen(dir: &Path, junctions: impl Fn() -> Vec<Junction>, clock: &Timeline) -> Arc<Namespace> {
    for _ in 0..500 {
        match open(dir, junctions(), clock) {
            Ok(ns) => return ns,
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
    open(dir, junctions(), clock).expect("opens once the tier before it is gone")
}

/// All names of a directory, sorted, asked for `max` at a time.
pub async fn names_in_pieces(ns: &Arc<Namespace>, dir: FileId, max: usize) -> Result<Vec<Vec<u8>>> {
    let (mut names, mut after) = (Vec::new(), 0);
    loop {
        let piece = ns.readdir(dir, after, max).await?;
        assert!(piece.entries.len() <= max);
        for entry in piece.entries {
            assert!(entry.cookie > after, "cookies grow");
            after = entry.cookie;
            names.push(entry.name.to_vec());
        }
        if piece.eof {
            names.sort();
            return Ok(names);
        }
    }
}

/// How often each name appears.
pub fn counted(names: Vec<Vec<u8>>) -> BTreeMap<Vec<u8>, usize> {
    let mut counts = BTreeMap::new();
    for name in names {
        *counts.entry(name).or_insert(0) += 1;
    }
    counts
}
