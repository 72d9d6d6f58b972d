//! The life of a connection: accepted, opened a round trip later as on a long line, carried both ways, closed or cut.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Notify;
use tracing::debug;

use crate::bucket::TokenBucket;
use crate::carry::Direction;
use crate::jitter::{Jitter, SplitMix};
use crate::line::RelayLine;
use crate::window::DeliveryWindow;

/// The longest wait for the target to accept; a SYN that is lost is sent again after 1 s, 3 s and 7 s.
const CONNECT: Duration = Duration::from_secs(10);
/// Privileged ports to go on from: above the well-known services, as RPC clients do.
const PRIVILEGED: std::ops::Range<u16> = 665..1024;

/// Accepts until dropped.
pub async fn accept(listener: TcpListener, to: SocketAddr, line: Arc<RelayLine>) {
    loop {
        let near = match listener.accept().await {
            Ok((near, _)) => near,
            Err(e) => {
                // Out of file descriptors, most likely: some may be free a little later.
                debug!("accept: {e}");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let id = line.counters.connections.fetch_add(1, Ordering::Relaxed);
        if line.cuts.len() >= line.config.connections_max {
            line.counters.refused.fetch_add(1, Ordering::Relaxed);
            reset(&near);
            continue;
        }
        let cut = line.cuts.add(id);
        tokio::spawn(live(near, to, Arc::clone(&line), id, cut));
    }
}

/// Cuts connections as the configuration says, until dropped.
pub async fn disturb(line: &RelayLine) {
    let every = async {
        let Some(every) = line.config.drops.every else { return std::future::pending().await };
        loop {
            line.clock_sleep(every).await;
            line.cuts.cut_all();
        }
    };
    let per_hour = async {
        let Some(rate) = line.config.drops.per_hour else { return std::future::pending().await };
        let mut random = SplitMix::new(line.config.seed);
        loop {
            let gap = random.gap(rate);
            line.clock_sleep(gap).await;
            line.cuts.cut_one(&mut random);
        }
    };
    tokio::join!(every, per_hour);
}

impl RelayLine {
    async fn clock_sleep(&self, time: Duration) {
        self.clock.sleep_until(Instant::now() + time).await;
    }
}

/// Keeps the list and the number of open connections true, however the connection ends.
struct ConnectionEntry<'a> {
    line: &'a RelayLine,
    id: u64,
}

impl Drop for ConnectionEntry<'_> {
    fn drop(&mut self) {
        self.line.cuts.remove(self.id);
        self.line.total.open.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn live(near: TcpStream, to: SocketAddr, line: Arc<RelayLine>, id: u64, cut: Arc<Notify>) {
    line.total.open.fetch_add(1, Ordering::Relaxed);
    let _listed = ConnectionEntry { line: &line, id };
    let accepted = Instant::now();
    let far = tokio::select! {
        far = open(to, &line, accepted, is_privileged(&near)) => far,
        () = cut.notified() => {
            line.counters.cut.fetch_add(1, Ordering::Relaxed);
            return reset(&near);
        }
    };
    let far = match far {
        Ok(far) => far,
        Err(e) => {
            debug!(%to, "relayed connection: {e}");
            line.counters.unreachable.fetch_add(1, Ordering::Relaxed);
            return reset(&near);
        }
    };
    let _ = near.set_nodelay(true);
    let _ = far.set_nodelay(true);
    let carried = AtomicU64::new(0);
    let ended = tokio::select! {
        ended = carry(&near, &far, &line, id, accepted, |bytes| count(&carried, bytes, &line, &cut)) => ended,
        () = cut.notified() => {
            line.counters.cut.fetch_add(1, Ordering::Relaxed);
            Err(io::ErrorKind::ConnectionAborted.into())
        }
    };
    if let Err(e) = ended {
        debug!(%to, "relayed connection: {e}");
        reset(&near);
        reset(&far);
    }
}

fn count(carried: &AtomicU64, bytes: u64, line: &RelayLine, cut: &Notify) {
    let sum = carried.fetch_add(bytes, Ordering::Relaxed) + bytes;
    if line.config.drops.after_bytes.is_some_and(|max| sum >= max) {
        cut.notify_one();
    }
}

/// The target sees the connection come half a round trip after it was asked for here. A refusal takes the whole one.
async fn open(
    to: SocketAddr,
    line: &RelayLine,
    accepted: Instant,
    privileged: bool,
) -> io::Result<TcpStream> {
    line.clock.sleep_until(accepted + line.one_way).await;
    let dial = async {
        match privileged {
            true => match connect_privileged(to, line).await? {
                Some(stream) => Ok(stream),
                None => socket(to, line)?.connect(to).await,
            },
            false => socket(to, line)?.connect(to).await,
        }
    };
    let connected = match tokio::time::timeout(CONNECT, dial).await {
        Ok(connected) => connected,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    };
    if connected.is_err() {
        line.clock.sleep_until(Instant::now() + line.one_way).await;
    }
    connected
}

fn socket(to: SocketAddr, line: &RelayLine) -> io::Result<TcpSocket> {
    let socket = if to.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    if let Some(bytes) = line.config.receive_buffer() {
        socket.set_recv_buffer_size(u32::try_from(bytes).unwrap_or(u32::MAX))?;
    }
    Ok(socket)
}

fn is_privileged(near: &TcpStream) -> bool {
    near.peer_addr().is_ok_and(|peer| peer.port() < 1024)
}

/// NFS servers ask for a privileged port by default; who came here from one goes on from one. `None` if none is to be
/// had.
async fn connect_privileged(to: SocketAddr, line: &RelayLine) -> io::Result<Option<TcpStream>> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    for _ in PRIVILEGED {
        let socket = socket(to, line)?;
        // A port that an ended connection still holds for a minute will do, as long as it led elsewhere.
        socket.set_reuseaddr(true)?;
        // One after the other, so that a port just closed is not tried again at once.
        let step = line.counters.privileged.fetch_add(1, Ordering::Relaxed) % (PRIVILEGED.len() as u64);
        let port = PRIVILEGED.start + u16::try_from(step).unwrap_or(0);
        match socket.bind(SocketAddr::new(any, port)) {
            Ok(()) => {}
            Err(e) if e.kind() == io::ErrorKind::AddrInUse => continue,
            Err(_) => return Ok(None),
        }
        match socket.connect(to).await {
            Ok(stream) => return Ok(Some(stream)),
            // The pair of ports is remembered from an earlier connection.
            Err(e) if matches!(e.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(None)
}

async fn carry(
    near: &TcpStream,
    far: &TcpStream,
    line: &RelayLine,
    id: u64,
    accepted: Instant,
    moved: impl Fn(u64),
) -> io::Result<()> {
    let now = Instant::now();
    let config = &line.config;
    let seed = config.seed.wrapping_add(id.wrapping_mul(2));
    let direction = |shared, bytes, begin, seed| Direction {
        line,
        shared,
        own: config.rate_per_connection.map(|r| TokenBucket::new(r.0)),
        bytes,
        window: DeliveryWindow::new(config.window(), Arc::clone(&line.total)),
        jitter: Jitter::new(config.jitter / 2, seed),
        begin,
    };
    // Half a round trip for the target's answer to come back; the connection counts as open here only then.
    let opened = now.max(accepted + line.one_way) + line.one_way;
    let up = direction(line.up.as_ref(), &line.counters.bytes_up, opened, seed);
    let down = direction(line.down.as_ref(), &line.counters.bytes_down, now, seed.wrapping_add(1));
    tokio::try_join!(up.carry(near, far, &moved), down.carry(far, near, &moved))?;
    Ok(())
}

/// Arranges that the peer sees a reset and not an orderly end when the socket is closed.
fn reset(stream: &TcpStream) {
    let _ = rustix::net::sockopt::set_socket_linger(stream, Some(Duration::ZERO));
}
