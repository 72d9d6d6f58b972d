//! The way to a file that another node knows, and this one does not: a client came here with a handle that the other one gave it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cluster::NodeState;
use futures_util::{StreamExt, stream};
use peer::message::PathRequest;
use types::{Error, ErrorKind, FileId, JunctionId, NodeId, Result};

use crate::reads::ClusterReads;

/// Nodes that are asked at once.
const ASKED_AT_ONCE: usize = 16;
/// An answer comes from memory or a database.
const DEADLINE: Duration = Duration::from_secs(2);

/// What this node knows of names, for the others.
pub trait KnownPaths: Send + Sync {
    /// The names from the root of the junction down to the file.
    fn path(&self, junction: JunctionId, file: FileId) -> Option<Vec<Bytes>>;
}

/// Asks the other nodes for the way to a file.
pub struct PathFinder {
    reads: Arc<ClusterReads>,
}

impl PathFinder {
    pub fn new(reads: Arc<ClusterReads>) -> PathFinder {
        PathFinder { reads }
    }

    /// The names from the root of the junction down to the file; `None` if no node knows it.
    ///
    /// Errors: `Unavailable` if nobody knows it of those that answered, and one that is up did not answer.
    pub async fn find(&self, junction: JunctionId, file: FileId) -> Result<Option<Vec<Bytes>>> {
        let view = &self.reads.view;
        let map = view.map();
        let others = map.nodes().iter().filter(|it| it.id != view.own() && it.state != NodeState::Out);
        let others: Vec<NodeId> = others.map(|it| it.id).collect();
        let mut answers =
            stream::iter(others).map(|node| self.ask(node, junction, file)).buffer_unordered(ASKED_AT_ONCE);
        let mut silent = None;
        while let Some(answer) = answers.next().await {
            match answer {
                Ok(path) => return Ok(Some(path)),
                // It does not serve the junction, or is of a version that does not know this call.
                Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotSupported) => {}
                Err(e) => silent = Some(e),
            }
        }
        silent.map_or(Ok(None), Err)
    }

    async fn ask(&self, node: NodeId, junction: JunctionId, file: FileId) -> Result<Vec<Bytes>> {
        let away =
            || Error::new(ErrorKind::Unavailable, "ask for the way to a file:", format!("node {node}"));
        if self.reads.view.is_passed_over(node) {
            return Err(away());
        }
        let client = self.reads.peers.client(node).ok_or_else(away)?;
        Ok(client.path(&PathRequest { junction, file }, DEADLINE).await?.names)
    }
}
