//! What a client's files are, if everything it was told is true: pure.
//!
//! Paths lead from the root of the tier. A client has a directory of its own, `c3`, and in `shared` all names that begin
//! with its own, `c3-`. These two directories are always there and belong to nobody's model.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// What a file is known by, whatever its names: the number of the operation that made it.
pub type Ino = u32;

pub const SHARED: &str = "shared";

#[derive(Clone, PartialEq, Eq)]
pub enum Kind {
    File(Arc<Vec<u8>>),
    Dir,
    Link(String),
}

#[derive(Clone, PartialEq, Eq)]
pub struct Node {
    pub kind: Kind,
    /// `None`: whatever the tier chose. Of an exclusive create that said nothing of it, and of links.
    pub mode: Option<u32>,
    /// Nanoseconds since 1970, of a file whose time was set last.
    pub mtime: Option<u64>,
}

#[derive(Clone, PartialEq, Eq)]
pub struct Part {
    pub offset: u64,
    pub bytes: Arc<Vec<u8>>,
}

#[derive(Clone, PartialEq, Eq)]
pub enum Op {
    /// `exclusive`: with a verifier, or O_EXCL; says nothing of the mode over NFS.
    Create {
        path: String,
        mode: Option<u32>,
        exclusive: bool,
    },
    Mkdir {
        path: String,
        mode: u32,
    },
    Symlink {
        path: String,
        target: String,
    },
    Link {
        from: String,
        to: String,
    },
    Rename {
        from: String,
        to: String,
    },
    Remove {
        path: String,
    },
    Rmdir {
        path: String,
    },
    /// Parts do not overlap, and are written at the same time. `sync`: FILE_SYNC, O_SYNC.
    Write {
        path: String,
        parts: Vec<Part>,
        sync: bool,
    },
    /// COMMIT, fsync. Of a directory: fsync.
    Sync {
        path: String,
    },
    Truncate {
        path: String,
        size: u64,
    },
    Chmod {
        path: String,
        mode: u32,
    },
    Touch {
        path: String,
        mtime: u64,
    },
}

/// Why a file system says no.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    Exists,
    NotFound,
    NotEmpty,
    /// A directory where there should be none, or none where there should be one.
    Kind,
}

#[derive(Clone, Default, PartialEq, Eq)]
pub struct Tree {
    pub names: BTreeMap<String, Ino>,
    pub nodes: BTreeMap<Ino, Node>,
}

/// The directory of a path, and what is in it.
pub fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').expect("below one of the two directories")
}

impl Tree {
    pub fn get(&self, path: &str) -> Option<&Node> {
        self.nodes.get(self.names.get(path)?)
    }

    pub fn ino(&self, path: &str) -> Ino {
        self.names[path]
    }

    pub fn links(&self, ino: Ino) -> usize {
        self.names.values().filter(|there| **there == ino).count()
    }

    pub fn bytes(&self, path: &str) -> Option<&Arc<Vec<u8>>> {
        match &self.get(path)?.kind {
            Kind::File(bytes) => Some(bytes),
            _ => None,
        }
    }

    fn has_below(&self, path: &str) -> bool {
        let below = format!("{path}/");
        self.names.range(below.clone()..).next().is_some_and(|(name, _)| name.starts_with(&below))
    }

    fn unname(&mut self, path: &str) {
        if let Some(ino) = self.names.remove(path)
            && self.links(ino) == 0
        {
            self.nodes.remove(&ino);
        }
    }

    fn make(&mut self, id: Ino, path: &str, kind: Kind, mode: Option<u32>) -> Result<(), Refusal> {
        if self.names.contains_key(path) {
            return Err(Refusal::Exists);
        }
        self.names.insert(path.to_owned(), id);
        self.nodes.insert(id, Node { kind, mode, mtime: None });
        Ok(())
    }

    fn node_mut(&mut self, path: &str) -> Result<&mut Node, Refusal> {
        let ino = self.names.get(path).ok_or(Refusal::NotFound)?;
        self.nodes.get_mut(ino).ok_or(Refusal::NotFound)
    }

    fn alter(&mut self, path: &str, change: impl FnOnce(&mut Vec<u8>)) -> Result<(), Refusal> {
        let node = self.node_mut(path)?;
        let Kind::File(bytes) = &mut node.kind else { return Err(Refusal::Kind) };
        change(Arc::make_mut(bytes));
        node.mtime = None;
        Ok(())
    }

