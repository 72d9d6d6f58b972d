//! A share of Azure Files as an `Origin`, over its REST interface: directories and files as they are there.
//!
//! The cast:
//! - `AzFileOrigin` (`origin.rs`) implements `Origin`: look-ups and listings in `lookup.rs`, creation in
//!   `create.rs`, other changes in `change.rs` and `rename.rs`, bytes in `write.rs`
//!   (`write_session.rs` has what the writes to one file share).
//! - `names.rs` (pure): a `ShareRef` is a reference, parsed; a `FileKey` is an object's identity; which names a
//!   share cannot have.
//! - `attributes.rs` (pure): a `FileStat` is what an answer tells of a file, with the attributes that come of it.
//! - `api.rs` signs and sends requests; `calls.rs` has one function for each call; `listing.rs` parses listings.
//! - Connections, stored attributes and the times of directories are those of `origin-object`.
//!
//! A call looks at the path, compares the id of what is there with the reference's, and acts; the interface has no
//! conditions.
//!
//! Invariants: a file is created under a temporary name and renamed, so that nothing of others is replaced. A file
//! is extended before ranges behind its end are put. What is put is stored when it is answered. A missing share is
//! never `NotFound` of a file.
//!
//! Begin with `origin.rs`, then `names.rs` and `write.rs`.

mod api;
mod attributes;
mod calls;
mod change;
mod create;
mod errors;
mod kind;
mod listing;
mod lookup;
mod names;
mod origin;
mod rename;
mod sign;
mod url;
mod write;
mod write_session;

pub use kind::KIND;
pub use origin::AzFileOrigin;
pub use url::Config;
