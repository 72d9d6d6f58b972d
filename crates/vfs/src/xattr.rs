//! Extended attributes: the origin's own. Nothing of them is kept here, so each look asks the origin. What is written
//! `back` goes home before one is set: the journal knows none.

use bytes::Bytes;
use namespace::Ask;
use types::{Caller, FileId, Result, SetXattr, XattrName};

use crate::Vfs;
use crate::change_results::Altered;

impl Vfs {
    /// Whether any origin has them.
    pub fn has_xattrs(&self) -> bool {
        self.namespace.has_xattrs()
    }

    pub async fn xattrs(&self, caller: &Caller, id: FileId) -> Result<Vec<(XattrName, Bytes)>> {
        let node = self.object(id, Ask::Open).await?;
        permission::demand(permission::may_list(caller, &node.attr), "read extended attributes", caller)?;
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
        let writer = self.writer_to_change(&node).await?;
        permission::demand_set_xattr(caller, &node.attr)?;
        writer.set_xattr(self, &node, name, set).await
    }
}
