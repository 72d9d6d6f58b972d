//! An older state of the same origin, as after a snapshot was restored: for each kind of origin, with real parts. Nothing
//! tells it from changes by others. What was acknowledged here and not flushed is kept, under its name or beside; what
//! finds nothing any more is told; what is clean is as it was then.

mod buckets;
mod places;

use std::collections::BTreeMap;

use serde_json::Value;
use testkit::lab::{NotRun, not_run, with_lab};

use super::*;
use buckets::{DiskOfBucket, container, s3_bucket};
use places::{Directory, Exported, GoogleBucket, How, Rewound, Share};

const SIZE: usize = 4096;
/// So many files of these are of the older state as well; the others are new.
const MANY_OLD: usize = MANY / 2;
/// A flush of `MANY` takes a second at least, on a quick machine too.
const SLOWLY: &str = "flush_rate = \"384KiB\"";
/// Files that a flush is at together, at most.
const UNDER_WAY_MAX: usize = 64;
const MARK: &str = ".conflict-";

/// Files by their paths.
type Tree = BTreeMap<String, Vec<u8>>;

/// Every version of a file has bytes of its own, of the same length; `file` is what it was called first.
fn version(file: &str, version: u32) -> Vec<u8> {
    let mut line = format!("{file} {version} ");
    line.push_str(&"x".repeat(SIZE - 1 - line.len()));
    line.push('\n');
    line.into_bytes()
}

/// Which file and version these bytes are, wholly.
fn told_by(bytes: &[u8]) -> Option<(String, u32)> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut words = text.split(' ');
    let (file, number) = (words.next()?.to_owned(), words.next()?.parse().ok()?);
    (version(&file, number) == bytes).then_some((file, number))
}

/// Whether this is the place of a file that clients called `name`: that name, or a copy beside it. Where its directory is
/// no more, beside it is in the next one above that is there.
fn is_place_of(path: &str, name: &str) -> bool {
    let split = |path: &str| path.rsplit_once('/').map(|(dir, last)| (dir.to_owned(), last.to_owned()));
    let (Some((dir, last)), Some((named_dir, named))) = (split(path), split(name)) else { return false };
    let is_above = named_dir.strip_prefix(&dir).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    path == name || is_above && last.strip_prefix(&named).is_some_and(|rest| rest.starts_with(MARK))
}

/// What becomes of the tree, by a client.
struct Hand(Client);

impl Hand {
    async fn of(tier: &Tier) -> Hand {
        Hand(Client::of(tier).await)
    }

    async fn dir(&self, path: &str) -> origin::Reference {
        self.0.find(path).await.unwrap_or_else(|e| panic!("{path}: {e}")).reference
    }

    async fn mkdir(&self, path: &str) {
        let (dir, name) = path.rsplit_once('/').expect("absolute");
        let set = SetAttr { mode: Some(0o755), ..SetAttr::default() };
        self.0.change(Change::Mkdir { dir: self.dir(dir).await, name: named(name), set }).await;
    }

    async fn make(&self, path: &str) {
        self.0.make(path, &version(path, 1)).await;
    }

    async fn overwrite(&self, path: &str, file: &str, number: u32) {
        let found = self.0.find(path).await.unwrap_or_else(|e| panic!("{path}: {e}"));
        self.0.write(&found, &version(file, number)).await;
    }

    async fn rename(&self, from: &str, to: &str) {
        let ((from_dir, from), (to_dir, to)) =
            (from.rsplit_once('/').expect("absolute"), to.rsplit_once('/').expect("absolute"));
        let (from_dir, to_dir) = (self.dir(from_dir).await, self.dir(to_dir).await);
        let (from, to) = (named(from), named(to));
        self.0.change(Change::Rename { from_dir, from, to_dir, to, identity: None }).await;
    }

    async fn remove(&self, path: &str) {
        let (dir, name) = path.rsplit_once('/').expect("absolute");
        self.0.change(Change::Remove { dir: self.dir(dir).await, name: named(name) }).await;
    }

