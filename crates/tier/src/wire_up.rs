//! The whole stack of a tier, built bottom-up.

use std::env::VarError;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cache::Cache;
use fair::SharedBudgets;
use front_nfs::{ExportRules, MapSource, NfsPort, NfsServer};
use front_s3::S3Server;
use namespace::Namespace;
use origin::Origin;
use origin::count::{Count, OriginMetrics};
use origin::deferred::Deferred;
use origin::limit::{Limit, LimitConfig};
use origin::retry::{Retry, RetryConfig};
use prometheus_client::registry::Registry;
use tracing::{info, warn};
use types::{Error, ErrorKind, Result};
use vfs::{Journaling, Vfs, WritePolicy};

use crate::admin::{self, Admin, Audit, Doors, Guard, NfsFacts, Refusals, S3Facts};
use crate::boot_clock;
use crate::cluster_node::{ClusterNode, ListeningNode};
use crate::database_up::DatabaseUp;
use crate::door::{self, Door, Token};
use crate::handle_key::{self, HandleKey};
use crate::junction_up::JunctionUp;
use crate::local_time;
use crate::settings::{ExportSettings, JunctionSettings, S3Settings, Settings};
use crate::waiting::Waiting;

/// An origin that does not answer at start is given this long.
const FIRST_CONTACT: Duration = Duration::from_secs(10);

/// A tier that is ready to serve.
pub struct Tier {
    pub cache: Arc<Cache>,
    pub namespace: Arc<Namespace>,
    pub nfs: Option<NfsServer>,
    pub s3: Option<S3Server>,
    pub mount: Option<Mount>,
    /// In a cluster.
    pub node: Option<ListeningNode>,
    pub admin: Arc<Admin>,
    pub doors: Doors,
    /// Of the NFS server, to be replaced while it runs.
    pub exports: Option<ExportRules>,
}

impl Tier {
    pub fn nfs_address(&self) -> Result<Option<SocketAddr>> {
        self.nfs.as_ref().map(NfsServer::local_addr).transpose()
    }

    pub fn s3_address(&self) -> Result<Option<SocketAddr>> {
        self.s3.as_ref().map(S3Server::local_addr).transpose()
    }
}

/// A mount that is yet to be made: the last thing before serving, so that nobody finds it empty.
pub struct Mount {
    pub config: front_fuse::Config,
    pub vfs: Arc<Vfs>,
    pub metrics: front_fuse::Metrics,
}

