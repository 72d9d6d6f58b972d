//! Random changes, made at an origin and at the honest one in memory: each ends in the same way at both, and so does
//! the tree.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use origin::memory::MemoryOrigin;
use origin::{Change, DirCursor, Object, Origin, Reference};
use types::{
    ByteRange, CreateHow, Error, ErrorKind, FileKind, NewNode, Result, SetAttr, Stability, TimeChange,
    Timestamp,
};

use super::changes::with_mode;
use super::{Has, name, pattern};

/// One that was not used before; print it.
pub fn seed() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_nanos() as u64)
}

/// `count` changes, drawn from `seed`. The origin's root is empty.
pub async fn run_random_changes(origin: &Arc<dyn Origin>, seed: u64, count: u32) {
    run_random_changes_with(origin, seed, count, Has::ALL).await;
}

pub async fn run_random_changes_with(origin: &Arc<dyn Origin>, seed: u64, count: u32, has: Has) {
    let model: Arc<dyn Origin> = MemoryOrigin::new();
    let mut chance = Chance(seed);
    let (mut done, mut refused) = (0, 0);
    for round in 0..count {
        let known = Known::of(&tree(&model).await);
        let step = loop {
            match chance.step(&known) {
                Step::Link(..) if !has.hard_links => {}
                Step::Fifo(..) if !has.special_files => {}
                step => break step,
            }
        };
        let (expected, found) = (carry_out(&model, &step).await, carry_out(origin, &step).await);
        let told = format!("seed {seed}, change {round}, {step:?}: {found:?}, the model says {expected:?}");
        match (expected, found) {
            (Ok(()), Ok(())) => done += 1,
            (Err(expected), Err(found)) if equal(&step, expected, found) => refused += 1,
            _ => panic!("{told}"),
        }
        if round % 20 == 19 {
            compare(&model, origin, &told).await;
        }
    }
    compare(&model, origin, &format!("seed {seed}, at the end")).await;
    assert!(done > count / 5 && refused > 0, "seed {seed}: {done} done, {refused} refused");
}

async fn compare(model: &Arc<dyn Origin>, origin: &Arc<dyn Origin>, told: &str) {
    let (expected, found) = (tree(model).await, tree(origin).await);
    for (path, one) in &expected {
        let Some(other) = found.get(path) else { panic!("{path} is not there after {told}") };
        let attributes = |shown: &Shown| (shown.0, shown.1, shown.2, shown.3);
        assert_eq!(attributes(other), attributes(one), "{path} after {told}");
        assert!(other.4 == one.4, "what is in {path} differs after {told}");
    }
    assert_eq!(found.len(), expected.len(), "{:?} after {told}", found.keys());
}

#[derive(Debug)]
enum Step {
    Create(String, CreateHow, SetAttr),
    Mkdir(String),
    Symlink(String, Vec<u8>),
    Fifo(String),
    Link(String, String),
    Remove(String),
    Rmdir(String),
    Rename(String, String),
    Set(String, SetAttr),
    Write(String, u64, usize, Stability),
    Commit(String),
}

/// Each of these errors is as good as the other, for it: nobody says which of two reasons comes first. The suite that
/// is not random is stricter.
fn equal(step: &Step, expected: ErrorKind, found: ErrorKind) -> bool {
    use ErrorKind::{
        AccessDenied, Exists, InvalidArgument, Io, IsADirectory, NotADirectory, NotEmpty, NotFound,
        NotPermitted, NotSupported,
    };
    let as_good: &[ErrorKind] = match step {
        Step::Rename(..) => &[Exists, NotEmpty, IsADirectory, NotADirectory, InvalidArgument, NotFound],
        // nfs-ganesha finds out by opening what is there: a link that leads nowhere is "not found" to it, and one that
        // leads past a file "not a directory".
        Step::Create(..) => {
            &[Exists, NotFound, IsADirectory, NotADirectory, InvalidArgument, NotSupported, Io]
        }
        Step::Link(..) => {
            &[Exists, IsADirectory, NotADirectory, AccessDenied, NotPermitted, InvalidArgument, NotSupported]
        }
        // Of what is no file, which the model never calls a failing disk.
        Step::Set(..) | Step::Write(..) | Step::Commit(..) => {
            &[IsADirectory, InvalidArgument, Io, NotSupported]
        }
        _ => &[],
    };
    expected == found || (as_good.contains(&expected) && as_good.contains(&found))
}

async fn carry_out(origin: &Arc<dyn Origin>, step: &Step) -> std::result::Result<(), ErrorKind> {
    act(origin.as_ref(), step).await.map_err(|error| error.kind())
}

