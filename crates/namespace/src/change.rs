//! Changes of names and attributes: carried out at the origin, then taken in as they were told, so that what was done
//! is known at once and nobody has to ask. A handle to what was made is durable before the call returns.

use std::collections::HashMap;
use std::hash::Hasher as _;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use origin::{Around, Change, Object, Reference, RenameLeftover, Replacing};
use siphasher::sip::SipHasher13;
use tokio::sync::MutexGuard;
use types::{CreateHow, Error, ErrorKind, FileId, Name, Result, SetAttr, SetXattr, Timestamp, XattrName};

use crate::changed::{AlteredObject, MadeObject, Moved, New, Old};
use crate::heal::{MOVES_MAX, keeps_moving};
use crate::node::KnownNode;
use crate::observe::DETACHED;
use crate::store::NoteChange;
use crate::taken::{ChangeAnswer, NoteRenewed, Renamed};
use crate::{Found, Grafted, Namespace};

/// Two names that share a lock wait for each other for a round trip; with a hundred changes under way this happens to
/// one in forty.
pub(crate) const NAME_LOCKS: usize = 4096;

/// How often a change of unknown outcome is sent again while its names say that it was not made.
const AGAIN_MAX: usize = 2;

/// After this time a request that was sent before its connection was lost has been carried out, if it ever will be.
const STILL_ON_ITS_WAY: Duration = Duration::from_millis(500);

/// A rename of an object that is in flight: until this is dropped, the object may be under either name.
struct Moving<'a> {
    namespace: &'a Namespace,
    id: FileId,
    _ends: tokio::sync::watch::Sender<()>,
}

impl<'a> Moving<'a> {
    fn begin(namespace: &'a Namespace, id: FileId) -> Moving<'a> {
        let (ends, end) = tokio::sync::watch::channel(());
        namespace.moving().insert(id, end);
        Moving { namespace, id, _ends: ends }
    }
}

impl Drop for Moving<'_> {
    fn drop(&mut self) {
        self.namespace.moving().remove(&self.id);
    }
}

impl Namespace {
    pub(crate) fn moving(
        &self,
    ) -> std::sync::MutexGuard<'_, HashMap<FileId, tokio::sync::watch::Receiver<()>>> {
        self.moving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub async fn make(self: &Arc<Self>, dir: FileId, name: &Name, new: &New) -> Result<MadeObject> {
        self.make_as(dir, name, new, None).await
    }

    /// As `make`, under an id that clients know already; `known_as` also says what becomes of the object's note.
    pub async fn make_as(
        self: &Arc<Self>,
        dir: FileId,
        name: &Name,
        new: &New,
        known_as: Option<(FileId, NoteChange)>,
    ) -> Result<MadeObject> {
        let junction = &*self.junction(self.load(dir)?.junction())?;
        let _alone = self.lock_names(&[(dir, name)]).await;
        let ids: &[FileId] = match new {
            New::Link { file } => &[dir, *file],
            _ => &[dir],
        };
        let build = || {
            let (dir, name) = (self.load(dir)?.record.reference.clone(), name.clone());
            Ok(match new.clone() {
                New::File { how, set } => Change::Create { dir, name, how, set },
                New::Directory { set } => Change::Mkdir { dir, name, set },
                New::Symlink { target, set } => Change::Symlink { dir, name, target, set },
                New::Special { node, set } => Change::Mknod { dir, name, node, set },
                New::Link { file } => {
                    Change::Link { file: self.load(file)?.record.reference.clone(), dir, name }
                }
            })
        };
        let unmade = || Ok(self.child_of(dir, name)?.is_none());
        let known = self.child_of(dir, name)?;
        let answer = self.change_names(junction, ids, &[(dir, name)], build, unmade).await;
        // What was there under the name, or had this id before, may have become what was made.
        let told = answer.as_ref().ok().and_then(|answer| answer.told.object.as_ref());
        let made = told.map(|object| self.id_of(junction.id, &object.identity));
        self.announce_outcome(&answer, ids.iter().copied().chain(known).chain(made));
        let answer = answer?;
        let object = match (&answer.told.object, new) {
            (Some(object), _) => object.clone(),
            (None, New::Link { file }) => self.ask_origin(junction, *file).await?,
            (None, _) => return Err(no_object(name)),
        };
        let node = self.take_in_new(junction, dir, name, (new, known_as), &object, &answer).await?;
        Ok(MadeObject { found: Found::Node(node), dir: answer.told.dir })
    }

