//! The `Origin` calls: each one NFS call, or a few.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use origin::{
    Change, Changed, Committed, DirCursor, DirPage, Identity, Object, Origin, OriginIdentity, OriginLimits,
    OriginTraits, REFERENCE_MAX, Reference, Written,
};
use rpc_nfs3::nfs3::attr::{Fattr3, FileType, Nfstime3};
use rpc_nfs3::nfs3::file;
use rpc_nfs3::nfs3::{DirOp, FileHandle, HANDLE_MAX, NfsResult, fs, procedure};
use types::{
    Attr, ByteRange, Error, ErrorKind, FileKind, FsStat, Name, OutageReason, Result, Stability, Timestamp,
    Version,
};

use crate::config::Config;
use crate::connection::Endpoint;
use crate::connection_pool::{ConnectionPool, Lane, credentials};
use crate::errors::{failure, status_error};
use crate::export_rights::ExportAdmission;
use crate::listing_state::ListingState;
use crate::mounting::Mounter;
use crate::nested_exports::{NestedExport, NestedExports, NodeId, ROOT};

const _: () = assert!(HANDLE_MAX <= REFERENCE_MAX);

/// A size of READ and WRITE that every server takes.
const TRANSFER_SMALL: u32 = 32 << 10;

pub struct NfsOrigin {
    pub(crate) config: Config,
    pub(crate) pool: ConnectionPool,
    pub(crate) mounter: Mounter,
    pub(crate) admission: ExportAdmission,
    root: Mutex<FileHandle>,
    pub(crate) read_max: u32,
    pub(crate) write_max: u32,
    pub(crate) nested: NestedExports,
    pub(crate) listings: ListingState,
}

impl NfsOrigin {
    /// Finds the server, mounts the export and learns what the server can. Errors are one line each, for
    /// the operator.
    pub async fn connect(config: Config) -> Result<Arc<NfsOrigin>> {
        let credentials = credentials(&config.identity);
        let mounter = Mounter::find(&config, credentials.clone()).await?;
        let endpoint = Endpoint::new(&config, mounter.nfs_port());
        // In parallel: over a far line the start costs five round trips instead of eleven.
        let (stream, root, exports) =
            tokio::join!(endpoint.connect(None), mounter.mount_or_explain(&config.export), mounter.exports());
        let (stream, root) = (stream?, root?);
        let exports = exports.unwrap_or_else(|error| {
            tracing::warn!(%error, "the server does not list its exports; nested exports are not noticed");
            Vec::new()
        });
        let nested = NestedExports::new(&config.export, exports.iter().map(|e| e.path.as_ref()));
        nested.learn(ROOT, &root.0);
        let pool = ConnectionPool::start(&config, &endpoint, credentials, stream);
        let admission = ExportAdmission::default();
        let (transfers, ()) =
            tokio::join!(transfer_max(&pool, &root, &config), admission.learn(&pool, &root));
        let (read_max, write_max) = transfers?;
        let listings = ListingState::default();
        let origin = NfsOrigin {
            config,
            pool,
            mounter,
            admission,
            root: Mutex::new(root),
            read_max,
            write_max,
            nested,
            listings,
        };
        origin.learn_ways_to_nested_exports().await;
        Ok(Arc::new(origin))
    }

    /// A reference that a restarted tier kept may be a directory on the way to a nested export: it must be
    /// recognised without having been walked to.
    async fn learn_ways_to_nested_exports(&self) {
        let mut ways = vec![(ROOT, Reference(self.root_handle().0))];
        while let Some((node, dir)) = ways.pop() {
            for (name, child) in self.nested.inner_children(node) {
                let Ok(name) = Name::new(name) else { continue };
                match self.lookup(&dir, &name).await {
                    Ok(object) => ways.push((child, object.reference)),
                    Err(error) => {
                        tracing::warn!(%name, %error, "the way to a nested export cannot be walked now")
                    }
                }
            }
        }
    }

