//! Drafts: files that are made whole before they have a name. Their bytes go where those of every object go, to an
//! [`ObjectWriter`], with the key that the file is to have: so publishing is the request that makes the object, and
//! the store decides in it whether something may be replaced. Nothing is at the store before, but for the parts of an
//! upload that has begun.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::origin::{Draft, Identity, Object, Reference, Replacing, Written};
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use types::{Error, ErrorKind, Name, Result, SetAttr, Stability};

use crate::attributes;
use crate::change::REGULAR;
use crate::keys::{KeyKind, child};
use crate::object_writer::{ObjectWriter, WriteOutcome};
use crate::origin::ObjectOrigin;
use crate::store::{ObjectStat, Precondition};

/// The most bytes of drafts in memory: what does not fill a part yet. A write that finds no room waits.
const HELD_MAX: u64 = 256 << 20;
/// What room is counted in.
const UNIT: u64 = 1 << 10;
/// The longest wait for room. Drafts that stand still can take all of it, since a part that is not full cannot be sent.
const ROOM_PATIENCE: Duration = Duration::from_secs(20);

pub struct Drafts {
    drafts: Mutex<HashMap<Bytes, Arc<DraftObject>>>,
    /// Counts drafts.
    last: AtomicU64,
    /// In units of `UNIT`.
    room: Arc<Semaphore>,
}

impl Default for Drafts {
    fn default() -> Drafts {
        let room = Arc::new(Semaphore::new((HELD_MAX / UNIT) as usize));
        Drafts { drafts: Mutex::default(), last: AtomicU64::new(0), room }
    }
}

struct DraftObject {
    /// The file that it is to become.
    file: Reference,
    writer: Arc<ObjectWriter>,
    /// The room that its bytes take.
    room: Mutex<Option<OwnedSemaphorePermit>>,
    /// What it became.
    published: tokio::sync::Mutex<Option<Object>>,
}

impl DraftObject {
    /// Keeps the room of the bytes that are in memory now, `more` among it, and gives back the rest.
    fn keep_room(&self, more: Option<OwnedSemaphorePermit>) {
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        match (&mut *room, more) {
            (Some(room), Some(more)) => room.merge(more),
            (room, Some(more)) => *room = Some(more),
            (_, None) => {}
        }
        let held = self.writer.buffered_bytes().div_ceil(UNIT) as usize;
        let spare = room.as_mut().and_then(|room| room.split(room.num_permits().saturating_sub(held)));
        drop(spare);
    }
}

impl Drafts {
    fn drafts(&self) -> MutexGuard<'_, HashMap<Bytes, Arc<DraftObject>>> {
        self.drafts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, draft: DraftObject) -> Reference {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        // No path has a NUL.
        let reference = [&draft.file.0[..], format!("\0{number:x}").as_bytes()].concat();
        let reference = Reference(reference.into());
        self.drafts().insert(reference.0.clone(), Arc::new(draft));
        reference
    }

    /// Adds a draft of which nothing but its publication is missing.
    pub fn add_assembled(&self, file: Reference, writer: Arc<ObjectWriter>) -> Reference {
        self.add(DraftObject { file, writer, room: Mutex::default(), published: Default::default() })
    }

    fn find(&self, draft: &Reference) -> Option<Arc<DraftObject>> {
        self.drafts().get(&draft.0).cloned()
    }

    /// Room for so many bytes; one write that wants more than all of it takes all.
    async fn permit(&self, bytes: u64) -> Option<OwnedSemaphorePermit> {
        let units = bytes.div_ceil(UNIT).clamp(1, HELD_MAX / UNIT) as u32;
        let permit = self.room.clone().acquire_many_owned(units);
        tokio::time::timeout(ROOM_PATIENCE, permit).await.ok()?.ok()
    }
}

/// Whether this is the reference of a draft, published or given up, too.
pub fn is_draft(reference: &Reference) -> bool {
    reference.0.contains(&0)
}

