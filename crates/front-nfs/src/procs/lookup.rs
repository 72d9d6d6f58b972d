//! LOOKUP, with `.` and `..`

use rpc_nfs3::nfs3::file::{self, LookupOk};
use rpc_nfs3::nfs3::{DirOp, NfsStatus};
use rpc_nfs3::{XdrDecoder, XdrEncoder};
use types::{JunctionId, Name};

use super::ProcedureResult;
use crate::attr::fattr3;
use crate::call::{CallFailure, NfsCall, ReplyPayload};
use crate::visible_directories::VisibleDirectories;

pub async fn run(call: &NfsCall, d: &mut XdrDecoder, e: &mut XdrEncoder) -> ProcedureResult {
    let arguments = DirOp::decode(d)?;
    let (dir, caller) = call.open(&arguments.dir).await?;
    let vfs = &call.shared.vfs;
    let node = match arguments.name.as_ref() {
        b"." => vfs.getattr(dir).await?,
        b".." => vfs.parent(&caller, dir).await?,
        _ => vfs.lookup(&caller, dir, &Name::new(arguments.name.clone())?).await?,
    };
    let is_name = !matches!(arguments.name.as_ref(), b"." | b"..");
    if is_name
        && node.junction == JunctionId::VIRTUAL
        && !VisibleDirectories::new(call).await.shows(call, Some(&node))
    {
        return Err(CallFailure::Status(NfsStatus::NOENT));
    }
    // A junction that this client may not use has no name for it.
    let closed = if is_name { NfsStatus::NOENT } else { NfsStatus::ACCES };
    let object = call.handle(&node).ok_or(CallFailure::Status(closed))?;
    file::encode_lookup(e, &Ok(LookupOk { object, attr: Some(fattr3(&node.attr)), dir_attr: None }));
    Ok(ReplyPayload::default())
}