pub async fn build(settings: &Settings) -> Result<Tier> {
    let mut registry = Registry::default();
    let origin_metrics = OriginMetrics::default();
    origin_metrics.register(&mut registry);
    crate::process::register(&mut registry, settings.commit);

    crate::private::claim(&settings.dir, &settings.journal.dir)?;
    let cache = Cache::open(settings.cache.clone())?;
    cache.register(&mut registry);

    let metadata = metadata_of(settings);
    let used = metadata.exists();
    // Before the node is in the map: the others wait for it from then on.
    let stores = open_stores(settings, &metadata).await?;
    let port = settings.nfs.map(NfsPort::bind).transpose()?;
    let mut node = match &settings.cluster {
        Some(cluster) => {
            let nfs = port.as_ref().map(NfsPort::local_addr).transpose()?;
            Some(ClusterNode::join(settings, cluster, nfs, &cache, &origin_metrics).await?)
        }
        None => None,
    };

    let mut junctions = Vec::new();
    for (junction, store) in settings.junctions.iter().zip(stores) {
        let junction = around(store, junction, &origin_metrics);
        junctions.push(match &mut node {
            Some(node) => node.place(junction)?,
            None => junction,
        });
    }

    let namespace = Namespace::open_with_clock(
        namespace::Config {
            dir: metadata,
            list_ahead: settings.cache.readahead_max > 0,
            ..Default::default()
        },
        junctions,
        boot_clock::open(&settings.dir, used)?,
    )?;
    namespace.register(&mut registry);
    if let Some(node) = &node {
        node.set_names(&namespace);
    }
    namespace.look_at_roots();

    let policies = settings.junctions.iter().map(|junction| (junction.path.clone(), junction.write));
    let writing = vfs::Writing { junctions: policies.collect(), ..Default::default() };
    let vfs = match journaling(settings)? {
        Some(journaling) => Vfs::with_journal(namespace.clone(), cache.clone(), writing, journaling)?,
        None => Vfs::new(namespace.clone(), cache.clone(), writing),
    };
    vfs.register(&mut registry);
    registry.register_collector(Box::new(Waiting(vfs.clone())));
    registry.register_collector(Box::new(JunctionUp(vfs.clone())));
    let shared_budgets = SharedBudgets::default();
    shared_budgets.offenders.register(&mut registry);
    registry.register_collector(Box::new(DatabaseUp(vfs.clone())));

    let exports = export_rules(&settings.exports, &vfs)?;
    let mut lost = Vec::new();
    let nfs = match port {
        Some(port) => {
            let map = node.as_ref().map(|node| node.map_teller() as Arc<dyn MapSource>);
            let keys = match &node {
                Some(node) => {
                    let (shared, own) = node.handle_keys();
                    (shared, Some(own))
                }
                None => {
                    let (key, lost_handles) = handle_key::of(&settings.dir, used)?;
                    lost.extend(lost_handles);
                    (key, None)
                }
            };
            let config = front_nfs::Config { map, exports: exports.clone(), ..Default::default() };
            Some(nfs_server(port, config, settings, keys, &shared_budgets, &vfs)?)
        }
        None => None,
    };
    let exports = nfs.as_ref().map(|_| exports);
    if let Some(nfs) = &nfs {
        nfs.register(&mut registry);
    }
    let s3 = match &settings.s3 {
        Some(s3) => Some(s3_server(s3, settings, &shared_budgets, &vfs).await?),
        None => None,
    };
    if let Some(s3) = &s3 {
        s3.register(&mut registry);
    }
    let mount = settings.mount.as_ref().map(|mount_point| {
        let (mount_point, source) = (mount_point.clone(), source_of(&namespace));
        let writable = settings.from_file;
        let defaults = front_fuse::Config::default();
        let deadline = settings.mount_patience.unwrap_or(defaults.deadline);
        let low_latency = settings.mount_low_latency;
        let config = front_fuse::Config { mount_point, source, writable, deadline, low_latency, ..defaults };
        Mount { config, vfs: vfs.clone(), metrics: front_fuse::Metrics::default() }
    });
    if let Some(mount) = &mount {
        mount.metrics.register(&mut registry);
    }

    let desk = node.as_ref().map(ClusterNode::desk);
    let node = match node {
        Some(node) => {
            node.register(&mut registry);
            Some(node.listen(cache.clone(), namespace.clone(), shared_budgets.offenders.clone()))
        }
        None => None,
    };

    let doors = doors(settings).await?;
    let admin = Arc::new(Admin {
        dir: std::path::absolute(&settings.dir).unwrap_or_else(|_| settings.dir.clone()),
        vfs,
        cache: cache.clone(),
        registry: registry.into(),
        origin_metrics,
        nfs: nfs.as_ref().map(nfs_facts).transpose()?,
        s3: s3.as_ref().map(s3_facts).transpose()?,
        mount: settings.mount.clone(),
        cluster: desk,
        offenders: shared_budgets.offenders,
        started: Instant::now(),
        under_way: Default::default(),
        phase: Default::default(),
        lost,
        guard: Guard {
            own_uid: door::own_uid(),
            token: Token::of(&settings.dir)?,
            hosts: settings.admin.hosts.clone(),
            audit: Audit::open(settings.dir.join("audit.log")),
            refusals: Refusals::default(),
        },
    });
    Ok(Tier { cache, namespace, nfs, s3, mount, node, admin, doors, exports })
}

pub fn metadata_of(settings: &Settings) -> PathBuf {
    settings.dir.join("metadata")
}

/// One more junction, whose origin is reached as at a start.
pub async fn junction(
    settings: &JunctionSettings,
    metadata: &Path,
    metrics: &OriginMetrics,
) -> Result<namespace::Junction> {
    let store = open_store(settings, metadata).await?;
    Ok(around(store, settings, metrics))
}

