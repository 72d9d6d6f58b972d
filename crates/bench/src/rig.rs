//! The parts that a measurement puts up and takes down again: a NAS, a line to it, a tier in front of it. Each is a
//! process of its own, so that its CPU time and memory are its own too; the line is a relay in this process, on a
//! thread of its own.

mod counters;
mod process;
mod usage;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use bench_load::target::limited::Service;
use origin_nfs::Config;
use types::{Error, Result};

pub use counters::Counters;
pub use process::Process;
pub use usage::{Usage, relay_cpu_seconds};

/// A plain NFS server over a directory.
pub struct Nas {
    pub process: Process,
    pub address: SocketAddr,
}

impl Nas {
    pub fn start(dir: &Path) -> Result<Nas> {
        Nas::limited(dir, None)
    }

    /// With the limits of a service in front of the directory.
    pub fn limited(dir: &Path, limits: Option<Service>) -> Result<Nas> {
        let dir = dir.to_string_lossy();
        let limits = limits.map(|limits| format!("--limits={limits}"));
        let arguments: Vec<&str> = ["nas", &dir].into_iter().chain(limits.as_deref()).collect();
        let (process, addresses) = Process::start(&arguments)?;
        Ok(Nas { process, address: addresses.nfs })
    }
}

/// A tier with a cache that is empty at first and removed at the end.
pub struct Tier {
    pub process: Process,
    pub nfs: SocketAddr,
    pub admin: SocketAddr,
    /// Removed after the process has ended: fields are dropped in this order.
    _cache: tempfile::TempDir,
}

/// What a tier needs to know.
#[derive(Clone, Debug)]
pub struct TierConfig {
    /// Of the far storage, as `forebay serve --origin` takes it.
    pub origin: String,
    /// Where caches are made; a local disk.
    pub scratch: PathBuf,
    /// Quota of the cache, bytes.
    pub cache_bytes: u64,
}

impl Tier {
    pub fn start(config: &TierConfig) -> Result<Tier> {
        let cache = tempfile::Builder::new().prefix("forebay-bench-cache-").tempdir_in(&config.scratch);
        let cache = cache.map_err(|e| Error::io("make a cache directory in", config.scratch.display(), e))?;
        let (dir, size) = (cache.path().to_string_lossy().into_owned(), config.cache_bytes.to_string());
        let any = "127.0.0.1:0";
        let (process, addresses) = Process::start(&[
            "serve",
            "--origin",
            &config.origin,
            "--cache",
            &dir,
            "--cache-size",
            &size,
            "--nfs",
            any,
            "--admin",
            any,
            "--json",
        ])?;
        let admin = addresses.admin.ok_or_else(|| Error::new(types::ErrorKind::Io, "start", "a tier"))?;
        Ok(Tier { process, nfs: addresses.nfs, admin, _cache: cache })
    }

    pub fn counters(&self) -> Result<Counters> {
        Counters::of(self.admin)
    }
}

/// The same export, reached through another address: NFS and MOUNT on the relay's one port.
pub fn url_through(address: SocketAddr, export: &str) -> String {
    format!("nfs://{address}{export}?mountport={}&nconnect=4", address.port())
}

/// Parsed, or one line that says what would be right.
pub fn nfs_config(url: &str) -> Result<Config> {
    Config::from_url(url)
}