    pub(crate) fn root_handle(&self) -> FileHandle {
        self.root.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) async fn getattr_of(&self, handle: &FileHandle) -> Result<Attr> {
        let what = "get attributes from";
        let encode = |e: &mut _| handle.encode(e);
        let reply =
            self.pool.call(Lane::Metadata, what, procedure::GETATTR, encode, file::decode_getattr).await?;
        match reply {
            Ok(attr) => Ok(attr_of(&attr)),
            Err((status, ())) => Err(status_error(what, self.place(), status)),
        }
    }

    /// LOOKUP as the server answers it, and the directory's attributes if it told them.
    pub(crate) async fn lookup_direct(
        &self,
        dir: &FileHandle,
        name: &Name,
    ) -> Result<(Object, Option<Attr>)> {
        let args = DirOp { dir: dir.clone(), name: Bytes::copy_from_slice(name.as_bytes()) };
        let encode = |e: &mut _| args.encode(e);
        let what = "look up";
        let reply =
            self.pool.call(Lane::Metadata, what, procedure::LOOKUP, encode, file::decode_lookup).await?;
        let found = ok_or_status(what, name, reply)?;
        let handle = FileHandle(Bytes::copy_from_slice(&found.object.0));
        let attr = match found.attr {
            Some(attr) => attr_of(&attr),
            None => self.getattr_of(&handle).await?,
        };
        Ok((object(handle, attr), found.dir_attr.as_ref().map(attr_of)))
    }

    /// A name that leads to a nested export: see `nested_exports.rs`.
    async fn lookup_nested(
        &self,
        dir: &FileHandle,
        name: &Name,
        node: NodeId,
        export: &[u8],
        place: NestedExport,
    ) -> Result<Object> {
        if let NestedExport::Mounted(handle) = &place {
            match self.getattr_of(handle).await {
                Err(error) if error.kind() == ErrorKind::Stale => {
                    self.nested.set_place(node, NestedExport::Unknown)
                }
                other => return other.map(|attr| object(handle.clone(), attr)),
            }
        }
        let (shown, dir_attr) = self.lookup_direct(dir, name).await?;
        let dir_attr = match dir_attr {
            Some(attr) => attr,
            None => self.getattr_of(dir).await?,
        };
        let crossed = shown.attr.fsid != dir_attr.fsid;
        if matches!(place, NestedExport::Same(_)) {
            return Ok(shown);
        }
        let (handle, attr) = match self.mount_nested(export).await {
            Ok(mounted) => mounted,
            Err(error) if crossed => {
                tracing::debug!(%name, %error, "nested export cannot be mounted but can be walked into");
                self.nested.set_place(node, NestedExport::Same(Instant::now()));
                return Ok(shown);
            }
            Err(error) => return Err(not_mounted(name, &error)),
        };
        if !crossed && (attr.fsid, attr.fileid) == (shown.attr.fsid, shown.attr.fileid) {
            self.nested.set_place(node, NestedExport::Same(Instant::now()));
            return Ok(shown);
        }
        tracing::info!(export = %export.escape_ascii(), "nested export mounted beside our own");
        self.nested.set_place(node, NestedExport::Mounted(handle.clone()));
        Ok(object(handle, attr))
    }

    async fn lookup_name(&self, dir: &Reference, name: &Name) -> Result<Object> {
        let handle = handle_of(dir)?;
        let Some(node) = self.nested.child(&dir.0, name.as_bytes()) else {
            return self.lookup_direct(&handle, name).await.map(|(object, _)| object);
        };
        let object = match self.nested.export(node) {
            Some((export, place)) => self.lookup_nested(&handle, name, node, &export, place).await?,
            None => self.lookup_direct(&handle, name).await?.0,
        };
        self.nested.learn(node, &object.reference.0);
        Ok(object)
    }

    async fn mount_nested(&self, export: &[u8]) -> Result<(FileHandle, Attr)> {
        let handle = self.mounter.mount(export).await?;
        let attr = self.getattr_of(&handle).await?;
        Ok((handle, attr))
    }