    async fn rmdir(&self, path: &str) {
        let (dir, name) = path.rsplit_once('/').expect("absolute");
        self.0.change(Change::Rmdir { dir: self.dir(dir).await, name: named(name) }).await;
    }
}

fn more(number: usize) -> String {
    format!("/more/f{number}")
}

/// What the snapshot has.
async fn first(tier: &Tier, many: usize) {
    let hand = Hand::of(tier).await;
    for dir in ["/dir", "/olddir", "/again", "/more"] {
        hand.mkdir(dir).await;
    }
    for name in ["clean", "flushed", "twice", "once", "moved", "moves", "rewritten", "removed", "goes"] {
        hand.make(&format!("/dir/{name}")).await;
    }
    for path in ["/olddir/x", "/again/x", "/top"] {
        hand.make(path).await;
    }
    for number in 0..many.min(MANY_OLD) {
        hand.make(&more(number)).await;
    }
}

/// What is flushed before the snapshot is restored.
async fn second(tier: &Tier) {
    let hand = Hand::of(tier).await;
    for name in ["flushed", "twice", "rewritten"] {
        let path = format!("/dir/{name}");
        hand.overwrite(&path, &path, 2).await;
    }
    hand.rename("/dir/moved", "/dir/there").await;
    hand.remove("/dir/removed").await;
    for path in ["/dir/made", "/dir/vanishes"] {
        hand.make(path).await;
    }
    hand.rename("/olddir", "/newdir").await;
    hand.remove("/again/x").await;
    hand.rmdir("/again").await;
    hand.mkdir("/fresh").await;
    hand.make("/fresh/in").await;
}

/// What is not. Returns the versions of files that are acknowledged by this, and nowhere but here.
async fn third(tier: &Tier, many: usize) -> Vec<(String, u32)> {
    let hand = Hand::of(tier).await;
    let mut dirty = Vec::new();
    let overwritten = [
        ("/dir/twice", "/dir/twice", 3),
        ("/dir/once", "/dir/once", 2),
        ("/dir/made", "/dir/made", 2),
        ("/newdir/x", "/olddir/x", 2),
        ("/fresh/in", "/fresh/in", 2),
    ];
    for (path, file, number) in overwritten {
        hand.overwrite(path, file, number).await;
        dirty.push((file.to_owned(), number));
    }
    hand.rename("/dir/there", "/dir/elsewhere").await;
    hand.rename("/dir/moves", "/dir/moved-too").await;
    hand.overwrite("/dir/moved-too", "/dir/moves", 2).await;
    dirty.push(("/dir/moves".to_owned(), 2));
    for path in ["/dir/rewritten", "/dir/goes", "/dir/vanishes"] {
        hand.remove(path).await;
    }
    hand.mkdir("/again").await;
    for path in ["/dir/new", "/fresh/new", "/again/new"] {
        hand.make(path).await;
        dirty.push((path.to_owned(), 1));
    }
    for number in 0..many {
        let path = more(number);
        if number < MANY_OLD {
            hand.overwrite(&path, &path, 2).await;
        } else {
            hand.make(&path).await;
        }
        dirty.push((path, if number < MANY_OLD { 2 } else { 1 }));
    }
    dirty
}

/// The names that clients gave a file, its first one before the others.
fn names_of(file: &str) -> Vec<&str> {
    match file {
        "/dir/moved" => vec![file, "/dir/there", "/dir/elsewhere"],
        "/dir/moves" => vec![file, "/dir/moved-too"],
        "/olddir/x" => vec![file, "/newdir/x"],
        _ => vec![file],
    }
}