async fn act(origin: &dyn Origin, step: &Step) -> Result<()> {
    let change = match step {
        Step::Create(path, how, set) => {
            let (dir, last) = parent(origin, path).await?;
            Change::Create { dir, name: name(last.as_bytes()), how: *how, set: *set }
        }
        Step::Mkdir(path) => {
            let (dir, last) = parent(origin, path).await?;
            Change::Mkdir { dir, name: name(last.as_bytes()), set: with_mode(0o750) }
        }
        Step::Symlink(path, target) => {
            let (dir, last) = parent(origin, path).await?;
            let target = Bytes::copy_from_slice(target);
            Change::Symlink { dir, name: name(last.as_bytes()), target, set: SetAttr::default() }
        }
        Step::Fifo(path) => {
            let (dir, last) = parent(origin, path).await?;
            Change::Mknod { dir, name: name(last.as_bytes()), node: NewNode::Fifo, set: with_mode(0o640) }
        }
        Step::Link(file, path) => {
            let file = find(origin, file).await?.reference;
            let (dir, last) = parent(origin, path).await?;
            Change::Link { file, dir, name: name(last.as_bytes()) }
        }
        Step::Remove(path) => {
            let (dir, last) = parent(origin, path).await?;
            Change::Remove { dir, name: name(last.as_bytes()) }
        }
        Step::Rmdir(path) => {
            let (dir, last) = parent(origin, path).await?;
            Change::Rmdir { dir, name: name(last.as_bytes()) }
        }
        Step::Rename(from, to) => {
            let ((from_dir, from), (to_dir, to)) = (parent(origin, from).await?, parent(origin, to).await?);
            let (from, to) = (name(from.as_bytes()), name(to.as_bytes()));
            Change::Rename { from_dir, from, to_dir, to, identity: None }
        }
        Step::Set(path, set) => {
            Change::Set { object: find(origin, path).await?.reference, set: *set, guard: None }
        }
        Step::Write(path, offset, length, stability) => {
            let file = find_to_write(origin, path).await?;
            let data = pattern(*length, *offset as u8).into();
            return origin.write(&file, *offset, data, *stability).await.map(|_| ());
        }
        Step::Commit(path) => {
            let file = find_to_write(origin, path).await?;
            return origin.commit(&file, ByteRange::new(0, 0)).await.map(|_| ());
        }
    };
    let made = origin.change(&change).await?.object;
    match (change, made) {
        // Without a mode it is the origin's to choose.
        (Change::Create { set, .. }, Some(made)) if set.mode.is_none() => {
            let set = Change::Set { object: made.reference, set: with_mode(0o604), guard: None };
            origin.change(&set).await.map(|_| ())
        }
        _ => Ok(()),
    }
}

async fn find(origin: &dyn Origin, path: &str) -> Result<Object> {
    let mut at = origin.root().await?;
    for part in path.split('/').filter(|part| !part.is_empty()) {
        at = origin.lookup(&at.reference, &name(part.as_bytes())).await?;
    }
    Ok(at)
}

/// A server may hang on a fifo (nfs-ganesha does), and nobody writes to one through it.
async fn find_to_write(origin: &dyn Origin, path: &str) -> Result<Reference> {
    let found = find(origin, path).await?;
    match found.attr.kind {
        FileKind::Regular | FileKind::Directory => Ok(found.reference),
        _ => Err(Error::new(ErrorKind::InvalidArgument, "write to", path)),
    }
}

async fn parent<'a>(origin: &dyn Origin, path: &'a str) -> Result<(Reference, &'a str)> {
    let (dir, last) = path.rsplit_once('/').unwrap_or(("", path));
    Ok((find(origin, dir).await?.reference, last))
}

/// What is at a path: kind, mode, names, size, and what is in it. A file system may count a directory's size and links
/// as it likes, and a link's mode means nothing.
type Shown = (FileKind, u32, u32, u64, Bytes);

async fn tree(origin: &Arc<dyn Origin>) -> BTreeMap<String, Shown> {
    let mut all = BTreeMap::new();
    let mut ways = vec![(String::new(), origin.root().await.expect("the root is there"))];
    while let Some((path, dir)) = ways.pop() {
        let mut cursor = Some(DirCursor::default());
        while let Some(at) = cursor {
            let page = origin.readdir(&dir.reference, at).await.expect("listed");
            cursor = page.next;
            for entry in page.entries {
                let object = origin.lookup(&dir.reference, &entry.name).await.expect("there");
                let path = format!("{path}/{}", entry.name);
                all.insert(path.clone(), shown(origin, &object).await);
                if object.attr.is_dir() {
                    ways.push((path, object));
                }
            }
        }
    }
    all
}

