//! FSSTAT, FSINFO, PATHCONF

use rpc_nfs3::nfs3::fs::{self, FsinfoOk, FsstatOk, PathconfOk, properties};
use rpc_nfs3::nfs3::{FileHandle, Nfstime3};
use rpc_nfs3::{XdrDecoder, XdrEncoder};

use super::ProcedureResult;
use crate::attr::fattr3;
use crate::call::{NfsCall, ReplyPayload};
use crate::{READ_MAX, WRITE_MAX};

pub async fn fsstat(call: &NfsCall, d: &mut XdrDecoder, e: &mut XdrEncoder) -> ProcedureResult {
    let (id, _) = call.open(&FileHandle::decode(d)?).await?;
    let space = call.shared.vfs.statfs(id).await?;
    let node = call.shared.vfs.getattr(id).await?;
    let ok = FsstatOk {
        attr: Some(fattr3(&node.attr)),
        bytes_total: space.bytes_total,
        bytes_free: space.bytes_free,
        bytes_available: space.bytes_available,
        files_total: space.files_total,
        files_free: space.files_free,
        files_available: space.files_free,
        invariant_seconds: 0,
    };
    fs::encode_fsstat(e, &Ok(ok));
    Ok(ReplyPayload::default())
}

pub async fn fsinfo(call: &NfsCall, d: &mut XdrDecoder, e: &mut XdrEncoder) -> ProcedureResult {
    let (id, _) = call.open(&FileHandle::decode(d)?).await?;
    let node = call.shared.vfs.getattr(id).await?;
    let can_set_time = if call.is_read_only(node.junction) { 0 } else { properties::CAN_SET_TIME };
    let ok = FsinfoOk {
        attr: Some(fattr3(&node.attr)),
        read_max: READ_MAX,
        read_preferred: READ_MAX,
        read_multiple: 4096,
        write_max: WRITE_MAX,
        write_preferred: WRITE_MAX,
        write_multiple: 4096,
        readdir_preferred: 64 << 10,
        file_size_max: (1 << 63) - 1,
        time_delta: Nfstime3 { seconds: 0, nanos: 1 },
        properties: properties::LINK | properties::SYMLINK | properties::HOMOGENEOUS | can_set_time,
    };
    fs::encode_fsinfo(e, &Ok(ok));
    Ok(ReplyPayload::default())
}

pub async fn pathconf(call: &NfsCall, d: &mut XdrDecoder, e: &mut XdrEncoder) -> ProcedureResult {
    let (id, _) = call.open(&FileHandle::decode(d)?).await?;
    let node = call.shared.vfs.getattr(id).await?;
    let ok = PathconfOk {
        attr: Some(fattr3(&node.attr)),
        link_max: 32000,
        name_max: 255,
        no_truncate: true,
        chown_restricted: true,
        case_insensitive: false,
        case_preserving: true,
    };
    fs::encode_pathconf(e, &Ok(ok));
    Ok(ReplyPayload::default())
}
