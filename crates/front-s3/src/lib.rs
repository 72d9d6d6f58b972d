//! S3 over HTTP/1.1, in front of `vfs`: buckets are directories, keys are paths below them, objects are files.
//!
//! Knows nothing of caches and origins. Start with `gate.rs` (what every request goes through: its signature, its
//! body), then `ops.rs` and the files below it. What is pure: `verify/` (signatures), `key.rs`, `chunked.rs`, `walk.rs`'s
//! helpers, `layout.rs`, `object.rs` (conditions).

mod access_keys;
mod aws_chunked;
mod body_drain;
mod body_intake;
mod budgeted_body;
mod checked_body;
mod checksums;
mod completed_uploads;
mod errors;
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
mod part_layout;
mod peer;
mod range;
mod request_gate;
mod resolve;
mod response_xml;
mod rewind;
mod route;
mod sigv4;
mod staged_object;
mod tls;
mod unique_ids;
mod vhost;
mod write_fence;
mod write_timeout;
mod zero_copy_get;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fair::{ConnectionSlots, Offenders, SharedBudgets};
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
    /// The database of [`MetadataStore`]; it is created when it does not exist.
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