async fn shown(origin: &Arc<dyn Origin>, object: &Object) -> Shown {
    let attr = &object.attr;
    match attr.kind {
        FileKind::Directory => (attr.kind, attr.mode, 0, 0, Bytes::new()),
        FileKind::Symlink => {
            let target = origin.readlink(&object.reference).await.expect("read");
            (attr.kind, 0, attr.nlink, attr.size, target)
        }
        FileKind::Regular => {
            let all = ByteRange::new(0, attr.size);
            let bytes = origin.read(&object.reference, object.version, all).await.expect("read");
            (attr.kind, attr.mode, attr.nlink, attr.size, bytes)
        }
        _ => (attr.kind, attr.mode, attr.nlink, 0, Bytes::new()),
    }
}

/// Paths that are there.
struct Known {
    all: Vec<String>,
    /// With the root.
    dirs: Vec<String>,
}

impl Known {
    fn of(tree: &BTreeMap<String, Shown>) -> Known {
        let dirs = tree.iter().filter(|(_, shown)| shown.0 == FileKind::Directory).map(|(path, _)| path);
        let dirs = dirs.cloned().chain([String::new()]).collect();
        Known { all: tree.keys().cloned().collect(), dirs }
    }
}

/// SplitMix64.
struct Chance(u64);

impl Chance {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % n
    }

    fn one_of(&mut self, paths: &[String]) -> String {
        paths.get(self.below(paths.len().max(1) as u64) as usize).cloned().unwrap_or_default()
    }

    /// Mostly one that is there.
    fn old_path(&mut self, known: &Known) -> String {
        if known.all.is_empty() || self.below(6) == 0 {
            self.new_path(known)
        } else {
            self.one_of(&known.all)
        }
    }

    /// Mostly one that is not there, in a directory. Few names, so that changes meet.
    fn new_path(&mut self, known: &Known) -> String {
        let any = self.below(10) == 0;
        let dir = self.one_of(if any { &known.all } else { &known.dirs });
        format!("{dir}/{}", ["a", "b", "c", "d", "e"][self.below(5) as usize])
    }

    fn mode(&mut self) -> u32 {
        0o700 | self.below(0o100) as u32
    }

    fn set(&mut self) -> SetAttr {
        let size = (self.below(3) == 0).then(|| self.below(9000));
        let mode = (self.below(2) == 0).then(|| self.mode());
        let mtime = match self.below(3) {
            0 => TimeChange::Now,
            1 => {
                TimeChange::To(Timestamp { seconds: 1_000_000_000, nanos: self.below(1_000_000_000) as u32 })
            }
            _ => TimeChange::Keep,
        };
        SetAttr { size, mode, mtime, ..SetAttr::default() }
    }

    fn how(&mut self) -> CreateHow {
        match self.below(4) {
            0 | 1 => CreateHow::Guarded,
            2 => CreateHow::Unchecked,
            _ => CreateHow::Exclusive([self.below(2) as u8; 8]),
        }
    }

    fn stability(&mut self) -> Stability {
        [Stability::Unstable, Stability::DataSync, Stability::FileSync][self.below(3) as usize]
    }

    fn step(&mut self, known: &Known) -> Step {
        match self.below(20) {
            0..=3 => {
                let how = self.how();
                let plain = matches!(how, CreateHow::Exclusive(_)) && self.below(2) == 0;
                let mode = self.mode();
                Step::Create(
                    self.new_path(known),
                    how,
                    if plain { SetAttr::default() } else { with_mode(mode) },
                )
            }
            4..=6 => Step::Mkdir(self.new_path(known)),
            7 => Step::Symlink(self.new_path(known), b"a/b".to_vec()),
            8 => Step::Fifo(self.new_path(known)),
            9 => Step::Link(self.old_path(known), self.new_path(known)),
            10 => Step::Remove(self.old_path(known)),
            11 => Step::Rmdir(self.old_path(known)),
            12 | 13 => Step::Rename(self.old_path(known), self.new_path(known)),
            14 => Step::Rename(self.old_path(known), self.old_path(known)),
            15 => Step::Set(self.old_path(known), self.set()),
            16 => Step::Commit(self.old_path(known)),
            _ => Step::Write(
                self.old_path(known),
                self.below(5000),
                self.below(5000) as usize,
                self.stability(),
            ),
        }
    }
}
