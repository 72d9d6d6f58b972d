//! Looking at objects and names through what is shown here, whether their origin has them already or not.

use std::collections::HashSet;

use bytes::Bytes;
use namespace::{Ask, ListedEntry};
use types::{Error, ErrorKind, FileId, Name, Result};

use crate::places::PlaceOverlay;
use crate::{DirItem, Node, Vfs};

/// Names of a directory, without `.` and `..`.
pub(crate) struct NamesPage {
    pub items: Vec<DirItem>,
    pub eof: bool,
}

impl Vfs {
    /// The object as clients see it. What is being written to is as we have it: others' changes are found out when our
    /// bytes go to the origin.
    pub(crate) async fn object(&self, id: FileId, ask: Ask) -> Result<Node> {
        if let Some(local) = self.local(id) {
            return Ok(local);
        }
        self.writers.ready().await;
        let found = match self.writers.has_dirty_bytes(id) {
            true => self.namespace.getattr_known(id)?,
            false => self.namespace.getattr(id, ask).await?,
        };
        Ok(self.node(&found))
    }

    /// The same without asking anybody.
    pub(crate) fn object_known(&self, id: FileId) -> Result<Node> {
        match self.local(id) {
            Some(local) => Ok(local),
            None => Ok(self.node(&self.namespace.getattr_known(id)?)),
        }
    }

    /// It is here, and its origin does not have it yet.
    pub(crate) fn local(&self, id: FileId) -> Option<Node> {
        self.writers.local(id)
    }

    /// What has this name; `None` if nothing has.
    pub(crate) async fn find(&self, dir: FileId, name: &Name) -> Result<Option<Node>> {
        if let Some(known) = self.writers.lookup(dir, name) {
            return match known {
                Some(id) => self.object(id, Ask::Open).await.map(Some),
                None if self.local(dir).is_some_and(|dir| !dir.attr.is_dir()) => {
                    Err(Error::new(ErrorKind::NotADirectory, "look up in", dir))
                }
                None => Ok(None),
            };
        }
        match self.namespace.lookup(dir, name).await {
            Ok(found) => Ok(Some(self.node(&found))),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// What had this name when anybody looked last.
    pub fn known_child(&self, dir: FileId, name: &Name) -> Result<Option<Node>> {
        if let Some(known) = self.writers.lookup(dir, name) {
            return known.map(|id| self.object_known(id)).transpose();
        }
        let child = self.namespace.child_of(dir, name)?;
        Ok(child.and_then(|id| self.object_known(id).ok()))
    }

    /// The directory an object is in as clients see it, itself for a root.
    pub(crate) async fn parent_of(&self, dir: FileId) -> Result<Node> {
        match self.writers.place(dir) {
            Some((parent, _)) => self.object(parent, Ask::Use).await,
            None => Ok(self.node(&self.namespace.parent(dir).await?)),
        }
    }

    /// At most `max` names after the cookie: the origin's, with ours laid over.
    pub(crate) async fn names_after(&self, dir: FileId, after: u64, max: usize) -> Result<NamesPage> {
        let overlay = self.writers.entries(dir).unwrap_or_default();
        let ours_by_name: HashSet<&[u8]> = overlay.entries.iter().map(|(name, _)| name.as_bytes()).collect();
        let mut made: Vec<(u64, &Name, FileId)> = overlay
            .entries
            .iter()
            .filter_map(|(name, id)| Some((namespace::cookie_of(name.as_bytes()), name, (*id)?)))
            .collect();
        made.sort_unstable_by_key(|(cookie, ..)| *cookie);
        let mut at = after;
        loop {
            let (listed, eof) = match overlay.is_local {
                true => (Vec::new(), true),
                false => {
                    let listed = self.namespace.readdir(dir, at, max).await?;
                    (listed.entries, listed.eof)
                }
            };
            let reach = listed.last().filter(|_| !eof).map_or(u64::MAX, |entry| entry.cookie);
            let theirs = listed.into_iter().filter(|entry| !ours_by_name.contains(&entry.name[..]));
            let mut items: Vec<_> = theirs.map(|entry| self.item(entry)).collect();
            let made = made.iter().filter(|(cookie, ..)| *cookie > at && *cookie <= reach);
            items.extend(made.map(|(cookie, name, id)| self.made_item(*cookie, name, *id)));
            items.sort_by_key(|item| item.cookie);
            // Two names of one hash: each needs a place of its own.
            for i in 1..items.len() {
                items[i].cookie = items[i].cookie.max(items[i - 1].cookie + 1);
            }
            let fits = items.len() <= max;
            items.truncate(max);
            // A page of names that are all gone says nothing; the next one may.
            if eof || !items.is_empty() {
                return Ok(NamesPage { items, eof: eof && fits });
            }
            at = reach;
        }
    }

    fn item(&self, entry: ListedEntry) -> DirItem {
        let node = entry.child.as_ref().map(|found| self.node(found));
        DirItem { name: entry.name, cookie: entry.cookie, fileid: entry.fileid, node }
    }

    fn made_item(&self, cookie: u64, name: &Name, id: FileId) -> DirItem {
        let node = self.object_known(id).ok();
        DirItem { name: Bytes::copy_from_slice(name.as_bytes()), cookie, fileid: id.fileid64(), node }
    }
}
