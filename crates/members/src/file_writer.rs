//! How `cluster.json` gets to the disk while the membership goes on: a disk may hang.

use std::path::PathBuf;
use std::time::Duration;

use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::Instant;
use types::Result;

use crate::node_file::NodeFile;

/// A disk that does not answer for so long is told to operators.
const DISK_HANGS: Duration = Duration::from_secs(5);

/// One write at a time, which no other may overtake.
pub(crate) struct FileWriter {
    dir: PathBuf,
    write: Option<FileWrite>,
    /// When the last write ended, and what was wrong with it.
    ended: Instant,
    failed: Option<String>,
}

struct FileWrite {
    file: NodeFile,
    since: Instant,
    task: JoinHandle<Result<()>>,
}

impl FileWriter {
    pub fn new(dir: PathBuf) -> FileWriter {
        FileWriter { dir, write: None, ended: Instant::now(), failed: None }
    }

    /// Begins to write, unless a write is under way.
    pub fn begin(&mut self, file: NodeFile) {
        if self.write.is_some() {
            return;
        }
        let (dir, copy) = (self.dir.clone(), file.clone());
        let task = spawn_blocking(move || copy.save(&dir));
        self.write = Some(FileWrite { file, since: Instant::now(), task });
    }

    pub fn is_writing(&self) -> bool {
        self.write.is_some()
    }

    /// Waits for the write that is under way, or for ever if there is none. What is on disk then, unless it failed. May be dropped and
    /// called again.
    pub async fn written(&mut self) -> Option<NodeFile> {
        let Some(write) = self.write.as_mut() else { return std::future::pending().await };
        let ended = (&mut write.task).await;
        self.failed = match ended {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(error) => Some(error.to_string()),
        };
        self.ended = Instant::now();
        let write = self.write.take()?;
        self.failed.is_none().then_some(write.file)
    }

    /// How long ago the last write ended.
    pub fn rest(&self) -> Duration {
        self.ended.elapsed()
    }

    /// What was wrong with the last write.
    pub fn failed(&self) -> Option<&str> {
        self.failed.as_deref()
    }

    /// What operators must hear of: the last write failed, or this one takes too long.
    pub fn trouble(&self) -> Option<String> {
        if self.write.as_ref().is_some_and(|write| write.since.elapsed() >= DISK_HANGS) {
            return Some(format!("{}: the disk has not answered for {DISK_HANGS:?}", self.dir.display()));
        }
        self.failed.clone()
    }
}
