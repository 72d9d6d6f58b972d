//! The bench against real sockets and real servers.

mod link;
mod nas;
mod probe;
mod probe_lab;
mod relay;
