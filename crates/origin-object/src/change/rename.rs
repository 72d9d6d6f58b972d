//! A rename is a copy of each object and then the removal of the old ones. Who looks in between sees both, and who wants to
//! put something there by this tier waits (`gate.rs`). What others put there between its copy and its removal goes along.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use ::origin::{Copied, Object, Reference};
use bytes::Bytes;
use types::{Error, ErrorKind, Name, Result};

use crate::attributes::version;
use crate::copy::copy;
use crate::gate::Held;
use crate::keys::{child, what};
use crate::listings::Course;
use crate::moves::{Contents, Moves};
use crate::origin::ObjectOrigin;
use crate::store::{Source, Stat, Store};
use crate::together::{TOGETHER, some_at_a_time};

/// Objects below a directory that is renamed: all are known before the first is copied, at some hundred bytes each.
const MOVES_MAX: u64 = 1_000_000;
/// How often an object that others keep changing is copied.
const COPIES_MAX: usize = 8;
/// Between tries where the store asks for fewer requests. Who made the change would make all of it again, and find half of it
/// there.
const PAUSES_MS: [u64; 4] = [100, 400, 1600, 6400];

async fn patiently<T, F: Future<Output = Result<T>>>(ask: impl Fn() -> F) -> Result<T> {
    for pause in PAUSES_MS.map(Duration::from_millis) {
        match ask().await {
            Err(e) if e.kind() == ErrorKind::Busy => tokio::time::sleep(pause).await,
            answer => return answer,
        }
    }
    ask().await
}

/// An object on its way.
#[derive(Clone)]
struct Move {
    store: Arc<dyn Store>,
    /// What it is called when it is there.
    reference: Reference,
    key: String,
    to: String,
    /// Of what is at the old key.
    etag: String,
    size: u64,
    /// Where it is noted.
    noted: Arc<Moves>,
}

impl Move {
    /// The copy's ETag.
    async fn copy(&self) -> Result<String> {
        let source = Source { key: &self.key, etag: &self.etag, size: self.size };
        self.noted.copies(&self.reference.0, &self.etag, self.size);
        let copy = patiently(|| copy(&self.store, source, &self.to)).await?;
        self.noted.copied(&self.reference.0, &copy);
        Ok(copy)
    }

    /// Removes what was copied, and nothing else. Where it is something else now, that is copied first; where nothing is, others
    /// removed it; where it is the same, the store has another reason (a lease), or another change was under way.
    async fn remove(mut self, mut copy: String) -> Result<Option<Copied>> {
        for _ in 0..COPIES_MAX {
            let refused = match patiently(|| self.store.delete(&self.key, Some(&self.etag))).await {
                Err(e) if e.kind() == ErrorKind::VersionChanged => e,
                removed => return removed.map(|()| self.copied(&copy)),
            };
            let now = patiently(|| self.store.head(&self.key)).await?;
            let Some(Stat { etag, size, .. }) = now else { return Ok(self.copied(&copy)) };
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

    /// `None`: the copy has the same ETag.
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
        held: &Held<'_>,
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
        self.lost_goes_along(&old.reference, &to);
        if is_dir {
            *copied = self.move_directory(&old.reference, &to, held).await?;
        } else {
            copied.extend(self.move_file(&old.reference, &to, held).await?);
            self.drop_draft(&to).await;
        }
        self.keep_directory(from.0).await?;
        let there = self.getattr_of(&to).await?;
        self.moves.ended(&to.0);
        Ok(there)
    }

    /// What is being written to it is completed first, and goes with it.
    async fn move_file(&self, from: &Reference, to: &Reference, held: &Held<'_>) -> Result<Option<Copied>> {
        if let Some(draft) = self.draft(from) {
            self.complete(from, &draft).await?;
        }
        let stat = self.stat(from).await?;
        let (store, reference) = (self.store.clone(), to.clone());
        let (key, to_key) = (self.base.key(from)?, self.base.key(to)?);
        let noted = self.moves.clone();
        let one = Move { store, reference, key, to: to_key, etag: stat.etag.clone(), size: stat.size, noted };
        self.moves.begins(from.0.clone(), &to.0, Contents::of(&stat, self.config.dialect));
        held.copies();
        let copy = one.copy().await;
        self.known.changed(&to.0);
        let copy = copy?;
        held.removes();
        let removed = one.remove(copy).await;
        self.known.changed(&from.0);
        self.known.changed(&to.0);
        removed
    }

    async fn move_directory(&self, from: &Reference, to: &Reference, held: &Held<'_>) -> Result<Vec<Copied>> {
        let under_way: Vec<_> =
            self.drafts().keys().filter(|path| path.starts_with(&from.0)).cloned().map(Reference).collect();
        for file in under_way {
            if let Some(draft) = self.draft(&file) {
                self.complete(&file, &draft).await?;
            }
        }
        let moved = self.move_keys(from, to, held).await;
        self.known.all_changed();
        moved
    }

    /// All copies first: whatever happens on the way, nothing is lost.
    async fn move_keys(&self, from: &Reference, to: &Reference, held: &Held<'_>) -> Result<Vec<Copied>> {
        let (key, to_key) = (self.base.key(from)?, self.base.key(to)?);
        let one = |of: String, etag: String, size: u64| {
            let below = &of[key.len()..];
            let reference = Reference(Bytes::from([&to.0, below.as_bytes()].concat()));
            let (store, to, noted) = (self.store.clone(), format!("{to_key}{below}"), self.moves.clone());
            Move { store, reference, to, key: of, etag, size, noted }
        };
        let before = self.moves.interrupted(&from.0, &to.0);
        let (mut moves, mut after, mut course) = (Vec::new(), None, Course::new(MOVES_MAX));
        loop {
            let page = self.keys(&key, after.as_deref(), 1000).await?;
            after = course.after(&page, || self.place(from))?;
            for unclear in page.unclear.into_iter().filter(|below| below.starts_with(&key)) {
                if let Some(stat) = self.store.head(&unclear).await? {
                    moves.push(one(unclear, stat.etag, stat.size));
                }
            }
            let listed = page.objects.into_iter().filter(|object| object.key.starts_with(&key));
            moves.extend(listed.map(|object| one(object.key, object.etag, object.size)));
            if after.is_none() {
                break;
            }
        }
        for one in &moves {
            let path = Bytes::from([&from.0, &one.reference.0[to.0.len()..]].concat());
            self.moves.begins(path, &one.reference.0, Contents::listed(&one.etag, one.size));
        }
        held.copies();
        let copies = moves.into_iter().map(|one| async move { one.copy().await.map(|copy| (one, copy)) });
        let copies = some_at_a_time(TOGETHER, copies).await?;
        held.removes_directory();
        let removals = copies.into_iter().map(|(one, copy)| one.remove(copy));
        let mut copied: Vec<_> = some_at_a_time(TOGETHER, removals).await?.into_iter().flatten().collect();
        // And what an interrupted request had moved already.
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
