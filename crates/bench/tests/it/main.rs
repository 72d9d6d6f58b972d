//! The bench against real sockets and real servers.

mod relay;
