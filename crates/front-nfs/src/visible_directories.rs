//! Which directories above junctions a client sees: those that lead to a junction that it may use.

use std::collections::HashSet;

use types::{FileId, JunctionId};
use vfs::Node;

use crate::call::NfsCall;

/// The directories above junctions that one client sees, at one time.
pub enum VisibleDirectories {
    /// It may use every junction.
    All,
    /// The directories above the junctions that it may use.
    Only(HashSet<FileId>),
}

impl VisibleDirectories {
    pub async fn new(call: &NfsCall) -> VisibleDirectories {
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
        if is_all { VisibleDirectories::All } else { VisibleDirectories::Only(above) }
    }

    /// Whether an entry of a directory above junctions is visible. `node`: what the name leads to; `None`: a
    /// junction that cannot be reached.
    pub fn shows(&self, call: &NfsCall, node: Option<&Node>) -> bool {
        match (self, node) {
            (VisibleDirectories::All, _) => true,
            (VisibleDirectories::Only(_), None) => false,
            (VisibleDirectories::Only(above), Some(node)) if node.junction == JunctionId::VIRTUAL => {
                above.contains(&node.id)
            }
            (VisibleDirectories::Only(_), Some(node)) => {
                call.shared.config.exports.admits(node.junction, call.peer.address)
            }
        }
    }
}
