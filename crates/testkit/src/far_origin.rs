//! A far origin that can be counted, cut off, held up and brought back with other handles. Wraps the honest one in
//! memory.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use bytes::{BufMut, Bytes, BytesMut};
use origin::memory::MemoryOrigin;
use origin::{
    Around, Change, Changed, Committed, DirCursor, DirPage, Identity, Object, Origin, OriginIdentity,
    OriginLimits, OriginTraits, Reference, Written,
};
use types::{
    ByteRange, Distance, Error, ErrorKind, FsStat, Name, Result, Stability, Version, WriteVerifier, XattrName,
};

pub struct Far {
    pub memory: Arc<MemoryOrigin>,
    /// Answers instead of it.
    another: Mutex<Option<(Arc<MemoryOrigin>, Replaced)>>,
    /// A new one for each storage that answers.
    connections: AtomicU64,
    url: String,
    identity_is_place: AtomicBool,
    down: AtomicBool,
    /// Milliseconds that answers to questions about names are on their way.
    way_ms: AtomicU64,
    /// Answers that have set out on such a way so far.
    set_out: AtomicU64,
    /// So many changes and writes are made, and nobody hears of it.
    answers_to_lose: AtomicU64,
    /// Of writes it does not tell what the file was before, of renames what it is after.
    silent: AtomicBool,
    /// It commits whole files: what is written is here until then.
    drafts: Option<Drafts>,
    /// Drafts that were lost.
    lost: AtomicU64,
    /// Part of every reference; references of another generation are stale.
    generation: AtomicU64,
    /// Part of every identity.
    identities: AtomicU64,
    /// Inode numbers that are shown for others: a server that used a number again.
    reused: Mutex<HashMap<u64, u64>>,
    /// Names that listings give without their objects.
    bare: Mutex<HashSet<Vec<u8>>>,
    calls: Mutex<BTreeMap<&'static str, u64>>,
    identified: AtomicU64,
    distance: Mutex<Option<Distance>>,
    /// Calls of a kind that fail, and how many of them.
    failing: Mutex<HashMap<&'static str, (ErrorKind, u64)>>,
    /// What it says in place of what is in a directory.
    lie: Mutex<Option<Lie>>,
    /// What others do just before the next call of a kind.
    meanwhile: Mutex<HashMap<&'static str, Theirs>>,
    /// Writes under way, and the pairs of them that overlapped.
    writing: Mutex<Vec<(Reference, ByteRange)>>,
    overlapped: AtomicU64,
    /// Calls wait while a test holds it for writing.
    pub gate: tokio::sync::RwLock<()>,
}

/// What is the same of a storage that answers in place of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replaced {
    /// Nothing: no reference and no identity of before is any of its.
    Wholly,
    /// Its references: names in a bucket, which are good in each.
    Bucket,
    /// That, and what it says to be.
    InSilence,
    /// Its references, and what it says to be is no proof: it changes with more than the storage.
    BucketThatMayBeTheSame,
}

type Theirs = Box<dyn FnOnce() + Send>;
type Lie = Box<dyn FnMut(&Reference, DirCursor) -> Option<DirPage> + Send>;

/// By inward reference. Held while one is begun or completed.
type Drafts = tokio::sync::Mutex<HashMap<Bytes, Draft>>;

/// What was written to a file that was this version before, in order.
struct Draft {
    base: Version,
    writes: Vec<(u64, Bytes)>,
}

impl Far {
    pub fn new(url: &str) -> Arc<Far> {
        Far::build(url, None)
    }

    /// As an object store: see [`origin::OriginTraits::commits_whole_files`].
    pub fn of_whole_files(url: &str) -> Arc<Far> {
        Far::build(url, Some(Drafts::default()))
    }

    fn build(url: &str, drafts: Option<Drafts>) -> Arc<Far> {
        Arc::new(Far {
            memory: MemoryOrigin::new(),
            another: Mutex::default(),
            connections: AtomicU64::new(0),
            url: url.to_owned(),
            identity_is_place: AtomicBool::new(true),
            down: AtomicBool::new(false),
            way_ms: AtomicU64::new(0),
            set_out: AtomicU64::new(0),
            answers_to_lose: AtomicU64::new(0),
            silent: AtomicBool::new(false),
            drafts,
            lost: AtomicU64::new(0),
            generation: AtomicU64::new(1),
            identities: AtomicU64::new(1),
            reused: Mutex::default(),
            bare: Mutex::default(),
            calls: Mutex::default(),
            identified: AtomicU64::new(0),
            distance: Mutex::default(),
            failing: Mutex::default(),
            lie: Mutex::default(),
            meanwhile: Mutex::default(),
            writing: Mutex::default(),
            overlapped: AtomicU64::new(0),
            gate: tokio::sync::RwLock::new(()),
        })
    }

