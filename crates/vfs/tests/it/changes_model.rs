//! Random changes through two tiers over one origin, against the same changes made to a model.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use origin::memory::MemoryOrigin;
use origin::posix::PosixOrigin;
use origin::{Change, Object, Origin};
use types::Timeline;
use types::{Caller, CreateHow, ErrorKind, FileKind, NewNode, Result, SetAttr};

use vfs::Vfs;

use crate::harness::{AFTER_TTL, Random, kind};
use crate::writable::{name, names, with_mode, writable};

#[derive(Clone, Debug)]
pub enum Op {
    Create(CreateHow, SetAttr),
    Mkdir,
    Symlink(Bytes),
    Fifo,
    Link(String),
    Remove,
    Rmdir,
    Rename(String),
    Set(SetAttr),
}

/// One of few, so that names meet.
pub fn path(random: &mut Random) -> String {
    let depth = 1 + random.below(3);
    (0..depth).map(|_| format!("/{}", ["a", "b", "c", "d"][random.below(4) as usize])).collect()
}

pub fn op(random: &mut Random) -> Op {
    let size = |size| SetAttr { size: Some(size), ..SetAttr::default() };
    match random.below(14) {
        0 => Op::Create(CreateHow::Guarded, with_mode(0o644)),
        1 => Op::Create(CreateHow::Unchecked, SetAttr { mode: Some(0o600), ..size(0) }),
        2..=4 => Op::Mkdir,
        5 => Op::Symlink(Bytes::from(format!("to{}", random.below(100)))),
        6 => Op::Fifo,
        7 => Op::Link(path(random)),
        8 => Op::Remove,
        9 => Op::Rmdir,
        10 | 11 => Op::Rename(path(random)),
        12 => Op::Set(with_mode(0o600 + random.below(0o100) as u32)),
        _ => Op::Set(size(random.below(100_000))),
    }
}

fn split(path: &str) -> (&str, &str) {
    let cut = path.rfind('/').expect("absolute");
    (&path[..cut], &path[cut + 1..])
}

pub async fn at_tier(vfs: &Vfs, path: &str, op: &Op) -> Result<()> {
    let caller = Caller::root();
    let (parent, last) = split(path);
    let id = async |path: &str| vfs.resolve(path.as_bytes()).await.map(|node| node.id);
    if let Op::Set(set) = op {
        return vfs.setattr(&caller, id(path).await?, *set, None).await.map(drop);
    }
    let (dir, name_here) = (id(parent).await?, name(last));
    match op.clone() {
        Op::Create(how, set) => vfs.create(&caller, dir, &name_here, how, set).await.map(drop),
        Op::Mkdir => vfs.mkdir(&caller, dir, &name_here, with_mode(0o755)).await.map(drop),
        Op::Symlink(to) => vfs.symlink(&caller, dir, &name_here, to, SetAttr::default()).await.map(drop),
        Op::Fifo => vfs.mknod(&caller, dir, &name_here, NewNode::Fifo, with_mode(0o640)).await.map(drop),
        Op::Link(file) => vfs.link(&caller, id(&file).await?, dir, &name_here).await.map(drop),
        Op::Remove => vfs.remove(&caller, dir, &name_here).await.map(drop),
        Op::Rmdir => vfs.rmdir(&caller, dir, &name_here).await.map(drop),
        Op::Rename(to) => {
            let (parent, to) = split(&to);
            vfs.rename(&caller, dir, &name_here, id(parent).await?, &name(to)).await.map(drop)
        }
        Op::Set(_) => unreachable!("done above"),
    }
}

async fn find(model: &dyn Origin, path: &str) -> Result<Object> {
    let mut at = model.root().await?;
    for part in path.split('/').filter(|part| !part.is_empty()) {
        at = model.lookup(&at.reference, &name(part)).await?;
    }
    Ok(at)
}

pub async fn at_model(model: &dyn Origin, path: &str, op: &Op) -> Result<()> {
    let (parent, last) = split(path);
    let reference = async |path: &str| find(model, path).await.map(|object| object.reference);
    if let Op::Set(set) = op {
        let object = find(model, path).await?;
        if set.size.is_some() && !object.attr.is_file() {
            let kind =
                if object.attr.is_dir() { ErrorKind::IsADirectory } else { ErrorKind::InvalidArgument };
            return Err(types::Error::new(kind, "set the size", path));
        }
        return model
            .change(&Change::Set { object: object.reference, set: *set, guard: None })
            .await
            .map(drop);
    }
    let (dir, name) = (reference(parent).await?, name(last));
    let change = match op.clone() {
        Op::Create(how, set) => Change::Create { dir, name, how, set },
        Op::Mkdir => Change::Mkdir { dir, name, set: with_mode(0o755) },
        Op::Symlink(target) => Change::Symlink { dir, name, target, set: SetAttr::default() },
        Op::Fifo => Change::Mknod { dir, name, node: NewNode::Fifo, set: with_mode(0o640) },
        Op::Link(file) => Change::Link { file: reference(&file).await?, dir, name },
        Op::Remove => Change::Remove { dir, name },
        Op::Rmdir => Change::Rmdir { dir, name },
        Op::Rename(to) => {
            let (parent, to) = split(&to);
            let (to_dir, to) = (reference(parent).await?, crate::writable::name(to));
            Change::Rename { from_dir: dir, from: name, to_dir, to, identity: None }
        }
        Op::Set(_) => unreachable!("done above"),
    };
    model.change(&change).await.map(drop)
}

