//! A bucket as an `Origin`: an object is a file, the part of its key up to a slash is a directory.
//!
//! Start with `origin.rs` (the calls), `keys.rs` (which key is which path) and `draft.rs` (how bytes that are written
//! here and there become an object); `gate.rs` keeps those who write and those who rename apart; `store.rs` says what a
//! store does, `s3.rs`, `azure.rs` and `gcs.rs` ask one for it.
//! Who wants objects and no files opens a [`Store`] with [`open_store`].

mod answering;
pub mod attributes;
mod azure;
mod azure_place;
mod change;
pub mod connection_string;
mod copy;
mod dial;
mod draft;
mod errors;
mod gate;
mod gcs;
mod gcs_calls;
mod gcs_place;
mod gcs_token;
mod geometry;
pub mod http;
mod keys;
mod kind;
mod known;
mod limits;
mod listings;
mod moves;
mod origin;
mod profile;
mod rest;
mod s3;
pub mod secret_file;
mod sign;
pub mod store;
pub mod times;
mod together;
mod tree;
mod turns;
mod url;
mod write;

pub use kind::KIND;
pub use origin::ObjectOrigin;
pub use sign::Environment;
pub use store::{
    Condition, Got, Listed, Made, Metadata, Page, Part, Source, Stat, Store, Upload, open_store,
    open_store_as,
};
pub use tree::Tokens;
pub use url::{Addressing, Attributes, Config, Dialect};
