//! From an RPC record to a reply: header, program, procedure, deadline.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fair::MemoryPermit;
use rpc_nfs3::nfs3::{FileHandle, NfsStatus, PostOpAttr, procedure};
use rpc_nfs3::rpc::{AuthProblem, CallHeader, Credentials, RPC_VERSION, ReplyHeader, ReplyStatus};
use rpc_nfs3::{WireError, XdrDecoder, XdrEncoder, mount, nfs3};
use tracing::debug;
use types::{Caller, FileId, JunctionId};
use vfs::{Node, Piece, WritePolicy};

use crate::attr::fattr3;
use crate::connection::{IncomingCall, NfsPeer, NfsReply};
use crate::exports::ExportRefusal;
use crate::metrics::{NfsStatusLabels, ProcedureLabels};
use crate::{NfsState, change_calls, errors, procs};

/// A call as the procedures see it.
pub struct NfsCall {
    pub shared: Arc<NfsState>,
    pub peer: NfsPeer,
    pub procedure: u32,
    pub credentials: Credentials,
}

/// What follows the encoded part of a reply, and the memory that it holds.
#[derive(Default)]
pub struct ReplyPayload {
    pub body: Vec<Piece>,
    pub permit: MemoryPermit,
}

/// Why a procedure failed.
pub enum CallFailure {
    /// The arguments could not be decoded.
    Garbage,
    /// The credentials are of the wrong kind.
    Credentials,
    Status(NfsStatus),
    /// The failure of a change, with the attributes of its directories as far as they are known.
    Change(NfsStatus, Box<[PostOpAttr; 2]>),
}

impl From<WireError> for CallFailure {
    fn from(_: WireError) -> CallFailure {
        CallFailure::Garbage
    }
}

impl From<NfsStatus> for CallFailure {
    fn from(status: NfsStatus) -> CallFailure {
        CallFailure::Status(status)
    }
}

impl From<types::Error> for CallFailure {
    fn from(error: types::Error) -> CallFailure {
        debug!("{error}");
        CallFailure::Status(errors::status_of(error.kind()))
    }
}

impl NfsCall {
    /// Resolves a handle to a file id, and the credentials to a caller by this client's export rule.
    pub fn open(&self, handle: &FileHandle) -> Result<(FileId, Caller), CallFailure> {
        let (junction, id) = self.shared.handles.decode(handle)?;
        Ok((id, self.caller(junction)?))
    }

    /// As `open`, for a file that the call changes.
    pub fn open_to_change(&self, handle: &FileHandle) -> Result<(FileId, Caller), CallFailure> {
        let (junction, id) = self.shared.handles.decode(handle)?;
        let caller = self.caller(junction)?;
        if self.is_read_only(junction) {
            return Err(CallFailure::Status(NfsStatus::ROFS));
        }
        Ok((id, caller))
    }

    /// Whether this client may not change the junction.
    pub fn is_read_only(&self, junction: JunctionId) -> bool {
        self.shared.vfs.write_policy(junction) == WritePolicy::ReadOnly
            || self.shared.config.exports.is_read_only(junction, self.peer.address)
    }

    /// The failure of a change, with the known attributes of its directories in the order of its result.
    pub fn not_changed(&self, error: types::Error, dirs: [Option<FileId>; 2]) -> CallFailure {
        debug!("{error}");
        let known = |dir: Option<FileId>| Some(fattr3(&self.shared.vfs.known(dir?)?.attr));
        CallFailure::Change(errors::status_of(error.kind()), Box::new(dirs.map(known)))
    }

    pub fn caller(&self, junction: JunctionId) -> Result<Caller, CallFailure> {
        let rules = &self.shared.config.exports;
        rules.caller(junction, self.peer.address, &self.credentials).map_err(|refused| match refused {
            // The export rules of a removed junction are gone, too.
            ExportRefusal::Client if self.shared.vfs.has_gone(junction) => {
                CallFailure::Status(NfsStatus::STALE)
            }
            ExportRefusal::Client => CallFailure::Status(NfsStatus::ACCES),
            ExportRefusal::Credentials => CallFailure::Credentials,
        })
    }

