//! One object: its attributes, what a caller may do with it, where a link points, the room around it.

use bytes::Bytes;
use namespace::{Ask, Found};
use types::{Caller, Error, ErrorKind, FileId, FileKind, FsStat, Name, Result};

use crate::access::{self, Access};
use crate::{Node, Vfs, WritePolicy};

impl Vfs {
    pub async fn getattr(&self, id: FileId) -> Result<Node> {
        // What is being written to is as we have it: others' changes are found out by the writes.
        let found = match self.pending.get(id) {
            Some(_) => self.namespace.getattr_known(id)?,
            None => self.namespace.getattr(id, Ask::Open).await?,
        };
        Ok(self.node(&found))
    }

    /// The object as it is known, without asking anybody.
    pub fn known(&self, id: FileId) -> Option<Node> {
        self.namespace.getattr_known(id).ok().map(|found| self.node(&found))
    }

    /// Needs search permission on `dir`.
    pub async fn lookup(&self, caller: &Caller, dir: FileId, name: &Name) -> Result<Node> {
        self.demand_search(caller, dir).await?;
        Ok(self.node(&self.namespace.lookup(dir, name).await?))
    }

    /// `..` of a directory; the root is its own parent.
    pub async fn parent(&self, caller: &Caller, dir: FileId) -> Result<Node> {
        self.demand_search(caller, dir).await?;
        Ok(self.node(&self.namespace.parent(dir).await?))
    }

    /// Which of `wanted` the caller may do. Answered from cached mode and ids, never by asking the origin for
    /// permission.
    pub async fn access(&self, caller: &Caller, id: FileId, wanted: Access) -> Result<(Access, Node)> {
        let found = self.namespace.getattr(id, Ask::Open).await?;
        let writable = self.write_policy(found.junction()) != WritePolicy::ReadOnly;
        Ok((access::granted(caller, found.attr(), writable) & wanted, self.node(&found)))
    }

    /// Links are followed by the client; anybody may read one, as on a local file system.
    pub async fn readlink(&self, _caller: &Caller, id: FileId) -> Result<(Bytes, Node)> {
        let found = self.namespace.getattr(id, Ask::Open).await?;
        if found.attr().kind != FileKind::Symlink {
            return Err(Error::new(ErrorKind::InvalidArgument, "read link", id));
        }
        let Found::Node(node) = &found else {
            return Err(Error::new(ErrorKind::InvalidArgument, "read link", id));
        };
        let target = self.namespace.link_target(node).await?;
        Ok((target, self.node(&found)))
    }

    pub async fn statfs(&self, id: FileId) -> Result<FsStat> {
        self.namespace.statfs(id).await
    }

    /// Walk an absolute path (links are not followed), as the operator.
    pub async fn resolve(&self, path: &[u8]) -> Result<Node> {
        Ok(self.node(&self.namespace.resolve(path).await?))
    }

    async fn demand_search(&self, caller: &Caller, dir: FileId) -> Result<()> {
        let found = self.namespace.getattr(dir, Ask::Use).await?;
        if !found.attr().is_dir() {
            return Err(Error::new(ErrorKind::NotADirectory, "search", dir));
        }
        access::demand(access::may_search(caller, found.attr()), "search a directory", caller)
    }
}
