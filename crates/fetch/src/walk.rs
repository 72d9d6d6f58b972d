//! The files below a path.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use namespace::{Found, Namespace};
use types::{Error, ErrorKind, FileId, Name, Result};

/// Names taken from a directory at a time.
const LIST_PIECE: usize = 1024;

/// The files below a path, a piece of a directory at a time.
pub struct TreeWalk<'a> {
    namespace: &'a Arc<Namespace>,
    /// What the path itself is, if not a directory.
    first: Option<Result<Found>>,
    dirs: VecDeque<FileId>,
    /// Cookie within the first of them.
    after: u64,
    /// Those that were begun.
    pub directories: u64,
    /// Names that are there, and what keeps us from what they stand for; not told yet.
    unreached: VecDeque<Error>,
}

impl<'a> TreeWalk<'a> {
    /// `path`: of a directory, or a file of its own; from the top of the served tree.
    pub async fn from(namespace: &'a Arc<Namespace>, path: &[u8]) -> TreeWalk<'a> {
        let (dirs, unreached) = (VecDeque::new(), VecDeque::new());
        let mut walk = TreeWalk { namespace, first: None, dirs, after: 0, directories: 0, unreached };
        match namespace.resolve(path).await {
            Ok(start) if start.attr().is_dir() => walk.dirs.push_back(start.id()),
            other => {
                let named = |e: Error| Error::new(e.kind(), "warm", path.escape_ascii()).with_source(e);
                walk.first = Some(other.map_err(named));
            }
        }
        walk
    }

    /// Some files, or what kept us from some; `None`: that was all.
    pub async fn next(&mut self) -> Option<Result<Vec<Found>>> {
        if let Some(first) = self.first.take() {
            return Some(first.map(|found| vec![found]));
        }
        if let Some(unreached) = self.unreached.pop_front() {
            return Some(Err(unreached));
        }
        let dir = *self.dirs.front()?;
        self.directories += u64::from(self.after == 0);
        let piece = match self.namespace.readdir(dir, self.after, LIST_PIECE).await {
            Ok(piece) => piece,
            Err(e) => {
                self.leave();
                return Some(Err(e));
            }
        };
        let mut files = Vec::new();
        for entry in piece.entries {
            self.after = entry.cookie;
            let child = match entry.child {
                Some(child) => child,
                None => match self.reach(dir, entry.name).await {
                    Ok(child) => child,
                    Err(e) if e.kind() == ErrorKind::NotFound => continue, // removed since it was listed
                    Err(e) => {
                        self.unreached.push_back(e);
                        continue;
                    }
                },
            };
            if child.attr().is_dir() {
                self.dirs.push_back(child.id());
            } else if child.attr().is_file() {
                files.push(child);
            }
        }
        if piece.eof {
            self.leave();
        }
        Some(Ok(files))
    }

    /// What was listed without its attributes. The error names it by its path.
    async fn reach(&self, dir: FileId, name: Bytes) -> Result<Found> {
        let name = Name::new(name)?;
        let found = self.namespace.lookup(dir, &name).await;
        found.map_err(|e| Error::new(e.kind(), "reach", self.path_in(dir, &name)).with_source(e))
    }

    /// The path of a name in a directory, as far as it is known, for a person to read.
    fn path_in(&self, dir: FileId, name: &Name) -> String {
        let known = self.namespace.getattr_known(dir).ok();
        let junctions = self.namespace.junctions();
        let junction = known.and_then(|known| junctions.into_iter().find(|it| it.id == known.junction()));
        let parents = junction.as_ref().and_then(|it| self.namespace.path_in_junction(it.id, dir));
        let names = parents.iter().flatten().map(|parent| parent.as_ref()).chain([name.as_bytes()]);
        let below: Vec<String> = names.map(|name| name.escape_ascii().to_string()).collect();
        let top = junction.map_or_else(String::new, |it| it.path.trim_end_matches('/').to_owned());
        format!("{top}/{}", below.join("/"))
    }

    fn leave(&mut self) {
        self.dirs.pop_front();
        self.after = 0;
    }
}
