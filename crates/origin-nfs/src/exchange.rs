//! One call and its reply on a connection that is used for nothing else at that moment: portmap, MOUNT, and
//! the NULL call that proves a fresh connection.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use rpc_nfs3::record::{RecordReader, mark};
use rpc_nfs3::rpc::{CallHeader, Credentials, ReplyHeader};
use rpc_nfs3::{XdrDecoder, XdrEncoder};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use types::{ErrorKind, Result};

use crate::errors::{failure, record_error, reply_error, wire_error};

/// Longest reply: a list of exports with all their clients.
const REPLY_MAX: usize = 4 << 20;

/// Where the mark is and where the xid is in a call that has not been sent.
const MARK_AT: usize = 0;
const XID_AT: usize = 4;
const MARK_BYTES: usize = 4;

/// The procedure that is called.
#[derive(Clone, Copy, Debug)]
pub struct CallTarget {
    pub program: u32,
    pub version: u32,
    pub procedure: u32,
}

/// A call ready to be sent but for its xid and mark: the arguments are to be appended.
pub fn begin_call(target: CallTarget, credentials: &Credentials) -> XdrEncoder {
    let mut e = XdrEncoder::with_capacity(256);
    e.u32(0);
    let CallTarget { program, version, procedure } = target;
    let credentials = credentials.clone();
    CallHeader { xid: 0, rpc_version: 2, program, version, procedure, credentials }.encode(&mut e);
    e
}

/// The whole record, but for `payload` bytes (padding included) that are sent after it.
pub fn finish_call(mut e: XdrEncoder, xid: u32, payload: usize) -> Bytes {
    let length = e.len().saturating_sub(MARK_BYTES).saturating_add(payload);
    e.patch_u32(MARK_AT, u32::from_be_bytes(mark(length)));
    e.patch_u32(XID_AT, xid);
    e.finish()
}

/// Where a connection's xids begin: two clients, or one restarted, should not use the same ones.
pub fn first_xid() -> u32 {
    static SPREAD: AtomicU32 = AtomicU32::new(0);
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let clock = since.subsec_nanos() ^ (since.as_secs() as u32).rotate_left(16);
    clock.wrapping_add(SPREAD.fetch_add(0x9e37_79b9, Ordering::Relaxed))
}

/// The results of the call, within `timeout`.
pub async fn exchange(
    stream: &mut TcpStream,
    operation: &'static str,
    context: &str,
    call: XdrEncoder,
    timeout: Duration,
) -> Result<XdrDecoder> {
    let xid = first_xid();
    let talk = async {
        let write = stream.write_all(&finish_call(call, xid, 0)).await;
        write.map_err(|e| types::Error::new(ErrorKind::Unavailable, operation, context).with_source(e))?;
        let mut reader = RecordReader::new(stream, REPLY_MAX);
        let record = reader.record().await.map_err(|e| record_error(operation, context, e))?;
        let mut d = XdrDecoder::new(record);
        let header = ReplyHeader::decode(&mut d).map_err(|e| wire_error(operation, context, e))?;
        if header.xid != xid {
            return Err(failure(ErrorKind::Corrupt, operation, context, "a reply to another call came"));
        }
        match reply_error(operation, context, header.status) {
            Some(error) => Err(error),
            None => Ok(d),
        }
    };
    match tokio::time::timeout(timeout, talk).await {
        Ok(result) => result,
        Err(_) => {
            let reason = format!("no reply in {} s", timeout.as_secs_f32());
            Err(failure(ErrorKind::Unavailable, operation, context, reason))
        }
    }
}
