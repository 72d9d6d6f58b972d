//! The procedures, one file each (small ones of a kind together); here the table of them.

mod access;
mod fs;
mod getattr;
mod lookup;
mod read;
mod readdir;
mod readlink;

use rpc_nfs3::nfs3::{self, FileHandle, Status, procedure};
use rpc_nfs3::{Decoder, Encoder};

use crate::dispatch::{Call, Failure, Payload};

type Done = Result<Payload, Failure>;

pub async fn run(call: &Call<'_>, mut arguments: Decoder, e: &mut Encoder) -> Done {
    let d = &mut arguments;
    match call.procedure {
        procedure::NULL => Ok(Payload::default()),
        procedure::GETATTR => getattr::run(call, d, e).await,
        procedure::LOOKUP => lookup::run(call, d, e).await,
        procedure::ACCESS => access::run(call, d, e).await,
        procedure::READLINK => readlink::run(call, d, e).await,
        procedure::READ => read::run(call, d, e).await,
        procedure::READDIR => readdir::run(call, d, e, false).await,
        procedure::READDIRPLUS => readdir::run(call, d, e, true).await,
        procedure::FSSTAT => fs::fsstat(call, d, e).await,
        procedure::FSINFO => fs::fsinfo(call, d, e).await,
        procedure::PATHCONF => fs::pathconf(call, d, e).await,
        _ => refuse_to_change(call, d),
    }
}

/// Every procedure that changes something begins with a handle: it is checked as any other, and then the answer is
/// that the tree is read-only.
fn refuse_to_change(call: &Call<'_>, d: &mut Decoder) -> Done {
    call.open(&FileHandle::decode(d)?)?;
    Err(Failure::Status(Status::ROFS))
}

/// A failed result in the shape of its procedure, without attributes.
pub fn encode_failure(e: &mut Encoder, procedure: u32, status: Status) {
    if nfs3::encode_mutation_failure(e, procedure, status).is_ok() {
        return;
    }
    e.u32(status.0);
    if procedure != procedure::GETATTR {
        e.bool(false);
    }
}
