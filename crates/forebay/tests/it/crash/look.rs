//! What is there: through NFS, through a mount, or in the origin's directory; and how it differs from a model.

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use origin::{DirCursor, Object, Origin, Reference};
use origin_nfs::NfsOrigin;
use types::{ByteRange, Error, ErrorKind, FileKind, Name, Result};

use crate::crash::model::{Kind, Node, SHARED, Tree};

/// Versions of a file within one look at it.
const TRIES: u32 = 100;

/// What can be seen of one name.
#[derive(Clone, PartialEq, Eq)]
pub struct Seen {
    pub kind: Kind,
    pub mode: u32,
    pub links: usize,
    pub mtime: u64,
    pub size: u64,
}

pub type Sight = BTreeMap<String, Seen>;

/// Of what is in the tree below its root, all.
pub async fn through_nfs(nfs: &NfsOrigin) -> Result<Sight> {
    let mut sight = Sight::new();
    let mut dirs = vec![(String::new(), nfs.root().await?)];
    while let Some((above, dir)) = dirs.pop() {
        let mut cursor = Some(DirCursor::default());
        while let Some(at) = cursor {
            let page = nfs.readdir(&dir.reference, at).await?;
            cursor = page.next;
            for entry in page.entries {
                let object = match entry.object {
                    Some(object) => object,
                    None => nfs.lookup(&dir.reference, &entry.name).await?,
                };
                let path = format!("{above}{}", String::from_utf8_lossy(entry.name.as_bytes()));
                let seen = of_object(nfs, &object).await;
                let seen = seen.map_err(|e| {
                    Error::new(e.kind(), "look at", format!("{path} {:?}", object.reference)).with_source(e)
                })?;
                sight.insert(path.clone(), seen);
                if object.attr.is_dir() {
                    dirs.push((format!("{path}/"), object));
                }
            }
        }
    }
    Ok(sight)
}

async fn of_object(nfs: &NfsOrigin, object: &Object) -> Result<Seen> {
    let attr = &object.attr;
    let kind = match attr.kind {
        FileKind::Directory => Kind::Dir,
        FileKind::Symlink => {
            Kind::Link(String::from_utf8_lossy(&nfs.readlink(&object.reference).await?).into_owned())
        }
        FileKind::Regular => Kind::File(Arc::new(read(nfs, &object.reference).await?)),
        other => return Err(Error::new(ErrorKind::Corrupt, "look at", format!("a {other:?}"))),
    };
    let mtime = attr.mtime.seconds as u64 * 1_000_000_000 + u64::from(attr.mtime.nanos);
    Ok(Seen { kind, mode: attr.mode, links: attr.nlink as usize, mtime, size: attr.size })
}

/// All of a file. Its version may change while it is read, though nobody writes: it comes home to the origin.
pub async fn read(nfs: &NfsOrigin, file: &Reference) -> Result<Vec<u8>> {
    let mut tries = 0;
    loop {
        match read_version(nfs, file).await {
            Err(e) if e.kind() == ErrorKind::VersionChanged && tries < TRIES => tries += 1,
            read => return read,
        }
    }
}

async fn read_version(nfs: &NfsOrigin, file: &Reference) -> Result<Vec<u8>> {
    let object = nfs.getattr(file).await?;
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < object.attr.size {
        let left = object.attr.size - bytes.len() as u64;
        let range = ByteRange::new(bytes.len() as u64, left.min(nfs.traits().read_max.into()));
        bytes.extend_from_slice(&nfs.read(file, object.version, range).await?);
    }
    Ok(bytes)
}

pub async fn walk(nfs: &NfsOrigin, path: &str) -> Result<Object> {
    let mut at = nfs.root().await?;
    for name in path.split('/') {
        at = nfs.lookup(&at.reference, &Name::new(name.to_owned())?).await?;
    }
    Ok(at)
}

/// Of a directory of this machine, all that is below it.
pub fn in_directory(root: &Path) -> std::io::Result<Sight> {
    let mut sight = Sight::new();
    let mut dirs = vec![String::new()];
    while let Some(above) = dirs.pop() {
        for entry in std::fs::read_dir(root.join(&above))? {
            let entry = entry?;
            let path = format!("{above}{}", entry.file_name().to_string_lossy());
            let meta = std::fs::symlink_metadata(entry.path())?;
            let kind = if meta.is_dir() {
                dirs.push(format!("{path}/"));
                Kind::Dir
            } else if meta.is_symlink() {
                Kind::Link(std::fs::read_link(entry.path())?.to_string_lossy().into_owned())
            } else {
                Kind::File(Arc::new(std::fs::read(entry.path())?))
            };
            let mtime = meta.mtime() as u64 * 1_000_000_000 + meta.mtime_nsec() as u64;
            let mode = meta.permissions().mode() & 0o7777;
            let links = meta.nlink() as usize;
            sight.insert(path, Seen { kind, mode, links, mtime, size: meta.size() });
        }
    }
    Ok(sight)
}

