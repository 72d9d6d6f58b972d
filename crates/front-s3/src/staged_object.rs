//! An object that is being written: a file under a hidden name in its directory, which takes the key's name when all
//! of it is stored. So a reader sees all of the old object or all of the new one, and nobody sees a part.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use types::{
    ByteRange, Caller, CreateHow, Error, ErrorKind, FileId, Name, Result, SetAttr, Stability, WriteVerifier,
};
use vfs::{Node, Vfs};

use crate::resolve::{is_gone, make_dirs, name_of};
use crate::unique_ids::UniqueIds;
use crate::write_fence::WriteFence;

/// Bytes given to the file system at once.
const PART: usize = 1 << 20;

/// Between looks at what was published.
const PUBLISHED_PAUSES_MS: [u64; 4] = [50, 200, 800, 3200];

/// In which way a draft takes its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PublishMode {
    Replace,
    /// `Exists` if the name is taken.
    IfAbsent,
}

pub struct StagedObject {
    vfs: Arc<Vfs>,
    caller: Caller,
    dir: FileId,
    temporary: Name,
    id: FileId,
    /// Where the first byte went, and where the next one goes.
    start: u64,
    end: u64,
    gathered: BytesMut,
    verifier: Option<WriteVerifier>,
    /// Absent: nobody else writes to the file, or ends it.
    fence: Option<Arc<WriteFence>>,
}

impl StagedObject {
    /// In the directory at the end of `dirs`, below `root`; missing ones are made.
    pub async fn begin(
        vfs: &Arc<Vfs>,
        caller: &Caller,
        (root, dirs): (FileId, &[Name]),
        ids: &UniqueIds,
    ) -> Result<StagedObject> {
        let mut is_first = true;
        loop {
            let dir = make_dirs(vfs, caller, root, dirs).await?;
            let temporary = name_of(format!(".forebay-put-{}", ids.next()));
            match StagedObject::create(vfs, caller, dir, temporary).await {
                // The directory went with its last object.
                Err(e) if is_gone(&e) && is_first => is_first = false,
                other => return other,
            }
        }
    }

    /// In `dir`, under this name of ours.
    pub async fn create(
        vfs: &Arc<Vfs>,
        caller: &Caller,
        dir: FileId,
        temporary: Name,
    ) -> Result<StagedObject> {
        let set = SetAttr { mode: Some(0o644), ..SetAttr::default() };
        let made = vfs.create(caller, dir, &temporary, CreateHow::Guarded, set).await?;
        Ok(StagedObject::at_offset(vfs, caller, (dir, temporary), made.node.id, 0))
    }

    /// Of a file that is there: what is appended goes to `start` and behind it.
    pub fn at_offset(
        vfs: &Arc<Vfs>,
        caller: &Caller,
        (dir, temporary): (FileId, Name),
        id: FileId,
        start: u64,
    ) -> StagedObject {
        StagedObject {
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

    /// After this end, it fails.
    pub fn fenced_by(self, fence: &Arc<WriteFence>) -> StagedObject {
        StagedObject { fence: Some(fence.clone()), ..self }
    }

    pub async fn append(&mut self, data: Bytes) -> Result<()> {
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

    /// All that was appended is stored, as the junction's policy has it.
    pub async fn store(&mut self) -> Result<Node> {
        let data = self.gathered.split().freeze();
        self.write(data).await?;
        if self.length() == 0 {
            return self.vfs.getattr(self.id).await;
        }
        let written = ByteRange::new(self.start, self.length());
        let out = self.vfs.commit(&self.caller, self.id, written).await?;
        self.check_verifier(out.verifier)?;
        Ok(out.node)
    }

    /// After `store`. What had the name is gone then. If it fails, so is the draft. `None`: see [`published`].
    pub async fn publish(self, name: &Name, how: PublishMode) -> Result<Option<Node>> {
        let (vfs, caller, dir) = (&self.vfs, &self.caller, self.dir);
        let named = match how {
            PublishMode::Replace => vfs.rename(caller, dir, &self.temporary, dir, name).await.map(|_| false),
            PublishMode::IfAbsent => match vfs.link(caller, self.id, dir, name).await {
                // Where there are no links: a look, and a hope. Our own requests come one after the other.
                Err(e) if e.kind() == ErrorKind::NotSupported => self.publish_if_unseen(name).await,
                other => other.map(|_| true),
            },
        };
        match named {
            // Before its state is noted: it is another one with a name less.
            Ok(true) => self.remove_temporary().await,
            Ok(false) => {}
            Err(e) => {
                self.discard().await;
                return Err(e);
            }
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

    pub fn directory(&self) -> FileId {
        self.dir
    }

    pub fn id(&self) -> FileId {
        self.id
    }

    /// Bytes that were appended and given to the file system.
    pub fn length(&self) -> u64 {
        self.end - self.start
    }
}

/// The state of what was published. `None`: somebody has removed it since, or the origin does not tell for some seconds. It
/// was there all the same, and its client is told so; what came with it is not kept then.
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
