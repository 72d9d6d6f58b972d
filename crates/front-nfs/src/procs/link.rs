//! LINK

use rpc_nfs3::nfs3::names::{self, LinkArgs, LinkWcc};
use rpc_nfs3::{XdrDecoder, XdrEncoder};

use super::{ProcedureResult, name};
use crate::attr::{fattr3, wcc_of};
use crate::call::{NfsCall, ReplyPayload};

pub async fn run(call: &NfsCall, d: &mut XdrDecoder, e: &mut XdrEncoder) -> ProcedureResult {
    let arguments = LinkArgs::decode(d)?;
    let (file, _) = call.open_to_change(&arguments.object).await?;
    let (dir, caller) = call.open_to_change(&arguments.place.dir).await?;
    let name = name::for_create(&arguments.place.name)?;
    let linked = call.shared.vfs.link(&caller, file, dir, &name).await;
    let made = linked.map_err(|error| call.not_changed(error, [None, Some(dir)]))?;
    names::encode_link(e, &Ok(LinkWcc { attr: Some(fattr3(&made.node.attr)), dir: wcc_of(&made.dir) }));
    Ok(ReplyPayload::default())
}