/// Kind, mode, links and size (neither of a directory, whose are its file system's) and target.
pub type Seen = (FileKind, u32, Option<(u32, u64)>, Bytes);

pub async fn tree_of_tier(vfs: &Vfs) -> BTreeMap<String, Seen> {
    let mut tree = BTreeMap::new();
    let mut dirs = vec![(String::new(), vfs.root())];
    while let Some((path, dir)) = dirs.pop() {
        for child in names(vfs, dir).await {
            let node =
                vfs.lookup(&Caller::root(), dir, &name(&child)).await.expect("what is listed is there");
            let path = format!("{path}/{child}");
            let target = match node.attr.kind {
                FileKind::Symlink => vfs.readlink(&Caller::root(), node.id).await.expect("a link").0,
                _ => Bytes::new(),
            };
            let attr = node.attr;
            let counts = (!attr.is_dir()).then_some((attr.nlink, attr.size));
            tree.insert(path.clone(), (attr.kind, attr.mode, counts, target));
            if attr.is_dir() {
                dirs.push((path, node.id));
            }
        }
    }
    tree
}

pub async fn tree_of_origin(model: &dyn Origin) -> BTreeMap<String, Seen> {
    let mut tree = BTreeMap::new();
    let mut dirs = vec![(String::new(), model.root().await.expect("there"))];
    while let Some((path, dir)) = dirs.pop() {
        let page = model.readdir(&dir.reference, origin::DirCursor::default()).await.expect("listed");
        for entry in page.entries {
            let object = entry.object.expect("told");
            let path = format!("{path}/{}", String::from_utf8_lossy(entry.name.as_bytes()));
            let target = match object.attr.kind {
                FileKind::Symlink => model.readlink(&object.reference).await.expect("a link"),
                _ => Bytes::new(),
            };
            let attr = object.attr;
            let counts = (!attr.is_dir()).then_some((attr.nlink, attr.size));
            tree.insert(path.clone(), (attr.kind, attr.mode, counts, target));
            if attr.is_dir() {
                dirs.push((path, object));
            }
        }
    }
    tree
}

/// One tier makes changes and sees them at once; then its ttl passes, and the other one goes on.
async fn run(origin: Arc<dyn Origin>, rounds: u64) {
    let mut random = Random::seeded();
    let (clock, model) = (Timeline::default(), MemoryOrigin::new());
    let tiers = [writable(origin.clone(), &clock), writable(origin, &clock)];
    for round in 0..rounds {
        let tier = &tiers[(round % 2) as usize];
        for step in 0..1 + random.below(12) {
            let (path, op) = (path(&mut random), op(&mut random));
            let (done, expected) =
                (at_tier(&tier.vfs, &path, &op).await, at_model(&*model, &path, &op).await);
            let context = format!("round {round}.{step}: {op:?} {path}: {done:?}, {expected:?}");
            assert_eq!(done.is_ok(), expected.is_ok(), "{context}");
            if let (Some(kind), Some(expected)) = (kind(done), kind(expected)) {
                // Origins look at several reasons in an order of their own.
                let one_of_many = matches!(op, Op::Rename(_) | Op::Link(_) | Op::Create(..));
                assert!(kind == expected || one_of_many, "{context}");
            }
            if random.below(3) == 0 {
                assert_eq!(tree_of_tier(&tier.vfs).await, tree_of_origin(&*model).await, "{context}");
            }
        }
        // Longer than some ticks of a file system's clock, of up to 10 ms each: the tiers' clock passes only for them.
        tokio::time::sleep(Duration::from_millis(30)).await;
        clock.advance(AFTER_TTL);
        let other = &tiers[((round + 1) % 2) as usize];
        assert_eq!(tree_of_tier(&other.vfs).await, tree_of_origin(&*model).await, "after round {round}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_changes_are_seen_at_once_by_who_made_them_and_by_others_after_the_ttl() {
    run(MemoryOrigin::new(), 40).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn random_changes_of_a_directory_are_seen_likewise() {
    let home = tempfile::tempdir().expect("a directory for the test");
    run(Arc::new(PosixOrigin::open(home.path()).expect("opened")), 25).await;
}
