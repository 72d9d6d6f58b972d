//! REMOVE, RMDIR

use rpc_nfs3::nfs3::{DirOp, wcc};
use rpc_nfs3::{XdrDecoder, XdrEncoder};
use types::{FileId, Result};
use vfs::AttrsAround;

use super::{ProcedureResult, name};
use crate::attr::wcc_of;
use crate::call::{NfsCall, ReplyPayload};

pub async fn remove(call: &NfsCall, d: &mut XdrDecoder, e: &mut XdrEncoder) -> ProcedureResult {
    let arguments = DirOp::decode(d)?;
    let (dir, caller) = call.open_to_change(&arguments.dir).await?;
    let name = name::for_remove(&arguments.name)?;
    finish(call, e, dir, call.shared.vfs.remove(&caller, dir, &name).await)
}

pub async fn rmdir(call: &NfsCall, d: &mut XdrDecoder, e: &mut XdrEncoder) -> ProcedureResult {
    let arguments = DirOp::decode(d)?;
    let (dir, caller) = call.open_to_change(&arguments.dir).await?;
    let name = name::for_rmdir(&arguments.name)?;
    finish(call, e, dir, call.shared.vfs.rmdir(&caller, dir, &name).await)
}

fn finish(call: &NfsCall, e: &mut XdrEncoder, dir: FileId, removed: Result<AttrsAround>) -> ProcedureResult {
    let around = removed.map_err(|error| call.not_changed(error, [Some(dir), None]))?;
    wcc::encode_wcc_result(e, &Ok(wcc_of(&around)));
    Ok(ReplyPayload::default())
}
