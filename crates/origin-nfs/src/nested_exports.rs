//! Exports inside our export.
//!
//! A server that exports `/vol` and `/vol/a` (a file system of its own) may or may not let a client walk
//! from one into the other. Where it does not, LOOKUP shows the empty directory that lies under the mount
//! point: it must never be served. Where it does, the handle may still be good for nothing (nfs-ganesha
//! answers NFS3ERR_STALE to it). So for every name that leads to a nested export, what MOUNT gives is
//! served. LOOKUP's answer stands only if it is the very same directory, or if it is on another file system
//! and MOUNT fails; otherwise, when MOUNT fails, so does the lookup.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rpc_nfs3::nfs3::FileHandle;

/// Nested exports that are watched; a server with more is probably one export per user, reached by walking.
const NESTED_MAX: usize = 4096;

/// For how long LOOKUP's answer stands before MOUNT is asked again: a file system mounted there later is
/// noticed after this.
const SAME_PLACE_FOR: Duration = Duration::from_secs(60);

pub type NodeId = usize;
pub const ROOT: NodeId = 0;

/// What is known of the directory of a nested export.
#[derive(Clone, Debug)]
pub enum NestedExport {
    Unknown,
    /// MOUNT gave this handle, another directory than LOOKUP's.
    Mounted(FileHandle),
    /// LOOKUP's answer was found right, at that time.
    Same(Instant),
}

#[derive(Debug)]
struct PathNode {
    children: HashMap<Vec<u8>, NodeId>,
    /// The path to give to MOUNT, if this is an export and not only on the way to one.
    export: Option<Vec<u8>>,
    place: NestedExport,
}

/// The paths from our export's root to the exports inside it.
pub struct NestedExports {
    tree: Mutex<PathTree>,
}

struct PathTree {
    nodes: Vec<PathNode>,
    by_handle: HashMap<Bytes, NodeId>,
}

fn components(path: &[u8]) -> Vec<&[u8]> {
    path.split(|b| *b == b'/').filter(|c| !c.is_empty()).collect()
}

impl NestedExports {
    /// Takes those of `exports` that are below `ours`.
    pub fn new<'a>(ours: &[u8], exports: impl Iterator<Item = &'a [u8]>) -> NestedExports {
        let root = components(ours);
        let mut tree = PathTree { nodes: vec![PathNode::new()], by_handle: HashMap::new() };
        let mut count = 0;
        for export in exports {
            let path = components(export);
            let Some(inside) = path.strip_prefix(root.as_slice()).filter(|inside| !inside.is_empty()) else {
                continue;
            };
            if inside.contains(&&b".."[..]) {
                continue;
            }
            count += 1;
            if count > NESTED_MAX {
                tracing::warn!(
                    NESTED_MAX,
                    "more nested exports than are watched; the rest is reached as the server shows it"
                );
                break;
            }
            tree.insert(inside, export);
        }
        NestedExports { tree: Mutex::new(tree) }
    }

    fn tree(&self) -> MutexGuard<'_, PathTree> {
        self.tree.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that this handle is that node's directory.
    pub fn learn(&self, node: NodeId, handle: &Bytes) {
        let mut tree = self.tree();
        // Leaves lead nowhere; they need no handle.
        if tree.nodes.get(node).is_some_and(|n| !n.children.is_empty()) {
            tree.by_handle.insert(handle.clone(), node);
        }
    }

    pub fn child(&self, dir: &Bytes, name: &[u8]) -> Option<NodeId> {
        let tree = self.tree();
        let node = tree.by_handle.get(dir)?;
        tree.nodes.get(*node)?.children.get(name).copied()
    }

    /// The path to mount, and what is known, if the node is an export.
    pub fn export(&self, node: NodeId) -> Option<(Vec<u8>, NestedExport)> {
        let tree = self.tree();
        let node = tree.nodes.get(node)?;
        let place = match &node.place {
            NestedExport::Same(since) if since.elapsed() > SAME_PLACE_FOR => NestedExport::Unknown,
            place => place.clone(),
        };
        Some((node.export.clone()?, place))
    }

    pub fn set_place(&self, node: NodeId, place: NestedExport) {
        if let Some(node) = self.tree().nodes.get_mut(node) {
            node.place = place;
        }
    }

    /// The children of a node that have children themselves.
    pub fn inner_children(&self, node: NodeId) -> Vec<(Vec<u8>, NodeId)> {
        let tree = self.tree();
        let Some(node) = tree.nodes.get(node) else { return Vec::new() };
        let inner = |id: &NodeId| tree.nodes.get(*id).is_some_and(|n| !n.children.is_empty());
        node.children.iter().filter(|(_, id)| inner(id)).map(|(name, id)| (name.clone(), *id)).collect()
    }
}

impl PathNode {
    fn new() -> PathNode {
        PathNode { children: HashMap::new(), export: None, place: NestedExport::Unknown }
    }
}

impl PathTree {
    fn insert(&mut self, inside: &[&[u8]], export: &[u8]) {
        let mut at = ROOT;
        for name in inside {
            let next = self.nodes.len();
            let Some(node) = self.nodes.get_mut(at) else { return };
            at = *node.children.entry(name.to_vec()).or_insert(next);
            if at == next {
                self.nodes.push(PathNode::new());
            }
        }
        if let Some(node) = self.nodes.get_mut(at) {
            node.export = Some(export.to_vec());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exports_inside_ours_are_nested() {
        let exports = ["/vol", "/vol/a", "/vol/deep/b/", "/volume", "/other/vol/x", "/vol/../etc"];
        let nested = NestedExports::new(b"/vol/", exports.iter().map(|e| e.as_bytes()));
        let root = Bytes::from_static(b"root");
        nested.learn(ROOT, &root);
        let a = nested.child(&root, b"a").expect("a is nested");
        assert_eq!(nested.export(a).map(|(path, _)| path), Some(b"/vol/a".to_vec()));
        let deep = nested.child(&root, b"deep").expect("on the way to b");
        assert!(nested.export(deep).is_none());
        assert!(nested.child(&root, b"..").is_none() && nested.child(&root, b"x").is_none());
        assert_eq!(nested.inner_children(ROOT), [(b"deep".to_vec(), deep)]);
        let handle = Bytes::from_static(b"deep");
        nested.learn(deep, &handle);
        assert!(nested.child(&handle, b"b").is_some());
    }

    #[test]
    fn everything_is_inside_the_root() {
        let nested = NestedExports::new(b"/", [&b"/x"[..]].into_iter());
        let root = Bytes::from_static(b"root");
        nested.learn(ROOT, &root);
        assert!(nested.child(&root, b"x").is_some());
    }
}
