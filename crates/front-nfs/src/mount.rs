//! MOUNT v3: from a path to its handle, and the list of mounts.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use fair::MemoryPermit;
use rpc_nfs3::mount::{self, ExportEntry, MountListEntry, MountOk, MountResult, MountStatus, procedure};
use rpc_nfs3::rpc::{AuthProblem, Credentials, ReplyStatus};
use rpc_nfs3::{WireError, XdrDecoder};
use tracing::info;

use crate::call::NfsCall;
use crate::errors;
use crate::message::{NfsReply, header_only, success_header};

/// The credentials that exports accept: AUTH_SYS.
const FLAVORS: [u32; 1] = [1];

/// The most mounts that are remembered for DUMP, of all clients and of one. Those of clients that never unmount are
/// dropped at last; nothing depends on the list. With the longest paths, a reply to DUMP has 1.3 MiB.
const MOUNTS_MAX: usize = 1024;
const MOUNTS_PER_CLIENT: usize = 64;

#[derive(Default)]
pub struct MountList {
    mounts: Mutex<VecDeque<MountListEntry>>,
}

impl MountList {
    fn edit(&self, edit: impl FnOnce(&mut VecDeque<MountListEntry>)) {
        edit(&mut self.mounts.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn add(&self, mount: MountListEntry) {
        self.edit(|mounts| {
            mounts.retain(|known| *known != mount);
            let of_client = mounts.iter().filter(|known| known.host == mount.host).count();
            if of_client >= MOUNTS_PER_CLIENT
                && let Some(oldest) = mounts.iter().position(|known| known.host == mount.host)
            {
                mounts.remove(oldest);
            }
            if mounts.len() >= MOUNTS_MAX {
                mounts.pop_front();
            }
            mounts.push_back(mount);
        });
    }

    fn all(&self) -> Vec<MountListEntry> {
        self.mounts.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

pub async fn handle(call: &NfsCall, xid: u32, mut arguments: XdrDecoder) -> NfsReply {
    match run(call, xid, &mut arguments).await {
        Ok(reply) => reply,
        Err(_) => {
            call.shared.metrics.malformed.inc();
            header_only(xid, ReplyStatus::GarbageArguments)
        }
    }
}

async fn run(call: &NfsCall, xid: u32, d: &mut XdrDecoder) -> Result<NfsReply, WireError> {
    let host = Bytes::from(call.peer.address.ip().to_canonical().to_string());
    let mut e = success_header(xid);
    let mut permit = MemoryPermit::default();
    let mounts = &call.shared.mounts;
    match call.procedure {
        procedure::NULL => {}
        procedure::MNT => {
            if matches!(call.credentials, Credentials::Other(_)) {
                return Ok(header_only(xid, ReplyStatus::AuthError(AuthProblem::TooWeak as u32)));
            }
            let path = mount::decode_path(d)?;
            let result = mnt(call, &path).await;
            if result.is_ok() {
                info!(client = %call.peer.address, path = %path.escape_ascii(), "mounted");
                // A copy: the buffer of the call is larger.
                mounts.add(MountListEntry { host, path: Bytes::copy_from_slice(&path) });
            }
            mount::encode_mount_result(&mut e, &result);
        }
        procedure::DUMP if call.is_admitted() => {
            let all = mounts.all();
            let bytes = all.iter().map(|mount| mount.host.len() + mount.path.len() + MOUNT_BYTES).sum();
            permit = call.peer.replies.acquire(bytes).await;
            mount::encode_mounts(&mut e, &all);
        }
        procedure::DUMP => mount::encode_mounts(&mut e, &[]),
        procedure::UMNT => {
            let path = mount::decode_path(d)?;
            mounts.edit(|all| all.retain(|known| known.host != host || known.path != path));
        }
        procedure::UMNTALL => mounts.edit(|all| all.retain(|known| known.host != host)),
        procedure::EXPORT => mount::encode_exports(&mut e, &exports(call)),
        _ => return Ok(header_only(xid, ReplyStatus::ProcedureUnavailable)),
    }
    Ok(NfsReply { permit, ..NfsReply::new(e.finish()) })
}

/// The bytes of an entry of DUMP besides its host and path.
const MOUNT_BYTES: usize = 20;

async fn mnt(call: &NfsCall, path: &[u8]) -> MountResult {
    if !call.is_admitted() {
        return Err(MountStatus::ACCESS); // nothing is looked for
    }
    // libnfs mounts the root by an empty path.
    let path = if path.is_empty() { b"/" } else { path };
    let deadline = call.shared.config.call_deadline;
    let node = match tokio::time::timeout(deadline, call.shared.vfs.resolve(path)).await {
        Ok(Ok(node)) => node,
        Ok(Err(e)) => {
            info!(client = %call.peer.address, "mount refused: {e}");
            return Err(errors::mount_status_of(e.kind()));
        }
        Err(_) => return Err(MountStatus::SERVER_FAULT),
    };
    if !node.attr.is_dir() {
        return Err(MountStatus::NOT_DIRECTORY);
    }
    let handle = call.handle(&node).ok_or_else(|| {
        info!(client = %call.peer.address, path = %path.escape_ascii(), "mount refused: no export rule admits it");
        MountStatus::ACCESS
    })?;
    Ok(MountOk { handle, flavors: FLAVORS.to_vec() })
}

/// Lists the root of the tree and every junction that this client may use.
fn exports(call: &NfsCall) -> Vec<ExportEntry> {
    let rules = &call.shared.config.exports;
    let admitted = call.shared.vfs.junctions().into_iter();
    let admitted = admitted.filter(|junction| rules.admits(junction.id, call.peer.address));
    if !call.is_admitted() {
        return Vec::new();
    }
    let mut paths: Vec<_> = std::iter::once("/".to_owned()).chain(admitted.map(|j| j.path)).collect();
    paths.dedup();
    paths.into_iter().map(|path| ExportEntry { path: path.into(), groups: Vec::new() }).collect()
}