    /// `id` is this operation's own number. Refused operations change nothing.
    pub fn apply(&mut self, id: Ino, op: &Op) -> Result<(), Refusal> {
        match op {
            Op::Create { path, mode, .. } => self.make(id, path, Kind::File(Arc::default()), *mode),
            Op::Mkdir { path, mode } => self.make(id, path, Kind::Dir, Some(*mode)),
            Op::Symlink { path, target } => self.make(id, path, Kind::Link(target.clone()), None),
            Op::Link { from, to } => {
                let ino = *self.names.get(from).ok_or(Refusal::NotFound)?;
                if self.names.contains_key(to) {
                    return Err(Refusal::Exists);
                }
                self.names.insert(to.clone(), ino);
                Ok(())
            }
            Op::Rename { from, to } => self.rename(from, to),
            Op::Remove { path } => {
                if self.get(path).ok_or(Refusal::NotFound)?.kind == Kind::Dir {
                    return Err(Refusal::Kind);
                }
                self.unname(path);
                Ok(())
            }
            Op::Rmdir { path } => {
                if self.get(path).ok_or(Refusal::NotFound)?.kind != Kind::Dir {
                    return Err(Refusal::Kind);
                }
                if self.has_below(path) {
                    return Err(Refusal::NotEmpty);
                }
                self.unname(path);
                Ok(())
            }
            Op::Write { path, parts, .. } => self.alter(path, |bytes| {
                for Part { offset, bytes: new } in parts {
                    let (start, end) = (*offset as usize, *offset as usize + new.len());
                    if bytes.len() < end {
                        bytes.resize(end, 0);
                    }
                    bytes[start..end].copy_from_slice(new);
                }
            }),
            Op::Truncate { path, size } => self.alter(path, |bytes| bytes.resize(*size as usize, 0)),
            Op::Sync { path } => self.get(path).map(drop).ok_or(Refusal::NotFound),
            Op::Chmod { path, mode } => {
                self.node_mut(path)?.mode = Some(*mode);
                Ok(())
            }
            Op::Touch { path, mtime } => {
                self.node_mut(path)?.mtime = Some(*mtime);
                Ok(())
            }
        }
    }

    fn rename(&mut self, from: &str, to: &str) -> Result<(), Refusal> {
        let moved = self.get(from).ok_or(Refusal::NotFound)?.kind == Kind::Dir;
        if let Some(there) = self.get(to) {
            match (moved, there.kind == Kind::Dir) {
                (true, true) if self.has_below(to) => return Err(Refusal::NotEmpty),
                (true, true) | (false, false) => {}
                _ => return Err(Refusal::Kind),
            }
            self.unname(to);
        }
        let below = format!("{from}/");
        let moving: Vec<String> =
            self.names.keys().filter(|name| *name == from || name.starts_with(&below)).cloned().collect();
        for name in moving {
            let ino = self.names.remove(&name).expect("listed just now");
            self.names.insert(format!("{to}{}", &name[from.len()..]), ino);
        }
        Ok(())
    }
}

impl Op {
    /// Where it is made: what it makes, changes or takes away.
    pub fn path(&self) -> &str {
        match self {
            Op::Create { path, .. }
            | Op::Mkdir { path, .. }
            | Op::Symlink { path, .. }
            | Op::Link { to: path, .. }
            | Op::Rename { from: path, .. }
            | Op::Remove { path }
            | Op::Rmdir { path }
            | Op::Write { path, .. }
            | Op::Sync { path }
            | Op::Truncate { path, .. }
            | Op::Chmod { path, .. }
            | Op::Touch { path, .. } => path,
        }
    }
}

/// Short: the bytes of a write are all alike.
impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Create { path, mode, exclusive: true } => {
                write!(f, "create exclusively {path} {}", octal(*mode))
            }
            Op::Create { path, mode, .. } => write!(f, "create {path} {}", octal(*mode)),
            Op::Mkdir { path, mode } => write!(f, "mkdir {path} {mode:04o}"),
            Op::Symlink { path, target } => write!(f, "symlink {path} -> {target}"),
            Op::Link { from, to } => write!(f, "link {from} as {to}"),
            Op::Rename { from, to } => write!(f, "rename {from} to {to}"),
            Op::Remove { path } => write!(f, "remove {path}"),
            Op::Rmdir { path } => write!(f, "rmdir {path}"),
            Op::Write { path, parts, sync } => {
                write!(f, "write{} {path}", if *sync { " synced" } else { "" })?;
                parts.iter().try_for_each(|Part { offset, bytes }| {
                    let value = bytes.first().copied().unwrap_or_default();
                    write!(f, " {offset}+{} of {value:02x}", bytes.len())
                })
            }
            Op::Sync { path } => write!(f, "sync {path}"),
            Op::Truncate { path, size } => write!(f, "truncate {path} to {size}"),
            Op::Chmod { path, mode } => write!(f, "chmod {path} {mode:04o}"),
            Op::Touch { path, mtime } => write!(f, "touch {path} {mtime}"),
        }
    }
}

fn octal(mode: Option<u32>) -> String {
    mode.map_or_else(|| "as it comes".to_owned(), |mode| format!("{mode:04o}"))
}