/// What of it is this client's.
pub fn of_client(sight: &Sight, client: usize) -> Sight {
    let (own, shared) = (format!("c{client}/"), format!("{SHARED}/c{client}-"));
    let mine = sight.iter().filter(|(path, _)| path.starts_with(&own) || path.starts_with(&shared));
    mine.map(|(path, seen)| (path.clone(), seen.clone())).collect()
}

/// Names that are nobody's: what no client of `clients` made.
pub fn of_nobody(sight: &Sight, clients: usize) -> Vec<String> {
    let known = |path: &str| {
        path == SHARED
            || (0..clients).any(|client| {
                let (own, shared) = (format!("c{client}"), format!("{SHARED}/c{client}-"));
                path == own || path.starts_with(&format!("{own}/")) || path.starts_with(&shared)
            })
    };
    sight.keys().filter(|path| !known(path)).cloned().collect()
}

/// The first thing that is not as the model has it.
pub fn difference(tree: &Tree, sight: &Sight) -> Option<String> {
    difference_but_bytes(tree, sight).or_else(|| {
        sight.iter().find_map(|(path, seen)| {
            let Kind::File(got) = &seen.kind else { return None };
            bytes_differ(tree.bytes(path)?, got).map(|told| format!("{path}: {told}"))
        })
    })
}

/// As `difference`, with sizes and contents of files, and the times of those, left aside.
pub fn difference_but_bytes(tree: &Tree, sight: &Sight) -> Option<String> {
    if let Some(path) = tree.names.keys().find(|path| !sight.contains_key(*path)) {
        return Some(format!("{path} is missing"));
    }
    if let Some(path) = sight.keys().find(|path| !tree.names.contains_key(*path)) {
        return Some(format!("{path} should not be there"));
    }
    sight.iter().find_map(|(path, seen)| {
        let node = tree.get(path).expect("its name is there");
        node_differs(tree, path, node, seen).map(|told| format!("{path}: {told}"))
    })
}

fn node_differs(tree: &Tree, path: &str, node: &Node, seen: &Seen) -> Option<String> {
    match (&node.kind, &seen.kind) {
        (Kind::File(_), Kind::File(_)) | (Kind::Dir, Kind::Dir) => {}
        (Kind::Link(wanted), Kind::Link(got)) if wanted == got => {}
        _ => return Some("another kind of thing, or another target".to_owned()),
    }
    if node.mode.is_some_and(|mode| mode != seen.mode) {
        return Some(format!("mode {:04o} and not {:04o}", seen.mode, node.mode.unwrap_or_default()));
    }
    let links = tree.links(tree.ino(path));
    if node.kind != Kind::Dir && seen.links != links {
        return Some(format!("{} links and not {links}", seen.links));
    }
    if let Kind::File(bytes) = &seen.kind
        && bytes.len() as u64 != seen.size
    {
        return Some(format!("{} bytes are read, and its size is {}", bytes.len(), seen.size));
    }
    None
}

/// Of files whose time was set last; `sure` says whose bytes are beyond doubt.
pub fn times_differ(tree: &Tree, sight: &Sight, sure: impl Fn(&str) -> bool) -> Option<String> {
    sight.iter().filter(|(path, _)| sure(path)).find_map(|(path, seen)| {
        let mtime = tree.get(path)?.mtime?;
        (mtime != seen.mtime).then(|| format!("{path}: mtime {} and not {mtime}", seen.mtime))
    })
}

pub fn bytes_differ(wanted: &[u8], got: &[u8]) -> Option<String> {
    if wanted == got {
        return None;
    }
    if wanted.len() != got.len() {
        return Some(format!("{} bytes and not {}", got.len(), wanted.len()));
    }
    let at = (0..wanted.len()).find(|at| wanted[*at] != got[*at])?;
    let alike = (at..wanted.len()).take_while(|i| wanted[*i] == wanted[at] && got[*i] == got[at]).count();
    Some(format!("at {at}+{alike} it is {:02x} and not {:02x}", got[at], wanted[at]))
}
