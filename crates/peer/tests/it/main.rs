//! Nodes that talk to each other: servers and clients in one process, over addresses of the loopback, with real
//! certificates.
//!
//! The cast:
//! - `nodes.rs`: a server with a service whose files have known bytes and which counts what it is asked, and clients of it.
//! - `relay.rs`: a relay between a client and a server, which alters what goes through, or is not there.
//! - `calls.rs`: each call as it is meant. `certificates.rs`: who is let in, and what the others are told.
//! - `paths.rs`: nodes with several addresses. `ending.rs`: nodes that stop and start.
//! - `spoiled.rs`: bytes that are altered on the way or wrong at their source. `raw.rs`: what arrives at the port and is no call.
//! - `bounds.rs`: connections, of which one node cannot take all. `budgets.rs`: bytes in flight, of which nodes that wait for each
//!   other never run out.
//!
//! Begin with `nodes.rs`, then `calls.rs`.

mod bounds;
mod budgets;
mod calls;
mod certificates;
mod ending;
mod nodes;
mod paths;
mod raw;
mod relay;
mod spoiled;
