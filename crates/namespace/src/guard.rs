//! Whether the storage that answers is the one that the junction was given.
//!
//! Lies around each junction's origin. What the origin is ([`OriginIdentity`]) is kept with the junction when it is
//! reached first, and compared at start, after every outage, before changes, and when something that may have been there
//! is said not to be. Another identity, and a root that has no names any more although some are known in it, are an
//! outage ([`OutageReason::Replaced`]): no call gets through, so nothing is believed and nothing is changed, until the
//! right one is back or the operator accepts what is there.
//!
//! Where the identity also changes with things that leave the storage the same ([`OriginIdentity::is_lasting`]), files that
//! are known decide: the storage that has one of them as it was is the same.
//!
//! An answer is checked after it came: at that moment the storage is the right one, so it was when it answered. The cost
//! is one question for all who wait at the same time, and none for bytes, which are asked for by their version. A change is
//! preceded by a look of the last seconds. It, and what is told of names and attributes, is followed by one if the storage
//! may have been exchanged meanwhile, which shows by connections that answer for the first time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use origin::{
    Change, Changed, DirCursor, DirPage, Layer, Object, Origin, OriginAnswer, OriginCall, OriginIdentity,
    Reference, Sending,
};
use tokio::time::Instant;
use tracing::{info, warn};
use types::{Error, ErrorKind, FileId, JunctionId, Name, OutageReason, Result};

use crate::record::Record;
use crate::store::Store;

/// How long a check of the identity is as good as a new one.
const GOOD_FOR: Duration = Duration::from_secs(1);
/// How long a check is good enough while the next one is in flight: a change between others does not wait for it.
const WILL_DO_FOR: Duration = Duration::from_secs(3);
/// How often another storage is checked again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Known files that are looked at where the identity alone is no proof.
const WITNESSES: usize = 16;
/// How many directories they are looked for in, and among how many names of each.
const WITNESS_DIRS_MAX: usize = 64;
const WITNESS_NAMES_MAX: usize = 64;

/// The most names that are remembered as being removed by us: more than changes of ours wait for the database at a time.
const LEAVING_MAX: usize = 256;

/// The first byte of a kept identity.
const LAYOUT: u8 = 1;

pub struct OriginGuard(Arc<GuardShared>);

