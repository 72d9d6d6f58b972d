//! From a record to an answer: RPC header, program, procedure, deadline.

use std::time::Instant;

use bytes::Bytes;
use rpc_nfs3::nfs3::{FileHandle, Status, procedure};
use rpc_nfs3::rpc::{AuthProblem, CallHeader, Credentials, RPC_VERSION, ReplyHeader, ReplyStatus};
use rpc_nfs3::{Decoder, Encoder, WireError, mount, nfs3};
use tokio::sync::OwnedSemaphorePermit;
use tracing::debug;
use types::{Caller, FileId, JunctionId};
use vfs::{Node, Piece};

use crate::connection::{Peer, Reply};
use crate::exports::Refused;
use crate::metrics::{ProcedureLabels, StatusLabels};
use crate::{Shared, errors, procs};

/// A call as the procedures see it.
pub struct Call<'a> {
    pub shared: &'a Shared,
    pub peer: &'a Peer,
    pub procedure: u32,
    pub credentials: Credentials,
}

/// What is sent after the encoded part, and the room it takes.
#[derive(Default)]
pub struct Payload {
    pub body: Vec<Piece>,
    pub permits: Vec<OwnedSemaphorePermit>,
}

/// Why a procedure has no result.
pub enum Failure {
    /// The arguments could not be decoded.
    Garbage,
    /// The credentials are of the wrong kind.
    Credentials,
    Status(Status),
}

impl From<WireError> for Failure {
    fn from(_: WireError) -> Failure {
        Failure::Garbage
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        Failure::Status(status)
    }
}

impl From<types::Error> for Failure {
    fn from(error: types::Error) -> Failure {
        debug!("{error}");
        Failure::Status(errors::status_of(error.kind()))
    }
}

impl Call<'_> {
    /// The file that a handle names, and the caller as this client's export rule has it.
    pub fn open(&self, handle: &FileHandle) -> Result<(FileId, Caller), Failure> {
        let (junction, id) = self.shared.handles.decode(handle)?;
        Ok((id, self.caller(junction)?))
    }

    pub fn caller(&self, junction: JunctionId) -> Result<Caller, Failure> {
        let rules = &self.shared.config.exports;
        rules.caller(junction, self.peer.address, &self.credentials).map_err(|refused| match refused {
            Refused::Client => Failure::Status(Status::ACCES),
            Refused::Credentials => Failure::Credentials,
        })
    }

    /// A handle to hand out, if this client may use that junction at all.
    pub fn handle(&self, node: &Node) -> Option<FileHandle> {
        let admitted = self.shared.config.exports.admits(node.junction, self.peer.address);
        admitted.then(|| self.shared.handles.encode(node.junction, node.id))
    }
}

/// The answer to a record, or `None` if it is no call at all.
pub async fn answer(shared: &Shared, peer: &Peer, record: Bytes) -> Option<Reply> {
    let mut arguments = Decoder::new(record);
    let Ok(header) = CallHeader::decode(&mut arguments) else {
        shared.metrics.malformed.inc();
        return None;
    };
    let refuse = |status| Some(plain(header.xid, status));
    if header.rpc_version != RPC_VERSION {
        return refuse(ReplyStatus::RpcMismatch { low: RPC_VERSION, high: RPC_VERSION });
    }
    let served = match header.program {
        nfs3::PROGRAM => nfs3::VERSION,
        mount::PROGRAM => mount::VERSION,
        _ => return refuse(ReplyStatus::ProgramUnavailable),
    };
    if header.version != served {
        return refuse(ReplyStatus::ProgramMismatch { low: served, high: served });
    }
    let call = Call { shared, peer, procedure: header.procedure, credentials: header.credentials };
    shared.metrics.calls_inflight.inc();
    let reply = if header.program == nfs3::PROGRAM {
        nfs(&call, header.xid, arguments).await
    } else {
        crate::mount::answer(&call, header.xid, arguments).await
    };
    shared.metrics.calls_inflight.dec();
    Some(reply)
}

async fn nfs(call: &Call<'_>, xid: u32, arguments: Decoder) -> Reply {
    let Some(name) = procedure::name(call.procedure) else {
        return plain(xid, ReplyStatus::ProcedureUnavailable);
    };
    let start = Instant::now();
    let mut encoder = success(xid);
    let head = encoder.len();
    let deadline = call.shared.config.call_deadline;
    let outcome = match tokio::time::timeout(deadline, procs::run(call, arguments, &mut encoder)).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Failure::Status(Status::JUKEBOX)), // the work goes on; the client asks again
    };
    let labels = ProcedureLabels { procedure: name };
    call.shared.metrics.seconds.get_or_create(&labels).observe(start.elapsed().as_secs_f64());
    match outcome {
        Ok(payload) => Reply { head: encoder.finish(), body: payload.body, permits: payload.permits },
        Err(Failure::Garbage) => {
            call.shared.metrics.malformed.inc();
            plain(xid, ReplyStatus::GarbageArguments)
        }
        Err(Failure::Credentials) => plain(xid, ReplyStatus::AuthError(AuthProblem::TooWeak as u32)),
        Err(Failure::Status(status)) => {
            call.shared.metrics.failures.get_or_create(&StatusLabels { status: status.0 }).inc();
            encoder.truncate(head);
            procs::encode_failure(&mut encoder, call.procedure, status);
            Reply { head: encoder.finish(), body: Vec::new(), permits: Vec::new() }
        }
    }
}

/// An encoder with the header of a successful answer in it.
pub fn success(xid: u32) -> Encoder {
    let mut encoder = Encoder::with_capacity(256);
    ReplyHeader { xid, status: ReplyStatus::Success }.encode(&mut encoder);
    encoder
}

/// An answer that is over with its header.
pub fn plain(xid: u32, status: ReplyStatus) -> Reply {
    let mut encoder = Encoder::with_capacity(64);
    ReplyHeader { xid, status }.encode(&mut encoder);
    Reply { head: encoder.finish(), body: Vec::new(), permits: Vec::new() }
}
