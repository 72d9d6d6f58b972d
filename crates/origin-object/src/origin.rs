//! The `Origin` calls, and the state that they share.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use ::origin::{
    Change, Changed, Committed, DirCursor, DirPage, Draft, Identity, Object, Origin, OriginIdentity,
    OriginLimits, OriginTraits, PartReceipt, PartSource, PartedFile, Reference, RenameLeftover, Written,
};
use async_trait::async_trait;
use bytes::Bytes;
use types::{ByteRange, Error, ErrorKind, FileKind, FsStat, Name, Result, SetAttr, Stability, Version};

use crate::attributes;
use crate::credential_env::CredentialEnv;
use crate::dir_times::DirTimes;
use crate::drafts::Drafts;
use crate::keys::{KeyBase, KeyKind, what};
use crate::listing_tokens::ListingTokens;
use crate::object_writer::ObjectWriter;
use crate::open_store::open_store_as;
use crate::part_pacer::PartPacer;
use crate::path_locks::{DirectoryMove, PathLocks};
use crate::rename_log::RenameLog;
use crate::stat_cache::StatCache;
use crate::store::{BucketMark, ObjectStat, ObjectStore};
use crate::url::{AttributeSource, Config};

pub struct ObjectOrigin {
    pub(crate) config: Config,
    pub(crate) base: KeyBase,
    pub(crate) store: Arc<dyn ObjectStore>,
    pub(crate) stat_cache: StatCache,
    pub(crate) rename_log: Arc<RenameLog>,
    pub(crate) path_locks: PathLocks,
    pub(crate) writers: Mutex<HashMap<Bytes, Arc<ObjectWriter>>>,
    pub(crate) drafts: Drafts,
    pub(crate) pacer: Arc<PartPacer>,
    pub(crate) tokens: ListingTokens,
    pub(crate) dir_times: DirTimes,
    /// The write verifier of buffered writes, which are lost when this process ends.
    pub(crate) verifier: u64,
    /// How often buffered writes of an object were lost before that; by path, and only of objects that lost some.
    pub(crate) losses: Mutex<HashMap<Bytes, u64>>,
}

impl ObjectOrigin {
    /// Finds credentials and lists the bucket. Errors are one line each, for the operator.
    pub async fn connect(config: Config) -> Result<Arc<ObjectOrigin>> {
        ObjectOrigin::connect_as(config, None).await
    }

    /// With these variables instead of the environment's.
    pub async fn connect_as(
        config: Config,
        environment: Option<&CredentialEnv>,
    ) -> Result<Arc<ObjectOrigin>> {
        let store = open_store_as(&config, environment)?;
        let base = KeyBase::new(&config.prefix, config.dialect);
        store.list(base.as_str(), true, None, 1).await?;
        ObjectOrigin::over(config, store)
    }

