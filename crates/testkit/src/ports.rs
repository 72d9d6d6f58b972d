//! Ports for servers under test.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: u32 = 10_000;
const COUNT: u32 = 20_000;

static NEXT: AtomicU32 = AtomicU32::new(0);

/// A port that is free, that this process has given to nobody else, and that the kernel gives to nobody who connects or
/// asks for any: who starts a server on it, or starts one again, finds it free.
pub fn free_port() -> u16 {
    // Processes of tests that run at the same time begin at different places.
    let start = std::process::id().wrapping_mul(2_654_435_761);
    loop {
        let number = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(FIRST + number % COUNT).expect("below the kernel's range");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}
