//! What a change of ours is to make or take away, and what it came to.

use std::sync::Arc;

use bytes::Bytes;
use origin::{Around, Before, Object};
use types::{CreateHow, FileId, NewNode, SetAttr, Version};

use crate::Found;
use crate::node::KnownNode;

/// What gets a name.
#[derive(Clone, Debug)]
pub enum New {
    File {
        how: CreateHow,
        set: SetAttr,
    },
    Directory {
        set: SetAttr,
    },
    Symlink {
        target: Bytes,
        set: SetAttr,
    },
    Special {
        node: NewNode,
        set: SetAttr,
    },
    /// A file that is there already.
    Link {
        file: FileId,
    },
}

/// A rename that was made.
#[derive(Debug, Default)]
pub struct Moved {
    pub from_dir: Around,
    pub to_dir: Around,
    /// Files that have another version by it, with the same bytes.
    pub renewed: Vec<Renewed>,
}

/// A file of which nothing is new but its version, by our own doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewed {
    pub id: FileId,
    /// Bytes.
    pub size: u64,
    pub before: Version,
    pub after: Version,
}

/// What loses its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Old {
    /// Anything but a directory.
    File,
    Directory,
}

/// What was made, and its directory around it.
#[derive(Clone, Debug)]
pub struct MadeObject {
    pub found: Found,
    pub dir: Around,
}

/// An object whose attributes were set.
#[derive(Clone, Debug)]
pub struct AlteredObject {
    pub found: Found,
    /// As the origin told it: what is known may be of later.
    pub told: Object,
    /// As the origin saw it.
    pub before: Option<Before>,
    /// What was known of it, if the origin says that it was just that: nothing but this change lies between.
    pub known: Option<Arc<KnownNode>>,
}
