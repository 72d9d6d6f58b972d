//! SETATTR

use rpc_nfs3::nfs3::setattr::SetattrArgs;
use rpc_nfs3::nfs3::{NfsStatus, wcc};
use rpc_nfs3::{XdrDecoder, XdrEncoder};
use types::ErrorKind;

use super::ProcedureResult;
use crate::attr::{self, set_attr, timestamp};
use crate::call::{CallFailure, NfsCall, ReplyPayload};

pub async fn run(call: &NfsCall, d: &mut XdrDecoder, e: &mut XdrEncoder) -> ProcedureResult {
    let arguments = SetattrArgs::decode(d)?;
    let (id, caller) = call.open_to_change(&arguments.object).await?;
    let set = set_attr(&arguments.attributes)?;
    let guard = arguments.guard.map(timestamp).transpose()?;
    let altered = call.shared.vfs.setattr(&caller, id, set, guard).await.map_err(|error| match guard {
        // With a guard, a change by others is what the client asked about, and no reason to retry.
        Some(_) if error.kind() == ErrorKind::VersionChanged => CallFailure::Status(NfsStatus::NOT_SYNC),
        _ => CallFailure::from(error),
    })?;
    wcc::encode_wcc_result(e, &Ok(attr::wcc(altered.before, Some(&altered.node.attr))));
    Ok(ReplyPayload::default())
}
