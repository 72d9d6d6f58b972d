//! A plain NFS server over a directory: our own front, with nothing kept and nothing believed for long. The demo and
//! the bench put it far away.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use front_nfs::NfsServer;
use namespace::{Freshness, Namespace};
use origin::Origin;
use origin::emulated::{LimitedOrigin, ServiceLimits};
use origin::posix::PosixOrigin;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use types::{Error, Result};
use vfs::Vfs;

use crate::serve;

#[derive(Args)]
pub struct NasArgs {
    /// The tree to serve, read-only
    dir: PathBuf,
    /// Address for NFSv3 and MOUNT
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    nfs: SocketAddr,
    /// Limits of a service in front of the tree, as `forebay bench load --help` shows them
    #[arg(long, value_name = "LIMITS")]
    limits: Option<ServiceLimits>,
    /// End when standard input does: whoever started it is gone
    #[arg(long)]
    attended: bool,
}

/// Serve until SIGTERM or SIGINT; the address is the first line of the output.
pub async fn run(args: NasArgs) -> Result<()> {
    program::raise_descriptor_limit();
    let nas = Nas::start(&args.dir, args.nfs, args.limits).await?;
    println!("{}", serde_json::json!({ "nfs": nas.address.to_string() }));
    serve::wait_for_the_end(args.attended).await
}

/// It serves until it is dropped.
pub struct Nas {
    pub address: SocketAddr,
    task: JoinHandle<()>,
    /// Names and handles; nothing of it is worth keeping.
    _metadata: tempfile::TempDir,
}

impl Nas {
    pub async fn start(dir: &Path, listen: SocketAddr, limits: Option<ServiceLimits>) -> Result<Nas> {
        let metadata = tempfile::tempdir().map_err(|e| Error::io("make", "a temporary directory", e))?;
        let tree: Arc<dyn Origin> = Arc::new(PosixOrigin::open(dir)?);
        let origin = match limits {
            Some(limits) => LimitedOrigin::new(tree, limits),
            None => tree,
        };
        let at_once = Freshness::Ttl(Duration::ZERO);
        let junction = namespace::Junction {
            files: at_once,
            directories: at_once,
            negative_ttl: Duration::ZERO,
            ..namespace::Junction::new("/", origin)
        };
        let config = namespace::Config { dir: metadata.path().to_owned(), ..Default::default() };
        let namespace = Namespace::open(config, vec![junction])?;
        let cache = cache::Cache::open(cache::Config { bypass: true, ..Default::default() })?;
        let everybody = front_nfs::ExportRules::new(vec![front_nfs::ExportRule {
            squash: front_nfs::Squash::None,
            ..Default::default()
        }]);
        let config = front_nfs::Config { listen, exports: everybody, ..Default::default() };
        let server = NfsServer::bind(config, Vfs::new(namespace, cache, vfs::Writing::default())).await?;
        let address = server.local_addr()?;
        let task = tokio::spawn(async move {
            let (_never, stop) = watch::channel(false);
            server.serve(stop).await;
        });
        Ok(Nas { address, task, _metadata: metadata })
    }
}

impl Drop for Nas {
    fn drop(&mut self) {
        self.task.abort();
    }
}