    pub(crate) fn over(config: Config, store: Arc<dyn ObjectStore>) -> Result<Arc<ObjectOrigin>> {
        let mut verifier = [0; 8];
        let read = std::fs::File::open("/dev/urandom")
            .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut verifier));
        read.map_err(|e| Error::io("read", "/dev/urandom", e))?;
        Ok(Arc::new(ObjectOrigin {
            base: KeyBase::new(&config.prefix, config.dialect),
            config,
            store,
            stat_cache: StatCache::default(),
            rename_log: Arc::default(),
            path_locks: PathLocks::default(),
            writers: Mutex::default(),
            drafts: Drafts::default(),
            pacer: Arc::new(PartPacer::new()),
            tokens: ListingTokens::default(),
            dir_times: DirTimes::default(),
            verifier: u64::from_be_bytes(verifier),
            losses: Mutex::default(),
        }))
    }

    /// For messages.
    pub(crate) fn place(&self, reference: &Reference) -> String {
        format!("{} in {}", reference.0.escape_ascii(), self.config.url())
    }

    pub(crate) fn file(&self, reference: &Reference, stat: &ObjectStat) -> Object {
        let mut attr = attributes::of_file(&self.config, &reference.0, stat);
        if self.config.attributes == AttributeSource::Listed && attr.kind == FileKind::Symlink {
            // A listing would show it as a file.
            attr.kind = FileKind::Regular;
        }
        Object {
            reference: reference.clone(),
            identity: Identity(reference.0.clone()),
            attr,
            version: attributes::version(&stat.etag, stat.size),
        }
    }

    pub(crate) fn directory(&self, reference: &Reference, marker: Option<&ObjectStat>) -> Object {
        let attr = attributes::of_directory(&self.config, &reference.0, marker, self.dir_times.of(reference));
        // A directory's version says nothing of its contents.
        let version = attributes::version("directory", 0);
        Object { reference: reference.clone(), identity: Identity(reference.0.clone()), attr, version }
    }

    /// `None`: there is no such object.
    pub(crate) async fn stat_file(&self, reference: &Reference) -> Result<Option<Object>> {
        Ok(self.stat_object(reference).await?.map(|stat| self.file(reference, &stat)))
    }

    pub(crate) async fn stat_object(&self, reference: &Reference) -> Result<Option<Arc<ObjectStat>>> {
        let moment = self.stat_cache.change_count(&reference.0);
        let stat = self.store.head(&self.base.key(reference)?).await?.map(Arc::new);
        self.stat_cache.insert(&reference.0, moment, stat.as_ref());
        Ok(stat)
    }

    /// Whether this directory is being renamed: what is missing in it must not pass for removed.
    async fn move_of(&self, dir: &Reference) -> Result<bool> {
        match self.path_locks.move_of(&dir.0) {
            DirectoryMove::Nowhere => Ok(false),
            DirectoryMove::Moves => Ok(true),
            DirectoryMove::Moved => Ok(self.stat_directory(dir).await?.is_none()),
        }
    }

    /// Where the store tells nothing that distinguishes a later bucket of the same name, the identity is the name.
    async fn store_identity(&self) -> Result<OriginIdentity> {
        let url = self.config.url();
        let identity = |shown, bytes, is_lasting| OriginIdentity { bytes, shown, is_lasting };
        Ok(match self.store.bucket_mark().await? {
            Some(BucketMark::Made(at)) => identity(format!("{url}, made at {at}"), at.into(), true),
            Some(BucketMark::Etag(etag)) => {
                identity(format!("{url} with the ETag {etag}"), etag.into(), false)
            }
            None => identity(url, Bytes::new(), true),
        })
    }

    pub(crate) fn gone(&self, operation: &'static str, reference: &Reference) -> Error {
        Error::new(ErrorKind::Stale, operation, self.place(reference))
    }
}

#[async_trait]
impl Origin for ObjectOrigin {
    fn url(&self) -> String {
        self.config.url()
    }

    fn traits(&self) -> OriginTraits {
        crate::kind::TRAITS
    }

    async fn set_at_commit(&self, object: &Reference, set: &SetAttr) -> Result<bool> {
        match self.writer(object) {
            Some(writer) => Ok(writer.describe(self.described(&writer, set)).await),
            None => Ok(false),
        }
    }

    fn connections(&self) -> u64 {
        self.store.connections()
    }

    async fn identity(&self) -> Result<OriginIdentity> {
        self.store_identity().await
    }

    async fn is_empty(&self) -> Result<bool> {
        // A key that equals the prefix is the root's marker.
        let page = self.store.list(self.base.as_str(), true, None, 2).await?;
        let is_name = |key: &str| key != self.base.as_str();
        let has_names = page.objects.iter().any(|object| is_name(&object.key))
            || page.prefixes.iter().chain(&page.unclear).any(|key| is_name(key))
            || page.next.is_some();
        Ok(!has_names)
    }

    async fn limits(&self) -> Result<OriginLimits> {
        Ok(self.config.limits())
    }

    fn demand_path(&self, path: &[u8], is_dir: bool) -> Result<()> {
        self.base.demand_path(path, is_dir)
    }

    async fn root(&self) -> Result<Object> {
        let root = Reference(Bytes::new());
        let page = self.store.list(self.base.as_str(), true, None, 1).await?;
        drop(page);
        Ok(self.directory(&root, None))
    }

    async fn lookup(&self, dir: &Reference, name: &Name) -> Result<Object> {
        let found = self.find(dir, name).await;
        if found.as_ref().is_err_and(|e| e.kind() == ErrorKind::NotFound) && self.move_of(dir).await? {
            return Err(self.gone("look into", dir));
        }
        found
    }

