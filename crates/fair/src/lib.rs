//! What the clients of a tier share, and how none of them uses it up: slots for connections (`connection_slots.rs`, which one is
//! closed: `closing_order.rs`), bytes of requests and answers in memory (`memory_budget.rs`, who has how much: `ledger.rs`), the pace at which the other end must go on (`peer_pace.rs`), and who was cut
//! short for what (`offenders.rs`). For every front; knows no protocol.
//!
//! A client is an address; of IPv6 the network of 64 bits, which one machine has for itself.

mod closing_order;
mod connection_slots;
mod ledger;
mod memory_budget;
mod offenders;
mod peer_pace;

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

pub use connection_slots::{ConnectionSlot, ConnectionSlots, SlotAdmission, SlotGroup, SlotLimits};
pub use memory_budget::{ClientBudget, MemoryBudget, MemoryPermit};
pub use offenders::{ALARM_COUNT, Offence, Offender, Offenders};
pub use peer_pace::{PeerPace, StallPolicy, StallTimer};

/// What all fronts of a tier have in common.
#[derive(Clone, Debug)]
pub struct SharedBudgets {
    /// Bytes of answers in memory until the other end has them.
    pub replies: Arc<MemoryBudget>,
    /// Bytes of large requests in memory until they are carried out.
    pub requests: Arc<MemoryBudget>,
    pub offenders: Arc<Offenders>,
}

/// Largest that is taken at once, a READDIRPLUS of 1 MiB while it is made; a budget has room for it, however small it is.
const LARGEST_BYTES: usize = 2 << 20;
/// Of each budget. A quarter, the most of one client, is 1 Gbit/s for a round trip of 250 ms.
const BUDGET_BYTES: usize = 128 << 20;

impl Default for SharedBudgets {
    fn default() -> SharedBudgets {
        SharedBudgets::with_bytes(BUDGET_BYTES, BUDGET_BYTES)
    }
}

impl SharedBudgets {
    pub fn with_bytes(replies: usize, requests: usize) -> SharedBudgets {
        SharedBudgets {
            replies: Arc::new(MemoryBudget::new(replies, LARGEST_BYTES)),
            requests: Arc::new(MemoryBudget::new(requests, LARGEST_BYTES)),
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