    /// Makes a draft of the origin the file of this name.
    pub async fn publish(
        self: &Arc<Self>,
        dir: FileId,
        name: &Name,
        draft: &Reference,
        over: Replacing,
    ) -> Result<MadeObject> {
        let junction = &*self.junction(self.load(dir)?.junction())?;
        let _alone = self.lock_names(&[(dir, name)]).await;
        let build = || {
            let (dir, draft) = (self.load(dir)?.record.reference.clone(), draft.clone());
            Ok(Change::Publish { draft, dir, name: name.clone(), over })
        };
        let known = self.child_of(dir, name)?;
        // The origin knows by itself whether it was made.
        let answer = self.change_names(junction, &[dir], &[(dir, name)], build, || Ok(false)).await;
        let told = answer.as_ref().ok().and_then(|answer| answer.told.object.as_ref());
        let made = told.map(|object| self.id_of(junction.id, &object.identity));
        self.announce_outcome(&answer, [dir].into_iter().chain(known).chain(made));
        let answer = match answer {
            // It is asked who has the name.
            Err(e) if e.is_retryable() || e.may_have_happened() || e.kind() == ErrorKind::VersionChanged => {
                self.forget_names(junction, dir, name).await;
                return Err(e);
            }
            answer => answer?,
        };
        let object = answer.told.object.clone().ok_or_else(|| no_object(name))?;
        let new = New::File { how: CreateHow::Unchecked, set: SetAttr::default() };
        let node = self.take_in_new(junction, dir, name, (&new, None), &object, &answer).await?;
        Ok(MadeObject { found: Found::Node(node), dir: answer.told.dir })
    }

    pub async fn remove(self: &Arc<Self>, dir: FileId, name: &Name, old: Old) -> Result<Around> {
        let junction = &*self.junction(self.load(dir)?.junction())?;
        let _alone = self.lock_names(&[(dir, name)]).await;
        let build = || {
            let (dir, name) = (self.load(dir)?.record.reference.clone(), name.clone());
            Ok(match old {
                Old::File => Change::Remove { dir, name },
                Old::Directory => Change::Rmdir { dir, name },
            })
        };
        let known = self.child_of(dir, name)?;
        let unmade = || Ok(known.is_some() && self.child_of(dir, name)? == known);
        let answer = self.change_names(junction, &[dir], &[(dir, name)], build, unmade).await;
        self.announce_outcome(&answer, [dir].into_iter().chain(known));
        let answer = answer?;
        self.take_in_removed(junction, dir, name, &answer).await?;
        Ok(answer.told.dir)
    }

    /// Renames within one junction: both directories belong to it.
    pub async fn rename(
        self: &Arc<Self>,
        from_dir: FileId,
        from: &Name,
        to_dir: FileId,
        to: &Name,
    ) -> Result<Moved> {
        self.rename_noting((from_dir, from), (to_dir, to), (None, None)).await
    }

