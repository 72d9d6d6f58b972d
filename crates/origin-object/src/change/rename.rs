//! A rename copies each object and then removes the old ones. A reader in between sees both, and changes through
//! this tier wait (`path_locks.rs`). What others put there between copy and removal is renamed, too.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use ::origin::{Copied, Object, Reference};
use bytes::Bytes;
use types::{Error, ErrorKind, Name, Result};

use crate::attributes::version;
use crate::bounded_tasks::{TOGETHER, run_bounded};
use crate::copy::copy;
use crate::keys::{child, what};
use crate::listing_progress::ListingProgress;
use crate::origin::ObjectOrigin;
use crate::path_locks::PathLock;
use crate::rename_log::{ObjectContents, RenameLog};
use crate::store::{CopySource, ObjectStat, ObjectStore};

/// The most objects below a renamed directory: all are listed before the first is copied, at some hundred bytes
/// each.
const MOVES_MAX: u64 = 1_000_000;
/// How often an object that others keep changing is copied.
const COPIES_MAX: usize = 8;
/// Pauses where the store asks for fewer requests. The caller would repeat the whole rename, and find half of it
/// done.
const PAUSES_MS: [u64; 4] = [100, 400, 1600, 6400];

async fn retry_busy<T, F: Future<Output = Result<T>>>(ask: impl Fn() -> F) -> Result<T> {
    for pause in PAUSES_MS.map(Duration::from_millis) {
        match ask().await {
            Err(e) if e.kind() == ErrorKind::Busy => tokio::time::sleep(pause).await,
            answer => return answer,
        }
    }
    ask().await
}

/// An object that is being renamed.
#[derive(Clone)]
struct Move {
    store: Arc<dyn ObjectStore>,
    /// Its new reference.
    reference: Reference,
    key: String,
    to: String,
    /// The ETag of the old object.
    etag: String,
    size: u64,
    /// The log of the rename.
    noted: Arc<RenameLog>,
}

impl Move {
    /// Copies the object; returns the copy's ETag.
    async fn copy(&self) -> Result<String> {
        let source = CopySource { key: &self.key, etag: &self.etag, size: self.size };
        self.noted.copy_started(&self.reference.0, &self.etag, self.size);
        let copy = retry_busy(|| copy(&self.store, source, &self.to)).await?;
        self.noted.copy_done(&self.reference.0, &copy);
        Ok(copy)
    }

    /// Removes what was copied, and nothing else. If the object has changed, it is copied again first; if it is
    /// gone, others removed it; if it is the same, the store has another reason (a lease), or another change was in
    /// flight.
    async fn remove(mut self, mut copy: String) -> Result<Option<Copied>> {
        for _ in 0..COPIES_MAX {
            let refused = match retry_busy(|| self.store.delete(&self.key, Some(&self.etag))).await {
                Err(e) if e.kind() == ErrorKind::VersionChanged => e,
                removed => return removed.map(|()| self.copied(&copy)),
            };
            let now = retry_busy(|| self.store.head(&self.key)).await?;
            let Some(ObjectStat { etag, size, .. }) = now else { return Ok(self.copied(&copy)) };
            if etag == self.etag {
                tracing::debug!("not removed, though it is what was copied: {refused}");
                tokio::time::sleep(Duration::from_millis(PAUSES_MS[0])).await;
                continue;
            }
            let newer = Move { etag, size, ..self.clone() };
            match newer.copy().await {
                Err(e) if matches!(e.kind(), ErrorKind::VersionChanged | ErrorKind::NotFound) => {}
                made => (copy, self) = (made?, newer),
            }
        }
        Err(Error::new(ErrorKind::Unavailable, "remove the old name of what was renamed,", &self.key))
    }

    /// The versions before and after; `None`: they are the same.
    fn copied(self, copy: &str) -> Option<Copied> {
        let (before, after) = (version(&self.etag, self.size), version(copy, self.size));
        (before != after).then_some(Copied { reference: self.reference, before, after })
    }
}

