//! What may be written, and when it counts as done.

use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use namespace::JunctionStatus;
use types::{Error, ErrorKind, FileId, JunctionId, Result};

use crate::Vfs;

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

/// Looked at by every call, so without a lock.
pub struct Policies(ArcSwap<HashMap<JunctionId, WritePolicy>>);

impl Policies {
    pub fn new(policies: HashMap<JunctionId, WritePolicy>) -> Policies {
        Policies(ArcSwap::from_pointee(policies))
    }

    /// From now on. It stays when the junction goes: that is what clients are to be told of then.
    pub fn set(&self, junction: JunctionId, policy: WritePolicy) {
        self.0.rcu(|policies| {
            let mut policies = HashMap::clone(policies);
            policies.insert(junction, policy);
            Arc::new(policies)
        });
    }
}

impl Vfs {
    /// The directories above the junctions are nobody's to change.
    pub fn write_policy(&self, junction: JunctionId) -> WritePolicy {
        self.policies.0.load().get(&junction).copied().unwrap_or_default()
    }

    /// May anything be changed, anywhere?
    pub fn is_writable(&self) -> bool {
        self.policies.0.load().values().any(|policy| *policy != WritePolicy::ReadOnly)
    }

    /// The policy under which `id` may be changed.
    pub(crate) fn demand_writable(&self, id: FileId, junction: JunctionId) -> Result<WritePolicy> {
        match self.write_policy(junction) {
            WritePolicy::ReadOnly => Err(Error::new(ErrorKind::ReadOnly, "change", id)),
            // Nothing to write it back by.
            WritePolicy::Back if self.back.get().is_none() => {
                Err(Error::new(ErrorKind::ReadOnly, "change", id))
            }
            policy => Ok(policy),
        }
    }
}
