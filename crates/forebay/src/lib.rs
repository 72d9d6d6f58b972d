//! The binary: command line, configuration, and the one place where concrete parts are put together.
//!
//! Read `wire_up.rs` first: it builds the whole stack in a straight line.

mod admin;
mod boot_clock;
pub mod cli;
mod client;
pub mod config;
mod database_up;
pub mod demo;
mod door;
mod dropped;
mod handle_key;
mod junction_up;
mod local_time;
mod nas;
mod origins;
mod private;
mod process;
mod reload;
pub mod serve;
pub mod settings;
mod signals;
mod waiting;
pub mod wire_up;
