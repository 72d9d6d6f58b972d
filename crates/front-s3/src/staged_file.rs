//! A file under a hidden name that is being written in order: bytes of an upload, or of an object that takes its key's
//! name by a rename when all of it is committed.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use types::{
    ByteRange, Caller, CreateHow, Error, ErrorKind, FileId, Name, Result, SetAttr, Stability, WriteVerifier,
};
use vfs::{Node, Vfs};

use crate::resolve::is_gone;
use crate::staged_object::{ByteSink, PublishMode};
use crate::write_fence::WriteFence;

/// The bytes of one write to the file system.
const PART: usize = 1 << 20;

/// The pauses between attempts to look at a published file.
const PUBLISHED_PAUSES_MS: [u64; 4] = [50, 200, 800, 3200];

pub struct StagedFile {
    vfs: Arc<Vfs>,
    caller: Caller,
    dir: FileId,
    temporary: Name,
    id: FileId,
    /// The offset of the first byte, and that of the next one.
    start: u64,
    end: u64,
    gathered: BytesMut,
    verifier: Option<WriteVerifier>,
    /// `None`: this is the file's only writer.
    fence: Option<Arc<WriteFence>>,
}

impl StagedFile {
    /// Creates a file in `dir` under this hidden name.
    pub async fn create(vfs: &Arc<Vfs>, caller: &Caller, dir: FileId, temporary: Name) -> Result<StagedFile> {
        let set = SetAttr { mode: Some(0o644), ..SetAttr::default() };
        let made = vfs.create(caller, dir, &temporary, CreateHow::Guarded, set).await?;
        Ok(StagedFile::at_offset(vfs, caller, (dir, temporary), made.node.id, 0))
    }

    /// Writes to an existing file, from offset `start` on.
    pub fn at_offset(
        vfs: &Arc<Vfs>,
        caller: &Caller,
        (dir, temporary): (FileId, Name),
        id: FileId,
        start: u64,
    ) -> StagedFile {
        StagedFile {
            vfs: vfs.clone(),
            caller: caller.clone(),
            dir,
            temporary,
            id,
            start,
            end: start,
            gathered: BytesMut::new(),
            verifier: None,
            fence: None,
        }
    }

    /// Writes fail from the moment on at which `fence` is closed.
    pub fn fenced_by(self, fence: &Arc<WriteFence>) -> StagedFile {
        StagedFile { fence: Some(fence.clone()), ..self }
    }

    async fn write(&mut self, mut data: Bytes) -> Result<()> {
        while !data.is_empty() {
            let part = data.split_to(data.len().min(PART));
            let length = part.len() as u64;
            let verifier = self.write_once(part).await?;
            self.end += length;
            self.check_verifier(verifier)?;
        }
        Ok(())
    }

    async fn write_once(&self, data: Bytes) -> Result<WriteVerifier> {
        let _not_ended = match &self.fence {
            None => None,
            Some(fence) => match fence.enter().await {
                None => return Err(Error::new(ErrorKind::Stale, "write a file that has ended,", self.id)),
                not_ended => not_ended,
            },
        };
        let out = self.vfs.write(&self.caller, self.id, self.end, data, Stability::Unstable).await?;
        Ok(out.verifier)
    }

    fn check_verifier(&mut self, verifier: WriteVerifier) -> Result<()> {
        match self.verifier.replace(verifier) {
            Some(before) if before != verifier => Err(Error::new(
                ErrorKind::Unavailable,
                "write an object whose first bytes were lost,",
                self.id,
            )),
            _ => Ok(()),
        }
    }

    /// Gives the file the key's name, after `store`; an object that had it is replaced. `None`: see
    /// [`published_node`].
    pub async fn publish(&self, name: &Name, how: PublishMode) -> Result<Option<Node>> {
        let (vfs, caller, dir) = (&self.vfs, &self.caller, self.dir);
        let named = match how {
            // Our own requests are serialized by the name's lock.
            PublishMode::Replace | PublishMode::ReplaceVersion(_) => {
                vfs.rename(caller, dir, &self.temporary, dir, name).await.map(|_| false)
            }
            PublishMode::IfAbsent => match vfs.link(caller, self.id, dir, name).await {
                // An origin without links: look, then rename. Another's create in between would be replaced.
                Err(e) if e.kind() == ErrorKind::NotSupported => self.publish_if_unseen(name).await,
                other => other.map(|_| true),
            },
        };
        if named? {
            // The hidden name is removed before the metadata is stored, since losing a name changes the file's
            // state.
            self.remove_temporary().await;
        }
        Ok(published_node(&self.vfs, self.id).await)
    }

    async fn publish_if_unseen(&self, name: &Name) -> Result<bool> {
        match self.vfs.lookup(&self.caller, self.dir, name).await {
            Ok(_) => Err(Error::new(ErrorKind::Exists, "make an object", name)),
            Err(e) if e.kind() == ErrorKind::NotFound => {
                self.vfs.rename(&self.caller, self.dir, &self.temporary, self.dir, name).await?;
                Ok(false)
            }
            Err(e) => Err(e),
        }
    }

    pub async fn discard(self) {
        self.remove_temporary().await;
    }

    async fn remove_temporary(&self) {
        if let Err(e) = self.vfs.remove(&self.caller, self.dir, &self.temporary).await
            && !is_gone(&e)
        {
            tracing::warn!("remove the temporary name {}: {e}", self.temporary);
        }
    }

    pub fn id(&self) -> FileId {
        self.id
    }

    /// The bytes that were given to the file system.
    pub fn length(&self) -> u64 {
        self.end - self.start
    }
}

impl ByteSink for StagedFile {
    async fn append(&mut self, data: Bytes) -> Result<()> {
        if self.gathered.is_empty() && data.len() >= PART {
            return self.write(data).await;
        }
        self.gathered.extend_from_slice(&data);
        if self.gathered.len() >= PART {
            let data = self.gathered.split().freeze();
            self.write(data).await?;
        }
        Ok(())
    }

    /// As durably as the junction's write policy has it.
    async fn store(&mut self) -> Result<()> {
        let data = self.gathered.split().freeze();
        self.write(data).await?;
        if self.length() == 0 {
            return Ok(());
        }
        let written = ByteRange::new(self.start, self.length());
        let out = self.vfs.commit(&self.caller, self.id, written).await?;
        self.check_verifier(out.verifier)
    }
}

/// The node of a published file. `None`: somebody has removed it since, or the origin does not answer for some
/// seconds. The object was there all the same, and the client is told so; its headers are not stored then.
pub async fn published_node(vfs: &Vfs, id: FileId) -> Option<Node> {
    let mut pauses = PUBLISHED_PAUSES_MS.into_iter().map(Duration::from_millis);
    loop {
        let error = match vfs.getattr_after_change(id).await {
            Ok(node) => return Some(node),
            Err(e) if is_gone(&e) => return None,
            Err(e) => e,
        };
        let Some(pause) = pauses.next() else {
            tracing::warn!("the headers of an object are not kept: look at what was published: {error}");
            return None;
        };
        tokio::time::sleep(pause).await;
    }
}
