//! What an operator gives up of the journal is copied away first: a directory with what each operation was, as JSON, and the
//! bytes of each write, as a file. All of it is on the disk before anything is forgotten.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use types::{Error, ErrorKind, Result};
use vfs::{Dropping, WaitingOperation};

/// What was exported.
pub struct Exported {
    pub dir: PathBuf,
    pub bytes: u64,
}

/// One operation, as the list and the export tell it.
pub fn told(operation: &WaitingOperation) -> Value {
    let details: serde_json::Map<String, Value> =
        operation.details.iter().map(|(name, value)| ((*name).to_owned(), json!(value))).collect();
    json!({
        "operation": operation.sequence,
        "junction": operation.junction,
        "path": operation.path,
        "kind": operation.kind,
        "bytes": operation.bytes,
        "acknowledged": format!("{}.{:09}", operation.acknowledged.seconds, operation.acknowledged.nanos),
        "refused": operation.refused,
        "waits_for": operation.waits_for,
        "details": details,
    })
}

/// Below the cache directory, by the first of them.
pub fn default_dir(cache: &Path, dropping: &Dropping<'_>) -> PathBuf {
    let first = dropping.operations.first().map_or(0, |operation| operation.sequence);
    let now = types::Timeline::default().wall().seconds;
    cache.join("dropped").join(format!("{now}-{first}"))
}

/// Into a directory that is made for it. Returns when all of it is on the disk.
pub async fn export(dropping: &Dropping<'_>, dir: &Path) -> Result<Exported> {
    let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
    if let Some(parent) = parent {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(parent);
        made.map_err(|e| Error::io("make", parent.display(), e))?;
    }
    DirBuilder::new().mode(0o700).create(dir).map_err(|e| {
        let message =
            format!("{}: {e}; name a directory that is not there yet, with --export", dir.display());
        Error::new(ErrorKind::InvalidArgument, "export what is dropped to", message)
    })?;
    let (mut bytes, mut operations) = (0, Vec::with_capacity(dropping.operations.len()));
    for operation in &dropping.operations {
        let mut told = told(operation);
        if operation.bytes > 0 {
            let data = dropping.data(operation).await?;
            let name = format!("{}.bytes", operation.sequence);
            write(&dir.join(&name), &data).await?;
            told["file"] = json!(name);
            bytes += operation.bytes;
        }
        operations.push(told);
    }
    let list = format!("{:#}\n", json!({ "operations": operations }));
    write(&dir.join("operations.json"), list.as_bytes()).await?;
    for dir in [Some(dir), parent, parent.and_then(Path::parent)].into_iter().flatten() {
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        let synced = File::open(dir).and_then(|dir| dir.sync_all());
        synced.map_err(|e| Error::io("store", dir.display(), e))?;
    }
    Ok(Exported { dir: dir.to_owned(), bytes })
}

async fn write(path: &Path, data: &[u8]) -> Result<()> {
    let (path, data) = (path.to_owned(), data.to_vec());
    let written = tokio::task::spawn_blocking(move || {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        file.write_all(&data)?;
        file.sync_all().map_err(|e| std::io::Error::new(e.kind(), format!("{}: {e}", path.display())))
    });
    let written = written.await.map_err(|e| Error::new(ErrorKind::Io, "export", "").with_source(e))?;
    written.map_err(|e| Error::io("export", "what is dropped", e))
}
