//! From a record to an answer: RPC header, program, procedure, deadline.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fair::MemoryPermit;
use rpc_nfs3::nfs3::{FileHandle, PostOpAttr, Status, procedure};
use rpc_nfs3::rpc::{AuthProblem, CallHeader, Credentials, RPC_VERSION, ReplyHeader, ReplyStatus};
use rpc_nfs3::{Decoder, Encoder, WireError, mount, nfs3};
use tracing::debug;
use types::{Caller, FileId, JunctionId};
use vfs::{Node, Piece, WritePolicy};

use crate::attr::fattr3;
use crate::connection::{Incoming, Peer, Reply};
use crate::exports::Refused;
use crate::metrics::{ProcedureLabels, StatusLabels};
use crate::{Shared, changing, errors, procs};

/// A call as the procedures see it.
pub struct Call {
    pub shared: Arc<Shared>,
    pub peer: Peer,
    pub procedure: u32,
    pub credentials: Credentials,
}

/// What is sent after the encoded part, and the room it takes.
#[derive(Default)]
pub struct Payload {
    pub body: Vec<Piece>,
    pub permit: MemoryPermit,
}

/// Why a procedure has no result.
pub enum Failure {
    /// The arguments could not be decoded.
    Garbage,
    /// The credentials are of the wrong kind.
    Credentials,
    Status(Status),
    /// Of a change, with what is known of the directories it was asked for in.
    Change(Status, Box<[PostOpAttr; 2]>),
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

impl Call {
    /// The file that a handle names, and the caller as this client's export rule has it.
    pub fn open(&self, handle: &FileHandle) -> Result<(FileId, Caller), Failure> {
        let (junction, id) = self.shared.handles.decode(handle)?;
        Ok((id, self.caller(junction)?))
    }

    /// As `open`, of something that the call changes.
    pub fn open_to_change(&self, handle: &FileHandle) -> Result<(FileId, Caller), Failure> {
        let (junction, id) = self.shared.handles.decode(handle)?;
        let caller = self.caller(junction)?;
        if self.is_read_only(junction) {
            return Err(Failure::Status(Status::ROFS));
        }
        Ok((id, caller))
    }

    /// For this client.
    pub fn is_read_only(&self, junction: JunctionId) -> bool {
        self.shared.vfs.write_policy(junction) == WritePolicy::ReadOnly
            || self.shared.config.exports.is_read_only(junction, self.peer.address)
    }

    /// Why a change was not made, and what is known of its directories, in the order of its results.
    pub fn not_changed(&self, error: types::Error, dirs: [Option<FileId>; 2]) -> Failure {
        debug!("{error}");
        let known = |dir: Option<FileId>| Some(fattr3(&self.shared.vfs.known(dir?)?.attr));
        Failure::Change(errors::status_of(error.kind()), Box::new(dirs.map(known)))
    }

    pub fn caller(&self, junction: JunctionId) -> Result<Caller, Failure> {
        let rules = &self.shared.config.exports;
        rules.caller(junction, self.peer.address, &self.credentials).map_err(|refused| match refused {
            // Its rules went with it.
            Refused::Client if self.shared.vfs.has_gone(junction) => Failure::Status(Status::STALE),
            Refused::Client => Failure::Status(Status::ACCES),
            Refused::Credentials => Failure::Credentials,
        })
    }

    /// Whether any rule admits this client.
    pub fn is_admitted(&self) -> bool {
        self.shared.config.exports.group_of(self.peer.address).is_some()
    }

    /// A handle to hand out, if this client may use that junction at all.
    pub fn handle(&self, node: &Node) -> Option<FileHandle> {
        let admitted = self.shared.config.exports.admits(node.junction, self.peer.address);
        admitted.then(|| self.shared.handles.encode(node.junction, node.id))
    }
}

/// The answer to a record, or `None` if it is no call at all, or one of which nothing can be said.
pub async fn answer(shared: Arc<Shared>, peer: Peer, incoming: Incoming) -> Option<Reply> {
    let Incoming { record, permit } = incoming;
    let mut arguments = Decoder::new(record);
    let Ok(header) = CallHeader::decode(&mut arguments) else {
        shared.metrics.malformed.inc();
        return None;
    };
    let refuse = |status| Some(plain(header.xid, status));
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
    let call = Call { shared, peer, procedure: header.procedure, credentials: header.credentials };
    inflight.inc();
    let reply = if header.program == nfs3::PROGRAM {
        nfs(call, header.xid, arguments, permit).await
    } else {
        Some(crate::mount::answer(&call, header.xid, arguments).await)
    };
    inflight.dec();
    reply
}

async fn nfs(call: Call, xid: u32, arguments: Decoder, permit: MemoryPermit) -> Option<Reply> {
    if changing::changes(call.procedure) {
        return changing::answer(call, xid, arguments, permit).await;
    }
    // The work goes on; the client asks again.
    let deadline = Some(call.shared.config.call_deadline);
    Some(carry_out(&call, xid, arguments, deadline).await.0)
}

/// Runs the procedure; past the deadline the answer is "try again later". Also whether the answer says how the call
/// ended.
pub async fn carry_out(
    call: &Call,
    xid: u32,
    arguments: Decoder,
    deadline: Option<Duration>,
) -> (Reply, bool) {
    let Some(name) = procedure::name(call.procedure) else {
        return (plain(xid, ReplyStatus::ProcedureUnavailable), false);
    };
    let start = Instant::now();
    let mut encoder = success(xid);
    let work = procs::run(call, arguments, &mut encoder);
    let outcome = match deadline {
        None => work.await,
        Some(deadline) => {
            tokio::time::timeout(deadline, work).await.unwrap_or(Err(Failure::Status(Status::JUKEBOX)))
        }
    };
    let labels = ProcedureLabels { procedure: name };
    call.shared.metrics.seconds.get_or_create(&labels).observe(start.elapsed().as_secs_f64());
    match outcome {
        Ok(payload) => {
            (Reply { body: payload.body, permit: payload.permit, ..Reply::new(encoder.finish()) }, true)
        }
        Err(Failure::Garbage) => {
            call.shared.metrics.malformed.inc();
            (plain(xid, ReplyStatus::GarbageArguments), false)
        }
        Err(Failure::Credentials) => (plain(xid, ReplyStatus::AuthError(AuthProblem::TooWeak as u32)), false),
        Err(Failure::Status(status)) => (failed(call, xid, status), status != Status::JUKEBOX),
        Err(Failure::Change(status, known)) => {
            (failed_change(call, xid, status, *known), status != Status::JUKEBOX)
        }
    }
}

/// An answer with a status and nothing else.
pub fn failed(call: &Call, xid: u32, status: Status) -> Reply {
    failed_change(call, xid, status, [None, None])
}

fn failed_change(call: &Call, xid: u32, status: Status, known: [PostOpAttr; 2]) -> Reply {
    call.shared.metrics.failures.get_or_create(&StatusLabels { status: status.0 }).inc();
    let mut encoder = success(xid);
    procs::encode_failure(&mut encoder, call.procedure, status, known);
    Reply::new(encoder.finish())
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
    Reply::new(encoder.finish())
}