    /// It says that it is so far away.
    /// Objects keep their identity when they are moved, as at a NAS and not as in a bucket.
    pub fn identify_by_number(&self) {
        self.identity_is_place.store(false, Ordering::SeqCst);
    }

    pub fn set_distance(&self, distance: Distance) {
        *self.distance.lock().expect("no panic holds it") = Some(distance);
    }

    pub fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }

    /// The next `times` calls of this kind fail like that, and do nothing.
    pub fn fail(&self, kind: &'static str, with: ErrorKind, times: u64) {
        self.failing.lock().expect("no panic holds it").insert(kind, (with, times));
    }

    /// Others do this just before the next call of this kind is carried out.
    pub fn before(&self, kind: &'static str, theirs: impl FnOnce() + Send + 'static) {
        self.meanwhile.lock().expect("no panic holds it").insert(kind, Box::new(theirs));
    }

    /// From now on listings of directories for which `lie` has a page are made of what it says.
    pub fn lie_about_names(
        &self,
        lie: impl FnMut(&Reference, DirCursor) -> Option<DirPage> + Send + 'static,
    ) {
        *self.lie.lock().expect("no panic holds it") = Some(Box::new(lie));
    }

    /// Pairs of writes to the same bytes that were under way at the same time.
    pub fn overlapped_writes(&self) -> u64 {
        self.overlapped.load(Ordering::SeqCst)
    }

    /// What lookups, listings and changes tell was true so long ago when it arrives.
    pub fn answer_late(&self, by: std::time::Duration) {
        self.way_ms.store(u64::try_from(by.as_millis()).unwrap_or(0), Ordering::SeqCst);
    }

    /// Answers that were late, or will be: what they tell is fixed.
    pub fn late_answers(&self) -> u64 {
        self.set_out.load(Ordering::SeqCst)
    }

    fn loses_this_answer(&self) -> bool {
        let lose = |left: u64| left.checked_sub(1);
        self.answers_to_lose.fetch_update(Ordering::SeqCst, Ordering::SeqCst, lose).is_ok()
    }

    async fn on_its_way(&self) {
        let ms = self.way_ms.load(Ordering::SeqCst);
        if ms > 0 {
            self.set_out.fetch_add(1, Ordering::SeqCst);
            tokio::time::sleep(std::time::Duration::from_millis(ms)).await;
        }
    }

    /// Writes do not tell what the file was before, nor renames what it is after, as with Linux's NFS server.
    pub fn be_silent(&self) {
        self.silent.store(true, Ordering::SeqCst);
    }

    /// The answer to the next change or write is lost.
    pub fn lose_an_answer(&self) {
        self.answers_to_lose.fetch_add(1, Ordering::SeqCst);
    }

    /// From now on another storage answers.
    pub fn replace_with(&self, another: Arc<MemoryOrigin>, how: Replaced) {
        *self.another.lock().expect("no panic holds it") = Some((another, how));
        self.connections.fetch_add(1, Ordering::SeqCst);
    }

    /// The one that it was answers again.
    pub fn bring_back(&self) {
        *self.another.lock().expect("no panic holds it") = None;
        self.connections.fetch_add(1, Ordering::SeqCst);
    }

    fn now(&self) -> Arc<MemoryOrigin> {
        let another = self.another.lock().expect("no panic holds it");
        another.as_ref().map_or_else(|| self.memory.clone(), |(another, _)| another.clone())
    }

    fn replaced(&self) -> Option<Replaced> {
        self.another.lock().expect("no panic holds it").as_ref().map(|(_, how)| *how)
    }

    fn is_another(&self) -> bool {
        self.replaced() == Some(Replaced::Wholly)
    }

    /// Part of every reference.
    fn generation_now(&self) -> u64 {
        self.generation.load(Ordering::SeqCst) | u64::from(self.is_another()) << 63
    }

    /// The NAS comes back with other handles for the same files.
    pub fn change_references(&self) {
        self.generation.fetch_add(1, Ordering::SeqCst);
    }

    /// As above, and what told its objects apart before is other bytes now, too.
    pub fn change_identities(&self) {
        self.identities.fetch_add(1, Ordering::SeqCst);
        self.change_references();
    }

    /// What has inode number `now` in memory is shown with `before`.
    pub fn reuse_inode_number(&self, now: u64, before: u64) {
        self.reused.lock().expect("no panic holds it").insert(now, before);
    }

    pub fn list_without_object(&self, name: &[u8]) {
        self.bare.lock().expect("no panic holds it").insert(name.to_vec());
    }

    /// Calls of this kind since the last [`Far::forget_calls`].
    pub fn calls(&self, kind: &str) -> u64 {
        self.calls.lock().expect("no panic holds it").get(kind).copied().unwrap_or(0)
    }

    /// Times that it was asked which storage it is. In no other count: no client waits for what is found.
    pub fn identified(&self) -> u64 {
        self.identified.load(Ordering::SeqCst)
    }

    pub fn calls_of_all_kinds(&self) -> u64 {
        self.calls.lock().expect("no panic holds it").values().sum()
    }

    pub fn forget_calls(&self) {
        self.calls.lock().expect("no panic holds it").clear();
    }

    async fn begin(&self, kind: &'static str) -> Result<()> {
        *self.calls.lock().expect("no panic holds it").entry(kind).or_insert(0) += 1;
        drop(self.gate.read().await);
        if self.down.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Unavailable, kind, "an origin that is switched off"));
        }
        let theirs = self.meanwhile.lock().expect("no panic holds it").remove(kind);
        if let Some(theirs) = theirs {
            theirs();
        }
        match self.failing.lock().expect("no panic holds it").get_mut(kind) {
            Some((with, times)) if *times > 0 => {
                *times -= 1;
                Err(Error::new(*with, kind, "an origin that was told to fail"))
            }
            _ => Ok(()),
        }
    }

    fn outward(&self, object: Object) -> Object {
        let stamped = |stamp: u64, bytes: &Bytes| {
            let mut out = BytesMut::with_capacity(8 + bytes.len());
            out.put_u64(stamp);
            out.put_slice(bytes);
            out.freeze()
        };
        let identities = self.identities.load(Ordering::SeqCst) | u64::from(self.is_another()) << 63;
        let mut attr = object.attr;
        let reused = self.reused.lock().expect("no panic holds it");
        attr.fileid = reused.get(&attr.fileid).copied().unwrap_or(attr.fileid);
        Object {
            attr,
            reference: Reference(stamped(self.generation_now(), &object.reference.0)),
            identity: Identity(stamped(identities, &object.identity.0)),
            ..object
        }
    }

    fn inward(&self, reference: &Reference) -> Result<Reference> {
        let (stamp, rest) = reference.0.split_first_chunk::<8>().expect("made by outward");
        if u64::from_be_bytes(*stamp) != self.generation_now() {
            return Err(Error::new(ErrorKind::Stale, "use reference", "of another generation"));
        }
        Ok(Reference(Bytes::copy_from_slice(rest)))
    }

    fn inward_change(&self, change: &Change) -> Result<Change> {
        let mut change = change.clone();
        match &mut change {
            Change::Create { dir, .. }
            | Change::Mkdir { dir, .. }
            | Change::Symlink { dir, .. }
            | Change::Mknod { dir, .. }
            | Change::Remove { dir, .. }
            | Change::Rmdir { dir, .. }
            | Change::Publish { dir, .. } => *dir = self.inward(dir)?,
            Change::Link { file, dir, .. } => (*file, *dir) = (self.inward(file)?, self.inward(dir)?),
            Change::Rename { from_dir, to_dir, .. } => {
                (*from_dir, *to_dir) = (self.inward(from_dir)?, self.inward(to_dir)?);
            }
            Change::Set { object, .. } | Change::SetXattr { object, .. } => *object = self.inward(object)?,
        }
        Ok(change)
    }

    /// If that is what this origin does.
    async fn write_draft(
        &self,
        inward: &Reference,
        (offset, data): (u64, &Bytes),
        stability: Stability,
    ) -> Result<Option<Written>> {
        let Some(drafts) = &self.drafts else { return Ok(None) };
        let mut drafts = drafts.lock().await;
        let now = self.now().getattr(inward).await?.version;
        let fresh = || Draft { base: now, writes: Vec::new() };
        let draft = drafts.entry(inward.0.clone()).or_insert_with(fresh);
        draft.writes.push((offset, data.clone()));
        let before = Some(draft.base);
        if stability > Stability::Unstable {
            self.complete(&mut drafts, inward).await?;
        }
        let (after, verifier) = (Some(self.now().getattr(inward).await?), self.verifier());
        Ok(Some(Written { stability, verifier, before, after, resent: false }))
    }

    async fn commit_draft(&self, inward: &Reference) -> Result<Option<Committed>> {
        let Some(drafts) = &self.drafts else { return Ok(None) };
        let mut drafts = drafts.lock().await;
        let before = Some(self.now().getattr(inward).await?.version);
        self.complete(&mut drafts, inward).await?;
        let (after, verifier) = (Some(self.now().getattr(inward).await?), self.verifier());
        Ok(Some(Committed { verifier, before, after, resent: false }))
    }

    /// What was written to it is part of it now, or is lost if it is another one.
    async fn complete(&self, drafts: &mut HashMap<Bytes, Draft>, inward: &Reference) -> Result<()> {
        let Some(draft) = drafts.remove(&inward.0) else { return Ok(()) };
        if self.now().getattr(inward).await?.version != draft.base {
            self.lost.fetch_add(1, Ordering::SeqCst);
            return Err(Error::new(ErrorKind::VersionChanged, "complete", "a file of a far origin"));
        }
        for (offset, data) in draft.writes {
            self.now().write(inward, offset, data, Stability::FileSync).await?;
        }
        Ok(())
    }

    fn verifier(&self) -> WriteVerifier {
        self.lost.load(Ordering::SeqCst).to_be_bytes()
    }
}

