//! A far NFSv3 server as an `Origin`: our own asynchronous client in user space.
//!
//! A lost connection is dialled anew and what was not answered is sent once more, without the caller noticing, as
//! long as its deadline holds. The calls that change something (`mutate.rs`, `write.rs`) are sent again too, but say
//! so: `delivery.rs`. The reference and the identity of an object are its file handle's bytes: servers put the
//! generation of the inode into them, so a reused inode number gives another handle.
//!
//! Start with `origin.rs` (the calls), then `pool.rs` and `connection.rs` (how they travel), then
//! `nested.rs` (exports inside our export).

mod admission;
mod attributes;
mod config;
mod connection;
mod delivery;
mod dial;
mod errors;
mod exchange;
mod kind;
mod limits;
mod listing;
mod listing_guard;
mod mounting;
mod mutate;
mod nested;
mod origin;
mod pending;
mod pool;
mod read;
mod url;
mod write;

pub use config::{Config, Identity};
pub use kind::KIND;
pub use origin::NfsOrigin;
