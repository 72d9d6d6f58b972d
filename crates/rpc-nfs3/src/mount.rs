//! MOUNT v3: from an export's path to its root handle.

use bytes::Bytes;

use crate::nfs3::FileHandle;
use crate::xdr::{WireResult, XdrDecoder, XdrEncoder, length32};

pub const PROGRAM: u32 = 100_005;
pub const VERSION: u32 = 3;
pub const PATH_MAX: usize = 1024;
const NAME_MAX: usize = 255;
const FLAVORS_MAX: usize = 32;
/// Exports, groups of an export, or mounts that a listing may have.
const LIST_MAX: usize = 65_536;

pub mod procedure {
    pub const NULL: u32 = 0;
    pub const MNT: u32 = 1;
    pub const DUMP: u32 = 2;
    pub const UMNT: u32 = 3;
    pub const UMNTALL: u32 = 4;
    pub const EXPORT: u32 = 5;
}

/// mountstat3
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountStatus(pub u32);

impl MountStatus {
    pub const OK: MountStatus = MountStatus(0);
    pub const NO_ENTRY: MountStatus = MountStatus(2);
    pub const IO: MountStatus = MountStatus(5);
    pub const ACCESS: MountStatus = MountStatus(13);
    pub const NOT_DIRECTORY: MountStatus = MountStatus(20);
    pub const INVALID: MountStatus = MountStatus(22);
    pub const NAME_TOO_LONG: MountStatus = MountStatus(63);
    pub const SERVER_FAULT: MountStatus = MountStatus(10006);
}

pub fn decode_path(d: &mut XdrDecoder) -> WireResult<Bytes> {
    d.opaque(PATH_MAX)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOk {
    pub handle: FileHandle,
    /// Flavors of credentials that the export takes.
    pub flavors: Vec<u32>,
}

pub type MountResult = Result<MountOk, MountStatus>;

pub fn encode_mount_result(e: &mut XdrEncoder, result: &MountResult) {
    match result {
        Ok(mounted) => {
            e.u32(0);
            mounted.handle.encode(e);
            e.u32(length32(mounted.flavors.len()));
            mounted.flavors.iter().for_each(|f| e.u32(*f));
        }
        Err(status) => e.u32(status.0),
    }
}

pub fn decode_mount_result(d: &mut XdrDecoder) -> WireResult<MountResult> {
    match d.u32()? {
        0 => {
            let handle = FileHandle::decode(d)?;
            let flavors = d.list(FLAVORS_MAX, XdrDecoder::u32)?;
            Ok(Ok(MountOk { handle, flavors }))
        }
        status => Ok(Err(MountStatus(status))),
    }
}

/// One export and the clients it is for (none: everybody).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportEntry {
    pub path: Bytes,
    pub groups: Vec<Bytes>,
}

pub fn encode_exports(e: &mut XdrEncoder, exports: &[ExportEntry]) {
    for export in exports {
        e.bool(true);
        e.opaque(&export.path);
        for group in &export.groups {
            e.bool(true);
            e.opaque(group);
        }
        e.bool(false);
    }
    e.bool(false);
}

pub fn decode_exports(d: &mut XdrDecoder) -> WireResult<Vec<ExportEntry>> {
    d.chain(LIST_MAX, |d| {
        let path = d.opaque(PATH_MAX)?;
        let groups = d.chain(LIST_MAX, |d| d.opaque(NAME_MAX))?;
        Ok(ExportEntry { path, groups })
    })
}

/// One client that has mounted something, as far as the server remembers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MountListEntry {
    pub host: Bytes,
    pub path: Bytes,
}

pub fn encode_mounts(e: &mut XdrEncoder, mounts: &[MountListEntry]) {
    for mount in mounts {
        e.bool(true);
        e.opaque(&mount.host);
        e.opaque(&mount.path);
    }
    e.bool(false);
}

pub fn decode_mounts(d: &mut XdrDecoder) -> WireResult<Vec<MountListEntry>> {
    d.chain(LIST_MAX, |d| Ok(MountListEntry { host: d.opaque(NAME_MAX)?, path: d.opaque(PATH_MAX)? }))
}
