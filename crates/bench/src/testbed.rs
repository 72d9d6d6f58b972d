//! Far storage with a data set on it, and lines of several lengths that lead there. The storage is a directory of
//! this machine behind a NAS process of ours, or an NFS server, a bucket or a share of Azure Files of the user's; each line
//! measures itself.

mod bucket;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bench_load::{
    Cleanup, Client, ClientSet, DataSetDir, Dataset, Layout, LoadJob, LoadLimits, LoadPhase, RunDir,
    SeededData, Usage, dataset, from_url, target,
};
use origin::emulated::ServiceLimits;
use origin_nfs::Config;
use quantity::ByteRate;
use relay::{Relay, measure_http, measure_null};
use types::{Error, ErrorKind, Result};

use crate::fixture::{ChildProcess, TierConfig, start_nas};
use crate::probe::far::Ports;
use crate::{MeasuredStorage, ResultBuilder, TierProcess, refuse, unless_interrupted};

use bucket::HttpStore;

/// Round trips by which a line measures itself.
const SAMPLES: usize = 11;
/// A line that is longer or shorter than asked for by more than this, and by more than [`OFF_MS`], is told of.
const OFF: f64 = 0.05;
const OFF_MS: f64 = 0.5;
/// Side by side, while the data set is laid out.
const WRITERS: u32 = 8;

/// The files that are read: all clients read the same ones.
pub fn data_set(layout: Layout, seed: u64) -> Dataset {
    Dataset { layout, content: SeededData { seed, ..SeededData::default() }, version: 1, trees: 1 }
}

/// A data set in a directory of its own, and the clients that wrote it and remove it.
pub struct LaidOut {
    pub data: Dataset,
    dir: RunDir,
    writers: Vec<Arc<dyn Client>>,
}

impl LaidOut {
    pub async fn at(url: &str, data: Dataset) -> Result<LaidOut> {
        let writers = target::clients(&from_url(url)?, 0, WRITERS).await?;
        let Some(first) = writers.first() else { return refuse("no client could be made") };
        let dir = RunDir::create(&**first, &std::process::id().to_string()).await?;
        let place = DataSetDir { dir: &dir, directory: "" };
        if let Err(error) = unless_interrupted(dataset::prepare(&data, place, &writers)).await {
            let _ = dir.cleanup(&writers).await;
            return Err(error);
        }
        Ok(LaidOut { data, dir, writers })
    }

    /// Where the data set is, below what was named by the URL.
    pub fn root(&self) -> String {
        self.dir.path()
    }

    /// The path of a file there.
    pub fn path(&self, file: u64) -> String {
        self.data.layout.path(&self.root(), 0, file)
    }

    /// A job on the data set.
    pub fn job(&self, fleet: ClientSet, phase: LoadPhase, limits: LoadLimits) -> LoadJob {
        let (layout, content) = (self.data.layout.clone(), self.data.content);
        LoadJob { root: self.root(), layout, content, fleet, phases: vec![phase], limits }
    }

    pub async fn clean_up(&self) -> Result<Cleanup> {
        self.dir.cleanup(&self.writers).await
    }
}

pub struct Testbed {
    pub files: LaidOut,
    place: StorageAddress,
    nas: Option<ChildProcess>,
    /// Caches, and the data set if it is ours. Removed at the end.
    scratch: tempfile::TempDir,
}

/// What the storage is to its clients.
enum StorageAddress {
    Nfs { export: String, ports: Ports },
    Http(HttpStore),
}

/// A way to the storage with a length of its own.
pub struct Line {
    pub nominal: Duration,
    /// As measured through it: median of NULL calls, or of HTTP requests that are refused.
    pub rtt_ms: f64,
    relays: Vec<Relay>,
    /// As `forebay serve --origin` and the bench's clients take it.
    pub url: String,
}

impl Testbed {
    /// On an NFS server of the user's, or in a directory of this machine; in a temporary one if nothing is named.
    pub async fn at(origin: Option<&str>, data: Dataset) -> Result<Testbed> {
        match origin {
            Some(url) if url.starts_with("nfs://") => Testbed::on_server(url, data).await,
            dir => Testbed::limited(dir.map(PathBuf::from), data, None).await,
        }
    }

    /// On this machine: `dir`, or a temporary directory, gets the data set, and a NAS process serves it, with the limits of a
    /// service in front of it if there are any.
    pub async fn limited(
        dir: Option<PathBuf>,
        data: Dataset,
        limits: Option<ServiceLimits>,
    ) -> Result<Testbed> {
        let made = scratch(&dir.clone().unwrap_or_else(std::env::temp_dir));
        let scratch = made.map_err(|e| match &dir {
            Some(dir) => Error::new(
                ErrorKind::Config,
                "bench:",
                format!("{}: {e}; name another directory", dir.display()),
            ),
            None => Error::io("make", "a temporary directory", e),
        })?;
        let tree = scratch.path().join("export");
        std::fs::create_dir(&tree).map_err(|e| Error::io("make", tree.display(), e))?;
        let files = LaidOut::at(&format!("file://{}", tree.display()), data).await?;
        let (nas, address) = start_nas(&tree, limits)?;
        let ports = Ports { nfs: address, mount: address };
        let place = StorageAddress::Nfs { export: "/".to_owned(), ports };
        Ok(Testbed { files, place, nas: Some(nas), scratch })
    }

