//! Segments that TCP sent again on a connection. The kernel tells it over a netlink socket (`sock_diag`), which needs no
//! privileges and no unsafe code, where getsockopt(TCP_INFO) would.

use std::net::{IpAddr, SocketAddr};

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use tokio::net::TcpStream;

/// Constants of <linux/sock_diag.h> and <linux/inet_diag.h>.
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const INET_DIAG_INFO: u16 = 2;
const NLM_F_REQUEST: u16 = 1;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
const NO_COOKIE: [u8; 8] = [0xff; 8];
/// A netlink message's head, and what an answer has in front of its attributes.
const HEAD: usize = 16;
const ANSWER: usize = HEAD + 72;
/// The place of `tcpi_total_retrans` in `tcp_info`.
const TOTAL_RETRANS: usize = 100;

/// The segments that were sent again since the connection was made. `None` where the kernel does not tell.
pub fn of(socket: &TcpStream) -> Option<u64> {
    let (local, peer) = (socket.local_addr().ok()?, socket.peer_addr().ok()?);
    let diag = rustix::net::socket_with(
        AddressFamily::NETLINK,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        Some(netlink::SOCK_DIAG),
    )
    .ok()?;
    rustix::net::sendto(&diag, &question(local, peer), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))
        .ok()?;
    let mut answer = [0; 4096];
    // The kernel has answered before sendto returns.
    let (_, length) = rustix::net::recv(&diag, &mut answer[..], RecvFlags::empty()).ok()?;
    total_retransmits(answer.get(..length)?)
}

/// inet_diag_req_v2 for exactly this connection, with its tcp_info.
fn question(local: SocketAddr, peer: SocketAddr) -> Vec<u8> {
    let family = if local.is_ipv4() { AF_INET } else { AF_INET6 };
    let address = |ip: IpAddr| match ip {
        IpAddr::V4(v4) => [&v4.octets()[..], &[0; 12]].concat(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    [
        &72_u32.to_ne_bytes()[..],
        &SOCK_DIAG_BY_FAMILY.to_ne_bytes(),
        &NLM_F_REQUEST.to_ne_bytes(),
        // Sequence number and port, which nobody looks at.
        &[0; 8],
        &[family, IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 0],
        &u32::MAX.to_ne_bytes(),
        &local.port().to_be_bytes(),
        &peer.port().to_be_bytes(),
        &address(local.ip()),
        &address(peer.ip()),
        // Any interface.
        &[0; 4],
        &NO_COOKIE,
    ]
    .concat()
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at.checked_add(2)?)?.try_into().ok().map(u16::from_ne_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at.checked_add(4)?)?.try_into().ok().map(u32::from_ne_bytes)
}

/// Out of the attributes behind inet_diag_msg; each has its length, its kind and padding to four bytes.
fn total_retransmits(answer: &[u8]) -> Option<u64> {
    if u16_at(answer, 4)? != SOCK_DIAG_BY_FAMILY {
        return None;
    }
    let mut at = ANSWER;
    loop {
        let (length, kind) = (usize::from(u16_at(answer, at)?), u16_at(answer, at + 2)?);
        if kind == INET_DIAG_INFO {
            let info = answer.get(at + 4..at.checked_add(length)?)?;
            return u32_at(info, TOTAL_RETRANS).map(u64::from);
        }
        at = at.checked_add(length.max(4).next_multiple_of(4))?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_found_behind_other_attributes() {
        let mut answer = vec![0; ANSWER];
        answer[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        // An attribute of another kind, 5 bytes long and padded.
        answer.extend_from_slice(&[5_u16.to_ne_bytes(), 8_u16.to_ne_bytes()].concat());
        answer.extend_from_slice(&[1, 0, 0, 0]);
        let mut info = vec![0; 120];
        info[TOTAL_RETRANS..TOTAL_RETRANS + 4].copy_from_slice(&42_u32.to_ne_bytes());
        answer.extend_from_slice(&[124_u16.to_ne_bytes(), INET_DIAG_INFO.to_ne_bytes()].concat());
        answer.extend_from_slice(&info);
        assert_eq!(total_retransmits(&answer), Some(42));
        for cut in 0..answer.len() {
            let short = total_retransmits(&answer[..cut]);
            assert!(short.is_none(), "{cut} of {} bytes: {short:?}", answer.len());
        }
        assert_eq!(total_retransmits(&[0xff; 4096]), None);
    }

    #[tokio::test]
    async fn the_kernel_knows_our_connection() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("bound");
        let (near, _far) = tokio::join!(TcpStream::connect(address), listener.accept());
        match of(&near.expect("connected")) {
            Some(count) => assert_eq!(count, 0, "nothing was sent yet"),
            None => eprintln!("skipped: this kernel has no sock_diag for TCP"),
        }
    }
}
