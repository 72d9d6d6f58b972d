//! Memory as a target, for tests: all clients see the same files, and there is nothing to forget.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use async_trait::async_trait;
use bench_load::target::{
    Client, EntryKind, EntryStatus, Target, TargetAbout, TargetEntry, TargetFile, components, split_last,
};
use bytes::{Bytes, BytesMut};
use types::{Error, ErrorKind, Result};

/// A file system in this process. Its clients have no knowledge of their own: each is the target again.
#[derive(Clone)]
pub struct MemoryTarget(Arc<MemoryTree>);

struct MemoryTree {
    /// Bytes that all files together may hold.
    capacity: u64,
    used: AtomicU64,
    /// By path; the target's own directory is the empty path.
    nodes: Mutex<MemoryNodes>,
}

type MemoryNodes = BTreeMap<String, MemoryNode>;

#[derive(Clone)]
enum MemoryNode {
    Directory,
    File(Arc<MemoryExtents>),
}

/// Pieces as they were written, by offset, never overlapping.
#[derive(Default)]
struct MemoryExtents(RwLock<BTreeMap<u64, Bytes>>);

impl MemoryTarget {
    /// `capacity` in bytes.
    pub fn new(capacity: u64) -> Arc<MemoryTarget> {
        let nodes = Mutex::new(BTreeMap::from([(String::new(), MemoryNode::Directory)]));
        Arc::new(MemoryTarget(Arc::new(MemoryTree { capacity, used: AtomicU64::new(0), nodes })))
    }

    fn opened(&self, extents: Arc<MemoryExtents>, path: String) -> Arc<dyn TargetFile> {
        Arc::new(OpenMemoryFile { tree: Arc::clone(&self.0), size: extents.size(), extents, path })
    }
}

#[async_trait]
impl Target for MemoryTarget {
    async fn about(&self) -> Result<TargetAbout> {
        let available = self.0.capacity.saturating_sub(self.0.used.load(Ordering::Relaxed));
        Ok(TargetAbout { url: "memory:".to_owned(), available: Some(available), ..TargetAbout::default() })
    }

    async fn client(&self, _id: u32) -> Result<Arc<dyn Client>> {
        Ok(Arc::new(self.clone()))
    }
}

fn locked(nodes: &Mutex<MemoryNodes>) -> MutexGuard<'_, MemoryNodes> {
    nodes.lock().unwrap_or_else(PoisonError::into_inner)
}

fn node(nodes: &MemoryNodes, operation: &'static str, path: &str) -> Result<MemoryNode> {
    nodes.get(path).cloned().ok_or_else(|| Error::new(ErrorKind::NotFound, operation, path))
}

fn file(nodes: &MemoryNodes, operation: &'static str, path: &str) -> Result<Arc<MemoryExtents>> {
    match node(nodes, operation, path)? {
        MemoryNode::File(extents) => Ok(extents),
        MemoryNode::Directory => Err(Error::new(ErrorKind::IsADirectory, operation, path)),
    }
}

fn directory(nodes: &MemoryNodes, operation: &'static str, path: &str) -> Result<()> {
    match node(nodes, operation, path)? {
        MemoryNode::Directory => Ok(()),
        MemoryNode::File(_) => Err(Error::new(ErrorKind::NotADirectory, operation, path)),
    }
}

fn status(node: &MemoryNode) -> EntryStatus {
    match node {
        MemoryNode::Directory => EntryStatus { kind: EntryKind::Directory, size: 0 },
        MemoryNode::File(extents) => EntryStatus { kind: EntryKind::File, size: extents.size() },
    }
}

/// Names directly in the directory.
fn children(nodes: &MemoryNodes, path: &str) -> impl Iterator<Item = TargetEntry> {
    let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
    let below = nodes.range(prefix.clone()..);
    below
        .map_while(move |(path, node)| Some((path.strip_prefix(&prefix)?.to_owned(), node)))
        .filter(|(name, _)| !name.is_empty() && !name.contains('/'))
        .map(|(name, node)| TargetEntry { name, kind: Some(status(node).kind) })
}

/// One spelling of each path.
fn normal(path: &str) -> Result<String> {
    Ok(components(path)?.collect::<Vec<_>>().join("/"))
}

#[async_trait]
impl Client for MemoryTarget {
    async fn mkdir(&self, path: &str) -> Result<()> {
        let path = normal(path)?;
        let mut nodes = locked(&self.0.nodes);
        directory(&nodes, "make directory", split_last(&path).0)?;
        nodes.entry(path.clone()).or_insert(MemoryNode::Directory);
        directory(&nodes, "make directory", &path)
    }

    async fn create(&self, path: &str) -> Result<Arc<dyn TargetFile>> {
        let path = normal(path)?;
        let mut nodes = locked(&self.0.nodes);
        directory(&nodes, "create", split_last(&path).0)?;
        nodes.entry(path.clone()).or_insert_with(|| MemoryNode::File(Arc::default()));
        Ok(self.opened(file(&nodes, "create", &path)?, path))
    }

    async fn open(&self, path: &str) -> Result<Arc<dyn TargetFile>> {
        let path = normal(path)?;
        let extents = file(&locked(&self.0.nodes), "open", &path)?;
        Ok(self.opened(extents, path))
    }

    async fn stat(&self, path: &str) -> Result<EntryStatus> {
        Ok(status(&node(&locked(&self.0.nodes), "get status of", &normal(path)?)?))
    }

