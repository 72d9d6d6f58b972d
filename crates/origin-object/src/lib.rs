//! A bucket as an `Origin`: an object is a file, the part of its key up to a slash is a directory.
//!
//! Start with `origin.rs` (the calls), `keys.rs` (which key is which path) and `draft.rs` (how bytes that are written
//! here and there become an object); `s3.rs` speaks to the store.

pub mod attributes;
mod change;
mod draft;
mod errors;
mod geometry;
pub mod http;
mod keys;
mod origin;
mod profile;
mod s3;
mod sign;
pub mod store;
pub mod times;
mod tree;
mod url;
mod write;

pub use origin::ObjectOrigin;
pub use tree::Tokens;
pub use url::{Addressing, Attributes, Config};
