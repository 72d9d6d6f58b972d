//! Renames that had no answer: what they left is recognized, and a repeated one ends.

use ::origin::{Copied, Object, Reference, RenameLeftover};
use types::{ByteRange, Error, ErrorKind, Name, Result, Version};

use crate::attributes::version;
use crate::keys::{KeyKind, child, what};
use crate::listing_progress::ListingProgress;
use crate::origin::ObjectOrigin;
use crate::rename_log::{ObjectContents, RenameRecord};
use crate::store::ObjectStat;
use crate::url::Dialect;

/// The most objects below a directory that are checked; of more the answer is unknown.
const LOOKS_MAX: u64 = 100_000;
/// The longest object whose bytes are compared with its supposed copy; of a longer one the answer is unknown.
const COMPARED_MAX: u64 = 64 << 20;
const COMPARED_AT_ONCE: u64 = 4 << 20;

impl ObjectOrigin {
    /// Whether an earlier request has done all of the rename: nothing has the old name any more.
    pub(super) async fn was_renamed(
        &self,
        from: (&Reference, &Name),
        to: (&Reference, &Name),
        copied: &mut Vec<Copied>,
    ) -> Result<Option<Object>> {
        let path = |(dir, name), what| child(&self.base, dir, name, what);
        let (old, new) = (path(from, KeyKind::File)?, path(to, KeyKind::File)?);
        let dialect = self.config.dialect;
        if let Some(moved) = self.rename_log.find(&old.0, &new.0).filter(|moved| !moved.is_ended())
            && let Some(there) = self.stat_object(&new).await?
            && moved.is_left_over(&ObjectContents::of(&there, dialect))
        {
            self.keep_directory(from.0).await?;
            copied.extend(moved.copied(&new.0));
            self.rename_log.finish(&new.0);
            return Ok(Some(self.file(&new, &there)));
        }
        let (old, new) = (path(from, KeyKind::Directory)?, path(to, KeyKind::Directory)?);
        if !self.is_interrupted(&old, &new).await? {
            return Ok(None);
        }
        let Some(there) = self.stat_directory(&new).await? else { return Ok(None) };
        self.keep_directory(from.0).await?;
        let moved = self.rename_log.unfinished_below(&old.0, &new.0);
        copied.extend(moved.iter().filter_map(|(path, moved)| moved.copied(path)));
        self.rename_log.finish(&new.0);
        Ok(Some(there))
    }

    /// Whether all in the directory `to` was put there by an unanswered rename of `from`.
    pub(super) async fn is_interrupted(&self, from: &Reference, to: &Reference) -> Result<bool> {
        if self.rename_log.unfinished_below(&from.0, &to.0).is_empty() {
            return Ok(false);
        }
        self.is_left_below(from, to, false).await
    }

    /// See [`::origin::Origin::left_by_rename`].
    pub(crate) async fn what_is_left(
        &self,
        from: &Reference,
        was: Version,
        there: &Reference,
    ) -> Result<RenameLeftover> {
        match (what(from), what(there)) {
            _ if from == there => Ok(RenameLeftover::Foreign),
            (KeyKind::File, KeyKind::File) => self.file_left(from, was, there).await,
            (KeyKind::Directory, KeyKind::Directory) if self.is_left_below(from, there, true).await? => {
                Ok(RenameLeftover::Ours)
            }
            _ => Ok(RenameLeftover::Foreign),
        }
    }

    /// Decides by the rename log; after a restart, by the bytes. If the old path has another object than was copied,
    /// the whole rename may have been done before that came: then the copy is all there is of the renamed object,
    /// and must not be overwritten.
    async fn file_left(&self, from: &Reference, was: Version, there: &Reference) -> Result<RenameLeftover> {
        let dialect = self.config.dialect;
        let (old, new) = tokio::join!(self.stat_object(from), self.stat_object(there));
        let (old, Some(new)) = (old?, new?) else { return Ok(RenameLeftover::Foreign) };
        let contents = ObjectContents::of(&new, dialect);
        let moved = self.rename_log.find(&from.0, &there.0);
        Ok(match (moved, old) {
            (Some(moved), Some(old)) => {
                let is_same = moved.is_of(&ObjectContents::of(&old, dialect));
                let is_left = is_same
                    && (moved.is_left_over(&contents)
                        || moved.may_be_left_over(&contents)
                            && self.are_alike((from, &old), (there, &new)).await?);
                match is_left {
                    true if moved.is_ended() => RenameLeftover::Ours,
                    true => RenameLeftover::SpareCopy,
                    false => RenameLeftover::Foreign,
                }
            }
            (Some(moved), None) => ours_if(moved.is_of_version(was) && moved.is_left_over(&contents)),
            (None, Some(old)) => ours_if(self.are_alike((from, &old), (there, &new)).await?),
            (None, None) => ours_if(new.size > 0 && version(&new.etag, new.size) == was),
        })
    }