impl ObjectOrigin {
    pub(crate) fn begin_draft(&self, dir: &Reference, name: &Name, set: &SetAttr) -> Result<Draft> {
        let file = child(&self.base, dir, name, KeyKind::File)?;
        let dialect = self.config.dialect;
        let (mark, times) = (attributes::write_mark(dialect)?, attributes::time_names(dialect));
        let metadata = self.metadata(REGULAR, set, None);
        let writer = ObjectWriter::draft(self.base.key(&file)?, metadata, mark, times);
        let identity = Identity(file.0.clone());
        let draft = DraftObject { file, writer, room: Mutex::default(), published: Default::default() };
        Ok(Draft { reference: self.drafts.add(draft), identity })
    }

    pub(crate) async fn write_draft(
        &self,
        reference: &Reference,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> Result<Written> {
        if stability != Stability::Unstable {
            let context = self.place(reference);
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "store a draft before it is published,",
                context,
            ));
        }
        let draft = self.drafts.find(reference).ok_or_else(|| self.gone("write to", reference))?;
        let Some(room) = self.drafts.permit(data.len() as u64).await else {
            let context = format!("{}: too much is being written", self.place(&draft.file));
            return Err(Error::new(ErrorKind::Busy, "write to", context));
        };
        let outcome = draft.writer.write(&*self.store, &self.pacer, offset, &data).await;
        draft.keep_room(Some(room));
        match outcome? {
            WriteOutcome::Taken => {
                let verifier = self.verifier(reference);
                Ok(Written { stability, verifier, before: None, after: None, resent: false })
            }
            WriteOutcome::Behind => {
                let context = format!("{}: its part is stored", self.place(&draft.file));
                Err(Error::new(ErrorKind::InvalidArgument, "write to a draft twice,", context))
            }
            WriteOutcome::Over => Err(self.gone("write to", reference)),
        }
    }

    /// The caller holds the lock of the path.
    pub(crate) async fn publish_draft(
        &self,
        reference: &Reference,
        (dir, name): (&Reference, &Name),
        over: Replacing,
    ) -> Result<Object> {
        let draft = self.drafts.find(reference).ok_or_else(|| self.gone("publish", reference))?;
        let mut published = draft.published.lock().await;
        if let Some(object) = &*published {
            return Ok(object.clone());
        }
        let file = child(&self.base, dir, name, KeyKind::File)?;
        if file != draft.file {
            return Err(self.being_renamed("publish", dir));
        }
        let directory = child(&self.base, dir, name, KeyKind::Directory)?;
        if self.stat_directory(&directory).await?.is_some() {
            return Err(Error::new(ErrorKind::IsADirectory, "publish", self.place(&file)));
        }
        let replaced;
        let condition = match over {
            Replacing::Anything => Precondition::Always,
            Replacing::Nothing => Precondition::Absent,
            Replacing::Version(version) => {
                replaced = self.stat_in(&file, version).await?;
                Precondition::Unchanged(&replaced.etag)
            }
        };
        let moment = self.stat_cache.change_count(&file.0);
        let changed = |stat: Option<&ObjectStat>| self.stat_cache.changed_to(&file.0, moment, stat);
        let completed = draft.writer.complete(&self.store, &self.pacer, condition, &changed).await;
        draft.keep_room(None);
        let made = completed.map_err(|e| match (e.kind(), over) {
            (ErrorKind::VersionChanged, Replacing::Nothing) => {
                Error::new(ErrorKind::Exists, "publish", self.place(&file)).with_source(e)
            }
            _ => e,
        })?;
        // It was given up.
        let made = made.ok_or_else(|| self.gone("publish", reference))?;
        let object = self.completed_object(&file, &draft.writer, Some(made)).await?;
        *published = Some(object.clone());
        Ok(object)
    }

    /// The object of this version.
    async fn stat_in(&self, file: &Reference, version: types::Version) -> Result<Arc<ObjectStat>> {
        let is_it = |stat: &Arc<ObjectStat>| attributes::version(&stat.etag, stat.size) == version;
        if let Some(cached) = self.stat_cache.get(&file.0).filter(is_it) {
            return Ok(cached);
        }
        let now = self.stat_object(file).await?.filter(is_it);
        now.ok_or_else(|| Error::new(ErrorKind::VersionChanged, "publish", self.place(file)))
    }

    pub(crate) async fn discard_draft(&self, reference: &Reference) {
        let draft = self.drafts.drafts().remove(&reference.0);
        if let Some(draft) = draft
            && draft.published.lock().await.is_none()
        {
            draft.writer.abandon(&*self.store, || ()).await;
        }
    }
}