    /// The export's identity, by numbers that outlive the server's handles.
    async fn export_identity(&self) -> Result<OriginIdentity> {
        let attr = self.root().await?.attr;
        let bytes = [attr.fsid.to_be_bytes(), attr.fileid.to_be_bytes()].concat().into();
        let shown = format!("an export of file system {:x}, root file id {}", attr.fsid, attr.fileid);
        Ok(OriginIdentity { bytes, shown, is_lasting: true })
    }

    /// For messages.
    pub(crate) fn place(&self) -> String {
        format!("{}:{}", self.config.host, self.config.export.escape_ascii())
    }
}

/// Whatever the reason, a nested export that cannot be mounted is not absent.
fn not_mounted(name: &Name, error: &Error) -> Error {
    // It concerns that export alone: our own may go on.
    let kind = match error.outage_reason() {
        Some(OutageReason::Credentials) => ErrorKind::AccessDenied,
        _ if error.kind() == ErrorKind::AccessDenied => ErrorKind::AccessDenied,
        _ => ErrorKind::Unavailable,
    };
    failure(kind, "enter nested export", name, error.to_string())
}

/// The success of a result, or its status as an error.
pub(crate) fn ok_or_status<T, F>(
    what: &'static str,
    context: impl std::fmt::Display,
    outcome: NfsResult<T, F>,
) -> Result<T> {
    outcome.map_err(|(status, _)| status_error(what, context, status))
}

pub(crate) fn handle_of(reference: &Reference) -> Result<FileHandle> {
    if reference.0.len() > HANDLE_MAX {
        let reason = "a file handle has at most 64 bytes; this is a reference to another kind of origin";
        return Err(failure(ErrorKind::InvalidArgument, "use reference", "", reason));
    }
    Ok(FileHandle(reference.0.clone()))
}

pub(crate) fn object(handle: FileHandle, attr: Attr) -> Object {
    let version = Version::from_attr(&attr);
    Object { reference: Reference(handle.0.clone()), identity: Identity(handle.0), attr, version }
}

pub(crate) fn time_of(time: Nfstime3) -> Timestamp {
    Timestamp { seconds: time.seconds.into(), nanos: time.nanos.min(999_999_999) }
}

pub(crate) fn attr_of(attr: &Fattr3) -> Attr {
    Attr {
        kind: match attr.kind {
            FileType::Regular => FileKind::Regular,
            FileType::Directory => FileKind::Directory,
            FileType::BlockDevice => FileKind::BlockDevice,
            FileType::CharDevice => FileKind::CharDevice,
            FileType::Link => FileKind::Symlink,
            FileType::Socket => FileKind::Socket,
            FileType::Fifo => FileKind::Fifo,
        },
        mode: attr.mode & 0o7777,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        size: attr.size,
        used: attr.used,
        rdev: attr.rdev,
        fsid: attr.fsid,
        fileid: attr.fileid,
        atime: time_of(attr.atime),
        mtime: time_of(attr.mtime),
        ctime: time_of(attr.ctime),
    }
}

/// What the server takes in one READ and in one WRITE, within what we want.
async fn transfer_max(pool: &ConnectionPool, root: &FileHandle, config: &Config) -> Result<(u32, u32)> {
    let encode = |e: &mut _| root.encode(e);
    let what = "ask file system information of";
    let reply = pool.call(Lane::Metadata, what, procedure::FSINFO, encode, fs::decode_fsinfo).await?;
    let (reads, writes) = match reply {
        Ok(info) => ([info.read_max, info.read_preferred], [info.write_max, info.write_preferred]),
        Err(_) => ([0; 2], [0; 2]),
    };
    let within = |told: [u32; 2], wanted: u32| {
        let told = told.into_iter().find(|bytes| *bytes > 0).unwrap_or(TRANSFER_SMALL);
        told.clamp(4096, wanted.clamp(4096, 1 << 20))
    };
    Ok((within(reads, config.read_max), within(writes, config.write_max)))
}

#[async_trait]
impl Origin for NfsOrigin {
    fn url(&self) -> String {
        self.config.url()
    }

    fn traits(&self) -> OriginTraits {
        OriginTraits { read_max: self.read_max, write_max: self.write_max, ..crate::kind::TRAITS }
    }

