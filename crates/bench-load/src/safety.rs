//! What keeps a bench from doing harm: it writes only below a directory of its own, and removes only what it could
//! have made there.
//!
//! The directory is `forebay-bench-<id>` and holds the marker `.forebay.bench`. Without the marker nothing is
//! written into it and nothing is removed from it; with it, names that no layout makes are left and reported.

mod cleanup;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use types::{Error, ErrorKind, Result};

use crate::target::Client;

pub use cleanup::Cleanup;

const PREFIX: &str = "forebay-bench-";
/// An S3 front of a tier keeps names that begin with ".forebay-" to itself.
pub(crate) const MARKER: &str = ".forebay.bench";
/// The version of the marker's form.
const MARKER_SCHEMA: u32 = 1;
/// Markers and descriptions are smaller; something larger is not ours.
const SMALL_FILE_MAX: u64 = 64 << 10;

#[derive(Serialize, Deserialize)]
struct Marker {
    forebay_bench: u32,
    id: String,
}

/// A directory on a target that is ours to write and to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDir {
    id: String,
}

impl RunDir {
    /// The directory's path below the target: `root` of a job.
    pub fn path(&self) -> String {
        format!("{PREFIX}{}", self.id)
    }

    /// The run's directory that a job's root is or lies in; `Config` if it is none.
    pub(crate) fn around(root: &str) -> Result<RunDir> {
        let first = root.split('/').next().unwrap_or("");
        match first.strip_prefix(PREFIX) {
            Some(id) => RunDir::named(id),
            None => {
                let reason = format!("{root:?}: a job that writes needs a root made by RunDir::create");
                Err(Error::new(ErrorKind::Config, "run directory", reason))
            }
        }
    }

    pub(crate) fn marker(&self) -> String {
        format!("{}/{MARKER}", self.path())
    }

    fn named(id: &str) -> Result<RunDir> {
        let good = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
        if id.is_empty() || id.len() > 100 || !id.bytes().all(good) {
            let reason = format!("{id:?}: a run's id has 1 to 100 letters, digits, '-', '_' or '.'");
            return Err(Error::new(ErrorKind::Config, "run directory", reason));
        }
        Ok(RunDir { id: id.to_owned() })
    }

    /// The directory of that id, made if it is missing. One that is there must have the marker, or be empty.
    pub async fn create(client: &dyn Client, id: &str) -> Result<RunDir> {
        let dir = RunDir::named(id)?;
        let path = dir.path();
        client.mkdir(&path).await.map_err(|error| not_writable(error, &path))?;
        match dir.check_marker(client).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            other => return other.map(|()| dir),
        }
        if !client.list(&path).await?.is_empty() {
            return Err(foreign(&path, "is there and holds something, but no marker of a bench"));
        }
        let marker = Marker { forebay_bench: MARKER_SCHEMA, id: dir.id.clone() };
        let wrote = write_small(client, &dir.marker(), &marker).await;
        wrote.map_err(|error| not_writable(error, &path))?;
        Ok(dir)
    }

    /// The directory of that id as it was left by an earlier run, or is seen through another target.
    pub async fn open(client: &dyn Client, id: &str) -> Result<RunDir> {
        let dir = RunDir::named(id)?;
        dir.must_be_ours(client).await?;
        Ok(dir)
    }

    pub(crate) async fn must_be_ours(&self, client: &dyn Client) -> Result<()> {
        self.check_marker(client).await.map_err(|error| match error.kind() {
            ErrorKind::NotFound => foreign(&self.path(), "is not there, or has no marker of a bench"),
            _ => error,
        })
    }

    async fn check_marker(&self, client: &dyn Client) -> Result<()> {
        let text = read_small(client, &self.marker()).await?;
        let marker: Option<Marker> = serde_json::from_slice(&text).ok();
        match marker {
            Some(marker) if marker.forebay_bench == MARKER_SCHEMA && marker.id == self.id => Ok(()),
            _ => Err(foreign(&self.path(), "has a marker, but not the one of this run")),
        }
    }
}

fn foreign(path: &str, why: &str) -> Error {
    let reason = format!("{path} {why}; it is left alone: give another id");
    Error::new(ErrorKind::Config, "run directory", reason)
}

fn not_writable(error: Error, path: &str) -> Error {
    match error.kind() {
        ErrorKind::ReadOnly | ErrorKind::AccessDenied | ErrorKind::NotPermitted | ErrorKind::NotSupported => {
            let reason =
                format!("{path} cannot be made: {error}; choose a shape that reads, or a writable target");
            Error::new(ErrorKind::Config, "run directory", reason)
        }
        _ => error,
    }
}

/// A small file as a whole.
pub(crate) async fn read_small(client: &dyn Client, path: &str) -> Result<Bytes> {
    let file = client.open(path).await?;
    if file.size() > SMALL_FILE_MAX {
        return Err(Error::new(ErrorKind::Config, "read", format!("{path}: too large to be ours")));
    }
    let text = file.read(0, SMALL_FILE_MAX as usize).await?;
    file.close().await?;
    Ok(text)
}

/// Replaces a small file with plain data as JSON; readers may find it missing for a moment.
pub(crate) async fn write_small(client: &dyn Client, path: &str, data: &impl Serialize) -> Result<()> {
    match client.remove(path).await {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let file = client.create(path).await?;
    file.write(0, serde_json::to_vec(data).expect("plain data is JSON").into()).await?;
    file.close().await
}
