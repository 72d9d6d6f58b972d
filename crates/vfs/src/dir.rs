//! Listing a directory.

use bytes::Bytes;
use namespace::Ask;
use types::{Caller, Error, ErrorKind, FileId, Result};

use crate::{DirItem, DirListing, Node, Vfs};

/// Cookies of `.` and `..`; those of names are larger.
const DOT: u64 = 1;
const DOT_DOT: u64 = 2;

impl Vfs {
    /// At most `items_max` items after `cookie` (0 = from the start).
    pub async fn readdir(
        &self,
        caller: &Caller,
        dir: FileId,
        cookie: u64,
        items_max: usize,
    ) -> Result<DirListing> {
        let node = self.object(dir, Ask::Use).await?;
        if !node.attr.is_dir() {
            return Err(Error::new(ErrorKind::NotADirectory, "list", dir));
        }
        permission::demand(permission::may_list(caller, &node.attr), "list a directory", caller)?;
        let names = self.names_after(dir, cookie, items_max.max(1)).await?;
        let node = self.object_known(dir).unwrap_or(node);
        let mut items = Vec::with_capacity(names.items.len() + 2);
        if cookie < DOT {
            items.push(item(Bytes::from_static(b"."), DOT, node.clone()));
        }
        if cookie < DOT_DOT {
            let parent = self.parent_of(dir).await.unwrap_or_else(|_| node.clone());
            items.push(item(Bytes::from_static(b".."), DOT_DOT, parent));
        }
        items.extend(names.items);
        let fits = items.len() <= items_max;
        items.truncate(items_max);
        Ok(DirListing { items, eof: names.eof && fits, dir: node })
    }
}

fn item(name: Bytes, cookie: u64, node: Node) -> DirItem {
    DirItem { name, cookie, fileid: node.id.fileid64(), node: Some(node) }
}
