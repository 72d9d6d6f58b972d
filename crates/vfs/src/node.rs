//! `Node`, an object as clients see it, and how it is made from what `namespace` knows of the object.

use namespace::Found;
use types::{Attr, FileId, JunctionId, Version};

use crate::Vfs;

/// The file system number of every object. Ids are unique over all junctions, so what is served is one file system;
/// with a number of its own for each junction clients would mount each as a file system of its own.
const FSID: u64 = 0x0f0_4eba;

/// An object as clients see it: `attr.fileid` and `attr.fsid` are ours.
#[derive(Clone, Debug)]
pub struct Node {
    pub id: FileId,
    pub junction: JunctionId,
    pub attr: Attr,
    /// Changes whenever the bytes (names, of a directory) change.
    pub version: Version,
}

impl Node {
    /// The object as its origin has it, without the changes that have not reached the origin.
    pub(crate) fn at_origin(found: &Found) -> Node {
        let id = found.id();
        let attr = outward(id, found.attr());
        let version = match found {
            Found::Node(node) => node.version(),
            Found::Virtual { attr, .. } => Version::from_attr(attr),
        };
        Node { id, junction: found.junction(), attr, version }
    }
}

impl Vfs {
    /// The object with the changes that have not reached its origin.
    pub(crate) fn node(&self, found: &Found) -> Node {
        let mut node = Node::at_origin(found);
        self.writer(node.junction).apply_overlay(&mut node);
        node
    }
}

/// Attributes with the file number and the file system number that clients know.
pub(crate) fn outward(id: FileId, attr: &Attr) -> Attr {
    Attr { fsid: FSID, fileid: id.fileid64(), ..*attr }
}
