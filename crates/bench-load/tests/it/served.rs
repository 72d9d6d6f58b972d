//! An NFS server in this process, over files in memory, without a cache worth mentioning in front of them.

use std::net::SocketAddr;
use std::sync::Arc;

use bench_load::engine::LoadJob;
use bench_load::target::{Target, from_url};
use front_nfs::{Config, ExportRule, ExportRules, NfsServer, Squash};
use namespace::{Junction, Namespace};
use origin::memory::MemoryOrigin;
use vfs::Vfs;

pub struct Served {
    pub address: SocketAddr,
    /// Its own, so that it dies as a process does: listener and connections at once.
    runtime: Option<tokio::runtime::Runtime>,
    _stop: tokio::sync::watch::Sender<bool>,
    _dir: tempfile::TempDir,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.kill();
    }
}

pub async fn serve(origin: Arc<MemoryOrigin>) -> Served {
    let dir = tempfile::tempdir().expect("temporary directory");
    let names = namespace::Config { dir: dir.path().join("metadata"), ..Default::default() };
    let namespace = Namespace::open(names, vec![Junction::new("/", origin)]).expect("opened");
    let blocks = cache::Config { dir: dir.path().join("blocks"), free_floor: 0, ..Default::default() };
    let vfs = Vfs::new(namespace, cache::Cache::open(blocks).expect("opened"), vfs::Writing::default());
    let rules = ExportRules::new(vec![ExportRule { squash: Squash::None, ..ExportRule::default() }]);
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let config = Config { listen, exports: rules, ..Config::default() };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("runtime");
    let server = runtime.spawn(NfsServer::bind(config, vfs)).await.expect("task").expect("bound");
    let address = server.local_addr().expect("bound");
    let (stop, stopped) = tokio::sync::watch::channel(false);
    runtime.spawn(server.serve(stopped));
    Served { address, runtime: Some(runtime), _stop: stop, _dir: dir }
}

impl Served {
    pub fn kill(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }

    pub fn target(&self, options: &str) -> Arc<dyn Target> {
        let port = self.address.port();
        from_url(&format!("nfs://127.0.0.1:{port}/?mountport={port}{options}")).expect("a target")
    }
}

/// The files of a job (that are not private), as version `version`.
pub fn files_of(job: &LoadJob, version: u32) -> Arc<MemoryOrigin> {
    let origin = MemoryOrigin::new();
    for directory in 0..job.layout.directories() {
        let path = job.layout.directory_path(&job.root, 0, directory);
        if !path.is_empty() {
            origin.mkdir(path.as_bytes()).expect("made");
        }
    }
    for file in 0..job.layout.files {
        write_file(&origin, job, file, version);
    }
    origin
}

pub fn write_file(origin: &MemoryOrigin, job: &LoadJob, file: u64, version: u32) {
    let path = job.layout.path(&job.root, 0, file);
    origin.write_file(path.as_bytes(), &contents(job, file, version)).expect("written");
}

pub fn contents(job: &LoadJob, file: u64, version: u32) -> bytes::Bytes {
    let size = usize::try_from(job.layout.size_of(file)).expect("small");
    let place = bench_load::data::FileVersion { file: job.layout.content_id(0, file), version };
    job.content.generate(place, 0, size)
}
