//! Where objects are in the tree, as clients see it.

use std::sync::Arc;

use namespace::{Found, Namespace};
use types::{FileId, Name};

use crate::Vfs;

/// Directories between an object and the root, at most.
const DEPTH_MAX: usize = 512;

/// Knows of objects that clients see elsewhere than their origin has them.
pub trait PlaceOverlay: Send + Sync {
    /// The directory of such an object, and its name there.
    fn place(&self, id: FileId) -> Option<(FileId, Name)>;
}

/// The places of all objects.
#[derive(Clone)]
pub struct Places {
    pub overlay: Arc<dyn PlaceOverlay>,
    pub namespace: Arc<Namespace>,
}

impl Places {
    /// The directory an object is in and its name there, as far as is known.
    pub fn place_of(&self, id: FileId) -> Option<(FileId, Option<Name>)> {
        if let Some((dir, name)) = self.overlay.place(id) {
            return Some((dir, Some(name)));
        }
        let Found::Node(node) = self.namespace.getattr_known(id).ok()? else { return None };
        let nowhere = node.parent() == FileId([0; 16]) || node.parent() == id;
        (!nowhere).then(|| (node.parent(), Name::new(node.name().clone()).ok()))
    }

    /// The object's path from the top of the tree, as far as it is known, for a person to read.
    pub fn path_of(&self, id: FileId) -> String {
        match self.place_of(id) {
            Some((dir, Some(name))) => self.path_in(dir, &name),
            _ => format!("file {id}"),
        }
    }

    /// The same of a name in a directory.
    pub fn path_in(&self, dir: FileId, name: &Name) -> String {
        let mut parts = vec![name.as_bytes().escape_ascii().to_string()];
        let mut at = dir;
        for _ in 0..DEPTH_MAX {
            let Some((parent, name)) = self.place_of(at) else { break };
            parts.extend(name.map(|name| name.as_bytes().escape_ascii().to_string()));
            at = parent;
        }
        let root = self.namespace.getattr_known(at).ok();
        let junctions = self.namespace.junctions();
        let junction = root.and_then(|root| junctions.into_iter().find(|it| it.id == root.junction()));
        let top = junction.map_or_else(String::new, |it| it.path.trim_end_matches('/').to_owned());
        parts.reverse();
        format!("{top}/{}", parts.join("/"))
    }
}

impl Vfs {
    pub(crate) fn places(&self) -> Places {
        Places { overlay: self.writers.clone(), namespace: self.namespace.clone() }
    }
}
