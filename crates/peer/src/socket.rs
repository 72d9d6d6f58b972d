//! The options of a socket between two nodes.

use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::TcpStream;

/// No delay, and a connection whose other end is gone without a word ends after `dead_after`, whether bytes are under way
/// or an answer is waited for. A node that is there but does not answer is not ended by it.
pub fn prepare(stream: &TcpStream, dead_after: Duration) {
    let probe = (dead_after / 3).max(Duration::from_secs(1));
    let keepalive = TcpKeepalive::new().with_time(probe).with_interval(probe).with_retries(2);
    let socket = SockRef::from(stream);
    let set = socket.set_tcp_nodelay(true).and_then(|()| socket.set_tcp_keepalive(&keepalive));
    if let Err(e) = set.and_then(|()| socket.set_tcp_user_timeout(Some(dead_after))) {
        tracing::debug!("set socket options: {e}");
    }
}
