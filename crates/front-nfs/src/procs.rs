//! The NFSv3 procedures, one file each (small ones of a kind together), and the table of them (`run`).
//!
//! - Each decodes its arguments, resolves its handles by `NfsCall::open` or `NfsCall::open_to_change`, calls one
//!   function of `vfs`, and encodes its result into the reply that has the RPC header already.
//! - It returns a `ReplyPayload` with the bytes that follow the encoded part (READ) and the memory permit, or a
//!   `CallFailure`, which `encode_failure` writes in the procedure's shape.
//! - `read.rs` and `readdir.rs` take a memory permit before they ask `vfs`; `write.rs` keeps the slice of the
//!   record.
//! - `create.rs`, `remove.rs`, `rename.rs`, `link.rs`, `setattr.rs` are changes; `name.rs` has the rules for `.` and
//!   `..`.
//!
//! Invariants: changes arrive here only through `change_calls.rs`, and in a read-only tree they fail before their
//! arguments are decoded. A handle is only handed out for a junction that the client may use. No result is larger
//! than the client asked for, or than the front's own limit.
//!
//! Begin with `getattr.rs`, then `read.rs` and `create.rs`.

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

use rpc_nfs3::nfs3::{self, FileHandle, NfsStatus, PostOpAttr, procedure};
use rpc_nfs3::{XdrDecoder, XdrEncoder};

use crate::call::{CallFailure, NfsCall, ReplyPayload};
use crate::retention::is_change;

type ProcedureResult = Result<ReplyPayload, CallFailure>;

pub async fn run(call: &NfsCall, mut arguments: XdrDecoder, e: &mut XdrEncoder) -> ProcedureResult {
    let d = &mut arguments;
    if is_change(call.procedure) {
        // Every change begins with the handle of what it changes: in a read-only tree nothing else is decoded.
        call.open_to_change(&FileHandle::decode(&mut d.clone())?).await?;
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
        _ => Err(CallFailure::Status(NfsStatus::NOTSUPP)),
    }
}

/// Encodes a failed result in the shape of its procedure. `known`: the attributes of a change's directories.
pub fn encode_failure(e: &mut XdrEncoder, procedure: u32, status: NfsStatus, known: [PostOpAttr; 2]) {
    if nfs3::encode_mutation_failure(e, procedure, status, known).is_ok() {
        return;
    }
    e.u32(status.0);
    if procedure != procedure::GETATTR {
        e.bool(false);
    }
}
