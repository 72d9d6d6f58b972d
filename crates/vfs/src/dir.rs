//! Listing a directory.

use bytes::Bytes;
use namespace::Ask;
use types::{Caller, FileId, Result};

use crate::access;
use crate::{DirItem, Listing, Node, Vfs};

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
    ) -> Result<Listing> {
        let found = self.namespace.getattr(dir, Ask::Use).await?;
        let allowed = !found.attr().is_dir() || access::may_list(caller, found.attr());
        access::demand(allowed, "list a directory", caller)?;
        let listed = self.namespace.readdir(dir, cookie, items_max.max(1)).await?;
        let mut items = Vec::with_capacity(listed.entries.len() + 2);
        if cookie < DOT {
            items.push(item(Bytes::from_static(b"."), DOT, self.node(&listed.dir)));
        }
        if cookie < DOT_DOT {
            let parent = self.namespace.parent(dir).await.unwrap_or_else(|_| listed.dir.clone());
            items.push(item(Bytes::from_static(b".."), DOT_DOT, self.node(&parent)));
        }
        items.extend(listed.entries.into_iter().map(|entry| DirItem {
            node: entry.child.as_ref().map(|found| self.node(found)),
            name: entry.name,
            cookie: entry.cookie,
            fileid: entry.fileid,
        }));
        let fits = items.len() <= items_max;
        items.truncate(items_max);
        Ok(Listing { items, eof: listed.eof && fits, dir: self.node(&listed.dir) })
    }
}

fn item(name: Bytes, cookie: u64, node: Node) -> DirItem {
    DirItem { name, cookie, fileid: node.id.fileid64(), node: Some(node) }
}
