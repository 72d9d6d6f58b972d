//! READLINK

use rpc_nfs3::nfs3::FileHandle;
use rpc_nfs3::nfs3::file::{self, ReadlinkOk};
use rpc_nfs3::{XdrDecoder, XdrEncoder};

use super::ProcedureResult;
use crate::attr::fattr3;
use crate::call::{NfsCall, ReplyPayload};

pub async fn run(call: &NfsCall, d: &mut XdrDecoder, e: &mut XdrEncoder) -> ProcedureResult {
    let (id, caller) = call.open(&FileHandle::decode(d)?).await?;
    let (target, node) = call.shared.vfs.readlink(&caller, id).await?;
    file::encode_readlink(e, &Ok(ReadlinkOk { attr: Some(fattr3(&node.attr)), target }));
    Ok(ReplyPayload::default())
}
