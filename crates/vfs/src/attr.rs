//! One object: its attributes, what a caller may do with it, where a link points, the room around it.

use bytes::Bytes;
use namespace::{Ask, Found};
use permission::Access;
use types::{Caller, Error, ErrorKind, FileId, FileKind, FsStat, JunctionId, Name, Result};

use crate::{Node, Vfs};

impl Vfs {
    pub async fn getattr(&self, id: FileId) -> Result<Node> {
        self.object(id, Ask::Open).await
    }

    /// Whether the ids of the junction's objects mean something at this node alone, as where renamed objects keep their ids although
    /// the origin knows them by their place.
    pub fn ids_are_own(&self, junction: JunctionId) -> bool {
        self.namespace.ids_are_own(junction)
    }

    /// Before an object is used by a handle that a client holds: in a cluster it may be one that another node gave out, of an object
    /// that this one has not met yet.
    ///
    /// Errors: as of [`namespace::Namespace::meet`].
    pub async fn meet(&self, junction: JunctionId, id: FileId) -> Result<()> {
        self.namespace.meet(junction, id).await
    }

    /// The object as it is after our own changes of it: what was known before them is not served in its place, in an outage
    /// either.
    pub async fn getattr_after_change(&self, id: FileId) -> Result<Node> {
        if self.namespace.is_doubted(id) {
            self.namespace.refresh_changed(id).await?;
        }
        self.object(id, Ask::Open).await
    }

    /// The object as it is known, without asking anybody.
    pub fn known(&self, id: FileId) -> Option<Node> {
        self.object_known(id).ok()
    }

    /// Needs search permission on `dir`.
    pub async fn lookup(&self, caller: &Caller, dir: FileId, name: &Name) -> Result<Node> {
        self.demand_search(caller, dir).await?;
        self.find(dir, name).await?.ok_or_else(|| Error::new(ErrorKind::NotFound, "look up", name))
    }

    /// `..` of a directory; the root is its own parent.
    pub async fn parent(&self, caller: &Caller, dir: FileId) -> Result<Node> {
        self.demand_search(caller, dir).await?;
        self.parent_of(dir).await
    }

    /// Which of `wanted` the caller may do. Answered from cached mode and ids, never by asking the origin for
    /// permission.
    pub async fn access(&self, caller: &Caller, id: FileId, wanted: Access) -> Result<(Access, Node)> {
        let node = self.object(id, Ask::Open).await?;
        let writable = self.writer(node.junction).takes_changes();
        Ok((permission::granted(caller, &node.attr, writable) & wanted, node))
    }

    /// Links are followed by the client; anybody may read one, as on a local file system.
    pub async fn readlink(&self, _caller: &Caller, id: FileId) -> Result<(Bytes, Node)> {
        let node = self.object(id, Ask::Open).await?;
        if node.attr.kind != FileKind::Symlink {
            return Err(Error::new(ErrorKind::InvalidArgument, "read link", id));
        }
        if let Some(target) = self.writer(node.junction).local_target(id) {
            return Ok((target, node));
        }
        let Found::Node(known) = self.namespace.getattr_known(id)? else {
            return Err(Error::new(ErrorKind::InvalidArgument, "read link", id));
        };
        Ok((self.namespace.link_target(&known).await?, node))
    }

    pub async fn statfs(&self, id: FileId) -> Result<FsStat> {
        match self.local(id) {
            Some(local) => self.namespace.statfs(self.namespace.root_of(local.junction)?).await,
            None => self.namespace.statfs(id).await,
        }
    }

    /// Walk an absolute path (links are not followed), as the operator.
    pub async fn resolve(&self, path: &[u8]) -> Result<Node> {
        let mut at = self.object(self.root(), Ask::Open).await?;
        for part in path.split(|b| *b == b'/').filter(|part| !part.is_empty() && *part != b".") {
            let name = Name::new(Bytes::copy_from_slice(part))?;
            let found = self.find(at.id, &name).await?;
            at = found.ok_or_else(|| Error::new(ErrorKind::NotFound, "look up", &name))?;
        }
        Ok(at)
    }

    async fn demand_search(&self, caller: &Caller, dir: FileId) -> Result<()> {
        let node = self.object(dir, Ask::Use).await?;
        if !node.attr.is_dir() {
            return Err(Error::new(ErrorKind::NotADirectory, "search", dir));
        }
        permission::demand(permission::may_search(caller, &node.attr), "search a directory", caller)
    }
}
