//! S3 over HTTP/1.1, in front of `vfs`: buckets are directories, keys are paths below them, objects are files.
//!
//! Knows nothing of caches and origins. Start with `gate.rs` (what every request goes through: its signature, its
//! body), then `ops.rs` and the files below it. What is pure: `verify/` (signatures), `key.rs`, `chunked.rs`, `walk.rs`'s
//! helpers, `layout.rs`, `object.rs` (conditions).

mod body;
mod checksums;
mod chunked;
mod completed;
mod date;
mod draft;
mod errors;
mod explained;
mod facts;
mod fast;
mod gate;
mod intake;
mod kept;
mod key;
pub mod keys;
mod layout;
mod listed;
mod listener;
mod metrics;
mod object;
mod ops;
mod partsums;
mod patient;
mod peer;
mod range;
mod rest;
mod rewind;
mod route;
mod tls;
mod tree;
pub mod verify;
mod vhost;
mod walk;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use fair::{Common, Offenders, Slots};
use s3s::service::S3Service;
use vfs::Vfs;

pub use keys::{AccessKey, Buckets, Keys, Secret};
pub use listener::S3Server;
pub use tls::Certificate;
pub use tree::{BucketMap, is_bucket_name};

use date::Dates;
use draft::Unique;
use facts::Facts;
use metrics::Metrics;
use ops::NameLocks;

#[derive(Clone, Debug)]
pub struct Config {
    pub listen: SocketAddr,
    /// That requests must be signed for.
    pub region: String,
    /// Hosts below it name buckets; in lower case.
    pub domain: Option<String>,
    pub keys: Keys,
    pub buckets: BucketMap,
    /// Absent: plain HTTP.
    pub certificate: Option<Certificate>,
    /// A database, made if it is not there.
    pub facts: PathBuf,
    /// Connections at the same time. When they run out, the least active one of who has most is closed for a new one.
    pub connections_max: usize,
    /// Of one client.
    pub connections_per_client: usize,
    /// A request's head must be there within this; so long a connection may be idle.
    pub head_timeout: Duration,
    /// A piece of a body must come, and a piece of an answer be taken, within this.
    pub stall_timeout: Duration,
    /// Bytes of answers and of requests in memory, over all fronts.
    pub common: Common,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: SocketAddr::from(([127, 0, 0, 1], 9000)),
            region: "us-east-1".to_owned(),
            domain: None,
            keys: Keys::default(),
            buckets: BucketMap::Top,
            certificate: None,
            facts: PathBuf::from("s3.redb"),
            connections_max: 1024,
            connections_per_client: 512,
            head_timeout: Duration::from_secs(60),
            stall_timeout: Duration::from_secs(30),
            common: Common::default(),
        }
    }
}

/// What all connections share.
struct Shared {
    vfs: Arc<Vfs>,
    config: Config,
    facts: Facts,
    dates: Dates,
    unique: Unique,
    locks: NameLocks,
    uploads: ops::Uploads,
    metrics: Arc<Metrics>,
    slots: Arc<Slots>,
    /// Who signs wrongly: for the log, which it keeps bounded. Nobody else suffers by it, so it raises no alarm.
    refusals: Offenders,
    /// Of connections that have not agreed on TLS yet.
    handshakes: Arc<Slots>,
}

/// The protocol crate's part: it gets requests that were verified, and no keys.
fn protocol(shared: &Arc<Shared>) -> S3Service {
    let mut config = s3s::config::S3Config::default();
    config.xml_max_body_size = gate::XML_BYTES_MAX;
    let mut builder = s3s::service::S3ServiceBuilder::new(ops::Service(shared.clone()));
    builder.set_config(Arc::new(s3s::config::StaticConfigProvider::new(Arc::new(config))));
    builder.build()
}