    /// Whether one is a copy of the other: by their ETags, or by our mark and each byte.
    async fn are_alike(
        &self,
        (from, old): (&Reference, &ObjectStat),
        (there, new): (&Reference, &ObjectStat),
    ) -> Result<bool> {
        let dialect = self.config.dialect;
        let contents = (ObjectContents::of(old, dialect), ObjectContents::of(new, dialect));
        if dialect == Dialect::S3 && contents.0.have_the_bytes_of(&contents.1) {
            return Ok(true);
        }
        if !contents.0.are_marked_as(&contents.1) || old.size > COMPARED_MAX {
            return Ok(false);
        }
        let (old_key, new_key) = (self.base.key(from)?, self.base.key(there)?);
        let mut at = 0;
        while at < old.size {
            let range = ByteRange::new(at, COMPARED_AT_ONCE.min(old.size - at));
            let (one, other) = tokio::join!(
                self.store.get(&old_key, Some(&old.etag), range),
                self.store.get(&new_key, Some(&new.etag), range)
            );
            let is_gone = |e: &Error| matches!(e.kind(), ErrorKind::VersionChanged | ErrorKind::NotFound);
            match (one, other) {
                (Ok(one), Ok(other)) if one.data == other.data => at = range.end(),
                (Ok(_), Ok(_)) => return Ok(false),
                (Err(e), _) | (_, Err(e)) if is_gone(&e) => return Ok(false),
                (Err(e), _) | (_, Err(e)) => return Err(e),
            }
        }
        Ok(true)
    }

    /// Whether something is there and all of it is in the log; if `answered`, also of a rename that was answered.
    async fn is_left_below(&self, from: &Reference, to: &Reference, answered: bool) -> Result<bool> {
        if !self.is_source_below(from, to, answered).await? {
            return Ok(false);
        }
        let to_key = self.base.key(to)?;
        let (mut after, mut course, mut is_any) = (None, ListingProgress::new(LOOKS_MAX), false);
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
                let Some(moved) = self.moved_below(from, to, below, answered) else { return Ok(false) };
                // A marker that others put is as good.
                let is_marker = object.key.ends_with('/') && object.size == 0;
                if !is_marker && !moved.is_left_over(&ObjectContents::listed(&object.etag, object.size)) {
                    return Ok(false);
                }
            }
            if after.is_none() {
                return Ok(is_any);
            }
        }
    }

    /// Whether nothing is below the old path but what was copied from there or never was: otherwise what others put
    /// there since our rename ended would overwrite ours.
    async fn is_source_below(&self, from: &Reference, to: &Reference, answered: bool) -> Result<bool> {
        let key = self.base.key(from)?;
        let (mut after, mut course) = (None, ListingProgress::new(LOOKS_MAX));
        loop {
            let page = self.keys(&key, after.as_deref(), 1000).await?;
            let Ok(next) = course.after(&page, || self.place(from)) else { return Ok(false) };
            after = next;
            for object in page.objects.iter().filter(|object| object.key.starts_with(&key)) {
                let moved = self.moved_below(from, to, &object.key.as_bytes()[key.len()..], answered);
                let is_marker = object.key.ends_with('/') && object.size == 0;
                let contents = ObjectContents::listed(&object.etag, object.size);
                if !is_marker && moved.is_some_and(|moved| !moved.is_of(&contents)) {
                    return Ok(false);
                }
            }
            if after.is_none() {
                return Ok(true);
            }
        }
    }

    fn moved_below(
        &self,
        from: &Reference,
        to: &Reference,
        below: &[u8],
        answered: bool,
    ) -> Option<RenameRecord> {
        let (old, new) = ([&from.0, below].concat(), [&to.0, below].concat());
        self.rename_log.find(&old, &new).filter(|moved| answered || !moved.is_ended())
    }
}

fn ours_if(is_ours: bool) -> RenameLeftover {
    if is_ours { RenameLeftover::Ours } else { RenameLeftover::Foreign }
}
