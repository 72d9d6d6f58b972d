//! A share of Azure Files as an `Origin`, over its REST interface: directories and files as they are there.
//!
//! Start with `origin.rs` (the calls), `names.rs` (what a reference is, and which names a share cannot have) and
//! `write.rs` (a file is made longer first, then written); `api.rs` and `calls.rs` speak to the service. Connections
//! to it, stored attributes and times of directories are those of `origin-object`.

mod api;
mod attributes;
mod calls;
mod change;
mod create;
mod errors;
mod listing;
mod lookup;
mod names;
mod origin;
mod rename;
mod sign;
mod url;
mod write;

pub use names::demand_path;
pub use origin::AzFileOrigin;
pub use url::Config;