struct GuardShared {
    inner: Arc<dyn Origin>,
    store: Arc<Store>,
    /// Path of the junction.
    path: String,
    id: JunctionId,
    root: FileId,
    standing: Mutex<Standing>,
    /// A counter of checks and of requests for one, which orders them.
    turns: AtomicU64,
    /// Held during a check.
    looking: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Standing {
    known: KeptIdentity,
    /// The last check.
    last: Option<IdentityCheck>,
    /// The reference of the root when it was last seen.
    root: Option<Reference>,
    /// Names in the root that changes of ours remove, until the database has forgotten them: their absence at the origin is no
    /// sign of another storage.
    leaving: VecDeque<Name>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum KeptIdentity {
    /// The origin was never reached.
    #[default]
    Nothing,
    Identity(OriginIdentity),
    /// The kept identity cannot be read: no storage is known to be the right one.
    Unreadable,
}

#[derive(Clone)]
struct IdentityCheck {
    began: u64,
    ended: u64,
    at: Instant,
    /// The number of connections that had answered before the check began.
    connections: u64,
    result: Result<()>,
}

/// How recent a check must be.
#[derive(Clone, Copy)]
enum Wanted {
    /// Any check since the last outage.
    SinceOutage,
    /// A check of the last second or so.
    Recent,
    /// A check that begins after this question.
    New,
}

impl OriginGuard {
    pub fn new(
        inner: Arc<dyn Origin>,
        store: Arc<Store>,
        path: &str,
        id: JunctionId,
        root: FileId,
    ) -> Result<Arc<OriginGuard>> {
        let known = store.origin_of(id).map_or(KeptIdentity::Nothing, |bytes| KeptIdentity::decode(&bytes));
        let reference = store.node(root, None)?.map(|record| record.reference);
        let standing = Mutex::new(Standing { known, root: reference, ..Standing::default() });
        let (turns, looking) = (AtomicU64::new(0), tokio::sync::Mutex::default());
        let path = path.to_owned();
        Ok(Arc::new(OriginGuard(Arc::new(GuardShared {
            inner,
            store,
            path,
            id,
            root,
            standing,
            turns,
            looking,
        }))))
    }

    /// Fails with an outage unless the storage is the right one at some moment after this call began.
    pub async fn vouch(&self) -> Result<()> {
        self.0.look(Wanted::New).await
    }

    /// The same for the answers so far, if some may have come from another storage. Costs nothing while no new connection
    /// answers.
    pub async fn vouch_for_answers(&self) -> Result<()> {
        let connections = self.0.inner.connections();
        let proves = |last: &IdentityCheck| last.result.is_ok() && last.connections == connections;
        let is_proven = self.0.standing().last.as_ref().is_some_and(proves);
        if is_proven { Ok(()) } else { self.vouch().await }
    }

    /// Makes the storage that is there now the right one, durably. The caller drops what was known of the one before; an empty
    /// root is an outage until that has happened.
    pub async fn accept(&self) -> Result<OriginIdentity> {
        let shared = &self.0;
        let _looking = shared.looking.lock().await;
        let found = shared.inner.identity().await?;
        shared.keep(&found).await?;
        let mut standing = shared.standing();
        standing.known = KeptIdentity::Identity(found.clone());
        (standing.last, standing.root) = (None, None);
        Ok(found)
    }

    /// Makes earlier checks count no more.
    pub fn look_again(&self) {
        self.0.standing().last = None;
    }

    /// Checks an answer about names and attributes. Over a connection that answered for the first time since the last check,
    /// a success may be another storage's, too.
    async fn told<T>(&self, result: Result<T>, absent: Wanted) -> Result<T> {
        let is_answer = match &result {
            Ok(_) => true,
            Err(error) => matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Stale),
        };
        let told = self.heard(result, absent).await;
        if is_answer {
            self.vouch_for_answers().await?;
        }
        told
    }

    /// Checks an answer in which an absence is no proof yet.
    async fn heard<T>(&self, result: Result<T>, absent: Wanted) -> Result<T> {
        let Err(error) = &result else { return result };
        let wanted = match error.kind() {
            ErrorKind::Stale => Wanted::New,
            ErrorKind::NotFound => absent,
            _ => {
                if error.outage_reason().is_some() && error.kind() != ErrorKind::Busy {
                    // The finding that it is another storage holds until the next check.
                    let is_known = |last: &IdentityCheck| last.result.as_ref().is_err_and(is_replaced);
                    let mut standing = self.0.standing();
                    standing.last = standing.last.take().filter(is_known);
                }
                return result;
            }
        };
        self.0.look(wanted).await?;
        result
    }

    /// Checks the answer to a change. Over a connection that answered for the first time since the last check it may have come
    /// from another storage.
    async fn made<T>(&self, result: Result<T>) -> Result<T> {
        let made = self.heard(result, Wanted::New).await?;
        self.vouch_for_answers().await?;
        Ok(made)
    }

    async fn ready(&self, wanted: Wanted) -> Result<&dyn Origin> {
        self.0.look(wanted).await?;
        Ok(self.0.inner.as_ref())
    }
}

impl GuardShared {
    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn turn(&self) -> u64 {
        self.turns.fetch_add(1, Ordering::SeqCst) + 1
    }

    async fn look(self: &Arc<Self>, wanted: Wanted) -> Result<()> {
        match (&self.standing().last, wanted) {
            (Some(IdentityCheck { result: Ok(()), .. }), Wanted::SinceOutage) => return Ok(()),
            (Some(IdentityCheck { result: Ok(()), at, .. }), Wanted::Recent) if at.elapsed() < GOOD_FOR => {
                return Ok(());
            }
            (Some(IdentityCheck { result: Ok(()), at, .. }), Wanted::Recent)
                if at.elapsed() < WILL_DO_FOR =>
            {
                self.look_behind();
                return Ok(());
            }
            // It is another storage: one caller checks again now and then, and the others fail at once.
            (Some(IdentityCheck { result: Err(e), at, .. }), _)
                if is_replaced(e) && at.elapsed() < AGAIN_AFTER =>
            {
                return Err(e.clone());
            }
            _ => {}
        }
        let asked = self.turn();
        let _looking = self.looking.lock().await;
        let shared = self.standing().last.clone().filter(|last| match wanted {
            Wanted::New => last.began > asked,
            Wanted::SinceOutage | Wanted::Recent => last.ended > asked,
        });
        match shared {
            Some(last) => last.result,
            None => self.look_now().await,
        }
    }

