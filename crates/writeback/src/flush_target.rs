//! [`FlushTarget`]: the border to the place that operations are flushed to. `vfs` implements it over an origin.
//!
//! All objects are named by our file ids, also those that were made here: the implementation keeps which of the
//! origin's objects a local id became, durably, before it answers `make` or `adopt`. Changes are durable when they are
//! answered, bytes when `commit` is. Errors are the origin's; an object or directory that is not there any more is
//! `Stale` or `NotFound`, and an outage is retryable. Every call has a deadline of the implementation's.

use async_trait::async_trait;
use bytes::Bytes;
use types::{Attr, ByteRange, FileId, Name, Result, Version};

use crate::conflict::Alarm;
use crate::operation::{Attributes, NewObject};
use crate::plan::{ContentChange, Pending};

/// An object at the origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetObject {
    /// Our local id, if the object was made here.
    pub id: FileId,
    pub version: Version,
    pub attr: Attr,
    /// The target of a symbolic link.
    pub target: Option<Bytes>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TargetPresence {
    Found(TargetObject),
    /// It was there, and is not any more.
    Gone,
    /// A local id of which the origin never had anything.
    Never,
}

/// What is kept durably of our own flushes of one object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OwnFlush {
    /// The version that `remember` kept last.
    pub version: Option<Version>,
    /// `begin` was called since: our flush is at it.
    pub begun: bool,
}

/// The origin's answer to a change of ours.
#[derive(Clone, Debug)]
pub struct FlushAnswer {
    /// The object just before the change, if the origin tells that: nothing but our change lies between.
    pub before: Option<Version>,
    /// The object just after the change, or later.
    pub after: TargetObject,
}

impl TargetObject {
    /// All that tells of its bytes is what it `was`. Where versions are made of times, only the ctime may be another one,
    /// as a change of names, mode or owner leaves it.
    pub fn has_bytes_of(&self, was: &TargetObject) -> bool {
        let is_of_times = |it: &TargetObject| it.version == Version::from_attr(&it.attr);
        let told = |it: &TargetObject| (it.attr.kind, it.attr.size, it.attr.mtime);
        self.version == was.version || is_of_times(self) && is_of_times(was) && told(self) == told(was)
    }
}

impl FlushAnswer {
    /// Of a change of names: nobody else changed the object since it `was` looked at.
    pub fn follows(&self, was: &TargetObject) -> bool {
        match self.before {
            Some(before) => before == was.version,
            None => self.after.has_bytes_of(was),
        }
    }
}

/// The outcome of a unit that is at the origin, or came to nothing there.
#[derive(Clone, Debug)]
pub struct Flushed {
    pub object: FileId,
    pub sequences: Vec<u64>,
    /// What became of its bytes: only these were written, and what clients wrote since is not in it.
    pub content: ContentChange,
    /// The object as our own doing left it: nothing that others did is in it. `None` also where bytes went to a
    /// conflict copy, were dropped or never travelled: what is there, the origin is to be asked.
    pub found: Option<TargetObject>,
    /// Nobody else wrote to it meanwhile, as far as the origin's answers tell. Otherwise `content` is there all the same,
    /// but of the rest of its bytes nothing is known any more.
    pub is_alone: bool,
    /// What a rename took the name from, if it has others.
    pub replaced: Option<TargetObject>,
}

/// Operations that never reach the origin because an operator gave them up.
#[derive(Clone, Debug)]
pub struct DroppedOperations {
    pub gone: Vec<Pending>,
    /// What else waits on their objects.
    pub kept: Vec<Pending>,
}