/// All files as a client sees them.
async fn walk(client: &Client) -> types::Result<Tree> {
    let (mut tree, mut dirs) = (Tree::new(), vec![String::new()]);
    while let Some(dir) = dirs.pop() {
        let found = client.find_once(&dir).await?.reference;
        let mut cursor = DirCursor::default();
        loop {
            let page = client.0.readdir(&found, cursor).await?;
            for entry in page.entries {
                let path = format!("{dir}/{}", String::from_utf8_lossy(entry.name.as_bytes()));
                let object = client.0.lookup(&found, &entry.name).await?;
                if object.attr.kind == types::FileKind::Directory {
                    dirs.push(path);
                } else {
                    let range = ByteRange::new(0, object.attr.size);
                    let bytes = client.0.read(&object.reference, object.version, range).await?;
                    tree.insert(path, bytes.to_vec());
                }
            }
            match page.next {
                Some(next) => cursor = next,
                None => break,
            }
        }
    }
    Ok(tree)
}

/// For messages: which version is where.
fn shown(tree: &Tree) -> String {
    let line = |(path, bytes): (&String, &Vec<u8>)| match told_by(bytes) {
        Some((file, number)) if file == *path => format!("{path} {number}\n"),
        Some((file, number)) => format!("{path}: {file} {number}\n"),
        None => format!("{path}: {} bytes of no version\n", bytes.len()),
    };
    tree.iter().map(line).collect()
}

/// As soon as it is all of it, and as `wanted` if that is given: what is cached may be as old as its ttl.
async fn sees(tier: &Tier, wanted: Option<&Tree>) -> Tree {
    let (client, begun) = (Client::of(tier).await, Instant::now());
    loop {
        let seen = walk(&client).await;
        match &seen {
            Ok(tree) if wanted.is_none_or(|wanted| wanted == tree) => return tree.clone(),
            _ if begun.elapsed() < PATIENCE => {}
            Ok(tree) => panic!("seen:\n{}wanted:\n{}", shown(tree), wanted.map(shown).unwrap_or_default()),
            Err(e) => panic!("walk: {e}"),
        }
        tokio::time::sleep(LATER).await;
    }
}

fn journal(tier: &Tier) -> Value {
    tier.json(&["status"])["journal"].clone()
}

fn conflicts(tier: &Tier) -> u64 {
    journal(tier)["conflicts"].as_u64().expect("told")
}

fn flush(tier: &Tier) {
    tier.json(&["flush", "--wait"]);
    wait_until("no outage", || outage(tier).is_none());
    let journal = journal(tier);
    for nothing in ["operations", "refused"] {
        assert_eq!(journal[nothing], 0, "{nothing}: {journal:#}");
    }
}

/// What the alarms say of this path.
fn alarms_of(tier: &Tier, path: &str) -> Vec<String> {
    let journal = journal(tier);
    let alarms = journal["alarms"].as_array().expect("told").iter();
    let text = |alarm: &Value| {
        format!("{}: {}", alarm["kind"].as_str().unwrap_or(""), alarm["text"].as_str().unwrap_or(""))
    };
    alarms.map(text).filter(|text| text.contains(path)).collect()
}

/// What came of it all.
struct Outcome<'a> {
    tier: &'a Tier,
    /// What a tier sees that has never seen any of it.
    tree: Tree,
    /// What the snapshot has.
    old: Tree,
    dirty: Vec<(String, u32)>,
    /// What the origin had, and the restore took from it.
    lost: String,
}

