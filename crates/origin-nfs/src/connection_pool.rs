//! All connections to one server, and which of them a call takes.
//!
//! With more than one connection the first is kept for metadata, so that a lookup never stands behind a
//! megabyte of somebody's read-ahead; bulk reads take the least loaded of the others.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rpc_nfs3::rpc::{AuthSys, Credentials};
use rpc_nfs3::xdr::WireResult;
use rpc_nfs3::{XdrDecoder, XdrEncoder, nfs3};
use tokio::net::TcpStream;
use types::Result;

use crate::config::{AuthSysIdentity, Config, NCONNECT_MAX};
use crate::connection::{Endpoint, LastFailure, NfsConnection};
use crate::errors::{reply_error, wire_error};
use crate::exchange::{CallTarget, begin_call};
use crate::pending_calls::OutgoingCall;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    Metadata,
    Bulk,
}

/// The outcome of one NFS call.
pub struct CallReply<T> {
    /// `Err`: no answer, or one that makes no sense. `Ok(Err)`: the server did not take the call.
    pub answer: Result<Result<T>>,
    /// How often the call went out.
    pub sends: u32,
}

pub struct ConnectionPool {
    connections: Vec<NfsConnection>,
    credentials: Credentials,
    call_timeout: Duration,
    place: String,
}

/// The AUTH_SYS credentials of `identity`.
pub fn credentials(identity: &AuthSysIdentity) -> Credentials {
    Credentials::Sys(AuthSys {
        stamp: 0,
        machine_name: Bytes::from_static(identity.machine.as_bytes()),
        uid: identity.uid,
        gid: identity.gid,
        groups: identity.groups.clone(),
    })
}

impl ConnectionPool {
    /// `first` is a connection that is already proven; the others are dialled in the background.
    pub fn start(
        config: &Config,
        endpoint: &Endpoint,
        credentials: Credentials,
        first: TcpStream,
    ) -> ConnectionPool {
        let mut first = Some(first);
        let trouble = Arc::new(LastFailure::default());
        let connections = (0..config.nconnect.clamp(1, NCONNECT_MAX))
            .map(|_| {
                NfsConnection::start(
                    endpoint.clone(),
                    Arc::clone(&trouble),
                    config.calls_in_flight,
                    first.take(),
                )
            })
            .collect();
        ConnectionPool {
            connections,
            credentials,
            call_timeout: config.call_timeout,
            place: endpoint.place(),
        }
    }

    /// One NFS call that only reads: at most `call_timeout`, however often it must be sent.
    pub async fn call<T>(
        &self,
        lane: Lane,
        operation: &'static str,
        procedure: u32,
        encode: impl FnOnce(&mut XdrEncoder),
        decode: impl FnOnce(&mut XdrDecoder) -> WireResult<T>,
    ) -> Result<T> {
        let mut head = self.begin(procedure);
        encode(&mut head);
        let reply = self.ask(lane, operation, OutgoingCall::small(head), decode).await;
        reply.answer.unwrap_or_else(Err)
    }

    /// One NFS call that changes something: `encode` leaves the payload out.
    pub async fn change<T>(
        &self,
        lane: Lane,
        operation: &'static str,
        procedure: u32,
        encode: impl FnOnce(&mut XdrEncoder),
        payload: Bytes,
        decode: impl FnOnce(&mut XdrDecoder) -> WireResult<T>,
    ) -> CallReply<T> {
        let mut head = self.begin(procedure);
        encode(&mut head);
        self.ask(lane, operation, OutgoingCall { head, payload, patient: true }, decode).await
    }

    fn begin(&self, procedure: u32) -> XdrEncoder {
        let target = CallTarget { program: nfs3::PROGRAM, version: nfs3::VERSION, procedure };
        begin_call(target, &self.credentials)
    }

    async fn ask<T>(
        &self,
        lane: Lane,
        operation: &'static str,
        call: OutgoingCall,
        decode: impl FnOnce(&mut XdrDecoder) -> WireResult<T>,
    ) -> CallReply<T> {
        let delivered = self.pick(lane).call(operation, call, self.call_timeout).await;
        let answer = delivered.answer.and_then(|(status, mut results)| {
            if let Some(refusal) = reply_error(operation, &self.place, status) {
                return Ok(Err(refusal));
            }
            decode(&mut results).map(Ok).map_err(|e| wire_error(operation, &self.place, e))
        });
        CallReply { answer, sends: delivered.sends }
    }

    /// One that is up before one that is being dialled before one that is down; of these the least loaded.
    fn pick(&self, lane: Lane) -> &NfsConnection {
        let first = self.connections.first().expect("start() makes at least one");
        let others = self.connections.get(1..).filter(|others| !others.is_empty());
        let preferred = match (lane, others) {
            (Lane::Bulk, Some(others)) => others,
            _ => std::slice::from_ref(first),
        };
        let best = preferred.iter().max_by_key(|c| rank(c)).unwrap_or(first);
        if best.is_up() {
            return best;
        }
        self.connections.iter().max_by_key(|c| rank(c)).unwrap_or(first)
    }
}

fn rank(connection: &NfsConnection) -> (bool, bool, usize) {
    (connection.is_up(), !connection.is_down(), connection.free_slots())
}