    async fn list(&self, path: &str) -> Result<Vec<TargetEntry>> {
        let path = normal(path)?;
        let nodes = locked(&self.0.nodes);
        directory(&nodes, "list", &path)?;
        Ok(children(&nodes, &path).collect())
    }

    async fn remove(&self, path: &str) -> Result<()> {
        let path = normal(path)?;
        let mut nodes = locked(&self.0.nodes);
        let extents = file(&nodes, "remove", &path)?;
        nodes.remove(&path);
        self.0.used.fetch_sub(extents.held(), Ordering::Relaxed);
        Ok(())
    }

    async fn rmdir(&self, path: &str) -> Result<()> {
        let path = normal(path)?;
        let mut nodes = locked(&self.0.nodes);
        directory(&nodes, "remove directory", &path)?;
        if path.is_empty() || children(&nodes, &path).next().is_some() {
            return Err(Error::new(ErrorKind::Io, "remove directory that is not empty", path));
        }
        nodes.remove(&path);
        Ok(())
    }
}

struct OpenMemoryFile {
    tree: Arc<MemoryTree>,
    extents: Arc<MemoryExtents>,
    size: u64,
    path: String,
}

#[async_trait]
impl TargetFile for OpenMemoryFile {
    fn size(&self) -> u64 {
        self.size
    }

    async fn read(&self, offset: u64, length: usize) -> Result<Bytes> {
        Ok(self.extents.read(offset, length))
    }

    async fn write(&self, offset: u64, data: Bytes) -> Result<()> {
        let (bytes, used) = (data.len() as u64, &self.tree.used);
        if offset.checked_add(bytes).is_none() {
            return Err(Error::new(ErrorKind::InvalidArgument, "write", &self.path));
        }
        if used.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes) > self.tree.capacity {
            used.fetch_sub(bytes, Ordering::Relaxed);
            return Err(Error::new(ErrorKind::NoSpace, "write", &self.path));
        }
        used.fetch_sub(self.extents.write(offset, data), Ordering::Relaxed);
        Ok(())
    }
}

/// Ends a piece at `at` where one lies across it.
fn cut(map: &mut BTreeMap<u64, Bytes>, at: u64) {
    let Some((start, piece)) = map.range_mut(..at).next_back() else { return };
    let inside = (at - start) as usize;
    if inside < piece.len() {
        let rest = piece.split_off(inside);
        map.insert(at, rest);
    }
}

impl MemoryExtents {
    fn size(&self) -> u64 {
        let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
        map.last_key_value().map_or(0, |(at, piece)| at.saturating_add(piece.len() as u64))
    }

    fn held(&self) -> u64 {
        let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
        map.values().map(|piece| piece.len() as u64).sum()
    }

    /// Returns how many bytes it replaced.
    fn write(&self, offset: u64, data: Bytes) -> u64 {
        if data.is_empty() {
            return 0;
        }
        let end = offset + data.len() as u64;
        let mut map = self.0.write().unwrap_or_else(PoisonError::into_inner);
        cut(&mut map, offset);
        cut(&mut map, end);
        let replaced: u64 =
            map.extract_if(offset..end, |_, _| true).map(|(_, piece)| piece.len() as u64).sum();
        map.insert(offset, data);
        replaced
    }

    /// Holes read as zeros.
    fn read(&self, offset: u64, length: usize) -> Bytes {
        let map = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let size = map.last_key_value().map_or(0, |(at, piece)| at + piece.len() as u64);
        let end = offset.saturating_add(length as u64).min(size);
        if offset >= end {
            return Bytes::new();
        }
        let first = map.range(..=offset).next_back();
        if let Some((at, piece)) = first
            && end <= at + piece.len() as u64
        {
            return piece.slice((offset - at) as usize..(end - at) as usize);
        }
        let mut out = BytesMut::zeroed((end - offset) as usize);
        let from = first.map_or(offset, |(at, _)| *at);
        for (at, piece) in map.range(from..end) {
            let (start, stop) = (offset.max(*at), end.min(at + piece.len() as u64));
            if start < stop {
                let source = &piece[(start - at) as usize..(stop - at) as usize];
                out[(start - offset) as usize..(stop - offset) as usize].copy_from_slice(source);
            }
        }
        out.freeze()
    }
}

/// xorshift, so that a failure names its seed.
fn next(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

#[test]
fn any_order_of_overlapping_writes_reads_back_as_a_plain_array_does() {
    for seed in 1..40_u64 {
        let (extents, mut model, mut state) = (MemoryExtents::default(), Vec::new(), seed);
        let mut held = 0;
        for round in 0..60_u8 {
            let offset = next(&mut state) as usize % 200;
            let data = vec![round + 1; next(&mut state) as usize % 70];
            if !data.is_empty() {
                model.resize(model.len().max(offset + data.len()), 0);
                model[offset..offset + data.len()].copy_from_slice(&data);
            }
            held += data.len() as u64;
            held -= extents.write(offset as u64, data.into());
            assert_eq!(extents.held(), held, "seed {seed}");
            let (from, length) = (next(&mut state) as usize % 260, next(&mut state) as usize % 260);
            let wanted =
                &model[from.min(model.len())..(from + length).min(model.len()).max(from.min(model.len()))];
            assert_eq!(extents.read(from as u64, length), wanted, "seed {seed} round {round}");
        }
    }
}