    /// As `rename`, for a caller that knows the `object`: its old name need not be known here any more. The notes of files
    /// that get another version by the rename are changed in the same commit as their records.
    pub async fn rename_noting(
        self: &Arc<Self>,
        (from_dir, from): (FileId, &Name),
        (to_dir, to): (FileId, &Name),
        (object, note): (Option<FileId>, Option<&NoteRenewed<'_>>),
    ) -> Result<Moved> {
        let junction = &*self.junction(self.load(from_dir)?.junction())?;
        let places = [(from_dir, from), (to_dir, to)];
        let _alone = self.lock_names(&places).await;
        let moved = self.child_of(from_dir, from)?.or(object);
        let _moving = moved.map(|moved| Moving::begin(self, moved));
        let build = || {
            let reference = |dir| Ok::<_, Error>(self.load(dir)?.record.reference.clone());
            let (from_dir, to_dir) = (reference(from_dir)?, reference(to_dir)?);
            Ok(Change::Rename { from_dir, from: from.clone(), to_dir, to: to.clone(), identity: None })
        };
        let replaced = self.child_of(to_dir, to)?;
        let is_place = junction.rules.origin.traits().identity_is_place;
        let unmade = || {
            let (at_from, at_to) = (self.child_of(from_dir, from)?, self.child_of(to_dir, to)?);
            // A caller that names the object decides anew what may be replaced.
            let may_replace = object.is_none() || at_to.is_none() || at_to == replaced && !is_place;
            Ok(moved.is_some() && at_from == moved && at_to != moved && may_replace)
        };
        let answer = self.change_names(junction, &[from_dir, to_dir], &places, build, unmade).await;
        self.announce_outcome(&answer, [from_dir, to_dir].into_iter().chain(moved).chain(replaced));
        match answer {
            Ok(answer) => {
                moved.iter().for_each(|moved| drop(self.astray().forget(*moved)));
                let renamed = Renamed { from_dir, from, to_dir, to, moved, note };
                let renewed = self.take_in_renamed(junction, &renamed, &answer).await?;
                Ok(Moved { from_dir: answer.told.dir, to_dir: answer.told.to_dir, renewed })
            }
            Err(error) => {
                // Both names have been looked at: it was made if the one has what the other had.
                let there = moved.is_some() && self.child_of(to_dir, to)? == moved;
                let done = error.kind() == ErrorKind::OutcomeUnknown && there;
                if done && self.child_of(from_dir, from)?.is_none() {
                    moved.iter().for_each(|moved| drop(self.astray().forget(*moved)));
                    return Ok(Moved::default());
                }
                if let Some(moved) = moved.filter(|_| error.is_retryable() || error.may_have_happened()) {
                    self.may_be_at(moved, to_dir, to);
                }
                Err(error)
            }
        }
    }

    /// Whether the object under this name was put there, in part or as a whole, by a rename of `id` of ours that had no
    /// answer; the same rename, sent again, completes it. Where an object keeps its identity, the identity tells that, and
    /// the answer is always `Foreign`.
    pub async fn left_by_rename(
        self: &Arc<Self>,
        id: FileId,
        dir: FileId,
        name: &Name,
    ) -> Result<RenameLeftover> {
        // An object that is known to be gone was not renamed by half.
        let old = match self.load(id) {
            Err(e) if e.kind() == ErrorKind::Stale => return Ok(RenameLeftover::Foreign),
            old => old?,
        };
        let junction = self.junction(old.junction())?;
        if !junction.rules.origin.traits().identity_is_place {
            return Ok(RenameLeftover::Foreign);
        }
        let is_another = |there: &Arc<KnownNode>| there.id != id && there.attr().kind == old.attr().kind;
        let Some(there) = self.lookup_now(dir, name).await?.filter(is_another) else {
            return Ok(RenameLeftover::Foreign);
        };
        let (from, there) = (&old.record.reference, &there.record.reference);
        let left = junction.rules.origin.left_by_rename(from, old.version(), there).await;
        junction.note(left, self.clock.now_ms())
    }

    pub async fn set(
        self: &Arc<Self>,
        id: FileId,
        set: SetAttr,
        guard: Option<Timestamp>,
    ) -> Result<AlteredObject> {
        let build = || Ok(Change::Set { object: self.load(id)?.record.reference.clone(), set, guard });
        let altered = self.alter(id, build).await;
        // The cached bytes may be of the state before.
        if set.size.is_some()
            && altered.as_ref().is_err_and(Error::may_have_happened)
            && let Ok(node) = self.load(id)
        {
            node.doubt();
        }
        altered
    }

    pub async fn set_xattr(
        self: &Arc<Self>,
        id: FileId,
        name: &XattrName,
        set: &SetXattr,
    ) -> Result<AlteredObject> {
        let build = || {
            let object = self.load(id)?.record.reference.clone();
            Ok(Change::SetXattr { object, name: name.clone(), set: set.clone() })
        };
        self.alter(id, build).await
    }

    async fn alter(
        self: &Arc<Self>,
        id: FileId,
        build: impl Fn() -> Result<Change>,
    ) -> Result<AlteredObject> {
        let altered = self.alter_known(id, build).await;
        self.announce_outcome(&altered, [id]);
        if altered.as_ref().is_err_and(|e| e.kind() == ErrorKind::OutcomeUnknown) {
            if let Ok(node) = self.load(id) {
                node.doubt();
            }
            let _ = self.refresh_changed(id).await;
        }
        altered
    }

    async fn alter_known(
        self: &Arc<Self>,
        id: FileId,
        build: impl Fn() -> Result<Change>,
    ) -> Result<AlteredObject> {
        let junction = &*self.junction(self.load(id)?.junction())?;
        let ChangeAnswer { asked, told } = self.carry_out(junction, &[id], build).await?;
        let object = match told.object {
            Some(object) => object,
            None => self.ask_origin(junction, id).await?,
        };
        let before = told.before.map(|before| before.version);
        let known = self.load(id)?;
        let known = (before == Some(known.version())).then_some(known);
        let wrote = self.wrote(id, asked, before, &object).await?;
        Ok(AlteredObject { found: wrote.found, told: object, before: told.before, known })
    }

    /// The object that has this name, as far as is known without asking the origin.
    pub fn child_of(&self, dir: FileId, name: &Name) -> Result<Option<FileId>> {
        Ok(self.store.find_entry(dir, name.as_bytes())?.and_then(|entry| entry.child))
    }

    /// Locks on names: changes of one name are made one after the other, so their answers are taken in as the origin made
    /// them.
    async fn lock_names(&self, places: &[(FileId, &Name)]) -> Vec<MutexGuard<'_, ()>> {
        let stripe = |(dir, name): &(FileId, &Name)| {
            let mut hasher = SipHasher13::new();
            hasher.write(&dir.0);
            hasher.write(name.as_bytes());
            usize::try_from(hasher.finish() % NAME_LOCKS as u64).unwrap_or(0)
        };
        let mut stripes: Vec<_> = places.iter().map(stripe).collect();
        stripes.sort_unstable();
        stripes.dedup();
        let mut guards = Vec::with_capacity(stripes.len());
        for stripe in stripes {
            guards.push(self.name_locks[stripe].lock().await);
        }
        guards
    }

