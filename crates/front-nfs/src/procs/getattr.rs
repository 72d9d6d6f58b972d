//! GETATTR

use rpc_nfs3::nfs3::{FileHandle, file};
use rpc_nfs3::{Decoder, Encoder};

use super::Done;
use crate::attr::fattr3;
use crate::dispatch::{Call, Payload};

pub async fn run(call: &Call, d: &mut Decoder, e: &mut Encoder) -> Done {
    let (id, _) = call.open(&FileHandle::decode(d)?)?;
    let node = call.shared.vfs.getattr(id).await?;
    file::encode_getattr(e, &Ok(fattr3(&node.attr)));
    Ok(Payload::default())
}
