//! Where objects are: for the flush, and for a person who reads of them.

use std::sync::Arc;

use namespace::{Found, Namespace};
use types::{FileId, Name};

use super::shown::Shown;

/// Directories between an object and the root, at most.
const DEPTH_MAX: usize = 512;

/// Knows where objects are.
#[derive(Clone)]
pub struct Places {
    pub shown: Arc<Shown>,
    pub namespace: Arc<Namespace>,
}

impl Places {
    pub fn path_of(&self, id: FileId) -> String {
        path_of(&self.shown, &self.namespace, id)
    }

    pub fn path_in(&self, dir: FileId, name: &Name) -> String {
        path_in(&self.shown, &self.namespace, dir, name)
    }
}

/// The directory an object is in and its name there, as far as is known.
pub fn place_of(shown: &Shown, namespace: &Namespace, id: FileId) -> Option<(FileId, Option<Name>)> {
    if let Some((dir, name)) = shown.altered(id).and_then(|altered| altered.place) {
        return Some((dir, Some(name)));
    }
    let Found::Node(node) = namespace.getattr_known(id).ok()? else { return None };
    let nowhere = node.parent() == FileId([0; 16]) || node.parent() == id;
    (!nowhere).then(|| (node.parent(), Name::new(node.name().clone()).ok()))
}

/// As far as it is known, from the top of the tree.
pub fn path_of(shown: &Shown, namespace: &Namespace, id: FileId) -> String {
    match place_of(shown, namespace, id) {
        Some((dir, Some(name))) => path_in(shown, namespace, dir, &name),
        _ => format!("file {id}"),
    }
}

pub fn path_in(shown: &Shown, namespace: &Namespace, dir: FileId, name: &Name) -> String {
    let mut parts = vec![name.as_bytes().escape_ascii().to_string()];
    let mut at = dir;
    for _ in 0..DEPTH_MAX {
        let Some((parent, name)) = place_of(shown, namespace, at) else { break };
        parts.extend(name.map(|name| name.as_bytes().escape_ascii().to_string()));
        at = parent;
    }
    let junction = namespace
        .getattr_known(at)
        .ok()
        .and_then(|root| namespace.junctions().into_iter().find(|junction| junction.id == root.junction()));
    let top = junction.map_or_else(String::new, |junction| junction.path.trim_end_matches('/').to_owned());
    parts.reverse();
    format!("{top}/{}", parts.join("/"))
}
