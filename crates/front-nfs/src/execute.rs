//! A call is carried out: its procedure is run under a deadline, and what came of it is put into a reply.

use std::time::{Duration, Instant};

use rpc_nfs3::XdrDecoder;
use rpc_nfs3::nfs3::{NfsStatus, PostOpAttr, procedure};
use rpc_nfs3::rpc::{AuthProblem, ReplyStatus};

use crate::call::{CallFailure, NfsCall};
use crate::message::{NfsReply, header_only, success_header};
use crate::metrics::{NfsStatusLabels, ProcedureLabels};
use crate::procs;

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
