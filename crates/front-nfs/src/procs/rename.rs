//! RENAME

use rpc_nfs3::nfs3::names::{self, RenameArgs, RenameWcc};
use rpc_nfs3::{XdrDecoder, XdrEncoder};

use super::{ProcedureResult, name};
use crate::attr::wcc_of;
use crate::call::{NfsCall, ReplyPayload};

pub async fn run(call: &NfsCall, d: &mut XdrDecoder, e: &mut XdrEncoder) -> ProcedureResult {
    let arguments = RenameArgs::decode(d)?;
    let (from_dir, caller) = call.open_to_change(&arguments.from.dir).await?;
    let (to_dir, _) = call.open_to_change(&arguments.to.dir).await?;
    let (from, to) = (name::for_rename(&arguments.from.name)?, name::for_rename(&arguments.to.name)?);
    let renamed = call.shared.vfs.rename(&caller, from_dir, &from, to_dir, &to).await;
    let (from, to) = renamed.map_err(|error| call.not_changed(error, [Some(from_dir), Some(to_dir)]))?;
    names::encode_rename(e, &Ok(RenameWcc { from: wcc_of(&from), to: wcc_of(&to) }));
    Ok(ReplyPayload::default())
}
