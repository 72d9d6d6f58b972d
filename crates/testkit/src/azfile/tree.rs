//! What is on a share: directories, files, their ids, times and ETags. Nothing of HTTP.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::{Bytes, BytesMut};

use super::names::folded;

/// Hundreds of nanoseconds since 1970: what the service counts times in.
pub type Ticks = i64;
pub const TICKS: i64 = 10_000_000;
const CHUNK: u64 = 256 << 10;

/// The service's word for what is wrong, with its HTTP status.
pub type AzFileRefused = (u16, &'static str);

pub const NO_RESOURCE: AzFileRefused = (404, "ResourceNotFound");
pub const NO_PARENT: AzFileRefused = (404, "ParentNotFound");
pub const MISMATCH: AzFileRefused = (409, "ResourceTypeMismatch");
pub const EXISTS: AzFileRefused = (409, "ResourceAlreadyExists");
pub const NOT_EMPTY: AzFileRefused = (409, "DirectoryNotEmpty");
pub const BAD_RANGE: AzFileRefused = (416, "InvalidRange");
pub const BAD_INPUT: AzFileRefused = (400, "InvalidInput");

#[derive(Clone, Debug, Default)]
pub struct ShareNode {
    pub id: u64,
    pub parent: u64,
    pub name: String,
    pub etag: u64,
    pub created: Ticks,
    pub written: Ticks,
    pub changed: Ticks,
    pub attributes: String,
    pub metadata: BTreeMap<String, String>,
    /// Content-Type and its like, by their names with `x-ms-` in front.
    pub headers: BTreeMap<String, String>,
    pub kind: Kind,
}

#[derive(Clone, Debug)]
pub enum Kind {
    /// Ids by folded names.
    Directory(BTreeMap<String, u64>),
    File(Content),
}

impl Default for Kind {
    fn default() -> Kind {
        Kind::Directory(BTreeMap::new())
    }
}

/// Chunks that were never written are zeros.
#[derive(Clone, Debug, Default)]
pub struct Content {
    pub size: u64,
    chunks: BTreeMap<u64, Box<[u8]>>,
}

impl Content {
    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let within = (at % CHUNK) as usize;
            let length = rest.len().min(CHUNK as usize - within);
            let chunk =
                self.chunks.entry(at / CHUNK).or_insert_with(|| vec![0; CHUNK as usize].into_boxed_slice());
            chunk[within..within + length].copy_from_slice(&rest[..length]);
            (at, rest) = (at + length as u64, &rest[length..]);
        }
    }

    pub fn read(&self, offset: u64, length: u64) -> Bytes {
        let mut bytes = BytesMut::zeroed(length as usize);
        let (mut at, mut done) = (offset, 0);
        while done < bytes.len() {
            let within = (at % CHUNK) as usize;
            let length = (bytes.len() - done).min(CHUNK as usize - within);
            if let Some(chunk) = self.chunks.get(&(at / CHUNK)) {
                bytes[done..done + length].copy_from_slice(&chunk[within..within + length]);
            }
            (at, done) = (at + length as u64, done + length);
        }
        bytes.freeze()
    }

    pub fn clear(&mut self, offset: u64, end: u64) {
        let mut at = offset;
        while at < end {
            let within = at % CHUNK;
            let length = (end - at).min(CHUNK - within);
            if length == CHUNK {
                self.chunks.remove(&(at / CHUNK));
            } else if let Some(chunk) = self.chunks.get_mut(&(at / CHUNK)) {
                chunk[within as usize..(within + length) as usize].fill(0);
            }
            at += length;
        }
    }

    pub fn resize(&mut self, size: u64) {
        if size < self.size {
            self.chunks.split_off(&size.div_ceil(CHUNK));
            self.clear(size, self.size.min(size.div_ceil(CHUNK) * CHUNK));
        }
        self.size = size;
    }
}

pub struct Share {
    pub nodes: BTreeMap<u64, ShareNode>,
    next_id: u64,
    next_etag: u64,
    pub quota_gib: u64,
}

pub const ROOT: u64 = 0;

