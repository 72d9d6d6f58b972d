//! From a host name to a TCP connection with the options that a long-lived RPC connection wants.
//!
//! As root the local port is a privileged one, because many servers insist on it ("secure" exports); when
//! none is to be had, an ordinary one is used and the server decides. A connection in place of a lost one
//! comes from the same port if it can: servers that remember their replies (Linux, by number, address and
//! port) then know a call that is sent again.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::net::{TcpSocket, TcpStream, lookup_host};
use types::{Error, ErrorKind, Result};

use crate::errors::failure;

/// Privileged ports that we take: above the well-known services, as other RPC clients do.
const PORT_LOW: u16 = 665;
const PORT_HIGH: u16 = 1023;

/// Idle time before the first probe and between probes: a dead peer of an idle connection is noticed in
/// about a minute.
const KEEPALIVE: Duration = Duration::from_secs(20);

/// Connects within `timeout`, whatever address of the host answers first in order; from the local port `from`
/// if that is to be had.
pub async fn dial(host: &str, port: u16, from: Option<u16>, timeout: Duration) -> Result<TcpStream> {
    let place = || format!("{host}:{port}");
    match tokio::time::timeout(timeout, dial_any(host, port, from)).await {
        Ok(result) => result,
        Err(_) => {
            let reason = format!("no answer in {} s", timeout.as_secs_f32());
            Err(failure(ErrorKind::Unavailable, "connect to", place(), reason))
        }
    }
}

async fn dial_any(host: &str, port: u16, from: Option<u16>) -> Result<TcpStream> {
    let unavailable = |operation, context: String, error: io::Error| {
        Error::new(ErrorKind::Unavailable, operation, context).with_source(error)
    };
    let addresses =
        lookup_host((host, port)).await.map_err(|e| unavailable("find host", host.to_owned(), e))?;
    let mut last = failure(ErrorKind::Unavailable, "find host", host, "it has no address");
    for address in addresses {
        match dial_one(address, from).await {
            Ok(stream) => return Ok(stream),
            Err(error) => last = unavailable("connect to", format!("{host}:{port}"), error),
        }
    }
    Err(last)
}

async fn dial_one(address: SocketAddr, from: Option<u16>) -> io::Result<TcpStream> {
    let stream = match reconnect_from(address, from).await? {
        Some(stream) => stream,
        None => match privileged(address).await? {
            Some(stream) => stream,
            None => socket(address)?.connect(address).await?,
        },
    };
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE).with_retries(3);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    Ok(stream)
}

fn socket(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // On every one, not only on the second: the first may still be winding down when its port is taken again.
    socket.set_reuseaddr(true)?;
    Ok(socket)
}

/// `None` when this port cannot be had again; an error when the peer could not be reached from it.
async fn reconnect_from(address: SocketAddr, from: Option<u16>) -> io::Result<Option<TcpStream>> {
    let Some(port) = from else { return Ok(None) };
    let socket = socket(address)?;
    if socket.bind(local(address, port)).is_err() {
        return Ok(None);
    }
    match socket.connect(address).await {
        Ok(stream) => Ok(Some(stream)),
        Err(error) if is_taken(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

fn local(address: SocketAddr, port: u16) -> SocketAddr {
    match address {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, port)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)),
    }
}

/// The pair of ports is still remembered from an earlier connection.
fn is_taken(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::AddrInUse | io::ErrorKind::AddrNotAvailable)
}

/// `None` when no privileged port can be had; an error when the peer could not be reached from one.
async fn privileged(address: SocketAddr) -> io::Result<Option<TcpStream>> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    for _ in PORT_LOW..=PORT_HIGH {
        let socket = socket(address)?;
        match socket.bind(local(address, next_port())) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => continue,
            // No capability, whatever our user id says.
            Err(_) => return Ok(None),
        }
        match socket.connect(address).await {
            Ok(stream) => return Ok(Some(stream)),
            Err(error) if is_taken(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(None)
}

/// Walks over the ports, so that a port just closed is not tried again at once.
fn next_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let span = PORT_HIGH - PORT_LOW + 1;
    let start = (std::process::id() % u32::from(span)) as u16;
    let step = NEXT.fetch_add(1, Ordering::Relaxed) % span;
    PORT_LOW + (start + step) % span
}
