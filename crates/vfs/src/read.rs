//! Bytes of a file: the place where "which version is it now?" meets "the bytes of that version".

use std::sync::Arc;

use cache::{CacheKey, Lend, Piece, Source};
use fetch::{BytesChanged, OriginSource, ReadAhead, key_of};
use namespace::{Ask, Found};
use origin::Origin;
use types::{ByteRange, Caller, Error, ErrorKind, FileId, Result, Version};

use crate::{Node, ReadOut, Vfs};

/// A file that changes at the origin faster than it can be read this many times is answered with "try again".
const VERSIONS_TRIED_MAX: usize = 4;

impl Vfs {
    /// Bytes of one version of the file, whatever happens to it meanwhile.
    pub async fn read(
        &self,
        caller: &Caller,
        id: FileId,
        offset: u64,
        count: u32,
        lend: Lend,
    ) -> Result<ReadOut> {
        self.read_as(caller, id, ByteRange::new(offset, count.into()), lend, ReadAhead::Here).await
    }

    /// The same for a client that reads ahead itself: nothing besides these bytes is fetched.
    pub async fn read_alone(
        &self,
        caller: &Caller,
        id: FileId,
        offset: u64,
        count: u32,
        lend: Lend,
    ) -> Result<ReadOut> {
        self.read_as(caller, id, ByteRange::new(offset, count.into()), lend, ReadAhead::ByTheReader).await
    }

    async fn read_as(
        &self,
        caller: &Caller,
        id: FileId,
        range: ByteRange,
        lend: Lend,
        ahead: ReadAhead,
    ) -> Result<ReadOut> {
        let offset = range.offset;
        let node = self.object(id, Ask::Use).await?;
        permission::demand(permission::may_read_bytes(caller, &node.attr), "read a file", caller)?;
        if let Some(data) = self.read_dirty(&node, range).await? {
            return self.dirty_answer(id, offset, data);
        }
        let mut found = self.namespace.getattr_known(id)?;
        if offset == 0 && ahead == ReadAhead::Here {
            self.prefetcher.visit(&found);
        }
        for tried in 0..VERSIONS_TRIED_MAX {
            // Looked at each time: a file that changes may be one that is written to here since we looked.
            if tried > 0
                && let Some(data) = self.read_dirty(&node, range).await?
            {
                return self.dirty_answer(id, offset, data);
            }
            let key = key_of(&found)?;
            let range = range.clamp_to(key.size);
            let source: Arc<dyn Source> =
                Arc::new(OriginSource::new(self.namespace.clone(), self.origin_of(&found)).with(ahead));
            match self.cache.read(&key, range, &source, lend).await {
                Ok(data) => {
                    let eof = range.end() >= key.size;
                    return Ok(ReadOut { data, eof, node: self.node(&found) });
                }
                Err(e) if e.kind() == ErrorKind::VersionChanged => {
                    found = self.namespace.refresh_changed(id).await?;
                }
                Err(e) => return Err(e),
            }
        }
        Err(Error::new(ErrorKind::Busy, "read a file that keeps changing at the origin,", id))
    }

    /// Bytes of the version that `node` had, and of what was written to it through us since, for who has it open: from the
    /// cache, or from the origin as long as it still has that version; then `VersionChanged`, or `Stale`. Permission was
    /// checked at the open.
    pub async fn read_version(&self, node: &Node, offset: u64, count: u32, lend: Lend) -> Result<Vec<Piece>> {
        if let Some(data) = self.read_dirty(node, ByteRange::new(offset, count.into())).await? {
            return Ok(data);
        }
        let (key, _) = self.key_of_node(node);
        self.read_key(key, node, offset, count, lend).await
    }

    /// The same without what was written since: `VersionChanged` then.
    pub async fn read_same(&self, node: &Node, offset: u64, count: u32, lend: Lend) -> Result<Vec<Piece>> {
        let changed = || Error::new(ErrorKind::VersionChanged, "read", node.id);
        if let Some(data) = self.read_dirty(node, ByteRange::new(offset, count.into())).await? {
            // Asked for behind the bytes: who writes changes it first.
            return if self.object_known(node.id)?.version == node.version {
                Ok(data)
            } else {
                Err(changed())
            };
        }
        match self.key_of_node(node) {
            (key, BytesChanged::No) => self.read_key(key, node, offset, count, lend).await,
            (_, BytesChanged::Yes) => Err(changed()),
        }
    }

    async fn read_key(
        &self,
        key: CacheKey,
        node: &Node,
        offset: u64,
        count: u32,
        lend: Lend,
    ) -> Result<Vec<Piece>> {
        let range = ByteRange::new(offset, u64::from(count)).clamp_to(key.size);
        // What is cached of a file that is gone meanwhile needs no origin.
        let origin = self.namespace.getattr_known(node.id).ok().and_then(|found| self.origin_of(&found));
        let source: Arc<dyn Source> = Arc::new(OriginSource::new(self.namespace.clone(), origin));
        self.cache.read(&key, range, &source, lend).await
    }

    /// Whether somebody may be in the midst of writing it: through this tier, or at its origin, where that shows a file
    /// before all of it is written.
    pub fn may_be_half_written(&self, id: FileId) -> bool {
        let Ok(found) = self.namespace.getattr_known(id) else { return true };
        let shows_whole_files =
            self.origin_of(&found).is_some_and(|origin| origin.traits().commits_whole_files);
        self.writer(found.junction()).has_dirty_bytes(id) || !shows_whole_files
    }

    /// If some of the file's bytes are not at its origin: these over the bytes below.
    async fn read_dirty(&self, file: &Node, range: ByteRange) -> Result<Option<Vec<Piece>>> {
        match self.writer(file.junction) {
            // Of most files that are read, nothing is.
            writer if writer.has_dirty_bytes(file.id) => writer.read(self, file.id, range).await,
            _ => Ok(None),
        }
    }

    fn dirty_answer(&self, id: FileId, offset: u64, data: Vec<Piece>) -> Result<ReadOut> {
        let node = self.object_known(id)?;
        let eof = offset.saturating_add(data.iter().map(Piece::length).sum()) >= node.attr.size;
        Ok(ReadOut { data, eof, node })
    }

    /// Of the bytes that were shown as this node, and whether they were written since: flushed or renamed, they have
    /// another version.
    pub(crate) fn key_of_node(&self, node: &Node) -> (CacheKey, BytesChanged) {
        let key = CacheKey { file: node.id, version: node.version, size: node.attr.size };
        let known = self.namespace.getattr_known(node.id);
        match known.as_ref().map(key_of) {
            Ok(Ok(now)) if now == key => {
                self.version_chain.is_now(&key);
                (key, BytesChanged::No)
            }
            _ => self.version_chain.of(key),
        }
    }

    /// Whether `node` has the bytes that its file had as this version, since it got its own version by what the tier itself did:
    /// a flush, or a rename.
    pub fn has_bytes_of(&self, node: &Node, version: Version) -> bool {
        let before = CacheKey { file: node.id, version, size: node.attr.size };
        let (now, changed) = self.version_chain.of(before);
        changed == BytesChanged::No && now.version == node.version
    }

    pub(crate) fn source_of(&self, found: &Found) -> Arc<dyn Source> {
        Arc::new(OriginSource::new(self.namespace.clone(), self.origin_of(found)))
    }

    fn origin_of(&self, found: &Found) -> Option<Arc<dyn Origin>> {
        match found {
            Found::Node(node) => self.namespace.origin_of(node).ok().map(|(origin, _)| origin),
            Found::Virtual { .. } => None,
        }
    }
}