    /// Checks in the background, for the callers that come next.
    fn look_behind(self: &Arc<Self>) {
        let shared = self.clone();
        tokio::spawn(async move {
            let Ok(_looking) = shared.looking.try_lock() else { return };
            let _ = shared.look_now().await; // whoever comes next is told
        });
    }

    async fn look_now(&self) -> Result<()> {
        let (began, at, connections) = (self.turn(), Instant::now(), self.inner.connections());
        let result = self.compare().await;
        let mut standing = self.standing();
        let was_replaced =
            standing.last.as_ref().is_some_and(|last| last.result.as_ref().is_err_and(is_replaced));
        match &result {
            Ok(()) if was_replaced => info!(junction = %self.path, "the origin is the one that it was again"),
            Err(e) if is_replaced(e) && !was_replaced => {
                warn!(junction = %self.path, "ALARM origin replaced: {e}")
            }
            _ => {}
        }
        standing.last =
            Some(IdentityCheck { began, ended: self.turn(), at, connections, result: result.clone() });
        result
    }

    async fn compare(&self) -> Result<()> {
        let unknown = |e: Error| match e.outage_reason() {
            Some(_) => e,
            // Whatever the error is: the storage is unknown.
            None => Error::new(ErrorKind::Unavailable, "identify", self.inner.url()).with_source(e),
        };
        let found = self.inner.identity().await.map_err(unknown)?;
        let known = self.standing().known.clone();
        match &known {
            // The origin tells more than it did before.
            KeptIdentity::Identity(expected) if expected.bytes.is_empty() && !found.bytes.is_empty() => {
                self.keep(&found).await?;
                self.standing().known = KeptIdentity::Identity(found.clone());
            }
            KeptIdentity::Identity(expected) if expected.may_be(&found) => {}
            KeptIdentity::Identity(_)
                if !found.is_lasting && self.has_known_files().await.map_err(unknown)? =>
            {
                self.keep(&found).await?;
                self.standing().known = KeptIdentity::Identity(found.clone());
            }
            KeptIdentity::Nothing => {
                self.keep(&found).await?;
                self.standing().known = KeptIdentity::Identity(found.clone());
            }
            KeptIdentity::Identity(OriginIdentity { shown, .. }) => {
                return Err(self.replaced(shown, &found.shown));
            }
            KeptIdentity::Unreadable => {
                return Err(self.replaced("something that cannot be read here any more", &found.shown));
            }
        }
        if self.had_names()? && self.inner.is_empty().await.map_err(unknown)? && self.had_names()? {
            return Err(self.replaced("names in its root", &format!("none, in {}", found.shown)));
        }
        Ok(())
    }

    fn replaced(&self, expected: &str, found: &str) -> Error {
        let context = format!(
            "{}: origin replaced: expected {expected}; found {found}. Bring back the right one, or have this one with: \
             forebay junction accept {}",
            self.inner.url(),
            self.path
        );
        Error::outage(OutageReason::Replaced, "use", context)
    }

    /// Whether at least one of a few known files is there unchanged. False if none is known: then nothing proves that it is
    /// the same storage.
    async fn has_known_files(&self) -> Result<bool> {
        let mut asking = tokio::task::JoinSet::new();
        for known in self.known_files()? {
            let inner = self.inner.clone();
            asking.spawn(async move {
                match inner.getattr(&known.reference).await {
                    Ok(found) => Ok(found.version == known.version && found.attr.is_file()),
                    Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::Stale) => Ok(false),
                    Err(e) => Err(e),
                }
            });
        }
        let mut failed = None;
        while let Some(Ok(answer)) = asking.join_next().await {
            match answer {
                Ok(true) => return Ok(true),
                Ok(false) => {}
                Err(e) => failed = Some(e),
            }
        }
        failed.map_or(Ok(false), Err)
    }

    /// A few known files, found breadth first.
    fn known_files(&self) -> Result<Vec<Record>> {
        let (mut files, mut dirs) = (Vec::new(), VecDeque::from([self.root]));
        for _ in 0..WITNESS_DIRS_MAX {
            let Some(dir) = dirs.pop_front() else { break };
            for entry in self.store.entries_after(dir, 0, WITNESS_NAMES_MAX)? {
                let Some(id) = entry.child else { continue };
                match self.store.node(id, None)? {
                    Some(record) if record.attr.is_dir() => dirs.push_back(id),
                    Some(record) if record.attr.is_file() => files.push(record),
                    _ => {}
                }
                if files.len() == WITNESSES {
                    return Ok(files);
                }
            }
        }
        Ok(files)
    }