pub fn now() -> Ticks {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos() / 100).unwrap_or(i64::MAX)
}

impl Share {
    pub fn new() -> Share {
        let at = now();
        let root = ShareNode {
            created: at,
            written: at,
            changed: at,
            etag: 1,
            attributes: "Directory".into(),
            ..ShareNode::default()
        };
        // Of the kind of numbers that the service gives.
        Share {
            nodes: BTreeMap::from([(ROOT, root)]),
            next_id: 0x4000_0000_0000,
            next_etag: 2,
            quota_gib: 5120,
        }
    }

    pub fn find(&self, path: &str) -> Result<u64, AzFileRefused> {
        let mut at = ROOT;
        let mut parts = path.split('/').filter(|part| !part.is_empty()).peekable();
        while let Some(part) = parts.next() {
            let missing = if parts.peek().is_some() { NO_PARENT } else { NO_RESOURCE };
            let Kind::Directory(children) = &self.nodes[&at].kind else { return Err(NO_PARENT) };
            at = *children.get(&folded(part)).ok_or(missing)?;
        }
        Ok(at)
    }

    /// The directory in which `path` is or would be, and its last part.
    fn parent_of<'a>(&self, path: &'a str) -> Result<(u64, &'a str), AzFileRefused> {
        let (dir, name) = path.rsplit_once('/').unwrap_or(("", path));
        let dir = self.find(dir).map_err(|_| NO_PARENT)?;
        match self.nodes[&dir].kind {
            Kind::Directory(_) => Ok((dir, name)),
            Kind::File(_) => Err(NO_PARENT),
        }
    }

    pub fn directory(&self, path: &str) -> Result<u64, AzFileRefused> {
        let id = self.find(path)?;
        if matches!(self.nodes[&id].kind, Kind::Directory(_)) { Ok(id) } else { Err(MISMATCH) }
    }

    pub fn file(&self, path: &str) -> Result<u64, AzFileRefused> {
        let id = self.find(path)?;
        if matches!(self.nodes[&id].kind, Kind::File(_)) { Ok(id) } else { Err(MISMATCH) }
    }

    pub fn node(&mut self, id: u64) -> &mut ShareNode {
        self.nodes.get_mut(&id).expect("an id that was found under the same lock")
    }

    fn children(&mut self, id: u64) -> &mut BTreeMap<String, u64> {
        match &mut self.node(id).kind {
            Kind::Directory(children) => children,
            Kind::File(_) => unreachable!("a parent is a directory"),
        }
    }

    /// Every write gives another one.
    pub fn touch(&mut self, id: u64, changed: Option<Ticks>) {
        let etag = self.next_etag;
        self.next_etag += 1;
        let node = self.node(id);
        node.etag = etag;
        // Two changes have two times, however quick they are.
        node.changed = changed.unwrap_or_else(|| now().max(node.changed + 1));
    }

    fn attach(&mut self, dir: u64, name: &str, id: u64) {
        self.children(dir).insert(folded(name), id);
        let node = self.node(id);
        (node.parent, node.name) = (dir, name.to_owned());
    }

    fn make(&mut self, dir: u64, name: &str, kind: Kind) -> u64 {
        let id = self.next_id;
        self.next_id += 64;
        let at = now();
        self.nodes.insert(
            id,
            ShareNode { id, created: at, written: at, changed: at, kind, ..ShareNode::default() },
        );
        self.attach(dir, name, id);
        self.touch(id, None);
        id
    }

    pub fn make_directory(&mut self, path: &str) -> Result<u64, AzFileRefused> {
        let (dir, name) = self.parent_of(path)?;
        if self.children(dir).contains_key(&folded(name)) {
            return Err(EXISTS);
        }
        Ok(self.make(dir, name, Kind::default()))
    }

    /// In place of a file that is there: another file, with its name.
    pub fn make_file(&mut self, path: &str, size: u64) -> Result<u64, AzFileRefused> {
        let (dir, name) = self.parent_of(path)?;
        if let Some(old) = self.children(dir).get(&folded(name)).copied() {
            if matches!(self.nodes[&old].kind, Kind::Directory(_)) {
                return Err(MISMATCH);
            }
            self.nodes.remove(&old);
        }
        Ok(self.make(dir, name, Kind::File(Content { size, ..Content::default() })))
    }

    pub fn remove(&mut self, id: u64) -> Result<(), AzFileRefused> {
        if id == ROOT {
            return Err(BAD_INPUT);
        }
        if matches!(&self.nodes[&id].kind, Kind::Directory(children) if !children.is_empty()) {
            return Err(NOT_EMPTY);
        }
        let node = self.nodes.remove(&id).ok_or(NO_RESOURCE)?;
        self.children(node.parent).remove(&folded(&node.name));
        Ok(())
    }

    pub fn rename(&mut self, id: u64, to: &str, replace: bool) -> Result<(), AzFileRefused> {
        let (dir, name) = self.parent_of(to)?;
        let mut above = dir;
        while above != ROOT {
            if above == id {
                return Err(BAD_INPUT);
            }
            above = self.nodes[&above].parent;
        }
        let is_file = matches!(self.nodes[&id].kind, Kind::File(_));
        if let Some(old) = self.children(dir).get(&folded(name)).copied().filter(|old| *old != id) {
            let old_is_file = matches!(self.nodes[&old].kind, Kind::File(_));
            if is_file != old_is_file {
                return Err(MISMATCH);
            }
            if !replace || !is_file {
                return Err(EXISTS);
            }
            self.remove(old)?;
        }
        let (parent, old_name) = (self.nodes[&id].parent, folded(&self.nodes[&id].name));
        self.children(parent).remove(&old_name);
        self.attach(dir, name, id);
        self.touch(id, None);
        Ok(())
    }

    /// These nodes are all that is there. Returns what was in the files before.
    pub fn restore(&mut self, nodes: &BTreeMap<u64, ShareNode>) -> Vec<Bytes> {
        let there = std::mem::replace(&mut self.nodes, nodes.clone());
        for (id, node) in nodes {
            match there.get(id) {
                Some(now) if now.etag == node.etag => {}
                Some(_) => self.touch(*id, None),
                None => self.renumber(*id),
            }
        }
        let bytes = |node: &ShareNode| match &node.kind {
            Kind::File(content) => Some(content.read(0, content.size)),
            Kind::Directory(_) => None,
        };
        there.values().filter_map(bytes).collect()
    }

    /// It has another id from now on, as if it were made anew.
    fn renumber(&mut self, old: u64) {
        let id = self.next_id;
        self.next_id += 64;
        let mut node = self.nodes.remove(&old).expect("there");
        node.id = id;
        if let Kind::Directory(children) = &node.kind {
            let children: Vec<u64> = children.values().copied().collect();
            children.into_iter().for_each(|child| self.node(child).parent = id);
        }
        self.children(node.parent).insert(folded(&node.name), id);
        self.nodes.insert(id, node);
        self.touch(id, None);
    }

    /// Nodes of a directory in the order of their folded names, from after `marker`.
    pub fn list(
        &self,
        dir: u64,
        prefix: &str,
        marker: Option<&str>,
        most: usize,
    ) -> (Vec<&ShareNode>, Option<String>) {
        let Kind::Directory(children) = &self.nodes[&dir].kind else { return (Vec::new(), None) };
        let prefix = folded(prefix);
        let from =
            marker.map_or(std::ops::Bound::Unbounded, |marker| std::ops::Bound::Excluded(marker.to_owned()));
        let mut matching =
            children.range((from, std::ops::Bound::Unbounded)).filter(|(name, _)| name.starts_with(&prefix));
        let page: Vec<_> = matching.by_ref().take(most).collect();
        let next = matching.next().and(page.last()).map(|(name, _)| (*name).clone());
        (page.into_iter().map(|(_, id)| &self.nodes[id]).collect(), next)
    }

    pub fn used(&self) -> u64 {
        let sizes = self.nodes.values().map(|node| match &node.kind {
            Kind::File(content) => content.size,
            Kind::Directory(_) => 0,
        });
        sizes.sum()
    }
}
