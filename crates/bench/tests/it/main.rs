//! The bench against real sockets and real servers.

mod nas;
mod probe;
mod relay;
