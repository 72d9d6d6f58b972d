//! Random changes at the origin; after the ttl, all that is served equals all that is there.

use std::collections::BTreeMap;

use origin::memory::MemoryOrigin;
use origin::{DirCursor, Object, Origin};
use types::{ByteRange, Caller, ErrorKind, FileId, FileKind, Name};

use crate::harness::{AFTER_TTL, Mode, Random, Tier, in_every_mode, joined, tier};

in_every_mode!(after_the_ttl_the_tier_equals_the_origin);

const ROUNDS: usize = 25;
const CHANGES_PER_ROUND: u64 = 12;

/// Few names, so that they are used again and again; up to three deep.
fn path(random: &mut Random) -> Vec<u8> {
    let names: [&[u8]; 5] = [b"a", b"b", b"caf\xe9", b"d d", b"e"];
    let depth = 1 + random.below(3);
    let parts: Vec<_> = (0..depth).map(|_| names[random.below(5) as usize]).collect();
    parts.join(&b'/')
}

/// One random change; those that make no sense fail and change nothing that matters.
async fn change(memory: &MemoryOrigin, random: &mut Random) {
    let (path, other) = (path(random), path(random));
    let inside = other.starts_with(&path) || path.starts_with(&other);
    let _ = match random.below(12) {
        0..=2 => memory.mkdir(&path),
        3..=4 => memory.generate_file(&path, random.next(), random.below(300_000)),
        5 => memory.write_file(&path, &vec![random.next() as u8; random.below(4000) as usize]),
        6 => memory.symlink(&path, &other),
        7..=8 => memory.remove(&path),
        9 if !inside => memory.rename(&path, &other),
        10 if find(memory, &path).await.is_some_and(|o| o.attr.is_file()) => {
            if find(memory, &other).await.is_none() { memory.link(&path, &other) } else { Ok(()) }
        }
        11 => memory.chmod(&path, random.below(0o1000) as u32),
        _ => Ok(()),
    };
}

async fn find(memory: &MemoryOrigin, path: &[u8]) -> Option<Object> {
    let mut at = memory.root().await.ok()?;
    for part in path.split(|b| *b == b'/') {
        at = memory.lookup(&at.reference, &Name::new(part.to_vec()).ok()?).await.ok()?;
    }
    Some(at)
}

/// Use the tier before the ttl is over, so that it knows old things. Whatever it answers is no lie about bytes.
async fn use_it(t: &Tier, random: &mut Random) {
    let path = path(random);
    let caller = Caller::root();
    match t.vfs.resolve(&path).await {
        Ok(node) if node.attr.is_dir() => {
            let _ = t.vfs.readdir(&caller, node.id, 0, 100).await;
        }
        Ok(node) => {
            let _ = t.read(node.id, random.below(100_000), 100_000).await;
        }
        Err(e) => {
            let kinds = [ErrorKind::NotFound, ErrorKind::NotADirectory, ErrorKind::Stale];
            assert!(kinds.contains(&e.kind()), "{e:?}");
        }
    }
}

async fn compare(t: &Tier, random: &mut Random) -> usize {
    let root = t.far.memory.root().await.unwrap();
    let mut ids: BTreeMap<u64, FileId> = BTreeMap::new();
    let mut left = vec![(Vec::new(), root)];
    let mut compared = 0;
    while let Some((path, object)) = left.pop() {
        let shown = path.escape_ascii().to_string();
        let node = t.vfs.resolve(&path).await.unwrap_or_else(|e| panic!("/{shown}: {e}"));
        let (seen, real) = (node.attr, object.attr);
        assert_eq!((seen.kind, seen.mode, seen.nlink), (real.kind, real.mode, real.nlink), "/{shown}");
        assert_eq!((seen.size, seen.mtime, seen.ctime), (real.size, real.mtime, real.ctime), "/{shown}");
        let known = *ids.entry(real.fileid).or_insert(node.id);
        assert_eq!(known, node.id, "/{shown}: one object, one id");
        compared += 1;
        match real.kind {
            FileKind::Directory => {
                let page = t.far.memory.readdir(&object.reference, DirCursor::default()).await.unwrap();
                let listed = t.vfs.readdir(&Caller::root(), node.id, 0, 1000).await.unwrap();
                let mut names: Vec<_> = listed.items.iter().skip(2).map(|i| i.name.to_vec()).collect();
                names.sort();
                let real: Vec<_> = page.entries.iter().map(|e| e.name.as_bytes().to_vec()).collect();
                assert_eq!(names, real, "names in /{shown}");
                for entry in page.entries {
                    let child = [&path[..], entry.name.as_bytes()].join(&b'/');
                    left.push((child, entry.object.unwrap()));
                }
            }
            FileKind::Symlink => {
                let target = t.far.memory.readlink(&object.reference).await.unwrap();
                assert_eq!(t.vfs.readlink(&Caller::root(), node.id).await.unwrap().0, target, "/{shown}");
            }
            _ => {
                let offset = random.below(real.size.max(1));
                for range in
                    [ByteRange::new(0, real.size), ByteRange::new(offset, 70_000).clamp_to(real.size)]
                {
                    let expected = t.far.memory.read(&object.reference, object.version, range).await.unwrap();
                    let read = t.read(node.id, range.offset, range.length as u32).await.unwrap();
                    assert!(joined(&read) == expected, "bytes of /{shown} in {range:?}");
                }
            }
        }
    }
    compared
}

async fn after_the_ttl_the_tier_equals_the_origin(mode: Mode) {
    println!("{mode:?}");
    let mut random = Random::seeded();
    let mut t = tier(mode);
    // An origin whose root was emptied is taken for one that is not mounted (docs/SEMANTICS.md): an outage, not a change.
    t.far.memory.write_file(b"stays", b"in the root").expect("made");
    let mut compared = 0;
    for _ in 0..ROUNDS {
        // Half the time changes are so recent that their timestamps prove nothing.
        if random.below(2) == 0 {
            t.far.memory.set_clock(t.now());
        }
        for _ in 0..random.below(CHANGES_PER_ROUND) {
            change(&t.far.memory, &mut random).await;
            if random.below(3) == 0 {
                use_it(&t, &mut random).await;
            }
        }
        if random.below(6) == 0 {
            t = t.after_a_restart().await;
        }
        t.pass(AFTER_TTL);
        compared += compare(&t, &mut random).await;
    }
    assert!(compared > 2 * ROUNDS, "an origin with nothing but its root and `stays` proves nothing");
}
