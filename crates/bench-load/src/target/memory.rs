//! Memory as a target: what the bench itself can do when storage costs nothing.
//!
//! What was written is kept as it came, so a read of a written block copies nothing. All clients see the same
//! files; there is nothing to forget.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use types::{Error, ErrorKind, Result};

use super::{
    Capabilities, Client, EntryKind, EntryStatus, Forgot, Target, TargetEntry, TargetFile, TargetSpace,
    components, split_last,
};

/// Room when none is stated: what a laptop can spare.
pub const CAPACITY_DEFAULT: u64 = 1 << 30;

/// A file system in this process. Its clients have no knowledge of their own: each is the target again.
pub struct MemoryTarget {
    tree: Arc<MemoryTree>,
}

struct MemoryTree {
    /// Bytes that all files together may hold.
    capacity: u64,
    state: Mutex<State>,
}

struct State {
    /// By path; the target's own directory is the empty path.
    nodes: BTreeMap<String, MemoryNode>,
    used: u64,
}

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
        let nodes = BTreeMap::from([(String::new(), MemoryNode::Directory)]);
        let state = Mutex::new(State { nodes, used: 0 });
        Arc::new(MemoryTarget { tree: Arc::new(MemoryTree { capacity, state }) })
    }

    fn opened(&self, extents: Arc<MemoryExtents>, path: String) -> Arc<dyn TargetFile> {
        Arc::new(OpenMemoryFile { tree: Arc::clone(&self.tree), size: extents.size(), extents, path })
    }
}

#[async_trait]
impl Target for MemoryTarget {
    fn describe(&self) -> String {
        "memory:".to_owned()
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { read_only: false, parallel_write: true, whole_files: false }
    }

    async fn space(&self) -> Result<Option<TargetSpace>> {
        let used = self.tree.state().used;
        let total = self.tree.capacity;
        Ok(Some(TargetSpace { available: total.saturating_sub(used), total }))
    }

    async fn client(&self, _id: u32) -> Result<Arc<dyn Client>> {
        Ok(Arc::new(MemoryTarget { tree: Arc::clone(&self.tree) }))
    }
}

impl MemoryTree {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every section leaves the state whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reserve(&self, bytes: u64, path: &str) -> Result<()> {
        let mut state = self.state();
        let used = state.used.saturating_add(bytes);
        if used > self.capacity {
            return Err(Error::new(ErrorKind::NoSpace, "write", path));
        }
        state.used = used;
        Ok(())
    }
}

impl State {
    fn node(&self, operation: &'static str, path: &str) -> Result<MemoryNode> {
        self.nodes.get(path).cloned().ok_or_else(|| Error::new(ErrorKind::NotFound, operation, path))
    }

    fn file(&self, operation: &'static str, path: &str) -> Result<Arc<MemoryExtents>> {
        match self.node(operation, path)? {
            MemoryNode::File(extents) => Ok(extents),
            MemoryNode::Directory => Err(Error::new(ErrorKind::IsADirectory, operation, path)),
        }
    }

    fn directory(&self, operation: &'static str, path: &str) -> Result<()> {
        match self.node(operation, path)? {
            MemoryNode::Directory => Ok(()),
            MemoryNode::File(_) => Err(Error::new(ErrorKind::NotADirectory, operation, path)),
        }
    }

    /// Names directly in the directory.
    fn children<'a>(&'a self, path: &str) -> impl Iterator<Item = (&'a str, &'a MemoryNode)> + 'a {
        let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
        let from = prefix.clone();
        let below = self.nodes.range(from..).map(|(path, node)| (path.as_str(), node));
        below
            .map_while(move |(path, node)| path.strip_prefix(prefix.as_str()).map(|name| (name, node)))
            .filter(|(name, _)| !name.is_empty() && !name.contains('/'))
    }
}

/// One spelling of each path.
fn normal(path: &str) -> Result<String> {
    Ok(components(path)?.collect::<Vec<_>>().join("/"))
}