struct WriteUnderWay<'a> {
    far: &'a Far,
    place: (Reference, ByteRange),
}

impl<'a> WriteUnderWay<'a> {
    fn begin(far: &'a Far, object: &Reference, range: ByteRange) -> WriteUnderWay<'a> {
        let mut writing = far.writing.lock().expect("no panic holds it");
        let overlaps = |(other, there): &&(Reference, ByteRange)| {
            other == object && there.offset < range.end() && range.offset < there.end()
        };
        let pairs = writing.iter().filter(overlaps).count();
        far.overlapped.fetch_add(pairs as u64, Ordering::SeqCst);
        let place = (object.clone(), range);
        writing.push(place.clone());
        WriteUnderWay { far, place }
    }
}

impl Drop for WriteUnderWay<'_> {
    fn drop(&mut self) {
        let mut writing = self.far.writing.lock().expect("no panic holds it");
        if let Some(at) = writing.iter().position(|place| *place == self.place) {
            writing.swap_remove(at);
        }
    }
}

#[async_trait]
impl Origin for Far {
    fn url(&self) -> String {
        self.url.clone()
    }

    fn traits(&self) -> OriginTraits {
        OriginTraits {
            identity_is_place: self.identity_is_place.load(Ordering::SeqCst),
            commits_whole_files: self.drafts.is_some(),
            ..self.memory.traits()
        }
    }