    async fn identity(&self) -> Result<OriginIdentity> {
        self.export_identity().await
    }

    async fn is_empty(&self) -> Result<bool> {
        origin::identity::lists_nothing(self).await
    }

    async fn limits(&self) -> Result<OriginLimits> {
        let began = self.ensure_admitted().await?;
        self.check_admission(began, self.export_limits().await).await
    }

    async fn root(&self) -> Result<Object> {
        let began = self.ensure_admitted().await?;
        let handle = self.root_handle();
        match self.getattr_of(&handle).await {
            Err(error) if error.kind() == ErrorKind::Stale => {}
            other => return self.check_admission(began, other).await.map(|attr| object(handle, attr)),
        }
        // The export was set up anew: the path still names it.
        let handle = self.mounter.mount(&self.config.export).await.map_err(|error| {
            let reason = error.outage_reason().unwrap_or_default();
            Error::outage(reason, "mount again", self.place()).with_source(error)
        })?;
        let attr = self.getattr_of(&handle).await?;
        self.nested.learn(ROOT, &handle.0);
        *self.root.lock().unwrap_or_else(PoisonError::into_inner) = handle.clone();
        Ok(object(handle, attr))
    }

    async fn lookup(&self, dir: &Reference, name: &Name) -> Result<Object> {
        let began = self.ensure_admitted().await?;
        self.check_admission(began, self.lookup_name(dir, name).await).await
    }

    async fn getattr(&self, reference: &Reference) -> Result<Object> {
        let began = self.ensure_admitted().await?;
        let handle = handle_of(reference)?;
        let attr = self.check_admission(began, self.getattr_of(&handle).await).await?;
        Ok(object(handle, attr))
    }

    async fn readlink(&self, link: &Reference) -> Result<Bytes> {
        let began = self.ensure_admitted().await?;
        let handle = handle_of(link)?;
        let encode = |e: &mut _| handle.encode(e);
        let what = "read link at";
        let reply =
            self.pool.call(Lane::Metadata, what, procedure::READLINK, encode, file::decode_readlink).await?;
        // A copy: the target may live long, the record should not.
        self.check_admission(began, ok_or_status(what, self.place(), reply))
            .await
            .map(|ok| Bytes::copy_from_slice(&ok.target))
    }

    async fn readdir(&self, dir: &Reference, cursor: DirCursor) -> Result<DirPage> {
        let began = self.ensure_admitted().await?;
        self.check_admission(began, self.read_dir_page(dir, cursor).await).await
    }

    async fn read(&self, object: &Reference, version: Version, range: ByteRange) -> Result<Bytes> {
        let began = self.ensure_admitted().await?;
        self.check_admission(began, self.read_range(object, version, range).await).await
    }

    async fn statfs(&self, object: &Reference) -> Result<FsStat> {
        let handle = handle_of(object)?;
        let encode = |e: &mut _| handle.encode(e);
        let what = "ask free space of";
        let reply =
            self.pool.call(Lane::Metadata, what, procedure::FSSTAT, encode, fs::decode_fsstat).await?;
        let ok = ok_or_status(what, self.place(), reply)?;
        Ok(FsStat {
            bytes_total: ok.bytes_total,
            bytes_free: ok.bytes_free,
            bytes_available: ok.bytes_available,
            files_total: ok.files_total,
            files_free: ok.files_free,
        })
    }

    async fn change(&self, change: &Change) -> Result<Changed> {
        let began = self.ensure_admitted().await?;
        self.check_admission(began, self.make_change(change).await).await
    }

    async fn write(
        &self,
        object: &Reference,
        offset: u64,
        data: Bytes,
        stability: Stability,
    ) -> Result<Written> {
        let began = self.ensure_admitted().await?;
        self.check_admission(began, self.write_all(object, offset, data, stability).await).await
    }

    async fn commit(&self, object: &Reference, range: ByteRange) -> Result<Committed> {
        let began = self.ensure_admitted().await?;
        self.check_admission(began, self.commit_range(object, range).await).await
    }
}
