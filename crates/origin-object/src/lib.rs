//! A bucket as an `Origin`: an object is a file, the part of its key up to a slash is a directory.
//!
//! The cast:
//! - [`ObjectOrigin`] (`origin.rs`) implements `Origin`: look-ups and listings in `directory.rs`, bytes in
//!   `write.rs`, names and attributes in `change.rs`.
//! - `keys.rs` says which key is which path; `attributes.rs` how mode, owner and times are stored with an object.
//! - `object_writer.rs`: an `ObjectWriter` buffers what is written at any offset, and makes an object of it by a PUT
//!   or a multipart upload (`geometry.rs`, `part_pacer.rs`).
//! - `drafts.rs`: files that are made before they have a name, which become an object by the same one request.
//! - `path_locks.rs` keeps writers of a path and renames apart; `rename_log.rs` and `change/interrupted.rs`
//!   recognize what a rename without an answer left.
//! - `listing_tokens.rs` keeps where ongoing listings stand.
//! - `stat_cache.rs` and `dir_times.rs` remember objects' stats and when directories changed.
//! - [`ObjectStore`] (`store.rs`) is a bucket in terms that all dialects share; `s3.rs`, `azure.rs` and `gcs.rs`
//!   implement it by `rest_client.rs` and `http.rs`. Endpoints and credentials are found by `s3_endpoint.rs`,
//!   `azure_endpoint.rs` and `gcs_endpoint.rs`; `sign.rs` signs with them. `open_store.rs` goes from a URL to its store.
//!
//! A write goes `origin.rs`, `write.rs` (path lock, writer of the path), `object_writer.rs`, `ObjectStore`; it is
//! visible when it is committed.
//!
//! Invariants: an object is only replaced on the condition that it still is what its writer began on; a draft, which
//! began on nothing, replaces what its publisher says, and the store decides whether that is there. A rename copies
//! all before it removes anything, and removes only what it copied. What a commit cannot store changes the write
//! verifier of its writers. `NotFound` is said of keys only, never of the bucket. Listings that run in circles or never
//! end are errors.
//!
//! Begin with `origin.rs`, then `keys.rs` and `object_writer.rs`. For objects without files, open an [`ObjectStore`]
//! with [`open_store()`].

pub mod attributes;
mod azure;
mod azure_endpoint;
mod azure_signer;
mod bounded_tasks;
mod change;
pub mod connection_string;
mod connector;
mod copy;
mod credential_env;
mod dial;
pub mod dir_times;
mod directory;
mod drafts;
mod errors;
mod first_answer;
mod gcs;
mod gcs_api;
mod gcs_endpoint;
mod gcs_tokens;
mod geometry;
pub mod http;
mod keys;
mod kind;
mod limits;
mod listing_progress;
mod listing_tokens;
mod object_writer;
mod open_store;
mod origin;
mod part_pacer;
mod parted;
mod path_locks;
mod profile;
mod rename_log;
mod rest_client;
mod s3;
mod s3_endpoint;
pub mod secret_file;
mod sign;
mod stat_cache;
pub mod store;
mod url;
mod url_encoding;
mod write;

pub use credential_env::CredentialEnv;
pub use kind::KIND;
pub use listing_tokens::ListingTokens;
pub use open_store::{open_store, open_store_as, open_store_without_spares};
pub use origin::ObjectOrigin;
pub use store::{
    CopySource, GetResult, ListPage, ListedObject, Metadata, MultipartUpload, ObjectStat, ObjectStore,
    Precondition, PutResult, UploadedPart,
};
pub use url::{Addressing, AttributeSource, Config, Dialect};
