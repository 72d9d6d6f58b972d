//! A real NFS server in this process, over an origin in memory: what the probe measures.

use std::net::SocketAddr;
use std::sync::Arc;

use front_nfs::{Config, ExportRule, ExportRules, NfsServer, Squash};
use namespace::{Junction, Namespace};
use origin::Origin;
use origin::memory::MemoryOrigin;
use tokio::sync::watch;
use vfs::Vfs;

use crate::any;

pub struct NasProcess {
    pub address: SocketAddr,
    _stop: watch::Sender<bool>,
    _dir: tempfile::TempDir,
}

impl NasProcess {
    /// Serves what `fill` makes, squashing nobody.
    pub async fn start(fill: impl FnOnce(&MemoryOrigin)) -> NasProcess {
        let memory = MemoryOrigin::new();
        fill(&memory);
        let dir = tempfile::tempdir().expect("temporary directory");
        let origin: Arc<dyn Origin> = memory;
        let names = namespace::Config { dir: dir.path().join("metadata"), ..Default::default() };
        let namespace = Namespace::open(names, vec![Junction::new("/", origin)]).expect("opened");
        let blocks = cache::Config { dir: dir.path().join("blocks"), free_floor: 0, ..Default::default() };
        let vfs = Vfs::new(namespace, cache::Cache::open(blocks).expect("opened"), vfs::Writing::default());
        let all = ExportRule { squash: Squash::None, ..ExportRule::default() };
        let config = Config { listen: any(), exports: ExportRules::new(vec![all]), ..Config::default() };
        let server = NfsServer::bind(config, vfs).await.expect("bound");
        let address = server.local_addr().expect("bound");
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(server.serve(stopped));
        NasProcess { address, _stop: stop, _dir: dir }
    }

    /// With a small and a large file.
    pub async fn with_files() -> NasProcess {
        NasProcess::start(|memory| {
            memory.mkdir(b"/dir").expect("made");
            memory.write_file(b"/dir/small", &[7; 4096]).expect("written");
            memory.generate_file(b"/dir/big", 1, 24 << 20).expect("made");
        })
        .await
    }

    pub fn url(&self) -> String {
        format!("nfs://{0}/?mountport={1}", self.address, self.address.port())
    }
}
