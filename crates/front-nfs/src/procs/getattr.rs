//! GETATTR

use rpc_nfs3::nfs3::{FileHandle, file};
use rpc_nfs3::{XdrDecoder, XdrEncoder};

use super::ProcedureResult;
use crate::attr::fattr3;
use crate::call::{NfsCall, ReplyPayload};

pub async fn run(call: &NfsCall, d: &mut XdrDecoder, e: &mut XdrEncoder) -> ProcedureResult {
    let (id, _) = call.open(&FileHandle::decode(d)?).await?;
    let node = call.shared.vfs.getattr(id).await?;
    file::encode_getattr(e, &Ok(fattr3(&node.attr)));
    Ok(ReplyPayload::default())
}
