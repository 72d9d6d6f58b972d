//! ACCESS

use rpc_nfs3::nfs3::file::{self, AccessArgs, AccessOk, access};
use rpc_nfs3::{XdrDecoder, XdrEncoder};
use vfs::Access;

use super::ProcedureResult;
use crate::attr::fattr3;
use crate::call::{NfsCall, ReplyPayload};

/// The ACCESS bits of NFS and those of `vfs`.
const BITS: [(u32, Access); 6] = [
    (access::READ, Access::READ),
    (access::LOOKUP, Access::LOOKUP),
    (access::MODIFY, Access::MODIFY),
    (access::EXTEND, Access::EXTEND),
    (access::DELETE, Access::DELETE),
    (access::EXECUTE, Access::EXECUTE),
];

/// The bits that a client never gets in a read-only tree.
const CHANGES: u32 = access::MODIFY | access::EXTEND | access::DELETE;

pub async fn run(call: &NfsCall, d: &mut XdrDecoder, e: &mut XdrEncoder) -> ProcedureResult {
    let arguments = AccessArgs::decode(d)?;
    let (id, caller) = call.open(&arguments.object).await?;
    let wanted = BITS.iter().filter(|(bit, _)| arguments.wanted & bit != 0);
    let wanted = wanted.fold(Access(0), |all, (_, ours)| all | *ours);
    let (granted, node) = call.shared.vfs.access(&caller, id, wanted).await?;
    let refused = if call.is_read_only(node.junction) { CHANGES } else { 0 };
    let granted = BITS.iter().filter(|(_, ours)| granted.contains(*ours)).fold(0, |all, (bit, _)| all | bit);
    let granted = granted & !refused;
    file::encode_access(e, &Ok(AccessOk { attr: Some(fattr3(&node.attr)), granted }));
    Ok(ReplyPayload::default())
}
