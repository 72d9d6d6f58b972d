//! The `Origin` calls, and the state that they share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ::origin::{
    Change, Changed, Committed, DirCursor, DirPage, Object, Origin, OriginIdentity, OriginLimits,
    OriginTraits, Reference, Written,
};
use async_trait::async_trait;
use bytes::Bytes;
use origin_object::ListingTokens;
use origin_object::dir_times::DirTimes;
use origin_object::http::Http;
use types::{ByteRange, Error, ErrorKind, FileKind, FsStat, Name, OutageReason, Result, Stability, Version};

use crate::api::Api;
use crate::attributes::{FileStat, version};
use crate::names::{FileKey, ShareRef};
use crate::sign::EnvVars;
use crate::url::Config;
use crate::write_session::{VERIFIER, WriteSessions};

/// The largest file of a share: 4 TiB.
const FILE_SIZE_MAX: u64 = 4 << 40;

pub struct AzFileOrigin {
    pub(crate) config: Config,
    pub(crate) api: Api,
    /// The served directory, as it was found last.
    root: Mutex<FileKey>,
    /// The files that are being written.
    pub(crate) sessions: WriteSessions,
    pub(crate) tokens: ListingTokens,
    pub(crate) times: DirTimes,
    /// The number of the next temporary name.
    draft: AtomicU64,
}

impl AzFileOrigin {
    /// Finds credentials and looks at the served directory. Errors are one line each, for the operator.
    pub async fn connect(config: Config) -> Result<Arc<AzFileOrigin>> {
        AzFileOrigin::connect_as(config, None).await
    }

    /// With these variables instead of the environment's.
    pub async fn connect_as(config: Config, environment: Option<EnvVars>) -> Result<Arc<AzFileOrigin>> {
        let api = Api::new(&config, Http::new()?, environment)?;
        let missing = || {
            let why = format!("{}: there is no directory \"{}\" in the share", config.url(), config.path);
            Error::new(ErrorKind::Config, "origin", why)
        };
        let root = api.stat("", true).await?.ok_or_else(missing)?.key;
        let mut seed = [0; 8];
        let read = std::fs::File::open("/dev/urandom")
            .and_then(|mut file| std::io::Read::read_exact(&mut file, &mut seed));
        read.map_err(|e| Error::io("read", "/dev/urandom", e))?;
        Ok(Arc::new(AzFileOrigin {
            config,
            api,
            root: Mutex::new(root),
            sessions: WriteSessions::default(),
            tokens: ListingTokens::default(),
            times: DirTimes::default(),
            draft: AtomicU64::new(u64::from_be_bytes(seed)),
        }))
    }

    /// A new temporary name.
    pub(crate) fn temporary_name(&self) -> String {
        crate::names::temporary_name(self.draft.fetch_add(1, Ordering::Relaxed))
    }

    /// For messages.
    pub(crate) fn display_path(&self, path: &str) -> String {
        self.api.place(Some(path))
    }

    pub(crate) fn gone(&self, operation: &'static str, path: &str) -> Error {
        Error::new(ErrorKind::Stale, operation, self.display_path(path))
    }

    pub(crate) fn object(&self, path: &str, stat: &FileStat) -> Object {
        let reference = ShareRef { is_dir: stat.is_dir, key: stat.key, path: path.to_owned() }.reference();
        let noted = self.times.of(&reference);
        let attr = stat.attr(&self.config, noted);
        let version = match stat.is_dir && noted.seen {
            // Changes that we know of need not show in the service's times.
            true => Version::from_times(stat.size, attr.mtime, attr.ctime),
            false => stat.version(),
        };
        Object { reference, identity: stat.key.identity(), attr, version }
    }

    /// By the id of the directory that the URL names, looked up anew.
    async fn share_identity(&self) -> Result<OriginIdentity> {
        let missing = || {
            let context = format!("{}: there is no such directory any more", self.config.url());
            Error::outage(OutageReason::Replaced, "find", context)
        };
        let root = self.api.stat("", true).await?.ok_or_else(missing)?.key;
        *self.root.lock().unwrap_or_else(PoisonError::into_inner) = root;
        let bytes = root.identity().0;
        let shown = format!("a share's directory with the id {:x}, made at {}", root.id, root.created);
        Ok(OriginIdentity { bytes, shown, is_lasting: true })
    }

    fn root_key(&self) -> FileKey {
        *self.root.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The stat of a reference's path, if it still is the same object.
    pub(crate) async fn look_at(&self, operation: &'static str, place: &ShareRef) -> Result<FileStat> {
        let stat = self.api.stat(&place.path, place.is_dir).await?;
        stat.filter(|stat| stat.key == place.key).ok_or_else(|| self.gone(operation, &place.path))
    }
}

#[async_trait]
impl Origin for AzFileOrigin {
    fn url(&self) -> String {
        self.config.url()
    }