    /// In a bucket or share that can be written, below a key or directory that this run makes.
    pub async fn in_http_store(url: &str, data: Dataset) -> Result<Testbed> {
        let place = StorageAddress::Http(HttpStore::of(url).await?);
        Testbed::of_user(url, place, data).await
    }

    /// On an NFS server that can be written, below a directory that this run makes.
    pub async fn on_server(url: &str, data: Dataset) -> Result<Testbed> {
        let config = Config::from_url(url)?;
        let export = String::from_utf8_lossy(&config.export).into_owned();
        let place = StorageAddress::Nfs { export, ports: Ports::of(&config).await? };
        Testbed::of_user(url, place, data).await
    }

    async fn of_user(url: &str, place: StorageAddress, data: Dataset) -> Result<Testbed> {
        let scratch =
            scratch(&std::env::temp_dir()).map_err(|e| Error::io("make", "a temporary directory", e))?;
        Ok(Testbed { files: LaidOut::at(url, data).await?, place, nas: None, scratch })
    }

    /// A line that adds `rtt`, and shapes each direction to `rate`.
    pub async fn line(&self, rtt: Duration, rate: Option<ByteRate>) -> Result<Line> {
        let config = relay::Config { rtt, rate, ..Default::default() };
        let (relays, measured, url) = match &self.place {
            StorageAddress::Nfs { export, ports } => {
                let (relays, near) = ports.relayed(config)?;
                (relays, measure_null(near.nfs, SAMPLES).await?, near.url(export))
            }
            StorageAddress::Http(store) => {
                let relay = Relay::bind(SocketAddr::from(([127, 0, 0, 1], 0)), store.address, config)?;
                let near = relay.local_addr();
                (vec![relay], measure_http(near, SAMPLES).await?, store.at(near))
            }
        };
        Ok(Line { nominal: rtt, rtt_ms: measured.median() * 1000.0, relays, url })
    }

    /// Straight to the storage.
    pub fn near_url(&self) -> String {
        match &self.place {
            StorageAddress::Nfs { export, ports } => ports.url(export),
            StorageAddress::Http(store) => store.at(store.address),
        }
    }

    /// A tier with an empty cache at the near end of a line. The cache takes everything that there is.
    pub fn tier(&self, line: &Line) -> Result<TierProcess> {
        self.tier_of(line, (self.files.data.layout.total_bytes() * 2).max(1 << 30))
    }

    /// The same with a cache of a size of its own, bytes.
    pub fn tier_of(&self, line: &Line, cache_bytes: u64) -> Result<TierProcess> {
        let by_s3 = matches!(self.place, StorageAddress::Http(_));
        let origin = if by_s3 { line.url.clone() } else { format!("{}&nconnect=4", line.url) };
        let scratch = self.scratch.path().to_owned();
        TierProcess::start(&TierConfig { origin, scratch, cache_bytes, by_s3, writes_through: false })
    }

    /// Clients read objects directly, too, and not only through the tier's S3 front.
    pub fn is_bucket(&self) -> bool {
        matches!(&self.place, StorageAddress::Http(store) if store.is_bucket())
    }

    /// Of the storage, if it is ours.
    pub fn nas_usage(&self) -> Option<Usage> {
        self.nas.as_ref().map(ChildProcess::usage)
    }
}

impl MeasuredStorage for Testbed {
    const OUTLASTS_RUN: bool = false;

    async fn clean_up(self) -> Result<Option<Cleanup>> {
        self.files.clean_up().await.map(Some)
    }
}

impl Line {
    /// Bytes that came from the storage, protocol included.
    pub fn bytes_down(&self) -> u64 {
        self.relays.iter().map(|relay| relay.counts().bytes_down).sum()
    }

    /// Warns if it is not as long as it should be.
    pub fn tell(&self, draft: &mut ResultBuilder) {
        let (nominal, rtt) = (self.nominal.as_secs_f64() * 1000.0, self.rtt_ms);
        let off = (rtt - nominal).abs();
        if off > OFF_MS && off > nominal * OFF {
            draft.warning(format!(
                "the line of {nominal} ms measures {rtt:.1} ms; figures are against the latter"
            ));
        }
    }
}

/// For what is put up on this machine.
fn scratch(parent: &Path) -> std::io::Result<tempfile::TempDir> {
    tempfile::Builder::new().prefix("forebay-bench-").tempdir_in(parent)
}
