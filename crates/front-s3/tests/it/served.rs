//! A server over a far origin in memory, whose bucket `data` is a directory at the top.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use front_s3::{AccessKey, AccessKeys, BucketMap, BucketSet, Config, S3Server, Secret};
use namespace::{Junction, Namespace};
use origin::Origin;
use origin::memory::MemoryOrigin;
use prometheus_client::registry::Registry;
use testkit::far_origin::Far;
use tokio::sync::watch;
use types::Caller;
use vfs::{Vfs, WritePolicy, Writing};

use crate::client::Client;

pub const REGION: &str = "eu-test-1";
pub const KEY: &str = "AKTESTTESTTESTTEST01";
pub const SECRET: &str = "not/so+secret/but+never/to+be+shown00001";
/// May read bucket `data` alone.
pub const READER: &str = "AKTESTTESTTESTREADER";

pub struct Served {
    front: Front,
    pub far: Arc<Far>,
    pub origin: Arc<MemoryOrigin>,
}

impl std::ops::Deref for Served {
    type Target = Front;

    fn deref(&self) -> &Front {
        &self.front
    }
}

/// A server over any origin.
pub struct Front {
    registry: Registry,
    pub address: SocketAddr,
    pub vfs: Arc<Vfs>,
    config: Config,
    _stop: watch::Sender<bool>,
    _dir: tempfile::TempDir,
}

impl Front {
    pub fn client(&self) -> Client {
        Client::new(self.address, KEY, SECRET)
    }

    /// Another server over the same tree, which remembers nothing: a client of it, for as long as the second lives.
    pub async fn another(&self) -> (Client, watch::Sender<bool>) {
        let metadata_db = self._dir.path().join("s3-another.redb");
        let (address, stop, _) = start(Config { metadata_db, ..self.config.clone() }, &self.vfs).await;
        (Client::new(address, KEY, SECRET), stop)
    }

    /// The value of this counter.
    pub fn metric(&self, name: &str) -> u64 {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.registry).expect("encoded");
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.map_or(0, |value| value.parse().expect("a number"))
    }

    pub fn reader(&self) -> Client {
        Client::new(self.address, READER, SECRET)
    }
}

pub async fn serve() -> Served {
    serve_with(|_| {}, |_| {}).await
}

pub async fn serve_with(fill: impl FnOnce(&MemoryOrigin), edit: impl FnOnce(&mut Config)) -> Served {
    let far = Far::new("far");
    fill(&far.memory);
    let front = serve_origin(far.clone(), edit).await;
    let origin = far.memory.clone();
    Served { front, far, origin }
}

/// What is written goes through to the origin.
pub async fn serve_origin(origin: Arc<dyn Origin>, edit: impl FnOnce(&mut Config)) -> Front {
    let dir = tempfile::tempdir().expect("temporary directory");
    let names = namespace::Config { dir: dir.path().join("metadata"), ..Default::default() };
    let namespace = Namespace::open(names, vec![Junction::new("/", origin)]).expect("opened");
    let blocks = cache::Config { dir: dir.path().join("blocks"), free_floor: 0, ..Default::default() };
    let policies = [("/".to_owned(), WritePolicy::Through)].into_iter().collect();
    let writing = Writing { junctions: policies, ..Writing::default() };
    let vfs = Vfs::new(namespace, cache::Cache::open(blocks).expect("opened"), writing);
    let set = types::SetAttr { mode: Some(0o755), ..Default::default() };
    let data = types::Name::new(&b"data"[..]).expect("a name");
    match vfs.mkdir(&Caller::root(), vfs.root(), &data, set).await {
        Ok(_) => {}
        Err(e) => assert_eq!(e.kind(), types::ErrorKind::Exists, "{e}"),
    }
    let key = |id: &str, read: &str, write: &[&str]| AccessKey {
        id: id.to_owned(),
        secret: Secret::new(SECRET.to_owned()),
        read: BucketSet::of(vec![read.to_owned()]),
        write: BucketSet::of(write.iter().map(|name| (*name).to_owned()).collect()),
        caller: Caller::root(),
    };
    let mut config = Config {
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        region: REGION.to_owned(),
        keys: AccessKeys::new(vec![key(KEY, "*", &["*"]), key(READER, "data", &[])]),
        buckets: BucketMap::Top,
        metadata_db: dir.path().join("s3.redb"),
        stall_timeout: Duration::from_secs(3),
        ..Config::default()
    };
    edit(&mut config);
    let (address, stop, registry) = start(config.clone(), &vfs).await;
    Front { registry, address, vfs, config, _stop: stop, _dir: dir }
}

async fn start(config: Config, vfs: &Arc<Vfs>) -> (SocketAddr, watch::Sender<bool>, Registry) {
    let server = S3Server::bind(config, vfs.clone()).await.expect("bound");
    let address = server.local_addr().expect("bound");
    let mut registry = Registry::default();
    server.register(&mut registry);
    let (stop, stopped) = watch::channel(false);
    tokio::spawn(server.serve(stopped));
    (address, stop, registry)
}