impl Outcome<'_> {
    fn holds(&self, when: When) {
        println!("{}", shown(&self.tree));
        self.nothing_is_misplaced();
        self.nothing_dirty_is_lost();
        self.copies_are_told();
        self.what_the_snapshot_has_is_there();
        if when != When::InAFlush {
            self.what_finds_nothing_is_told();
        }
    }

    /// Every file is wholly one version of one that had this name.
    fn nothing_is_misplaced(&self) {
        for (path, bytes) in &self.tree {
            let (file, _) =
                told_by(bytes).unwrap_or_else(|| panic!("{path} is no version:\n{}", shown(&self.tree)));
            let is_its_place = names_of(&file).iter().any(|name| is_place_of(path, name));
            assert!(is_its_place, "{path} has {file}");
        }
    }

    fn nothing_dirty_is_lost(&self) {
        for (file, number) in &self.dirty {
            let bytes = version(file, *number);
            let line = std::str::from_utf8(&bytes).expect("text");
            let is_there = self.tree.values().any(|there| *there == bytes) || self.lost.contains(line);
            assert!(is_there, "{file} {number} is lost:\n{}", shown(&self.tree));
        }
    }

    fn copies_are_told(&self) {
        let copies: Vec<&String> = self.tree.keys().filter(|path| path.contains(MARK)).collect();
        let counted = conflicts(self.tier);
        assert!(copies.len() as u64 <= counted, "{counted} of {copies:?}");
        assert_eq!(self.tier.metric("forebay_flush_conflicts_total"), counted as f64);
        for path in copies {
            let upto = path.find(MARK).expect("filtered");
            assert!(!alarms_of(self.tier, &path[..upto]).is_empty(), "nothing is told of {path}");
        }
    }

    /// Where nothing of ours was to replace, remove or rename it. Where something was, it is there too, or that is told,
    /// or the origin says of it that it is what ours was made on.
    fn what_the_snapshot_has_is_there(&self) {
        // Ours was made on the very version that the snapshot has, or may have been.
        let is_ours = |path: &str| {
            ["/dir/once", "/dir/moves", "/dir/goes"].contains(&path) || path.starts_with("/more/")
        };
        for (path, bytes) in &self.old {
            let is_there = self.tree.get(path) == Some(bytes);
            let told = alarms_of(self.tier, path);
            assert!(is_there || is_ours(path) || !told.is_empty(), "{path} is gone:\n{}", shown(&self.tree));
            let is_kept = told.is_empty() || told.iter().any(|told| told.starts_with("resumed"));
            assert!(is_there || is_kept, "{path} is replaced though {told:?}");
        }
    }

    /// A removal, or a rename, of what is not there or is another version. Where the directory itself is another one, the
    /// file's name is all that is known.
    fn what_finds_nothing_is_told(&self) {
        let alarms = journal(self.tier)["alarms"].clone();
        for name in ["/vanishes", "/there", "/rewritten"] {
            let told = alarms_of(self.tier, name);
            let is_told = told.iter().any(|told| told.starts_with("dropped") || told.starts_with("resumed"));
            assert!(is_told, "{name}: {told:?} of {alarms:#}");
        }
        for name in ["/twice", "/made"] {
            assert!(!alarms_of(self.tier, name).is_empty(), "nothing is told of {name}: {alarms:#}");
        }
        for path in ["/dir/removed", "/dir/moved", "/dir/rewritten", "/dir/twice", "/dir/flushed", "/again/x"]
        {
            assert_eq!(self.tree.get(path), Some(&version(path, 1)), "{path}");
        }
        let beside = |file: &str| {
            let bytes = version(file, 3);
            self.tree.iter().any(|(path, there)| path.contains(MARK) && *there == bytes)
        };
        assert!(beside("/dir/twice"), "ours is beside");
    }
}

async fn restored(place: &mut dyn Rewound, when: When) {
    println!("{} {when:?}", place.url());
    let dir = tempfile::tempdir().expect("temporary directory");
    let (many, slowly) = if when == When::InAFlush { (MANY, SLOWLY) } else { (0, "") };
    let mut tier = Tier::start(dir.path(), &junction(&place.url(), &format!("{HELD}\n{slowly}")));
    first(&tier, many).await;
    flush(&tier);
    let old = sees(&tier, None).await;
    place.snapshot();
    if when != When::InAFlush {
        clean(&mut tier, place, when, &old).await;
    }
    second(&tier).await;
    flush(&tier);
    let before = conflicts(&tier);
    let dirty = third(&tier, many).await;
    let lost = match when {
        When::AtStart => {
            assert_eq!(tier.stop(), Some(0));
            let _ = place.restore();
            tier.start_again();
            String::new()
        }
        When::WhileRunning => {
            let _ = place.restore();
            String::new()
        }
        When::InAFlush => {
            let all = operations(&tier);
            tier.json(&["flush"]);
            wait_until("the flush is under way", || operations(&tier) < all - 20);
            place.restore()
        }
    };
    assert_eq!(before, 0, "nobody else was there yet");
    let left = operations(&tier);
    flush(&tier);
    println!("{left} operations were left after the restore, {} conflicts", conflicts(&tier));
    let other = tempfile::tempdir().expect("temporary directory");
    let fresh = Tier::start(other.path(), &junction(&place.url(), ""));
    let tree = sees(&fresh, None).await;
    if when == When::InAFlush && !place.tells_what_was_before() {
        forget_unnoticed(&tier, &tree).await;
    }
    sees(&tier, Some(&tree)).await;
    Outcome { tier: &tier, tree, old, dirty, lost }.holds(when);
}