#[async_trait]
impl Client for MemoryTarget {
    async fn mkdir(&self, path: &str) -> Result<()> {
        let path = normal(path)?;
        let mut state = self.tree.state();
        state.directory("make directory", split_last(&path).0)?;
        match state.nodes.entry(path.clone()).or_insert(MemoryNode::Directory) {
            MemoryNode::Directory => Ok(()),
            MemoryNode::File(_) => Err(Error::new(ErrorKind::NotADirectory, "make directory", path)),
        }
    }

    async fn create(&self, path: &str) -> Result<Arc<dyn TargetFile>> {
        let path = normal(path)?;
        let mut state = self.tree.state();
        state.directory("create", split_last(&path).0)?;
        state.nodes.entry(path.clone()).or_insert_with(|| MemoryNode::File(Arc::default()));
        let extents = state.file("create", &path)?;
        Ok(self.opened(extents, path))
    }

    async fn open(&self, path: &str) -> Result<Arc<dyn TargetFile>> {
        let path = normal(path)?;
        let extents = self.tree.state().file("open", &path)?;
        Ok(self.opened(extents, path))
    }

    async fn stat(&self, path: &str) -> Result<EntryStatus> {
        Ok(match self.tree.state().node("get status of", &normal(path)?)? {
            MemoryNode::Directory => EntryStatus { kind: EntryKind::Directory, size: 0 },
            MemoryNode::File(extents) => EntryStatus { kind: EntryKind::File, size: extents.size() },
        })
    }

    async fn list(&self, path: &str) -> Result<Vec<TargetEntry>> {
        let path = normal(path)?;
        let state = self.tree.state();
        state.directory("list", &path)?;
        let entry = |(name, node): (&str, &MemoryNode)| {
            let kind =
                if matches!(node, MemoryNode::Directory) { EntryKind::Directory } else { EntryKind::File };
            TargetEntry { name: name.to_owned(), kind: Some(kind) }
        };
        Ok(state.children(&path).map(entry).collect())
    }

    async fn remove(&self, path: &str) -> Result<()> {
        let path = normal(path)?;
        let mut state = self.tree.state();
        let extents = state.file("remove", &path)?;
        state.nodes.remove(&path);
        state.used = state.used.saturating_sub(extents.held());
        Ok(())
    }

    async fn rmdir(&self, path: &str) -> Result<()> {
        let path = normal(path)?;
        let mut state = self.tree.state();
        state.directory("remove directory", &path)?;
        if path.is_empty() || state.children(&path).next().is_some() {
            return Err(Error::new(ErrorKind::Io, "remove directory that is not empty", path));
        }
        state.nodes.remove(&path);
        Ok(())
    }

    async fn forget(&self) -> Result<Forgot> {
        Ok(Forgot::Nothing)
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
        if offset.checked_add(data.len() as u64).is_none() {
            return Err(Error::new(ErrorKind::InvalidArgument, "write", &self.path));
        }
        self.tree.reserve(data.len() as u64, &self.path)?;
        let replaced = self.extents.write(offset, data);
        let mut state = self.tree.state();
        state.used = state.used.saturating_sub(replaced);
        Ok(())
    }

    /// Memory is as durable as it gets.
    async fn sync(&self) -> Result<()> {
        Ok(())
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
        let before = map.range(..offset).next_back().map(|(at, _)| *at);
        let within: Vec<u64> = before.into_iter().chain(map.range(offset..end).map(|(at, _)| *at)).collect();
        let mut replaced = 0;
        for at in within {
            let Some(piece) = map.remove(&at) else { continue };
            let piece_end = at + piece.len() as u64;
            let (keep_front, keep_back) = (offset.saturating_sub(at), piece_end.saturating_sub(end));
            replaced += piece.len() as u64;
            if keep_front > 0 {
                let front = piece.slice(..piece.len().min(keep_front as usize));
                replaced -= front.len() as u64;
                map.insert(at, front);
            }
            if keep_back > 0 {
                let back = piece.slice(piece.len() - keep_back as usize..);
                replaced -= back.len() as u64;
                map.insert(end, back);
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

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
                let wanted = &model
                    [from.min(model.len())..(from + length).min(model.len()).max(from.min(model.len()))];
                assert_eq!(extents.read(from as u64, length), wanted, "seed {seed} round {round}");
            }
        }
    }
}
