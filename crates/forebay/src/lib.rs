//! The command line: each command reads its arguments and hands them to what does the work.
//!
//! The tier itself is the crate `tier`; its `wire_up.rs` builds the whole stack in a straight line.

pub mod cli;
mod client;
mod cluster;
mod demo;
mod nas;
mod serve;
mod signals;
