//! The NFSv3 procedures, one file each (small ones of a kind together), and the table of them.
//!
//! Each decodes its arguments, resolves its handles by [`NfsCall::open`] or [`NfsCall::open_to_change`], calls one
//! function of `vfs`, and encodes its result; it returns a [`ReplyPayload`] with the bytes that follow the encoded
//! part (READ), or a [`CallFailure`], which [`encode_failure`] writes in the procedure's shape. `name.rs` has the
//! rules for `.` and `..`. Changes arrive here only through `change_calls.rs`, and in a read-only tree they fail
//! before their arguments are decoded. Begin with `getattr.rs`, then `read.rs` and `create.rs`.

mod access;
mod create;
mod fs;
mod getattr;
mod link;
mod lookup;
mod name;
mod read;
mod readdir;
mod readlink;
mod remove;
mod rename;
mod setattr;
mod write;

use rpc_nfs3::nfs3::{self, FileHandle, PostOpAttr, Status, procedure};
use rpc_nfs3::{Decoder, Encoder};

use crate::change_calls::is_change;
use crate::dispatch::{CallFailure, NfsCall, ReplyPayload};

type ProcedureResult = Result<ReplyPayload, CallFailure>;

pub async fn run(call: &NfsCall, mut arguments: Decoder, e: &mut Encoder) -> ProcedureResult {
    let d = &mut arguments;
    if is_change(call.procedure) {
        // Every change begins with the handle of what it changes: in a read-only tree nothing else is decoded.
        call.open_to_change(&FileHandle::decode(&mut d.clone())?)?;
    }
    match call.procedure {
        procedure::NULL => Ok(ReplyPayload::default()),
        procedure::GETATTR => getattr::run(call, d, e).await,
        procedure::SETATTR => setattr::run(call, d, e).await,
        procedure::LOOKUP => lookup::run(call, d, e).await,
        procedure::ACCESS => access::run(call, d, e).await,
        procedure::READLINK => readlink::run(call, d, e).await,
        procedure::READ => read::run(call, d, e).await,
        procedure::WRITE => write::write(call, d, e).await,
        procedure::CREATE => create::create(call, d, e).await,
        procedure::MKDIR => create::mkdir(call, d, e).await,
        procedure::SYMLINK => create::symlink(call, d, e).await,
        procedure::MKNOD => create::mknod(call, d, e).await,
        procedure::REMOVE => remove::remove(call, d, e).await,
        procedure::RMDIR => remove::rmdir(call, d, e).await,
        procedure::RENAME => rename::run(call, d, e).await,
        procedure::LINK => link::run(call, d, e).await,
        procedure::READDIR => readdir::run(call, d, e, false).await,
        procedure::READDIRPLUS => readdir::run(call, d, e, true).await,
        procedure::FSSTAT => fs::fsstat(call, d, e).await,
        procedure::FSINFO => fs::fsinfo(call, d, e).await,
        procedure::PATHCONF => fs::pathconf(call, d, e).await,
        procedure::COMMIT => write::commit(call, d, e).await,
        _ => Err(CallFailure::Status(Status::NOTSUPP)),
    }
}

/// Encodes a failed result in the shape of its procedure. `known`: the attributes of a change's directories.
pub fn encode_failure(e: &mut Encoder, procedure: u32, status: Status, known: [PostOpAttr; 2]) {
    if nfs3::encode_mutation_failure(e, procedure, status, known).is_ok() {
        return;
    }
    e.u32(status.0);
    if procedure != procedure::GETATTR {
        e.bool(false);
    }
}
