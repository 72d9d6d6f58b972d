//! Handles that another node of the cluster gave out: where this node asks for what it does not know, and what it tells others.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use namespace::{KnownElsewhere, Namespace};
use node::{KnownPaths, PathFinder};
use types::{FileId, JunctionId, Name, Result};

/// What this node tells the others.
pub struct OwnPaths(pub Arc<Namespace>);

impl KnownPaths for OwnPaths {
    fn path(&self, junction: JunctionId, file: FileId) -> Option<Vec<Bytes>> {
        self.0.path_in_junction(junction, file)
    }
}

/// What the others tell this node.
pub struct PathsElsewhere(pub PathFinder);

#[async_trait]
impl KnownElsewhere for PathsElsewhere {
    async fn path(&self, junction: JunctionId, id: FileId) -> Result<Option<Vec<Name>>> {
        let Some(names) = self.0.find(junction, id).await? else { return Ok(None) };
        names.into_iter().map(Name::new).collect::<Result<Vec<Name>>>().map(Some)
    }
}
