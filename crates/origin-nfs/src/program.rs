//! Programs that a server has beside NFS, and the call that proves that it runs. Each call takes a connection of its own.

use std::time::Duration;

use rpc_nfs3::{XdrDecoder, XdrEncoder, nfs3};
use types::Result;

use crate::config::AuthSysIdentity;
use crate::connection_pool::credentials;
use crate::dial::dial;
use crate::exchange::{CallTarget, begin_call, exchange};

/// The results of one call, within `timeout` for the connection and as much for the answer. The kind of the error is
/// `NotSupported` if the server does not have the program.
pub async fn ask_program(
    (host, port): (&str, u16),
    target: CallTarget,
    identity: &AuthSysIdentity,
    operation: &'static str,
    encode: impl FnOnce(&mut XdrEncoder),
    timeout: Duration,
) -> Result<XdrDecoder> {
    let mut stream = dial(host, port, None, timeout).await?;
    let mut call = begin_call(target, &credentials(identity));
    encode(&mut call);
    exchange(&mut stream, operation, &format!("{host}:{port}"), call, timeout).await
}

/// Whether an NFS server answers there, within `timeout`.
pub async fn is_alive(host: &str, port: u16, timeout: Duration) -> bool {
    let target =
        CallTarget { program: nfs3::PROGRAM, version: nfs3::VERSION, procedure: nfs3::procedure::NULL };
    let identity = AuthSysIdentity::default();
    let asked = ask_program((host, port), target, &identity, "speak NFSv3 with", |_| (), timeout);
    tokio::time::timeout(timeout, asked).await.is_ok_and(|answer| answer.is_ok())
}