    /// Whether so many names are known in the root that they cannot have gone one by one without being noticed. A last file
    /// can have.
    fn had_names(&self) -> Result<bool> {
        let leaving = self.standing().leaving.clone();
        let mut names = self.store.entries_after(self.root, 0, 2 + leaving.len())?;
        names.retain(|known| !leaving.iter().any(|name| name.as_bytes() == &known.name[..]));
        Ok(match names.as_slice() {
            [] => false,
            [one] => match one.child.map(|child| self.store.node(child, None)).transpose()? {
                Some(Some(child)) => child.attr.is_dir(),
                _ => false,
            },
            _ => true,
        })
    }

    async fn keep(&self, identity: &OriginIdentity) -> Result<()> {
        let (store, id, bytes) = (self.store.clone(), self.id, KeptIdentity::encode(identity));
        let kept = tokio::task::spawn_blocking(move || store.keep_origin(id, bytes)).await;
        // No call goes on until the identity is kept: after a restart any storage would be the right one.
        let failed =
            |e: Error| Error::new(ErrorKind::Busy, "keep the identity of", self.inner.url()).with_source(e);
        match kept {
            Ok(kept) => kept.map_err(failed),
            Err(e) => Err(failed(Error::new(ErrorKind::Io, "keep", "identity").with_source(e))),
        }
    }

    /// Notes, before a change is sent, which name of the root it removes. Names that the database has forgotten leave the list.
    fn note_leaving(&self, change: &Change) -> Result<()> {
        let before = self.standing().leaving.clone();
        let mut gone = Vec::new();
        for name in before {
            if self.store.find_entry(self.root, name.as_bytes())?.is_none() {
                gone.push(name);
            }
        }
        let leaving = leaving_of(change).filter(|(dir, _)| self.is_root(dir));
        let coming = coming_of(change).filter(|(dir, _)| self.is_root(dir));
        let mut standing = self.standing();
        standing
            .leaving
            .retain(|name| !gone.contains(name) && coming.is_none_or(|(_, coming)| coming != name));
        standing.leaving.extend(leaving.map(|(_, name)| name.clone()));
        while standing.leaving.len() > LEAVING_MAX {
            standing.leaving.pop_front();
        }
        Ok(())
    }

    /// Notes that the change was refused, and its name stays.
    fn note_stays(&self, change: &Change) {
        if let Some((_, stays)) = leaving_of(change) {
            self.standing().leaving.retain(|name| name != stays);
        }
    }

    fn is_root(&self, dir: &Reference) -> bool {
        self.standing().root.as_ref().is_none_or(|root| root == dir)
    }
}

impl KeptIdentity {
    fn encode(identity: &OriginIdentity) -> Bytes {
        let length = u16::try_from(identity.bytes.len()).unwrap_or(u16::MAX);
        let kept = &identity.bytes[..usize::from(length)];
        [&[LAYOUT], &length.to_be_bytes()[..], kept, identity.shown.as_bytes()].concat().into()
    }

    fn decode(bytes: &[u8]) -> KeptIdentity {
        let read = || {
            let rest = bytes.strip_prefix(&[LAYOUT])?;
            let (length, rest) = rest.split_first_chunk::<2>()?;
            let (identity, shown) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
            let shown = String::from_utf8(shown.to_vec()).ok()?;
            // The next identity that is found says whether it lasts.
            Some(OriginIdentity { bytes: Bytes::copy_from_slice(identity), shown, is_lasting: true })
        };
        read().map_or(KeptIdentity::Unreadable, KeptIdentity::Identity)
    }
}

fn leaving_of(change: &Change) -> Option<(&Reference, &Name)> {
    match change {
        Change::Remove { dir, name } | Change::Rmdir { dir, name } => Some((dir, name)),
        Change::Rename { from_dir, from, .. } => Some((from_dir, from)),
        _ => None,
    }
}

