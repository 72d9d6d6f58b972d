//! Which congestion control a connection has: the machine's, but not one that paces on a near way.
//!
//! `bbr` finds the rate of a far and lossy line, and sends in small pieces at that rate. On a near one the rate that it finds is less
//! than what the line carries, since answers are requests' and not a stream, and each piece costs a timer: over loopback an answer of
//! 1 MiB goes at 0.56 of the rate of `reno` if it is copied, and at 0.40 by `sendfile` (docs/benchmarks.md).

use std::ffi::{c_int, c_void};
use std::io::{Error, Result};
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use rustix::net::sockopt;

/// A way that is there and back in less than this is near: 100 km of fibre, or a building full of switches.
const NEAR: Duration = Duration::from_millis(1);
/// In place of one that paces, whichever the machine has first and allows. Every Linux has `reno`.
const WINDOW_BASED: [&str; 2] = ["cubic", "reno"];

/// Once the connection is there: the handshake has told how long its way is.
pub fn suit_the_way(socket: &impl AsFd) -> Result<()> {
    let given = sockopt::tcp_congestion(socket)?;
    if !is_unsuited(&given, round_trip(socket)?) {
        return Ok(());
    }
    let mut tried = Ok(());
    for name in WINDOW_BASED {
        tried = sockopt::set_tcp_congestion(socket, name).map_err(Error::from);
        if tried.is_ok() {
            break;
        }
    }
    tried
}

/// A way that nothing is known of may be far.
fn is_unsuited(given: &str, round_trip: Duration) -> bool {
    given.starts_with("bbr") && !round_trip.is_zero() && round_trip < NEAR
}

/// As the kernel has smoothed it. Zero: it has not been measured, as after a handshake that lost a packet.
#[expect(unsafe_code, reason = "no library wraps this option")]
fn round_trip(socket: &impl AsFd) -> Result<Duration> {
    const IPPROTO_TCP: c_int = 6;
    const TCP_INFO: c_int = 11;
    /// Words of `struct tcp_info` up to the one that is asked for, which is in microseconds.
    const WORDS: usize = 18;
    unsafe extern "C" {
        fn getsockopt(
            socket: c_int,
            level: c_int,
            name: c_int,
            value: *mut c_void,
            length: *mut u32,
        ) -> c_int;
    }
    let (mut words, mut length) = ([0_u32; WORDS], size_of::<[u32; WORDS]>() as u32);
    let descriptor = socket.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `length` bytes of `words`, and `length`. It keeps no pointer.
    let done =
        unsafe { getsockopt(descriptor, IPPROTO_TCP, TCP_INFO, words.as_mut_ptr().cast(), &raw mut length) };
    match done {
        0 if length as usize == size_of_val(&words) => Ok(Duration::from_micros(u64::from(words[WORDS - 1]))),
        0 => Err(Error::other("the kernel tells nothing of the way")),
        _ => Err(Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn connection(congestion: &str) -> Result<(TcpStream, TcpStream)> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        // What is accepted has it from the listener.
        sockopt::set_tcp_congestion(&listener, congestion)?;
        let client = TcpStream::connect(listener.local_addr()?)?;
        Ok((listener.accept()?.0, client))
    }

    #[test]
    fn a_near_connection_does_not_pace_and_a_far_one_has_what_the_machine_has() {
        let us = Duration::from_micros;
        assert!(is_unsuited("bbr", us(1)) && is_unsuited("bbr2", us(999)));
        assert!(!is_unsuited("bbr", us(1000)) && !is_unsuited("cubic", us(1)) && !is_unsuited("reno", us(1)));
        assert!(!is_unsuited("bbr", us(0)), "it was not measured");
    }

    #[test]
    fn a_connection_of_this_machine_is_near_and_has_another_control_than_bbr() {
        let (server, _client) = connection("reno").expect("every Linux has it");
        assert!(round_trip(&server).expect("told") < NEAR);
        suit_the_way(&server).expect("nothing to do");
        assert_eq!(sockopt::tcp_congestion(&server).expect("told"), "reno");
        let Ok((server, _client)) = connection("bbr") else {
            println!("not run: this machine has no bbr, or does not allow it");
            return;
        };
        suit_the_way(&server).expect("set");
        let chosen = sockopt::tcp_congestion(&server).expect("told");
        assert!(WINDOW_BASED.contains(&chosen.as_str()), "{chosen}");
    }
}
