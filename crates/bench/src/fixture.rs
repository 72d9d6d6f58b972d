//! The parts that a measurement puts up and takes down again: a NAS, a line to it, a tier in front of it. Each is a
//! process of its own, so that its CPU time and memory are its own too; the line is a relay in this process, on a
//! thread of its own.

mod counters;
mod front;
pub mod operator;
mod process;
mod watch;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use origin::emulated::ServiceLimits;
use types::{Error, Result};

use crate::entries::forget_pages_below;

pub use counters::CounterPage;
pub use front::BUCKET;
use front::Keys;
pub use process::ChildProcess;
pub use watch::{LOOK, Watch};

/// A plain NFS server over a directory, and where it answers. `limits`: those of a service in front of the directory.
pub fn start_nas(dir: &Path, limits: Option<ServiceLimits>) -> Result<(ChildProcess, SocketAddr)> {
    let dir = dir.to_string_lossy();
    let limits = limits.map(|limits| format!("--limits={limits}"));
    let arguments: Vec<&str> = ["nas", &dir].into_iter().chain(limits.as_deref()).collect();
    let (process, addresses) = ChildProcess::start(&arguments, &[])?;
    Ok((process, addresses.nfs))
}

/// A tier with a cache that is empty at first and removed at the end.
pub struct TierProcess {
    pub process: ChildProcess,
    pub nfs: SocketAddr,
    pub admin: SocketAddr,
    /// For its clients; without secrets.
    pub url: String,
    /// Removed after the process has ended: fields are dropped in this order.
    cache: tempfile::TempDir,
}

pub struct TierConfig {
    /// Of the far storage, as `forebay serve --origin` takes it.
    pub origin: String,
    /// Where caches are made; a local disk.
    pub scratch: PathBuf,
    /// Quota of the cache, bytes.
    pub cache_bytes: u64,
    /// Clients use its S3 front, and not NFS: its only origin is the bucket [`BUCKET`] there.
    pub by_s3: bool,
    /// Clients may write, and wait until the storage has it; otherwise they only read.
    pub writes_through: bool,
}

impl TierProcess {
    pub fn start(config: &TierConfig) -> Result<TierProcess> {
        let cache = tempfile::Builder::new().prefix("forebay-bench-cache-").tempdir_in(&config.scratch);
        let cache = cache.map_err(|e| Error::io("make a cache directory in", config.scratch.display(), e))?;
        // The keys are beside what the tier keeps, not in it.
        let keys = if config.by_s3 { Some(Keys::make(cache.path())?) } else { None };
        let dir = cache.path().join("cache");
        std::fs::create_dir(&dir).map_err(|e| Error::io("make", dir.display(), e))?;
        let dir = dir.to_string_lossy().into_owned();
        let size = config.cache_bytes.to_string();
        let any = "127.0.0.1:0";
        let origin = match config.by_s3 {
            true => format!("/{BUCKET}={}", config.origin),
            false => config.origin.clone(),
        };
        let write = if config.writes_through { "through" } else { "read-only" };
        let mut arguments = vec!["serve", "--origin", &origin, "--cache", &dir, "--cache-size", &size];
        arguments.extend(["--nfs", any, "--admin", any, "--write", write, "--json"]);
        if keys.is_some() {
            arguments.extend(["--s3", any]);
        }
        let environment = keys.iter().flat_map(Keys::environment).collect::<Vec<_>>();
        let (process, addresses) = ChildProcess::start(&arguments, &environment)?;
        let lacks = || Error::new(types::ErrorKind::Io, "start", "a tier");
        let admin = addresses.admin.ok_or_else(lacks)?;
        let nfs = addresses.nfs;
        let url = match &keys {
            Some(keys) => keys.url(addresses.s3.ok_or_else(lacks)?),
            None => format!("nfs://{nfs}/?mountport={}", nfs.port()),
        };
        Ok(TierProcess { process, nfs, admin, url, cache })
    }

    pub fn counters(&self) -> Result<CounterPage> {
        CounterPage::of(self.admin, None)
    }

    /// The next reads of what is cached come from the disk.
    pub async fn forget_pages(&self) -> Result<()> {
        forget_pages_below(self.cache.path().to_owned()).await
    }
}

/// What the tier's own command says, which knows how an operator proves who he is.
pub fn ask_tier(arguments: &[&str]) -> Result<String> {
    let failed = |why: String| {
        let what = arguments.join(" ");
        Error::new(types::ErrorKind::Unavailable, "run forebay", what).with_source(std::io::Error::other(why))
    };
    let mut command = program::companion::forebay()?;
    let asked = command.args(arguments).stdin(Stdio::null()).output();
    let asked = asked.map_err(|e| failed(e.to_string()))?;
    match asked.status.success() {
        true => Ok(String::from_utf8_lossy(&asked.stdout).into_owned()),
        false => Err(failed(String::from_utf8_lossy(&asked.stderr).trim().to_owned())),
    }
}
