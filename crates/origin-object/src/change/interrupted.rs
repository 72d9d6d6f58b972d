//! A rename that had no answer: what it left is known, and asked for again it ends.

use ::origin::{Copied, Object, Reference};
use bytes::Bytes;
use types::{Name, Result, Version};

use crate::attributes::version;
use crate::keys::{What, child, what};
use crate::listings::Course;
use crate::moves::Contents;
use crate::origin::ObjectOrigin;

/// Objects below a directory of which it is looked whether a rename left them; of more it is not known.
const LOOKS_MAX: u64 = 100_000;

impl ObjectOrigin {
    /// By an earlier request, all of it: nothing has the old name any more.
    pub(super) async fn was_renamed(
        &self,
        from: (&Reference, &Name),
        to: (&Reference, &Name),
        copied: &mut Vec<Copied>,
    ) -> Result<Option<Object>> {
        let path = |(dir, name), what| child(&self.base, dir, name, what);
        let (old, new) = (path(from, What::File)?, path(to, What::File)?);
        let dialect = self.config.dialect;
        if let Some(moved) = self.moves.find(&old.0, &new.0).filter(|moved| !moved.is_ended())
            && let Some(there) = self.look(&new).await?
            && moved.left(&Contents::of(&there, dialect))
        {
            self.keep_directory(from.0).await?;
            copied.extend(moved.copied(&new.0));
            self.moves.ended(&new.0);
            return Ok(Some(self.file(&new, &there)));
        }
        let (old, new) = (path(from, What::Directory)?, path(to, What::Directory)?);
        if !self.is_interrupted(&old, &new).await? {
            return Ok(None);
        }
        let Some(there) = self.look_at_directory(&new).await? else { return Ok(None) };
        self.keep_directory(from.0).await?;
        let moved = self.moves.interrupted(&old.0, &new.0);
        copied.extend(moved.iter().filter_map(|(path, moved)| moved.copied(path)));
        self.moves.ended(&new.0);
        Ok(Some(there))
    }

    /// All that is in the directory `to` was put there by a rename of `from` that had no answer.
    pub(super) async fn is_interrupted(&self, from: &Reference, to: &Reference) -> Result<bool> {
        if self.moves.interrupted(&from.0, &to.0).is_empty() {
            return Ok(false);
        }
        self.is_left_below(from, to, false).await
    }

    /// See [`::origin::Origin::is_moved`].
    pub(crate) async fn is_left(&self, from: &Reference, was: Version, there: &Reference) -> Result<bool> {
        match (what(from), what(there)) {
            _ if from == there => Ok(false),
            (What::File, What::File) => self.is_left_file(from, was, there).await,
            (What::Directory, What::Directory) => self.is_left_below(from, there, true).await,
            _ => Ok(false),
        }
    }

    /// By what is remembered of it; after a start, by what a copy has of what it is of.
    async fn is_left_file(&self, from: &Reference, was: Version, there: &Reference) -> Result<bool> {
        let dialect = self.config.dialect;
        let Some(stat) = self.look(there).await? else { return Ok(false) };
        let contents = Contents::of(&stat, dialect);
        if let Some(moved) = self.moves.find(&from.0, &there.0) {
            return Ok(moved.left(&contents));
        }
        Ok(match self.look(from).await? {
            Some(old) => Contents::of(&old, dialect).are_those_of(&contents),
            None => stat.size > 0 && version(&stat.etag, stat.size) == was,
        })
    }

    /// Something is there, and all of it is remembered: where `answered`, also of a rename that was.
    async fn is_left_below(&self, from: &Reference, to: &Reference, answered: bool) -> Result<bool> {
        let to_key = self.base.key(to)?;
        let (mut after, mut course, mut is_any) = (None, Course::new(LOOKS_MAX), false);
        loop {
            let page = self.keys(&to_key, after.as_deref(), 1000).await?;
            let Ok(next) = course.after(&page, || self.place(to)) else { return Ok(false) };
            after = next;
            if page.unclear.iter().any(|key| key.starts_with(&to_key)) {
                return Ok(false);
            }
            for object in page.objects.iter().filter(|object| object.key.starts_with(&to_key)) {
                is_any = true;
                let below = &object.key.as_bytes()[to_key.len()..];
                let (old, new) = ([&from.0, below].concat(), Bytes::from([&to.0, below].concat()));
                let moved = self.moves.find(&old, &new).filter(|moved| answered || !moved.is_ended());
                let Some(moved) = moved else { return Ok(false) };
                // A directory that others marked, too, is as good.
                let is_marker = object.key.ends_with('/') && object.size == 0;
                if is_marker || moved.left(&Contents::listed(&object.etag, object.size)) {
                    continue;
                }
                let stat = self.store.head(&object.key).await?;
                let marked = stat.map(|stat| Contents::of(&stat, self.config.dialect));
                if !marked.is_some_and(|contents| moved.left(&contents)) {
                    return Ok(false);
                }
            }
            if after.is_none() {
                return Ok(is_any);
            }
        }
    }
}
