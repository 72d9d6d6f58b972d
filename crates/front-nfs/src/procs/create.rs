//! CREATE, MKDIR, SYMLINK, MKNOD

use bytes::Bytes;
use rpc_nfs3::nfs3::NfsStatus;
use rpc_nfs3::nfs3::create::{
    self, CreateArgs, CreateHow3, CreateOk, MkdirArgs, MknodArgs, NodeData, SymlinkArgs,
};
use rpc_nfs3::{XdrDecoder, XdrEncoder};
use types::{CreateHow, FileId, NewNode, Result, SetAttr};
use vfs::Made;

use super::{ProcedureResult, name};
use crate::attr::{fattr3, set_attr, wcc_of};
use crate::call::{CallFailure, NfsCall, ReplyPayload};

pub async fn create(call: &NfsCall, d: &mut XdrDecoder, e: &mut XdrEncoder) -> ProcedureResult {
    let arguments = CreateArgs::decode(d)?;
    let (dir, caller) = call.open_to_change(&arguments.place.dir).await?;
    let name = name::for_create(&arguments.place.name)?;
    let (how, set) = match &arguments.how {
        CreateHow3::Unchecked(attributes) => (CreateHow::Unchecked, set_attr(attributes)?),
        CreateHow3::Guarded(attributes) => (CreateHow::Guarded, set_attr(attributes)?),
        // The attributes follow in a SETATTR.
        CreateHow3::Exclusive(verifier) => (CreateHow::Exclusive(*verifier), SetAttr::default()),
    };
    let made = call.shared.vfs.create(&caller, dir, &name, how, set).await;
    finish(call, e, dir, made)
}

pub async fn mkdir(call: &NfsCall, d: &mut XdrDecoder, e: &mut XdrEncoder) -> ProcedureResult {
    let arguments = MkdirArgs::decode(d)?;
    let (dir, caller) = call.open_to_change(&arguments.place.dir).await?;
    let name = name::for_create(&arguments.place.name)?;
    let set = set_attr(&arguments.attributes)?;
    let made = call.shared.vfs.mkdir(&caller, dir, &name, set).await;
    finish(call, e, dir, made)
}

pub async fn symlink(call: &NfsCall, d: &mut XdrDecoder, e: &mut XdrEncoder) -> ProcedureResult {
    let arguments = SymlinkArgs::decode(d)?;
    let (dir, caller) = call.open_to_change(&arguments.place.dir).await?;
    let name = name::for_create(&arguments.place.name)?;
    let set = set_attr(&arguments.attributes)?;
    if arguments.target.contains(&0) {
        return Err(CallFailure::Status(NfsStatus::INVAL));
    }
    let target = Bytes::copy_from_slice(&arguments.target); // may be remembered for long, and the call is larger
    let made = call.shared.vfs.symlink(&caller, dir, &name, target, set).await;
    finish(call, e, dir, made)
}

pub async fn mknod(call: &NfsCall, d: &mut XdrDecoder, e: &mut XdrEncoder) -> ProcedureResult {
    let arguments = MknodArgs::decode(d)?;
    let (dir, caller) = call.open_to_change(&arguments.place.dir).await?;
    let name = name::for_create(&arguments.place.name)?;
    let (node, attributes) = match &arguments.node {
        NodeData::CharDevice { attributes, rdev } => (NewNode::CharDevice(rdev.0, rdev.1), attributes),
        NodeData::BlockDevice { attributes, rdev } => (NewNode::BlockDevice(rdev.0, rdev.1), attributes),
        NodeData::Socket(attributes) => (NewNode::Socket, attributes),
        NodeData::Fifo(attributes) => (NewNode::Fifo, attributes),
        NodeData::Other(_) => return Err(CallFailure::Status(NfsStatus::BADTYPE)),
    };
    let set = set_attr(attributes)?;
    let made = call.shared.vfs.mknod(&caller, dir, &name, node, set).await;
    finish(call, e, dir, made)
}

fn finish(call: &NfsCall, e: &mut XdrEncoder, dir: FileId, made: Result<Made>) -> ProcedureResult {
    let made = made.map_err(|error| call.not_changed(error, [Some(dir), None]))?;
    let attr = Some(fattr3(&made.node.attr));
    let ok = CreateOk { object: call.handle(&made.node), attr, dir_wcc: wcc_of(&made.dir) };
    create::encode_create(e, &Ok(ok));
    Ok(ReplyPayload::default())
}
