//! Who asks, and what the protocol of its call promises. Built once by a front end, after squashing; permission is decided
//! from it in `vfs` only.

use crate::Durability;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// Whoever passed the call on has checked the permission: here it is not checked again. The ids say whose is what
    /// the call makes.
    pub trusted: bool,
    /// What must be on stable storage when the call is answered, where the write policy leaves that open.
    pub durability: Durability,
}

impl Caller {
    /// The tier itself and its operator: may see everything.
    pub fn root() -> Caller {
        Caller { uid: 0, gid: 0, groups: Vec::new(), trusted: false, durability: Durability::Always }
    }

    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}