impl ObjectOrigin {
    pub(super) async fn rename(
        &self,
        from: (&Reference, &Name),
        to: (&Reference, &Name),
        held: &PathLock<'_>,
        copied: &mut Vec<Copied>,
    ) -> Result<Object> {
        let old = match self.find(from.0, from.1).await {
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return self.was_renamed(from, to, copied).await?.ok_or(e);
            }
            old => old?,
        };
        self.is_there(to.0).await?;
        let new = match self.find(to.0, to.1).await {
            Ok(new) => Some(new),
            Err(e) if e.kind() == ErrorKind::NotFound => None,
            Err(e) => return Err(e),
        };
        if new.as_ref().is_some_and(|new| new.reference == old.reference) {
            return Ok(old);
        }
        let to = child(&self.base, to.0, to.1, what(&old.reference))?;
        let refuse = |kind| Err(Error::new(kind, "rename", self.place(&old.reference)));
        let is_dir = old.attr.is_dir();
        match &new {
            Some(new) if is_dir && !new.attr.is_dir() => return refuse(ErrorKind::NotADirectory),
            Some(new) if !is_dir && new.attr.is_dir() => return refuse(ErrorKind::IsADirectory),
            Some(new) if is_dir => {
                let key = self.base.key(&new.reference)?;
                let page = self.keys(&key, None, 2).await?;
                let is_empty = page.keys().all(|below| below == key);
                if !is_empty && !self.is_interrupted(&old.reference, &to).await? {
                    return refuse(ErrorKind::NotEmpty);
                }
            }
            _ => {}
        }
        if is_dir && to.0.starts_with(&old.reference.0) {
            return refuse(ErrorKind::InvalidArgument);
        }
        self.move_losses(&old.reference, &to);
        if is_dir {
            *copied = self.move_directory(&old.reference, &to, held).await?;
        } else {
            copied.extend(self.move_file(&old.reference, &to, held).await?);
            self.drop_writer(&to).await;
        }
        self.keep_directory(from.0).await?;
        let there = self.getattr_of(&to).await?;
        self.rename_log.finish(&to.0);
        Ok(there)
    }

    /// Buffered writes are completed first, and renamed with the object.
    async fn move_file(
        &self,
        from: &Reference,
        to: &Reference,
        held: &PathLock<'_>,
    ) -> Result<Option<Copied>> {
        if let Some(writer) = self.writer(from) {
            self.complete(from, &writer).await?;
        }
        let stat = self.stat(from).await?;
        let (store, reference) = (self.store.clone(), to.clone());
        let (key, to_key) = (self.base.key(from)?, self.base.key(to)?);
        let noted = self.rename_log.clone();
        let one = Move { store, reference, key, to: to_key, etag: stat.etag.clone(), size: stat.size, noted };
        self.rename_log.begin(from.0.clone(), &to.0, ObjectContents::of(&stat, self.config.dialect));
        held.begin_copying();
        let copy = one.copy().await;
        self.stat_cache.changed(&to.0);
        let copy = copy?;
        held.begin_removing();
        let removed = one.remove(copy).await;
        self.stat_cache.changed(&from.0);
        self.stat_cache.changed(&to.0);
        removed
    }

    async fn move_directory(
        &self,
        from: &Reference,
        to: &Reference,
        held: &PathLock<'_>,
    ) -> Result<Vec<Copied>> {
        let under_way: Vec<_> =
            self.writers().keys().filter(|path| path.starts_with(&from.0)).cloned().map(Reference).collect();
        for file in under_way {
            if let Some(writer) = self.writer(&file) {
                self.complete(&file, &writer).await?;
            }
        }
        let moved = self.move_keys(from, to, held).await;
        self.stat_cache.all_changed();
        moved
    }

    /// All copies come first: whatever happens meanwhile, nothing is lost.
    async fn move_keys(&self, from: &Reference, to: &Reference, held: &PathLock<'_>) -> Result<Vec<Copied>> {
        let (key, to_key) = (self.base.key(from)?, self.base.key(to)?);
        let one = |of: String, etag: String, size: u64| {
            let below = &of[key.len()..];
            let reference = Reference(Bytes::from([&to.0, below.as_bytes()].concat()));
            let (store, to, noted) =
                (self.store.clone(), format!("{to_key}{below}"), self.rename_log.clone());
            Move { store, reference, to, key: of, etag, size, noted }
        };
        let before = self.rename_log.unfinished_below(&from.0, &to.0);
        let (mut rename_log, mut after, mut course) = (Vec::new(), None, ListingProgress::new(MOVES_MAX));
        loop {
            let page = self.keys(&key, after.as_deref(), 1000).await?;
            after = course.after(&page, || self.place(from))?;
            for unclear in page.unclear.into_iter().filter(|below| below.starts_with(&key)) {
                if let Some(stat) = self.store.head(&unclear).await? {
                    rename_log.push(one(unclear, stat.etag, stat.size));
                }
            }
            let listed = page.objects.into_iter().filter(|object| object.key.starts_with(&key));
            rename_log.extend(listed.map(|object| one(object.key, object.etag, object.size)));
            if after.is_none() {
                break;
            }
        }
        for one in &rename_log {
            let path = Bytes::from([&from.0, &one.reference.0[to.0.len()..]].concat());
            self.rename_log.begin(path, &one.reference.0, ObjectContents::listed(&one.etag, one.size));
        }
        held.begin_copying();
        let copies =
            rename_log.into_iter().map(|one| async move { one.copy().await.map(|copy| (one, copy)) });
        let copies = run_bounded(TOGETHER, copies).await?;
        held.begin_removing_directory();
        let removals = copies.into_iter().map(|(one, copy)| one.remove(copy));
        let mut copied: Vec<_> = run_bounded(TOGETHER, removals).await?.into_iter().flatten().collect();
        // Plus what an interrupted request had renamed already.
        let now: HashSet<_> = copied.iter().map(|copied| copied.reference.0.clone()).collect();
        copied.extend(
            before
                .iter()
                .filter(|(path, _)| !now.contains(path))
                .filter_map(|(path, moved)| moved.copied(path)),
        );
        Ok(copied)
    }
}