    async fn getattr(&self, reference: &Reference) -> Result<Object> {
        match what(reference) {
            KeyKind::File => self.stat_file(reference).await?,
            KeyKind::Directory if reference.0.is_empty() => Some(self.root().await?),
            KeyKind::Directory => self.stat_directory(reference).await?,
        }
        .ok_or_else(|| self.gone("look at", reference))
    }

    async fn readlink(&self, link: &Reference) -> Result<Bytes> {
        let object = self.getattr(link).await?;
        if object.attr.kind != FileKind::Symlink || object.attr.size == 0 {
            return Err(Error::new(ErrorKind::InvalidArgument, "read link", self.place(link)));
        }
        // Longer than a path can be: not a link.
        let length = object.attr.size.min(4096);
        self.read(link, object.version, ByteRange::new(0, length)).await
    }

    async fn readdir(&self, dir: &Reference, cursor: DirCursor) -> Result<DirPage> {
        self.list_page(dir, cursor).await
    }

    async fn read(&self, object: &Reference, version: Version, range: ByteRange) -> Result<Bytes> {
        if range.length == 0 {
            return Ok(Bytes::new());
        }
        let changed = || Error::new(ErrorKind::VersionChanged, "read", self.place(object));
        let key = self.base.key(object)?;
        let cached = self.stat_cache.get(&object.0);
        let etag = cached.as_deref().filter(|stat| attributes::version(&stat.etag, stat.size) == version);
        let got = match self.store.get(&key, etag.map(|stat| stat.etag.as_str()), range).await {
            Err(e) if e.kind() == ErrorKind::NotFound => return Err(self.gone("read", object)),
            // It is of another version, or longer than this one.
            Err(e) if e.kind() == ErrorKind::VersionChanged => return Err(changed().with_source(e)),
            got => got?,
        };
        // The answer itself says which version it is of.
        if attributes::version(&got.etag, got.size) != version {
            return Err(changed());
        }
        Ok(got.data)
    }

    async fn statfs(&self, _object: &Reference) -> Result<FsStat> {
        // A bucket has no end; programs that check the free space see this much.
        let (bytes, files) = (1 << 50, 1 << 40);
        Ok(FsStat {
            bytes_total: bytes,
            bytes_free: bytes,
            bytes_available: bytes,
            files_total: files,
            files_free: files,
        })
    }

    async fn change(&self, change: &Change) -> Result<Changed> {
        self.make_change(change).await
    }

    async fn left_by_rename(
        &self,
        from: &Reference,
        was: Version,
        there: &Reference,
    ) -> Result<RenameLeftover> {
        self.what_is_left(from, was, there).await
    }

    async fn write(
        &self,
        object: &Reference,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> Result<Written> {
        self.write_buffered(object, offset, data, stability).await
    }

    async fn draft(&self, dir: &Reference, name: &Name, set: &SetAttr) -> Result<Option<Draft>> {
        self.begin_draft(dir, name, set).map(Some)
    }

    async fn discard(&self, draft: &Reference) -> Result<()> {
        self.discard_draft(draft).await;
        Ok(())
    }

    async fn begin_parts(&self, dir: &Reference, path: &[Name], set: &SetAttr) -> Result<Option<PartedFile>> {
        self.begin_parted(dir, path, set).await
    }

    async fn store_part(&self, file: &PartedFile, number: u32, source: &PartSource) -> Result<String> {
        self.store_part_of(file, number, source).await
    }

    async fn draft_of_parts(
        &self,
        file: &PartedFile,
        (dir, name): (&Reference, &Name),
        parts: &[PartReceipt],
    ) -> Result<Draft> {
        self.draft_of_parted(file, (dir, name), parts)
    }

    async fn drop_parts(&self, file: &PartedFile) -> Result<()> {
        self.drop_parted(file).await
    }

    async fn commit(&self, object: &Reference, _range: ByteRange) -> Result<Committed> {
        self.commit_writer(object).await
    }
}

impl ObjectOrigin {
    pub(crate) fn writers(&self) -> std::sync::MutexGuard<'_, HashMap<Bytes, Arc<ObjectWriter>>> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