fn coming_of(change: &Change) -> Option<(&Reference, &Name)> {
    match change {
        Change::Rename { to_dir, to, .. } => Some((to_dir, to)),
        Change::Create { dir, name, .. }
        | Change::Mkdir { dir, name, .. }
        | Change::Publish { dir, name, .. } => Some((dir, name)),
        _ => None,
    }
}

fn is_replaced(error: &Error) -> bool {
    error.outage_reason() == Some(OutageReason::Replaced)
}

impl Layer for OriginGuard {
    fn inner(&self) -> &dyn Origin {
        self.0.inner.as_ref()
    }

    async fn around<'a, A: OriginAnswer + 'a>(
        &'a self,
        call: OriginCall<'a>,
        send: impl Fn() -> Sending<'a, A> + Send + Sync + 'a,
    ) -> Result<A> {
        match call {
            // By these the guard finds out which store it is.
            OriginCall::Identity | OriginCall::IsEmpty => return send().await,
            // What nobody sees is begun and given up, also during an outage.
            OriginCall::Draft { .. } | OriginCall::Discard { .. } | OriginCall::DraftOfParts { .. } => {
                return send().await;
            }
            OriginCall::SetAtCommit { .. }
            | OriginCall::Write { .. }
            | OriginCall::Commit { .. }
            | OriginCall::BeginParts { .. }
            | OriginCall::StorePart { .. }
            | OriginCall::DropParts => {
                self.ready(Wanted::Recent).await?;
                return self.made(send().await).await;
            }
            OriginCall::Root | OriginCall::Change(_) | OriginCall::LeftByRename { .. } => {
                self.ready(Wanted::Recent).await?
            }
            _ => self.ready(Wanted::SinceOutage).await?,
        };
        let answer = send().await;
        match call {
            OriginCall::Lookup { .. } => self.told(answer, Wanted::Recent).await,
            OriginCall::Getattr { .. }
            | OriginCall::Readlink { .. }
            | OriginCall::Readdir { .. }
            | OriginCall::Xattrs { .. } => self.told(answer, Wanted::New).await,
            OriginCall::LeftByRename { .. } => {
                let left = self.heard(answer, Wanted::New).await?;
                self.vouch_for_answers().await?;
                Ok(left)
            }
            _ => self.heard(answer, Wanted::New).await,
        }
    }

    async fn around_root(&self) -> Result<Object> {
        let root = self.around(OriginCall::Root, || self.0.inner.root()).await?;
        if !self.0.is_root(&root.reference) {
            self.vouch().await?;
        }
        self.0.standing().root = Some(root.reference.clone());
        Ok(root)
    }

    async fn around_readdir(&self, dir: &Reference, cursor: DirCursor) -> Result<DirPage> {
        let call = OriginCall::Readdir { dir, cursor };
        let page = self.around(call, || self.0.inner.readdir(dir, cursor)).await?;
        let is_first = cursor == DirCursor::default();
        if is_first && page.entries.is_empty() && page.next.is_none() && self.0.is_root(dir) {
            self.vouch().await?;
        }
        Ok(page)
    }

    async fn around_change(&self, change: &Change) -> Result<Changed> {
        let origin = self.ready(Wanted::Recent).await?;
        self.0.note_leaving(change)?;
        let result = origin.change(change).await;
        if result.as_ref().is_err_and(|e| !e.may_have_happened()) {
            self.0.note_stays(change);
        }
        let changed = self.heard(result, Wanted::New).await?;
        // Bytes can be sent again; this is in doubt, if nobody vouches for it.
        let doubtful = |e| Error::doubtful(change.kind(), self.0.inner.url(), e);
        self.vouch_for_answers().await.map_err(doubtful)?;
        Ok(changed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_comes_back_as_it_was_kept_and_what_cannot_be_read_is_no_identity() {
        let identity = OriginIdentity {
            bytes: Bytes::from_static(b"\x01\x00bytes"),
            shown: "a disk".into(),
            is_lasting: true,
        };
        let kept = KeptIdentity::encode(&identity);
        assert_eq!(KeptIdentity::decode(&kept), KeptIdentity::Identity(identity));
        for end in 0..3 + 7 {
            assert_eq!(KeptIdentity::decode(&kept[..end]), KeptIdentity::Unreadable, "cut to {end}");
        }
        assert_eq!(KeptIdentity::decode(b"\x02\x00\x00"), KeptIdentity::Unreadable);
    }
}