    /// Whether any export rule admits this client.
    pub fn is_admitted(&self) -> bool {
        self.shared.config.exports.group_of(self.peer.address).is_some()
    }

    /// The handle of a node, if this client may use its junction.
    pub fn handle(&self, node: &Node) -> Option<FileHandle> {
        let admitted = self.shared.config.exports.admits(node.junction, self.peer.address);
        admitted.then(|| self.shared.handles.encode(node.junction, node.id))
    }
}

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
        _ => return refuse(ReplyStatus::ProgramUnavailable),
    };
    if header.version != served {
        return refuse(ReplyStatus::ProgramMismatch { low: served, high: served });
    }
    let inflight = shared.metrics.calls_inflight.clone();
    let call = NfsCall { shared, peer, procedure: header.procedure, credentials: header.credentials };
    inflight.inc();
    let reply = if header.program == nfs3::PROGRAM {
        handle_nfs(call, header.xid, arguments, permit).await
    } else {
        Some(crate::mount::handle(&call, header.xid, arguments).await)
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
    if change_calls::is_change(call.procedure) {
        return change_calls::handle(call, xid, arguments, permit).await;
    }
    // The work goes on after the deadline; the client repeats its call.
    let deadline = Some(call.shared.config.call_deadline);
    Some(execute(&call, xid, arguments, deadline).await.0)
}

/// Runs the procedure; past the deadline the reply is JUKEBOX. Also returns whether the reply is final.
pub async fn execute(
    call: &NfsCall,
    xid: u32,
    arguments: XdrDecoder,
    deadline: Option<Duration>,
) -> (NfsReply, bool) {
    let Some(name) = procedure::name(call.procedure) else {
        return (header_only(xid, ReplyStatus::ProcedureUnavailable), false);
    };
    let start = Instant::now();
    let mut encoder = success_header(xid);
    let work = procs::run(call, arguments, &mut encoder);
    let outcome = match deadline {
        None => work.await,
        Some(deadline) => {
            tokio::time::timeout(deadline, work).await.unwrap_or(Err(CallFailure::Status(NfsStatus::JUKEBOX)))
        }
    };
    let labels = ProcedureLabels { procedure: name };
    call.shared.metrics.seconds.get_or_create(&labels).observe(start.elapsed().as_secs_f64());
    match outcome {
        Ok(payload) => {
            (NfsReply { body: payload.body, permit: payload.permit, ..NfsReply::new(encoder.finish()) }, true)
        }
        Err(CallFailure::Garbage) => {
            call.shared.metrics.malformed.inc();
            (header_only(xid, ReplyStatus::GarbageArguments), false)
        }
        Err(CallFailure::Credentials) => {
            (header_only(xid, ReplyStatus::AuthError(AuthProblem::TooWeak as u32)), false)
        }
        Err(CallFailure::Status(status)) => (status_reply(call, xid, status), status != NfsStatus::JUKEBOX),
        Err(CallFailure::Change(status, known)) => {
            (failed_change(call, xid, status, *known), status != NfsStatus::JUKEBOX)
        }
    }
}

/// A reply with a status and nothing else.
pub fn status_reply(call: &NfsCall, xid: u32, status: NfsStatus) -> NfsReply {
    failed_change(call, xid, status, [None, None])
}

fn failed_change(call: &NfsCall, xid: u32, status: NfsStatus, known: [PostOpAttr; 2]) -> NfsReply {
    call.shared.metrics.failures.get_or_create(&NfsStatusLabels { status: status.0 }).inc();
    let mut encoder = success_header(xid);
    procs::encode_failure(&mut encoder, call.procedure, status, known);
    NfsReply::new(encoder.finish())
}

/// An encoder that begins with the header of a successful reply.
pub fn success_header(xid: u32) -> XdrEncoder {
    let mut encoder = XdrEncoder::with_capacity(256);
    ReplyHeader { xid, status: ReplyStatus::Success }.encode(&mut encoder);
    encoder
}

/// A reply that consists of its header.
pub fn header_only(xid: u32, status: ReplyStatus) -> NfsReply {
    let mut encoder = XdrEncoder::with_capacity(64);
    ReplyHeader { xid, status }.encode(&mut encoder);
    NfsReply::new(encoder.finish())
}
