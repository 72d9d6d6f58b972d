//! A far NFSv3 server as an `Origin`: our own asynchronous client in user space.
//!
//! The cast:
//! - [`NfsOrigin`] (`origin.rs`) implements `Origin`: listings in `listing.rs` (`listing_state.rs` has what is learnt
//!   by them), reads in `read.rs`, writes in `write.rs`, changes in `mutate.rs`, limits in `limits.rs`.
//! - `connection_pool.rs`: a `ConnectionPool` chooses the connection of a call, metadata apart from bulk reads.
//! - `connection.rs`: an `NfsConnection` keeps many calls in flight on one TCP connection, and dials it anew
//!   (`dial.rs`); `pending_calls.rs` (pure) has the calls that wait to be sent or answered.
//! - `delivery.rs` says what the answer to a change is worth that may have been executed twice.
//! - `mounting.rs` asks the portmapper and MOUNT, by `exchange.rs`; `nested_exports.rs` knows the exports inside our
//!   export; `admission.rs` whether the export admits us at all, by the rights that
//!   `export_rights.rs` asks for. `program.rs` asks a program that a server has beside NFS.
//!
//! A call goes from `origin.rs` through the admission check to the pool, and waits in its connection until it is
//! answered, its deadline is over, or the server is down for longer than the grace.
//!
//! Invariants: a lost connection is dialled anew and unanswered calls are sent again, under their old xid, without
//! the caller noticing, as long as its deadline holds. A change whose answer is in doubt is `OutcomeUnknown`, never
//! a guess. The directory under the mount point of a nested export is never served. Reference and identity of an
//! object are its file handle's bytes: servers put the generation of the inode into them, so a reused inode number
//! gives another handle.
//!
//! Begin with `origin.rs`, then `connection_pool.rs` and `connection.rs`, then `nested_exports.rs`.

mod admission;
mod attributes;
mod config;
mod connection;
mod connection_pool;
mod delivery;
mod dial;
mod errors;
mod exchange;
mod export_rights;
mod kind;
mod limits;
mod listing;
mod listing_guard;
mod listing_state;
mod mounting;
mod mutate;
mod nested_exports;
mod origin;
mod pending_calls;
mod program;
mod read;
mod url;
mod write;

pub use config::{AuthSysIdentity, Config, NCONNECT_MAX};
pub use exchange::CallTarget;
pub use kind::KIND;
pub use mounting::ports;
pub use origin::NfsOrigin;
pub use program::{ask_program, is_alive};
pub use url::{export_of_url, export_to_url, host_of_url};
