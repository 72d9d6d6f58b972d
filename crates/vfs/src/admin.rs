//! What the operator does with paths: look, warm and evict. The journal is in `back/admin.rs`.

use std::sync::Arc;

use fetch::{OnlyCopies, WarmOrder, WarmProgress, Warmer, key_of};
use namespace::{Found, JunctionStatus};
use types::{FileId, Result};

use crate::{Evicted, StatOut, Vfs};

impl Vfs {
    /// Path, URL, rules and state of every junction.
    pub fn junctions(&self) -> Vec<JunctionStatus> {
        self.namespace.junctions()
    }

    /// Why the metadata database takes nothing now, and what of it is lost since the start; a sentence each.
    pub fn database_trouble(&self) -> (Option<String>, Option<String>) {
        self.namespace.database_trouble()
    }

    /// Everything about one path, for the operator.
    pub async fn stat(&self, path: &[u8]) -> Result<StatOut> {
        let node = self.resolve(path).await?;
        let write = self.write_policy(node.junction);
        let junction = self.namespace.junctions().into_iter().find(|j| j.id == node.junction);
        let found = match self.local(node.id) {
            Some(_) => None,
            None => self.namespace.getattr_known(node.id).ok(),
        };
        let Some(found @ Found::Node(known)) = &found else {
            let freshness = if junction.is_some() { "here only" } else { "fixed" }.to_owned();
            let (version, cached_bytes, age_ms) = (node.version, 0, 0);
            let junction = junction.map(|j| (j.path, j.url));
            return Ok(StatOut { node, junction, version, cached_bytes, age_ms, freshness, write });
        };
        let (age_ms, rule) = self.namespace.age(known)?;
        let cached_bytes = match key_of(found) {
            Ok(key) => self.cache.cached_bytes(&key).await,
            Err(_) => 0,
        };
        Ok(StatOut {
            node,
            junction: junction.map(|j| (j.path, j.url)),
            version: known.version(),
            cached_bytes,
            age_ms,
            freshness: rule.to_string(),
            write,
        })
    }

    /// Brings what is below these paths here. One bad path does not stop the rest; errors are counted in `progress`, and make the
    /// whole an error in the end. Bytes that do not fit are not begun with: `progress` says so.
    pub async fn warm(&self, paths: &[Vec<u8>], order: impl Into<WarmOrder>, progress: &Arc<WarmProgress>) {
        self.warmer().warm(paths, order, progress).await;
    }

    /// Of what is at this path and below it, what is here while its origin is away.
    pub async fn only_copies(&self, path: &[u8]) -> Result<OnlyCopies> {
        self.warmer().only_copies(path).await
    }

    fn warmer(&self) -> Warmer {
        let (namespace, cache) = (self.namespace.clone(), self.cache.clone());
        Warmer { namespace, cache, dirty: self.writers.clone() }
    }

    /// What answers for the junction at this path is the right storage from now on: what is cached of the one before is
    /// given up, but for what is needed to keep what was written and not flushed. A sentence on what it is.
    pub async fn accept_origin(&self, junction: &str) -> Result<String> {
        let known = self.namespace.junctions().into_iter().find(|known| known.path == junction);
        let writer = known.map(|known| self.writer(known.id));
        let drop_bytes = |file: FileId| {
            if !writer.is_some_and(|writer| writer.needs_clean_bytes(file)) {
                self.cache.evict_file(file);
            }
        };
        Ok(self.namespace.accept_origin(junction, drop_bytes).await?.shown)
    }

    /// Drop cached bytes of a file or tree, pinned or not, and forget how fresh its metadata is.
    pub async fn evict(&self, path: &[u8]) -> Result<Evicted> {
        let start = self.resolve(path).await?;
        if self.local(start.id).is_some() {
            return Ok(Evicted::default()); // nothing of it is clean
        }
        let mut evicted = Evicted::default();
        let drop_bytes = |file: FileId| {
            let bytes = self.cache.evict_file(file);
            evicted.files += u64::from(bytes > 0);
            evicted.bytes += bytes;
        };
        self.namespace.expire_tree(start.id, drop_bytes).await?;
        self.cache.keep_pins()?;
        Ok(evicted)
    }
}
