//! What one node of a cluster says to another.
pub mod authority;
pub mod identity;
mod interfaces;
pub mod liveness;
pub mod message;
pub mod path;
pub mod peer_name;
