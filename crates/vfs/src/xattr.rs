//! Extended attributes: the origin's own. Nothing of them is kept here, so each look asks the origin. What is written
//! `back` goes home before one is set: the journal knows none.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use namespace::{Ask, Found};
use types::{Caller, Error, ErrorKind, FileId, Result, SetXattr, XattrName};
use writeback::Scope;

use crate::access;
use crate::back::Back;
use crate::back::locks::Held;
use crate::change::Altered;
use crate::read::key_of;
use crate::{Vfs, WritePolicy};

/// For what is to go home first; then the caller is told to try again.
const PATIENCE: Duration = Duration::from_secs(20);

impl Vfs {
    /// Whether any origin has them.
    pub fn has_xattrs(&self) -> bool {
        self.namespace.has_xattrs()
    }

    pub async fn xattrs(&self, caller: &Caller, id: FileId) -> Result<Vec<(XattrName, Bytes)>> {
        let node = self.object(id, Ask::Open).await?;
        access::demand(access::may_list(caller, &node.attr), "read extended attributes", caller)?;
        match self.local(id) {
            Some(_) => Ok(Vec::new()),
            None => self.namespace.xattrs(id).await,
        }
    }

    pub async fn set_xattr(
        &self,
        caller: &Caller,
        id: FileId,
        name: &XattrName,
        set: &SetXattr,
    ) -> Result<Altered> {
        let node = self.object(id, Ask::Use).await?;
        self.leaving.stays(node.junction).await?;
        let policy = self.demand_writable(id, node.junction)?;
        access::demand_set_xattr(caller, &node.attr)?;
        let _home = match self.back.get() {
            Some(back) if policy == WritePolicy::Back => back.bring_home(id).await?,
            _ => Vec::new(),
        };
        // What is written meanwhile waits.
        let held = self.hold(id).await?;
        let altered = self.namespace.set_xattr(id, name, set).await?;
        let known = altered.known.map(Found::Node);
        self.renewed(known.as_ref(), &altered.found).await;
        if let (Some(held), Ok(new)) = (held, key_of(&altered.found)) {
            held.is_now(new);
        }
        Ok(Altered { node: self.node(&altered.found), before: altered.before.map(|before| before.attr) })
    }
}

impl Back {
    /// The origin has the object as clients see it, and it stays so until this is dropped.
    async fn bring_home(&self, id: FileId) -> Result<Vec<Held<'_>>> {
        let held = self.locks.objects(&[], &[id]).await;
        if self.shown.is_altered(id) {
            let home = async {
                if let Some(last) = self.last_recorded() {
                    self.durable(last).await?;
                }
                Ok::<_, Error>(self.flusher.flush(&Scope::Objects(HashSet::from([id]))).wait().await)
            };
            let refused = tokio::time::timeout(PATIENCE, home).await.map_err(|_| Vfs::busy(id))??;
            if let Some(refused) = refused.into_iter().next() {
                return Err(Error::new(ErrorKind::Io, "bring home first", id).with_source(refused.error));
            }
        }
        match self.shown.is_altered(id) {
            true => Err(Vfs::busy(id)),
            false => Ok(held),
        }
    }
}