#[async_trait]
pub trait FlushTarget: Send + Sync + 'static {
    async fn look(&self, object: FileId) -> Result<TargetPresence>;

    /// An outage, unless what answers for the object's junction is the storage that it always was, at some moment after
    /// this call began. What is not there may only be taken for done or lost after that.
    async fn vouch(&self, object: FileId) -> Result<()>;

    /// `None`: the origin says that the name does not exist.
    async fn lookup(&self, dir: FileId, name: &Name) -> Result<Option<TargetObject>>;

    /// A new object; `Exists` if the name is taken. A file is created exclusively with [`crate::verifier_of`] its id,
    /// so that a repetition is answered with the same file. Whatever attributes: they are set afterwards.
    async fn make(&self, dir: FileId, name: &Name, id: FileId, what: &NewObject) -> Result<TargetObject>;

    /// From now on the local `id` is this object of the origin, which is as good.
    async fn adopt(&self, id: FileId, found: &TargetObject) -> Result<()>;

    async fn set(&self, object: FileId, set: &Attributes, size: Option<u64>) -> Result<FlushAnswer>;

    /// Writes bytes, which are durable when `commit` says so.
    async fn write(&self, object: FileId, offset: u64, data: Bytes) -> Result<FlushAnswer>;

    /// Bytes as the origin has them in this version, all within its size; `VersionChanged` if it has another one.
    async fn read(&self, object: FileId, version: Version, range: ByteRange) -> Result<Bytes>;

    /// These bytes are being written, and `flushed` will tell if they arrive: meanwhile there is time to prepare for it.
    /// `flushed` comes when both are done.
    async fn travels(&self, object: FileId, content: &ContentChange) {
        let _ = (object, content);
    }

    /// Gives the file these attributes with the next `commit`. `false`: they must be set after it.
    async fn set_at_commit(&self, object: FileId, set: &Attributes) -> Result<bool> {
        let _ = (object, set);
        Ok(false)
    }

    /// Makes written bytes durable. `None`: some of those written since the last commit may be lost, and all of them must be
    /// written again.
    async fn commit(&self, object: FileId) -> Result<Option<TargetObject>>;

    async fn link(&self, file: FileId, dir: FileId, name: &Name) -> Result<TargetObject>;

    async fn remove(&self, dir: FileId, name: &Name) -> Result<()>;

    async fn rmdir(&self, dir: FileId, name: &Name) -> Result<()>;

    async fn rename(&self, from: (FileId, &Name), to: (FileId, &Name), object: FileId)
    -> Result<FlushAnswer>;

    /// What has this name now is what an earlier `rename` of ours, which had no answer, put there of the object, or began to
    /// put there: `rename` again ends it. Of a target where a renamed object keeps its identity that is never said.
    async fn is_half_renamed(&self, object: FileId, dir: FileId, name: &Name) -> Result<bool> {
        let _ = (object, dir, name);
        Ok(false)
    }

    /// That, and it is known to be no more than a copy of what the object still is under its old name: it may go.
    async fn is_spare_copy(&self, object: FileId, dir: FileId, name: &Name) -> Result<bool> {
        let _ = (object, dir, name);
        Ok(false)
    }

    /// Makes `name`, for what clients wrote on `base` of the object: with the bytes of that version as far as they are
    /// known here, and zeros elsewhere. It appears complete and durable or not at all; one that is there is ours from
    /// an earlier attempt and is taken as it is.
    async fn copy_base(
        &self,
        object: FileId,
        base: Option<Version>,
        dir: FileId,
        name: &Name,
    ) -> Result<TargetObject>;

    /// Where the object is or was seen last: its name, and a directory that is there now. If its own is gone, the
    /// nearest one above that is not, at last the junction's root: what clients wrote must have a place to go.
    async fn place(&self, object: FileId) -> Result<Option<(FileId, Name)>>;

    /// The name in `dir` that the object has now, if it has one there.
    async fn name_in(&self, dir: FileId, object: FileId) -> Result<Option<Name>>;

    async fn own(&self, object: FileId) -> Result<OwnFlush>;

    /// With all that was on its way there when the object was looked at: a rename of ours may have given it another
    /// version, and what is known of that comes behind.
    async fn own_now(&self, object: FileId) -> Result<OwnFlush> {
        self.own(object).await
    }

    /// Durable: from now on our flush may change the object, until `remember`. The intent is what tells after a crash
    /// our own half-done work from another's.
    async fn begin(&self, object: FileId) -> Result<()>;

    /// Durable: our own flush left the object like this, and is not at it any more. `None`: others changed it too.
    async fn remember(&self, object: FileId, version: Option<Version>) -> Result<()>;

    /// Now is the time to show the origin's state instead of ours ([`crate::DirtyNames::flushed`]): the journal forgets the
    /// operations right after it.
    async fn flushed(&self, flushed: &Flushed);

    /// These operations are gone from the journal: what was shown before them is to be shown again.
    async fn given_up(&self, given_up: &DroppedOperations) {
        let _ = given_up;
    }

    /// What an operator must know, before it is done: once for each thing, after a crash in the same moment once more.
    fn alarm(&self, alarm: Alarm);
}
