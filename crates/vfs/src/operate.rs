//! What the operator does with paths: look, warm, evict.

use std::collections::VecDeque;
use std::sync::atomic::Ordering::Relaxed;

use namespace::{Found, JunctionStatus};
use tokio::task::JoinSet;
use tracing::warn;
use types::{Error, FileId, Result};

use crate::read::key_of;
use crate::{Evicted, StatOut, Vfs, WarmProgress, node_of};

/// Files warmed at the same time: enough to hide the distance for small files; large ones are parallel inside.
const WARM_TOGETHER: usize = 32;
/// Names taken from a directory at a time.
const LIST_PIECE: usize = 1024;

impl Vfs {
    /// Path, URL, rules and state of every junction.
    pub fn junctions(&self) -> Vec<JunctionStatus> {
        self.namespace.junctions()
    }

    /// Everything about one path, for the operator.
    pub async fn stat(&self, path: &[u8]) -> Result<StatOut> {
        let found = self.namespace.resolve(path).await?;
        let node = node_of(&found);
        let Found::Node(known) = &found else {
            let version = types::Version([0; 16]);
            let freshness = "fixed".to_owned();
            return Ok(StatOut { node, junction: None, version, cached_bytes: 0, age_ms: 0, freshness });
        };
        let junction = self.namespace.junctions().into_iter().find(|j| j.id == known.junction());
        let (age_ms, rule) = self.namespace.age(known)?;
        let cached_bytes = key_of(&found).map_or(0, |key| self.cache.cached_bytes(&key));
        Ok(StatOut {
            node,
            junction: junction.map(|j| (j.path, j.url)),
            version: known.version(),
            cached_bytes,
            age_ms,
            freshness: rule.to_string(),
        })
    }

    /// Bring a file, or all files below a directory, into the cache. One bad file does not stop the rest; the
    /// errors are counted in `progress`, and make the whole an error in the end.
    pub async fn warm(&self, path: &[u8], progress: &WarmProgress) {
        let mut dirs = VecDeque::new();
        let mut files = JoinSet::new();
        let note = |result: Result<u64>| match result {
            Ok(bytes) => {
                progress.files.fetch_add(1, Relaxed);
                progress.bytes.fetch_add(bytes, Relaxed);
            }
            Err(e) => {
                progress.errors.fetch_add(1, Relaxed);
                if let Ok(mut last) = progress.last_error.lock() {
                    *last = Some(e.to_string());
                }
                warn!("warm: {e}");
            }
        };
        match self.namespace.resolve(path).await {
            Ok(start) if start.attr().is_dir() => dirs.push_back(start.id()),
            Ok(start) => note(self.file_warmer(start).await),
            Err(e) => note(Err(e)),
        }
        while let Some(dir) = dirs.pop_front() {
            progress.directories.fetch_add(1, Relaxed);
            let mut after = 0;
            loop {
                let piece = match self.namespace.readdir(dir, after, LIST_PIECE).await {
                    Ok(piece) => piece,
                    Err(e) => {
                        note(Err(e));
                        break;
                    }
                };
                for entry in piece.entries {
                    after = entry.cookie;
                    match entry.child {
                        Some(child) if child.attr().is_dir() => dirs.push_back(child.id()),
                        Some(child) if child.attr().is_file() => {
                            while files.len() >= WARM_TOGETHER {
                                note(joined(files.join_next().await));
                            }
                            files.spawn(self.file_warmer(child));
                        }
                        _ => {}
                    }
                }
                if piece.eof {
                    break;
                }
            }
        }
        while !files.is_empty() {
            note(joined(files.join_next().await));
        }
    }

    /// A task of its own that brings one file in and returns its size.
    fn file_warmer(&self, found: Found) -> impl Future<Output = Result<u64>> + Send + 'static {
        let (namespace, cache, source) = (self.namespace.clone(), self.cache.clone(), self.source());
        async move {
            let key = key_of(&found)?;
            match cache.warm(&key, &source).await {
                Err(e) if e.kind() == types::ErrorKind::VersionChanged => {
                    let key = key_of(&namespace.refresh_changed(key.file).await?)?;
                    cache.warm(&key, &source).await.map(|()| key.size)
                }
                other => other.map(|()| key.size),
            }
        }
    }

    /// Drop cached bytes of a file or tree and forget how fresh its metadata is.
    pub async fn evict(&self, path: &[u8]) -> Result<Evicted> {
        let start = self.namespace.resolve(path).await?;
        let mut evicted = Evicted::default();
        let drop_bytes = |file: FileId| {
            let bytes = self.cache.evict_file(file);
            evicted.files += u64::from(bytes > 0);
            evicted.bytes += bytes;
        };
        self.namespace.expire_tree(start.id(), drop_bytes).await?;
        Ok(evicted)
    }
}

fn joined(result: Option<std::result::Result<Result<u64>, tokio::task::JoinError>>) -> Result<u64> {
    match result {
        Some(Ok(result)) => result,
        Some(Err(e)) => Err(Error::new(types::ErrorKind::Io, "warm a file", "").with_source(e)),
        None => Ok(0),
    }
}