/// The limit that docs/SEMANTICS.md tells of: a file that was under way when it was set back may be shown as it was
/// written here, until an operator has the tier forget it.
async fn forget_unnoticed(tier: &Tier, tree: &Tree) {
    tokio::time::sleep(2 * WINDOW).await; // what is noticed is by now: the ttl is over
    let seen = sees(tier, None).await;
    assert!(seen.keys().eq(tree.keys()), "seen:\n{}there:\n{}", shown(&seen), shown(tree));
    let differ: Vec<&String> = seen.keys().filter(|path| seen[*path] != tree[*path]).collect();
    for path in &differ {
        assert!(path.starts_with("/more/"), "{path} was not under way");
        assert_eq!(told_by(&seen[*path]), Some(((*path).clone(), 2)), "what was written here");
    }
    println!("{} files are shown as they were written here", differ.len());
    assert!(differ.len() <= UNDER_WAY_MAX, "not all of these were under way: {differ:?}");
    for path in differ {
        tier.json(&["evict", path]);
    }
}

/// With nothing dirty: it is as it was then.
async fn clean(tier: &mut Tier, place: &mut dyn Rewound, when: When, old: &Tree) {
    second(tier).await;
    flush(tier);
    let newer = sees(tier, None).await;
    assert_ne!(newer, *old);
    if when == When::AtStart {
        assert_eq!(tier.stop(), Some(0));
    }
    let _ = place.restore();
    if when == When::AtStart {
        tier.start_again();
    }
    sees(tier, Some(old)).await;
    assert_eq!(outage(tier), None);
    assert_eq!((operations(tier), conflicts(tier)), (0, 0));
}

const ALL: [When; 3] = [When::AtStart, When::WhileRunning, When::InAFlush];

/// Each time in a place of its own.
async fn at_each<P: Rewound>(name: &str, times: &[When], place: impl Fn(When) -> Result<P, NotRun>) {
    for when in times.iter().copied() {
        match place(when) {
            Ok(mut place) => restored(&mut place, when).await,
            Err(NotRun(reason)) => return not_run(name, &reason),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_state_of_a_directory() {
    let how = |when| match when {
        When::AtStart => How::MovedAway,
        When::WhileRunning => How::InPlace,
        When::InAFlush => How::Replaced,
    };
    at_each("an_older_state_of_a_directory", &ALL, |when| Ok(Directory::new(how(when)))).await;
}

#[test]
fn an_older_state_of_an_export_of_knfsd() {
    with_lab("an_older_state_of_an_export_of_knfsd", Duration::from_millis(1), |lab| {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        for (when, name) in ALL.into_iter().zip(["at-start", "running", "in-a-flush"]) {
            runtime.block_on(restored(&mut Exported::new(lab, name), when));
        }
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_state_of_an_s3_bucket() {
    let name = "an_older_state_of_an_s3_bucket";
    at_each(name, &[When::AtStart, When::WhileRunning], |_| s3_bucket()).await;
    at_each(name, &[When::InAFlush], |_| DiskOfBucket::new()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_state_of_an_azure_container() {
    at_each("an_older_state_of_an_azure_container", &ALL, |_| container()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_state_of_a_google_bucket() {
    at_each("an_older_state_of_a_google_bucket", &ALL, |_| GoogleBucket::new()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_state_of_an_azure_share() {
    for when in ALL {
        restored(&mut Share::new().await, when).await;
    }
}