    /// A change of unknown outcome is sent again where the names say that it was not made. (A first request that the second
    /// one overtakes finds nothing to do, or the name taken.)
    async fn change_names(
        self: &Arc<Self>,
        junction: &Grafted,
        ids: &[FileId],
        places: &[(FileId, &Name)],
        build: impl Fn() -> Result<Change>,
        unmade: impl Fn() -> Result<bool>,
    ) -> Result<ChangeAnswer> {
        // While the database takes nothing, no client could be given a handle that lasts: nothing is made then.
        self.store.usable()?;
        let mut again = 0;
        loop {
            let error = match self.carry_out(junction, ids, &build).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let (error, looked) = self.doubt(junction, error, places).await;
            if !looked || again == AGAIN_MAX || !unmade()? {
                // The refusal of a second request may be the effect of the first.
                let own = again > 0 && matches!(error.kind(), ErrorKind::Exists | ErrorKind::NotFound);
                return Err(if own {
                    Error::doubtful("change", junction.rules.path.as_str(), error)
                } else {
                    error
                });
            }
            again += 1;
        }
    }

    /// Sends the change with the current references of these objects. A stale one is re-resolved, again if it moves meanwhile.
    async fn carry_out(
        self: &Arc<Self>,
        junction: &Grafted,
        ids: &[FileId],
        build: impl Fn() -> Result<Change>,
    ) -> Result<ChangeAnswer> {
        let ask = async |change: Change| {
            let asked = self.asking();
            let told = junction.note(junction.rules.origin.change(&change).await, self.clock.now_ms())?;
            Ok::<_, Error>(ChangeAnswer { asked, told })
        };
        for _ in 0..MOVES_MAX {
            match ask(build()?).await {
                Err(e) if e.kind() == ErrorKind::Stale => {
                    for id in ids {
                        self.heal(*id).await?;
                    }
                }
                other => return other,
            }
        }
        Err(keeps_moving(ids.first().copied().unwrap_or(DETACHED)))
    }

    async fn ask_origin(&self, junction: &Grafted, id: FileId) -> Result<Object> {
        let node = self.load(id)?;
        let answer = junction.rules.origin.getattr(&node.record.reference).await;
        junction.note(answer, self.clock.now_ms()).map_err(|e| Error::doubtful("look after a change", id, e))
    }

    /// Looks after a change that failed. If it may have been made, or its failure contradicts what is known of the names,
    /// that knowledge is dropped; if the outcome is unknown, the names are looked up before the answer is given. Also returns
    /// whether these look-ups succeeded.
    async fn doubt(
        self: &Arc<Self>,
        junction: &Grafted,
        error: Error,
        places: &[(FileId, &Name)],
    ) -> (Error, bool) {
        let unknown = error.kind() == ErrorKind::OutcomeUnknown;
        let mut looked = unknown;
        if unknown {
            tokio::time::sleep(STILL_ON_ITS_WAY).await;
        }
        for (dir, name) in places {
            let present = self.child_of(*dir, name).is_ok_and(|child| child.is_some());
            let contradicts = match error.kind() {
                ErrorKind::Exists => !present,
                ErrorKind::NotFound => present,
                _ => false,
            };
            if !unknown && !contradicts {
                continue;
            }
            self.forget_names(junction, *dir, name).await;
            if unknown && let Err(e) = self.lookup_now(*dir, name).await {
                tracing::debug!(%dir, %name, "cannot look after a change of unknown outcome: {e}");
                looked = false;
            }
        }
        (error, looked)
    }

    /// Drops what is known of the directory's names: the origin is asked for each of them again.
    async fn forget_names(&self, junction: &Grafted, dir: FileId, name: &Name) {
        let name = Bytes::copy_from_slice(name.as_bytes());
        if let Ok(node) = self.load(dir) {
            node.doubt();
        }
        let _order = self.in_order(junction.id).await;
        self.ours().touch(dir, &name);
        if let Ok(name) = Name::new(name) {
            self.singles.remove(&(dir, name));
        }
        let dropped = self.drop_listing(dir);
        if let Err(e) = self.store.enqueue(vec![dropped]).await {
            tracing::warn!(%dir, "cannot forget its listing: {e}");
        }
    }
}

fn no_object(name: &Name) -> Error {
    Error::new(ErrorKind::Corrupt, "take what was made as", name)
}
