//! What the clients of a tier share, and how none of them uses it up: slots for connections (`slots.rs`, which one is
//! closed: `pool.rs`), bytes of requests and answers in memory (`budget.rs`, who has how much: `ledger.rs`), the pace at which the other end must go on (`pace.rs`), and who was cut
//! short for what (`offenders.rs`). For every front; knows no protocol.
//!
//! A client is an address; of IPv6 the network of 64 bits, which one machine has for itself.

mod budget;
mod ledger;
mod offenders;
mod pace;
mod pool;
mod slots;

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

pub use budget::{Budget, Room, Share};
pub use offenders::{ALARM_COUNT, Offence, Offender, Offenders};
pub use pace::{Pace, Patience, Waiting};
pub use slots::{Admission, Group, Limits, Slot, Slots};

/// What all fronts of a tier have in common.
#[derive(Clone, Debug)]
pub struct Common {
    /// Bytes of answers in memory until the other end has them.
    pub replies: Arc<Budget>,
    /// Bytes of large requests in memory until they are carried out.
    pub requests: Arc<Budget>,
    pub offenders: Arc<Offenders>,
}

/// Largest that is taken at once, a READDIRPLUS of 1 MiB while it is made; a budget has room for it, however small it is.
const LARGEST_BYTES: usize = 2 << 20;
/// Of each budget. A quarter, the most of one client, is 1 Gbit/s for a round trip of 250 ms.
const BUDGET_BYTES: usize = 128 << 20;

impl Default for Common {
    fn default() -> Common {
        Common::with_bytes(BUDGET_BYTES, BUDGET_BYTES)
    }
}

impl Common {
    pub fn with_bytes(replies: usize, requests: usize) -> Common {
        Common {
            replies: Arc::new(Budget::new(replies, LARGEST_BYTES)),
            requests: Arc::new(Budget::new(requests, LARGEST_BYTES)),
            offenders: Arc::default(),
        }
    }
}

/// Whom an address is counted for.
pub fn client_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64)),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_an_address_or_a_network_of_64_bits() {
        let client = |text: &str| client_of(text.parse().expect("an address")).to_string();
        assert_eq!(client("10.0.0.7"), "10.0.0.7");
        assert_eq!(client("::ffff:10.0.0.7"), "10.0.0.7");
        assert_eq!(client("fd00:1:2:3:4:5:6:7"), "fd00:1:2:3::");
    }
}