/// What lies between a junction and its store.
fn around(
    store: Arc<dyn Origin>,
    junction: &JunctionSettings,
    metrics: &OriginMetrics,
) -> namespace::Junction {
    let counted = Count::new(store, &junction.path, metrics.clone());
    let limited = Limit::told(counted, LimitConfig::default(), metrics.limit_of(&junction.path));
    namespace::Junction {
        path: junction.path.clone(),
        origin: Retry::new(limited, RetryConfig::default()),
        id: None,
        files: junction.files,
        directories: junction.directories,
        negative_ttl: junction.negative_ttl,
        stale_if_error: junction.stale_if_error,
        directory_names_max: junction.directory_names_max,
        changes: junction.write != WritePolicy::ReadOnly,
    }
}

/// Where the operator is listened for.
async fn doors(settings: &Settings) -> Result<Doors> {
    let (wanted, option) = (settings.admin.listen, "--admin");
    let tcp = admin::bind(wanted, option)?;
    let listen =
        |address| admin::listen_on(admin::bind(address, "[admin] metrics")?, address, "[admin] metrics");
    let metrics = settings.admin.metrics.map(listen).transpose()?;
    let (socket, mut door) = Door::open(&settings.dir)?;
    let failed = |e| Error::io("listen for", "the operator", e);
    let socket = tokio::net::UnixListener::from_std(socket).map_err(failed)?;
    let address = tcp.local_addr().map_err(failed)?;
    door.make_known(address);
    // Now: a command that is run as soon as the port answers finds the socket, and needs no token.
    let tcp = admin::listen_on(tcp, wanted, option)?;
    if !address.ip().to_canonical().is_loopback() {
        warn!(
            "the operator's interface at {address} can be reached from other machines: they need the token in {}; for \
             metrics alone there is [admin] metrics",
            Token::path(&settings.dir).display()
        );
    }
    Ok(Doors { tcp, socket, metrics, door })
}

/// What `df` calls a mount of this tree: by its origin or, of several, by their places, so that mounts can be told apart.
fn source_of(namespace: &Namespace) -> String {
    let junctions = namespace.junctions();
    match junctions.as_slice() {
        [only] => format!("forebay:{}", only.url),
        several => {
            let places: Vec<&str> = several.iter().map(|junction| junction.path.as_str()).collect();
            format!("forebay:{}", places.join("+"))
        }
    }
}

/// Where anything is written `back`, or was by an earlier run: what that left is owed to its origin.
pub fn journaling(settings: &Settings) -> Result<Option<Journaling>> {
    let hook = match std::env::var("FOREBAY_CRASH_AT") {
        Ok(step) => Some(vfs::abort_at(&step)?),
        Err(VarError::NotPresent) => None,
        Err(e) => return Err(Error::new(ErrorKind::Config, "FOREBAY_CRASH_AT:", e)),
    };
    let is_back = |junction: &&JunctionSettings| junction.write == WritePolicy::Back;
    let back: Vec<_> = settings.junctions.iter().filter(is_back).collect();
    let journal = &settings.journal;
    let bond = settings.dir.join("JOURNAL");
    if back.is_empty() && !holds_anything(&journal.dir)? && !vfs::journal_is_owed(&bond)? {
        return Ok(None);
    }
    if back.iter().any(|junction| !junction.flush.windows.is_empty()) {
        let hours = f64::from(local_time::utc_offset(types::Timeline::default().wall().seconds)) / 3600.0;
        info!("flush windows follow the clocks of this place, which are {hours:+} h from UTC now");
    }
    Ok(Some(Journaling {
        dir: journal.dir.clone(),
        size_max: journal.size_max,
        host: rustix::system::uname().nodename().to_string_lossy().into_owned(),
        utc_offset: local_time::utc_offset,
        flush: back.iter().map(|junction| (junction.path.clone(), junction.flush.clone())).collect(),
        durability: back.iter().map(|junction| (junction.path.clone(), junction.durability)).collect(),
        accept_damage: journal.accept_damage,
        bond: Some(bond),
        hook,
    }))
}

