//! REMOVE, RMDIR

use rpc_nfs3::nfs3::{DirOp, wcc};
use rpc_nfs3::{Decoder, Encoder};
use types::{FileId, Result};
use vfs::Around;

use super::{Done, name};
use crate::attr::wcc_of;
use crate::dispatch::{Call, Payload};

pub async fn remove(call: &Call, d: &mut Decoder, e: &mut Encoder) -> Done {
    let arguments = DirOp::decode(d)?;
    let (dir, caller) = call.open_to_change(&arguments.dir)?;
    let name = name::to_remove(&arguments.name)?;
    finish(call, e, dir, call.shared.vfs.remove(&caller, dir, &name).await)
}

pub async fn rmdir(call: &Call, d: &mut Decoder, e: &mut Encoder) -> Done {
    let arguments = DirOp::decode(d)?;
    let (dir, caller) = call.open_to_change(&arguments.dir)?;
    let name = name::to_rmdir(&arguments.name)?;
    finish(call, e, dir, call.shared.vfs.rmdir(&caller, dir, &name).await)
}

fn finish(call: &Call, e: &mut Encoder, dir: FileId, removed: Result<Around>) -> Done {
    let around = removed.map_err(|error| call.not_changed(error, [Some(dir), None]))?;
    wcc::encode_wcc_result(e, &Ok(wcc_of(&around)));
    Ok(Payload::default())
}