    fn traits(&self) -> OriginTraits {
        crate::kind::TRAITS
    }

    fn connections(&self) -> u64 {
        self.api.connections()
    }

    async fn identity(&self) -> Result<OriginIdentity> {
        self.share_identity().await
    }

    async fn is_empty(&self) -> Result<bool> {
        origin::identity::lists_nothing(self).await
    }

    async fn limits(&self) -> Result<OriginLimits> {
        let (file_size_max, name_max) = (Some(FILE_SIZE_MAX), None);
        Ok(OriginLimits {
            file_size_max,
            name_max,
            links_max: Some(1),
            no_special_files: true,
            read_only: false,
        })
    }

    fn demand_path(&self, path: &[u8], _is_dir: bool) -> Result<()> {
        crate::names::demand_path(path)
    }

    async fn root(&self) -> Result<Object> {
        let place = ShareRef { is_dir: true, key: self.root_key(), path: String::new() };
        let stat = self.look_at("look at", &place).await?;
        Ok(self.object("", &stat))
    }

    async fn lookup(&self, dir: &Reference, name: &Name) -> Result<Object> {
        let dir = ShareRef::of(dir)?;
        let path = match dir.child(name) {
            // A name that a share cannot have does not exist.
            Err(e) if e.kind() != ErrorKind::NotADirectory => {
                return Err(
                    Error::new(ErrorKind::NotFound, "look up", self.display_path(&dir.path)).with_source(e)
                );
            }
            path => path?,
        };
        let found = self.find(&dir, &path).await?;
        found
            .map(|stat| self.object(&path, &stat))
            .ok_or_else(|| Error::new(ErrorKind::NotFound, "look up", self.display_path(&path)))
    }

    async fn getattr(&self, reference: &Reference) -> Result<Object> {
        let place = ShareRef::of(reference)?;
        let stat = self.look_at("look at", &place).await?;
        Ok(self.object(&place.path, &stat))
    }

    async fn readlink(&self, link: &Reference) -> Result<Bytes> {
        let object = self.getattr(link).await?;
        if object.attr.kind != FileKind::Symlink || object.attr.size == 0 {
            return Err(Error::new(
                ErrorKind::InvalidArgument,
                "read link",
                self.display_path(&ShareRef::of(link)?.path),
            ));
        }
        // Longer than a path can be: not a link.
        self.read(link, object.version, ByteRange::new(0, object.attr.size.min(4096))).await
    }

    async fn readdir(&self, dir: &Reference, cursor: DirCursor) -> Result<DirPage> {
        self.list_page(dir, cursor).await
    }

    async fn read(&self, object: &Reference, wanted: Version, range: ByteRange) -> Result<Bytes> {
        if range.length == 0 {
            return Ok(Bytes::new());
        }
        let place = ShareRef::of(object)?;
        let changed = || Error::new(ErrorKind::VersionChanged, "read", self.display_path(&place.path));
        let got = match self.api.get(&place.path, range).await {
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                return Err(self.gone("read", &place.path));
            }
            Err(e) if e.kind() == ErrorKind::VersionChanged => {
                // Behind its end: a shorter version, or another file.
                self.look_at("read", &place).await?;
                return Err(changed().with_source(e));
            }
            got => got?,
        };
        if got.id.is_some_and(|id| id != place.key.id) {
            return Err(self.gone("read", &place.path));
        }
        // The answer itself says which version it is of.
        if version(&got.etag, got.size, got.written) != wanted {
            self.look_at("read", &place).await?;
            return Err(changed());
        }
        Ok(got.data)
    }

    async fn statfs(&self, _object: &Reference) -> Result<FsStat> {
        let (total, used) = match self.api.capacity().await {
            // A SAS need not permit reading the share's properties.
            Err(e) if e.kind() == ErrorKind::AccessDenied => (1 << 50, 0),
            room => room?,
        };
        let (free, files) = (total.saturating_sub(used), 1 << 40);
        Ok(FsStat {
            bytes_total: total,
            bytes_free: free,
            bytes_available: free,
            files_total: files,
            files_free: files,
        })
    }

    async fn change(&self, change: &Change) -> Result<Changed> {
        self.make_change(change).await
    }

    async fn write(
        &self,
        object: &Reference,
        offset: u64,
        data: Bytes,
        _stability: Stability,
    ) -> Result<Written> {
        self.write_file(object, offset, data).await
    }

    async fn commit(&self, object: &Reference, _range: ByteRange) -> Result<Committed> {
        let place = ShareRef::of(object)?;
        if place.is_dir {
            return Err(Error::new(ErrorKind::IsADirectory, "commit", self.display_path(&place.path)));
        }
        let stat = self.look_at("commit", &place).await?;
        let after = Some(self.object(&place.path, &stat));
        // Each write is stored when it is answered.
        Ok(Committed { verifier: VERIFIER, before: None, after, resent: false })
    }
}
