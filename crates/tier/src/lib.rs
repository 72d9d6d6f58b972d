//! A tier: the whole stack, from far storage to the servers that clients ask, put together in one place.
//!
//! - [`settings::Settings`] is all that a tier is told, checked: from a configuration file ([`config`]) and from
//!   [`settings::Overrides`], which a command line or a test gives. [`origins`] knows the kinds of far storage.
//! - [`wire_up::build`] opens the stores, the cache, the databases and the journal, and binds the servers, bottom-up: read it
//!   first. What it makes is a [`wire_up::Tier`].
//! - [`running::RunningTier`] is a tier at work. It is stopped in the order in which nothing is lost.
//! - [`admin`] is what the operator asks over HTTP; [`door`] is where it is listened for, and who is let in.
//! - `cluster_node.rs` is a tier as a node of a cluster: between a junction and the rest of the tier the other nodes' bytes.
//!   `copy_rules.rs` finds how many copies of a file are wanted, by its path; `client_map.rs` tells clients where bytes lie.
//! - [`reload`] reads the configuration again while the tier runs.
//!
//! Nothing here is global to the process: several tiers, each with a cache directory of its own, run beside each other.

pub mod admin;
pub mod boot_clock;
mod client_map;
mod cluster_node;
pub mod config;
mod copy_rules;
mod database_up;
pub mod door;
pub mod dropped;
mod handle_key;
mod handles_elsewhere;
mod junction_up;
mod local_time;
pub mod origins;
pub mod private;
mod process;
pub mod reload;
pub mod running;
pub mod settings;
mod waiting;
pub mod wire_up;
