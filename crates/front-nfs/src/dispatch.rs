//! From an RPC record to a reply: header, program, version; then the procedure.

use std::sync::Arc;

use fair::MemoryPermit;
use rpc_nfs3::rpc::{AuthProblem, CallHeader, Credentials, RPC_VERSION, ReplyStatus};
use rpc_nfs3::{XdrDecoder, cluster_map, mount, nfs3};

use crate::call::NfsCall;
use crate::execute::execute;
use crate::message::{IncomingCall, NfsPeer, NfsReply, header_only};
use crate::retention::is_change;
use crate::{NfsState, change_calls};

/// The reply to a record; `None` if it is no call, or the call is lost.
pub async fn handle_record(shared: Arc<NfsState>, peer: NfsPeer, incoming: IncomingCall) -> Option<NfsReply> {
    let IncomingCall { record, permit } = incoming;
    let mut arguments = XdrDecoder::new(record);
    let Ok(header) = CallHeader::decode(&mut arguments) else {
        shared.metrics.malformed.inc();
        return None;
    };
    let refuse = |status| Some(header_only(header.xid, status));
    if header.rpc_version != RPC_VERSION {
        return refuse(ReplyStatus::RpcMismatch { low: RPC_VERSION, high: RPC_VERSION });
    }
    if header.credentials == Credentials::Malformed {
        shared.metrics.malformed.inc();
        return refuse(ReplyStatus::AuthError(AuthProblem::BadCredentials as u32));
    }
    let served = match header.program {
        nfs3::PROGRAM => nfs3::VERSION,
        mount::PROGRAM => mount::VERSION,
        cluster_map::PROGRAM if shared.config.map.is_some() => cluster_map::VERSION,
        _ => return refuse(ReplyStatus::ProgramUnavailable),
    };
    if header.version != served {
        return refuse(ReplyStatus::ProgramMismatch { low: served, high: served });
    }
    let inflight = shared.metrics.calls_inflight.clone();
    let map = shared.config.map.as_ref().filter(|_| header.program == cluster_map::PROGRAM).cloned();
    let call = NfsCall { shared, peer, procedure: header.procedure, credentials: header.credentials };
    inflight.inc();
    let reply = match map {
        Some(map) => Some(crate::cluster_map::handle(&call, map.as_ref(), header.xid, arguments).await),
        None if header.program == nfs3::PROGRAM => handle_nfs(call, header.xid, arguments, permit).await,
        None => Some(crate::mount::handle(&call, header.xid, arguments).await),
    };
    inflight.dec();
    reply
}

async fn handle_nfs(
    call: NfsCall,
    xid: u32,
    arguments: XdrDecoder,
    permit: MemoryPermit,
) -> Option<NfsReply> {
    if is_change(call.procedure) {
        return change_calls::handle(call, xid, arguments, permit).await;
    }
    // The work goes on after the deadline; the client repeats its call.
    let deadline = Some(call.shared.config.call_deadline);
    Some(execute(&call, xid, arguments, deadline).await.0)
}
