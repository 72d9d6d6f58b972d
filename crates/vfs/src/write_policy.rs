//! What may be written, and when it counts as done.

use std::collections::HashMap;

use namespace::JunctionStatus;
use types::JunctionId;

/// Of one junction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WritePolicy {
    #[default]
    ReadOnly,
    /// Done when the origin has it on stable storage.
    Through,
    /// Done when the journal has it on this machine's disk; it goes to the origin by itself.
    Back,
}

impl std::fmt::Display for WritePolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            WritePolicy::ReadOnly => "read-only",
            WritePolicy::Through => "through",
            WritePolicy::Back => "back",
        })
    }
}

/// How the served tree is written.
#[derive(Clone, Debug)]
pub struct Writing {
    /// By path of the junction; one that is not named is read-only.
    pub junctions: HashMap<String, WritePolicy>,
    /// Bytes that clients have written and the origin does not have yet, over all files. Above it writers wait.
    pub bytes_max: u64,
}

impl Default for Writing {
    fn default() -> Writing {
        // Two seconds of a 1 Gbit/s line: what one round trip around the earth holds, several times.
        Writing { junctions: HashMap::new(), bytes_max: 256 << 20 }
    }
}

impl Writing {
    pub(crate) fn policies(&self, junctions: &[JunctionStatus]) -> HashMap<JunctionId, WritePolicy> {
        let policy = |path: &str| self.junctions.get(path).copied().unwrap_or_default();
        junctions.iter().map(|junction| (junction.id, policy(&junction.path))).collect()
    }
}
