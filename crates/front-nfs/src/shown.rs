//! Which of the directories above junctions a client sees: those that lead to a junction that it may use.

use std::collections::HashSet;

use types::{FileId, JunctionId};
use vfs::Node;

use crate::dispatch::Call;

/// For one client, at one time.
pub enum Shown {
    /// It may use every junction.
    All,
    /// Directories above junctions that it may use.
    Only(HashSet<FileId>),
}

impl Shown {
    pub async fn new(call: &Call) -> Shown {
        let rules = &call.shared.config.exports;
        let vfs = &call.shared.vfs;
        let mut is_all = true;
        let mut above = HashSet::from([vfs.root()]);
        for junction in vfs.junctions() {
            if !rules.admits(junction.id, call.peer.address) {
                is_all = false;
                continue;
            }
            for (end, _) in junction.path.match_indices('/').skip(1) {
                if let Ok(node) = vfs.resolve(&junction.path.as_bytes()[..end]).await {
                    above.insert(node.id);
                }
            }
        }
        if is_all { Shown::All } else { Shown::Only(above) }
    }

    /// `node`: what is found under a name in a directory above junctions; absent: a junction that is away.
    pub fn shows(&self, call: &Call, node: Option<&Node>) -> bool {
        match (self, node) {
            (Shown::All, _) => true,
            (Shown::Only(_), None) => false,
            (Shown::Only(above), Some(node)) if node.junction == JunctionId::VIRTUAL => {
                above.contains(&node.id)
            }
            (Shown::Only(_), Some(node)) => {
                call.shared.config.exports.admits(node.junction, call.peer.address)
            }
        }
    }
}
