//! S3 over HTTP/1.1 in front of `vfs`: a bucket is a directory, a key is a path below it, an object is a regular
//! file. This crate knows nothing of caches and origins.
//!
//! The cast, in the order in which a request meets it:
//! - [`S3Server`] (`listener.rs`) accepts connections; a `S3Peer` (`peer.rs`) stands for the client, with its slot and
//!   its memory shares.
//! - `zero_copy_get.rs` serves plain HTTP GET and HEAD itself: the kernel sends the bytes from the cached file.
//!   Anything else it leaves to hyper, with the bytes read so far (`rewind.rs`).
//! - `request_gate.rs` lets a request in: `route.rs` says whether the operation is offered, `sigv4.rs` whether the
//!   signature is right. The body becomes a `CheckedBody` (`checked_body.rs`, `aws_chunked.rs`, `body_intake.rs`).
//! - s3s, the protocol crate, decodes XML and parameters and calls `ops.rs`, where each operation has its file.
//! - `resolve.rs` and `object_key.rs` turn bucket and key into a file; `object.rs` is a file with its ETag, headers
//!   and conditions; `key_listing.rs` lists keys in S3's order.
//! - `staged_object.rs` is an object while it is written: a draft, or a hidden file (`staged_file.rs`).
//!   `ops/multipart/part_layout.rs` says where the parts of a multipart upload lie.
//! - `metadata_store.rs` keeps ETags and headers, which files have no place for; `completed_uploads.rs` the answers
//!   of completions.
//!
//! Invariants: s3s gets no keys and only requests whose signature was verified here. A body may prove wrong at its
//! last byte, so nothing that is written is visible before the whole body was checked. A reader sees all of the old
//! object or all of the new one. An answer is of one version, or it is cut short. Memory for bodies is taken from a
//! budget as bytes arrive.
//!
//! Pure, with tables as tests: `sigv4/`, `route.rs`, `aws_chunked.rs`, `object_key.rs`, `ops/multipart/part_layout.rs`,
//! `part_checksums.rs`, `range.rs`, `vhost.rs`. Begin with `request_gate.rs`, then `ops/put.rs` and `ops/get.rs`.

mod access_keys;
mod aws_chunked;
mod body_drain;
mod body_error;
mod body_intake;
mod budgeted_body;
mod checked_body;
mod checksums;
mod completed_uploads;
mod errors;
#[cfg(fuzzing)]
pub mod fuzz;
mod http_date;
mod internal_headers;
mod key_listing;
mod listener;
mod metadata_store;
mod metrics;
mod object;
mod object_key;
mod ops;
mod part_checksums;
mod peer;
mod range;
mod request_gate;
mod resolve;
mod response_xml;
mod rewind;
mod route;
mod sigv4;
mod staged_file;
mod staged_object;
mod tls;
mod unique_ids;
mod vhost;
mod write_fence;
mod zero_copy_get;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fair::{ConnectionSlots, MemoryBudget, Offenders, SharedBudgets};
use s3s::service::S3Service;
use vfs::Vfs;

pub use access_keys::{AccessKey, AccessKeys, BucketSet, Secret};
pub use listener::S3Server;
pub use resolve::{BucketMap, is_bucket_name};
pub use tls::Certificate;

use http_date::DateCache;
use metadata_store::MetadataStore;
use metrics::Metrics;
use ops::NameLocks;
use unique_ids::UniqueIds;

#[derive(Clone, Debug)]
pub struct Config {
    pub listen: SocketAddr,
    /// The region that a request's signature must name.
    pub region: String,
    /// Hosts below this domain name buckets (virtual-hosted style). In lower case; `None` turns that off.
    pub domain: Option<String>,
    pub keys: AccessKeys,
    pub buckets: BucketMap,
    /// `None` serves plain HTTP.
    pub certificate: Option<Certificate>,
    /// The database of `MetadataStore`; it is created when it does not exist.
    pub metadata_db: PathBuf,
    /// The most connections that are open at the same time. When all slots are taken, the least active connection of
    /// the client with the most connections is closed for a new one.
    pub connections_max: usize,
    /// The most connections of one client.
    pub connections_per_client: usize,
    /// A request's head must arrive within this time; a connection may be idle for as long.
    pub head_timeout: Duration,
    /// The next piece of a request's body must arrive, and the next piece of an answer must be taken, within this
    /// time.
    pub stall_timeout: Duration,
    /// The memory budgets for answers and requests, shared with all other fronts.
    pub shared_budgets: SharedBudgets,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 9000)),
            region: "us-east-1".to_owned(),
            domain: None,
            keys: AccessKeys::default(),
            buckets: BucketMap::Top,
            certificate: None,
            metadata_db: PathBuf::from("s3.redb"),
            connections_max: 1024,
            connections_per_client: 512,
            head_timeout: Duration::from_secs(60),
            stall_timeout: Duration::from_secs(30),
            shared_budgets: SharedBudgets::default(),
        }
    }
}

/// The state that all connections share.
struct S3State {
    vfs: Arc<Vfs>,
    config: Config,
    metadata: MetadataStore,
    dates: DateCache,
    ids: UniqueIds,
    locks: NameLocks,
    uploads: ops::OngoingUploads,
    /// The bytes of parts that are held until they are whole. Each client has its share.
    parts: MemoryBudget,
    metrics: Arc<Metrics>,
    slots: Arc<ConnectionSlots>,
    /// Clients whose signatures are wrong, for a bounded log. Nobody else suffers from them, so this raises no
    /// alarm.
    refusals: Offenders,
    /// The slots of connections whose TLS handshake is not complete.
    handshakes: Arc<ConnectionSlots>,
}

/// The service of the protocol crate (s3s). It gets requests whose signature the gate has verified, and no keys.
fn protocol(shared: &Arc<S3State>) -> S3Service {
    let mut config = s3s::config::S3Config::default();
    config.xml_max_body_size = request_gate::XML_BYTES_MAX;
    let mut builder = s3s::service::S3ServiceBuilder::new(ops::S3Operations(shared.clone()));
    builder.set_config(Arc::new(s3s::config::StaticConfigProvider::new(Arc::new(config))));
    builder.build()
}
