//! Who asks. Built once by a front end, after squashing; permission is decided from it in `vfs` only.

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups.
    pub groups: Vec<u32>,
}

impl Caller {
    /// The tier itself and its operator: may see everything.
    pub fn root() -> Caller {
        Caller { uid: 0, gid: 0, groups: Vec::new() }
    }

    pub fn in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }
}