    fn distance(&self) -> Option<Distance> {
        *self.distance.lock().expect("no panic holds it")
    }

    fn connections(&self) -> u64 {
        self.connections.load(Ordering::SeqCst)
    }

    /// Not counted: who asks that is no client.
    async fn identity(&self) -> Result<OriginIdentity> {
        self.identified.fetch_add(1, Ordering::SeqCst);
        drop(self.gate.read().await);
        if self.down.load(Ordering::SeqCst) {
            return Err(Error::new(ErrorKind::Unavailable, "identify", "an origin that is switched off"));
        }
        let shown = match self.replaced() {
            Some(Replaced::Wholly | Replaced::Bucket | Replaced::BucketThatMayBeTheSame) => {
                "another tree in memory"
            }
            Some(Replaced::InSilence) | None => "the tree in memory",
        };
        let is_lasting = self.replaced() != Some(Replaced::BucketThatMayBeTheSame);
        Ok(OriginIdentity { bytes: shown.into(), shown: shown.into(), is_lasting })
    }

    async fn is_empty(&self) -> Result<bool> {
        drop(self.gate.read().await);
        self.now().is_empty().await
    }

    /// Not counted either.
    async fn limits(&self) -> Result<OriginLimits> {
        drop(self.gate.read().await);
        if self.down.load(Ordering::SeqCst) {
            return Err(Error::new(
                ErrorKind::Unavailable,
                "ask limits of",
                "an origin that is switched off",
            ));
        }
        self.now().limits().await
    }