/// A directory that is there and cannot be looked into is an error: it may hold what nobody else has.
fn holds_anything(dir: &Path) -> Result<bool> {
    match std::fs::read_dir(dir) {
        Ok(mut entries) => Ok(entries.next().is_some()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(e) => {
            let message =
                format!("cannot look into {}: {e}; make it readable, or name another", dir.display());
            Err(Error::new(ErrorKind::Config, "journal directory:", message))
        }
    }
}

/// As many as may be open while the journal and the cache still find descriptors.
fn connections_max(settings: &Settings, wanted: usize) -> usize {
    let fronts = usize::from(settings.nfs.is_some()) + usize::from(settings.s3.is_some());
    crate::settings::connections_max(wanted, settings.cache.open_files_max, fronts)
}

fn nfs_server(
    port: NfsPort,
    config: front_nfs::Config,
    settings: &Settings,
    (handle_key, own_handle_key): (HandleKey, Option<HandleKey>),
    shared_budgets: &SharedBudgets,
    vfs: &Arc<Vfs>,
) -> Result<NfsServer> {
    let config = front_nfs::Config {
        handle_key,
        own_handle_key,
        shared_budgets: shared_budgets.clone(),
        connections_max: connections_max(settings, config.connections_max),
        ..config
    };
    NfsServer::open(port, config, vfs.clone())
}

fn nfs_facts(nfs: &NfsServer) -> Result<NfsFacts> {
    Ok(NfsFacts { address: nfs.local_addr()?, connections: Box::new(nfs.connections()) })
}

async fn s3_server(
    s3: &S3Settings,
    settings: &Settings,
    shared_budgets: &SharedBudgets,
    vfs: &Arc<Vfs>,
) -> Result<S3Server> {
    let config = front_s3::Config {
        listen: s3.listen,
        region: s3.region.clone(),
        domain: s3.domain.clone(),
        keys: s3.keys.clone(),
        buckets: s3.buckets.clone(),
        certificate: s3.certificate.clone(),
        metadata_db: settings.dir.join("s3.redb"),
        connections_max: connections_max(settings, front_s3::Config::default().connections_max),
        shared_budgets: shared_budgets.clone(),
        ..Default::default()
    };
    S3Server::bind(config, vfs.clone()).await
}

fn s3_facts(s3: &S3Server) -> Result<S3Facts> {
    Ok(S3Facts { address: s3.local_addr()?, is_tls: s3.is_tls(), connections: Box::new(s3.connections()) })
}

/// The real stores of all junctions, side by side: one that does not answer must not delay the others.
async fn open_stores(settings: &Settings, metadata: &Path) -> Result<Vec<Arc<dyn Origin>>> {
    let opening = settings.junctions.iter().cloned().map(|junction| {
        let metadata = metadata.to_owned();
        tokio::spawn(async move { open_store(&junction, &metadata).await })
    });
    let opening: Vec<_> = opening.collect();
    let mut stores = Vec::with_capacity(opening.len());
    for store in opening {
        let store =
            store.await.map_err(|e| Error::new(ErrorKind::Io, "open the origins", "").with_source(e))?;
        stores.push(store?);
    }
    Ok(stores)
}

/// The real store of a junction. One that cannot be reached is an error at first, and an outage once the junction
/// has been served: then the tier starts with what it has.
async fn open_store(junction: &JunctionSettings, metadata: &Path) -> Result<Arc<dyn Origin>> {
    let config = &junction.origin;
    let url = config.url();
    let error = match tokio::time::timeout(FIRST_CONTACT, config.connect()).await {
        Ok(Ok(origin)) => return Ok(origin),
        Ok(Err(e)) => e,
        Err(_) => {
            Error::new(ErrorKind::Unavailable, "connect to", format!("{url}: no answer in {FIRST_CONTACT:?}"))
        }
    };
    // A directory that is not there may be one that is not mounted.
    let may_come = error.kind() != ErrorKind::Config || config.directory().is_some();
    if may_come && namespace::knows_junction(metadata, &junction.path, &url) {
        warn!(junction = %junction.path, "starting with what is cached: {error}");
        return Ok(Arc::new(Deferred::new(config.clone())));
    }
    Err(error)
}

pub fn export_rules(exports: &[ExportSettings], vfs: &Vfs) -> Result<ExportRules> {
    let junctions = vfs.junctions();
    let id_of = |path: &String| {
        let known = junctions.iter().find(|j| j.path == *path).map(|j| j.id);
        known.ok_or_else(|| Error::new(ErrorKind::Config, "export rule:", format!("{path} is no junction")))
    };
    let rules = exports.iter().map(|export| {
        let junction = export.junction.as_ref().map(id_of).transpose()?;
        Ok(front_nfs::ExportRule { junction, ..export.rule.clone() })
    });
    Ok(ExportRules::new(rules.collect::<Result<_>>()?))
}
