//! How clients share a tier's connections and memory fairly, so that none of them uses it up. For every front; this
//! crate knows no protocol.
//!
//! The cast:
//! - [`ConnectionSlots`] (`connection_slots.rs`) admits connections, so many in all, of one client and of one group;
//!   `closing_order.rs` says which connection is closed when the slots run out.
//! - [`MemoryBudget`] (`memory_budget.rs`) gives out [`MemoryPermit`]s for the bytes of requests and answers; each
//!   client draws on its [`ClientBudget`]. `ledger.rs` decides who gets how much, and who is first.
//! - [`StallPolicy`] and [`StallTimer`] (`peer_pace.rs`) say how fast the other end of a connection must go on,
//!   faster while others wait for memory that it holds; [`WriteTimeoutStream`] (`write_timeout.rs`) is a connection
//!   that ends by it.
//! - [`Offenders`] (`offenders.rs`) counts the clients that were cut short, for metrics, status and log.
//! - [`SharedBudgets`] is what the fronts of a tier have in common of these.
//!
//! A connection takes a slot, then a permit for each request and answer; a client that holds memory and does not go
//! on is cut, counted, and put on probation.
//!
//! Invariants: a newcomer always finds a slot and memory for a first piece, whatever one client does. A client that
//! holds memory never waits for more of it. Only time that we wait for the client counts against it. Every table is
//! bounded.
//!
//! A client is an address; of IPv6 the network of 64 bits, which one machine has for itself. `ledger.rs` and
//! `closing_order.rs` are pure, with models as tests; begin with `ledger.rs`.

mod closing_order;
mod connection_slots;
mod ledger;
mod memory_budget;
mod offenders;
mod peer_pace;
mod write_timeout;

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

pub use connection_slots::{ConnectionSlot, ConnectionSlots, SlotAdmission, SlotGroup, SlotLimits};
pub use memory_budget::{ClientBudget, MemoryBudget, MemoryPermit};
pub use offenders::{ALARM_COUNT, Offence, Offender, Offenders};
pub use peer_pace::{PeerPace, StallPolicy, StallTimer};
pub use write_timeout::{AnswerReader, WriteTimeoutStream};

/// The budgets and the list of offenders that all fronts of a tier share.
#[derive(Clone, Debug)]
pub struct SharedBudgets {
    /// The bytes of answers in memory until the client has taken them.
    pub replies: Arc<MemoryBudget>,
    /// The bytes of large requests in memory until they are carried out.
    pub requests: Arc<MemoryBudget>,
    pub offenders: Arc<Offenders>,
}

/// The largest permit, for a READDIRPLUS of 1 MiB while it is built; a budget has room for it, however small it is.
const LARGEST_BYTES: usize = 2 << 20;
/// The bytes of each budget. A quarter, the most of one client, is 1 Gbit/s over a round trip of 250 ms.
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

/// The client that an address counts for.
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