    async fn root(&self) -> Result<Object> {
        self.begin("root").await?;
        self.now().root().await.map(|o| self.outward(o))
    }

    async fn lookup(&self, dir: &Reference, name: &Name) -> Result<Object> {
        self.begin("lookup").await?;
        let answer = self.now().lookup(&self.inward(dir)?, name).await.map(|o| self.outward(o));
        self.on_its_way().await;
        answer
    }

    async fn getattr(&self, object: &Reference) -> Result<Object> {
        self.begin("getattr").await?;
        self.now().getattr(&self.inward(object)?).await.map(|o| self.outward(o))
    }

    async fn readlink(&self, link: &Reference) -> Result<Bytes> {
        self.begin("readlink").await?;
        self.now().readlink(&self.inward(link)?).await
    }

    async fn readdir(&self, dir: &Reference, cursor: DirCursor) -> Result<DirPage> {
        self.begin("readdir").await?;
        if let Some(lie) = self.lie.lock().expect("no panic holds it").as_mut()
            && let Some(page) = lie(dir, cursor)
        {
            return Ok(page);
        }
        let mut page = self.now().readdir(&self.inward(dir)?, cursor).await?;
        self.on_its_way().await;
        let bare = self.bare.lock().expect("no panic holds it").clone();
        for entry in &mut page.entries {
            let object = entry.object.take().map(|o| self.outward(o));
            entry.object = object.filter(|_| !bare.contains(entry.name.as_bytes()));
        }
        Ok(page)
    }

    async fn read(&self, object: &Reference, version: Version, range: ByteRange) -> Result<Bytes> {
        self.begin("read").await?;
        self.now().read(&self.inward(object)?, version, range).await
    }

    async fn statfs(&self, object: &Reference) -> Result<FsStat> {
        self.begin("statfs").await?;
        self.now().statfs(&self.inward(object)?).await
    }

    async fn xattrs(&self, object: &Reference) -> Result<Vec<(XattrName, Bytes)>> {
        self.begin("xattrs").await?;
        self.now().xattrs(&self.inward(object)?).await
    }

    async fn change(&self, change: &Change) -> Result<Changed> {
        self.begin(change.kind()).await?;
        let inward = self.inward_change(change)?;
        if let Change::Set { object, .. } = &inward {
            self.commit_draft(object).await?;
        }
        let changed = self.now().change(&inward).await?;
        self.on_its_way().await;
        if self.loses_this_answer() {
            let silence = Error::new(ErrorKind::Unavailable, change.kind(), "no answer");
            return Err(Error::doubtful(change.kind(), "a far origin", silence));
        }
        let around = |told: Around| Around { after: told.after.map(|o| self.outward(o)), ..told };
        let tells = !matches!(change, Change::Rename { .. }) || !self.silent.load(Ordering::SeqCst);
        let object = changed.object.filter(|_| tells).map(|o| self.outward(o));
        Ok(Changed { object, dir: around(changed.dir), to_dir: around(changed.to_dir), ..changed })
    }

    async fn write(
        &self,
        object: &Reference,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> Result<Written> {
        let range = ByteRange::new(offset, data.len() as u64);
        let _under_way = WriteUnderWay::begin(self, object, range);
        self.begin("write").await?;
        let inward = self.inward(object)?;
        let written = match self.write_draft(&inward, (offset, &data), stability).await? {
            Some(written) => written,
            None => self.now().write(&inward, offset, data, stability).await?,
        };
        if self.loses_this_answer() {
            return Err(Error::new(ErrorKind::Unavailable, "write", "no answer"));
        }
        let before = written.before.filter(|_| !self.silent.load(Ordering::SeqCst));
        Ok(Written { before, after: written.after.map(|o| self.outward(o)), ..written })
    }

    async fn commit(&self, object: &Reference, range: ByteRange) -> Result<Committed> {
        self.begin("commit").await?;
        let inward = self.inward(object)?;
        let committed = match self.commit_draft(&inward).await? {
            Some(committed) => committed,
            None => self.now().commit(&inward, range).await?,
        };
        Ok(Committed { after: committed.after.map(|o| self.outward(o)), ..committed })
    }
}
