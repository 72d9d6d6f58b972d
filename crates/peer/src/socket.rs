//! The options of a socket between two nodes.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// The most unsent bytes that the kernel holds of one connection: they are in no budget any more. Bytes that are under way
/// are not counted, so a line is filled all the same.
const UNSENT_MAX: u32 = 512 << 10;

/// No delay, and a connection whose other end is gone without a word ends after `dead_after`, whether bytes are under way
/// or an answer is waited for. So does one whose other end takes nothing for that long. A node that is there and does not
/// answer is not ended by it: its kernel is well.
pub fn prepare(stream: &TcpStream, dead_after: Duration) {
    let probe = (dead_after / 3).max(Duration::from_secs(1));
    let keepalive = TcpKeepalive::new().with_time(probe).with_interval(probe).with_retries(2);
    let socket = SockRef::from(stream);
    let set = socket.set_tcp_nodelay(true).and_then(|()| socket.set_tcp_keepalive(&keepalive));
    let set = set.and_then(|()| socket.set_tcp_notsent_lowat(UNSENT_MAX));
    if let Err(e) = set.and_then(|()| socket.set_tcp_user_timeout(Some(dead_after))) {
        tracing::debug!("set socket options: {e}");
    }
}
