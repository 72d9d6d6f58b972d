//! A rename that had no answer: what it left is known, and asked for again it ends.

use ::origin::{Copied, Object, Reference, RenameLeftover};
use types::{ByteRange, Error, ErrorKind, Name, Result, Version};

use crate::attributes::version;
use crate::keys::{What, child, what};
use crate::listings::Course;
use crate::moves::{Contents, Moved};
use crate::origin::ObjectOrigin;
use crate::store::Stat;
use crate::url::Dialect;

/// Objects below a directory of which it is looked whether a rename left them; of more it is not known.
const LOOKS_MAX: u64 = 100_000;
/// Bytes of a longer object are not compared with those of what may be its copy: it is not known.
const COMPARED_MAX: u64 = 64 << 20;
const COMPARED_AT_ONCE: u64 = 4 << 20;

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

    /// See [`::origin::Origin::left_by_rename`].
    pub(crate) async fn what_is_left(
        &self,
        from: &Reference,
        was: Version,
        there: &Reference,
    ) -> Result<RenameLeftover> {
        match (what(from), what(there)) {
            _ if from == there => Ok(RenameLeftover::Foreign),
            (What::File, What::File) => self.file_left(from, was, there).await,
            (What::Directory, What::Directory) if self.is_left_below(from, there, true).await? => {
                Ok(RenameLeftover::Ours)
            }
            _ => Ok(RenameLeftover::Foreign),
        }
    }

    /// By what is remembered of it; after a start, by the bytes. Where something is at the old path that is not what was
    /// copied, all of the rename may have been done before that came: then the copy is all there is of what was renamed, and
    /// nothing may go over it.
    async fn file_left(&self, from: &Reference, was: Version, there: &Reference) -> Result<RenameLeftover> {
        let dialect = self.config.dialect;
        let (old, new) = tokio::join!(self.look(from), self.look(there));
        let (old, Some(new)) = (old?, new?) else { return Ok(RenameLeftover::Foreign) };
        let contents = Contents::of(&new, dialect);
        let moved = self.moves.find(&from.0, &there.0);
        Ok(match (moved, old) {
            (Some(moved), Some(old)) => {
                let is_same = moved.is_of(&Contents::of(&old, dialect));
                let is_left = is_same
                    && (moved.left(&contents)
                        || moved.may_have_left(&contents)
                            && self.are_alike((from, &old), (there, &new)).await?);
                match is_left {
                    true if moved.is_ended() => RenameLeftover::Ours,
                    true => RenameLeftover::SpareCopy,
                    false => RenameLeftover::Foreign,
                }
            }
            (Some(moved), None) => ours_if(moved.is_of_version(was) && moved.left(&contents)),
            (None, Some(old)) => ours_if(self.are_alike((from, &old), (there, &new)).await?),
            (None, None) => ours_if(new.size > 0 && version(&new.etag, new.size) == was),
        })
    }

    /// One is a copy of the other: by their ETags, or by our mark and each byte.
    async fn are_alike(
        &self,
        (from, old): (&Reference, &Stat),
        (there, new): (&Reference, &Stat),
    ) -> Result<bool> {
        let dialect = self.config.dialect;
        let contents = (Contents::of(old, dialect), Contents::of(new, dialect));
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

    /// Something is there, and all of it is remembered: where `answered`, also of a rename that was.
    async fn is_left_below(&self, from: &Reference, to: &Reference, answered: bool) -> Result<bool> {
        if !self.is_source_below(from, to, answered).await? {
            return Ok(false);
        }
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
                let Some(moved) = self.moved_below(from, to, below, answered) else { return Ok(false) };
                // A directory that others marked, too, is as good.
                let is_marker = object.key.ends_with('/') && object.size == 0;
                if !is_marker && !moved.left(&Contents::listed(&object.etag, object.size)) {
                    return Ok(false);
                }
            }
            if after.is_none() {
                return Ok(is_any);
            }
        }
    }

    /// Nothing is below the old path but what was copied from there, and what never was: else what others put there since may
    /// have come after ours went, and would go over it.
    async fn is_source_below(&self, from: &Reference, to: &Reference, answered: bool) -> Result<bool> {
        let key = self.base.key(from)?;
        let (mut after, mut course) = (None, Course::new(LOOKS_MAX));
        loop {
            let page = self.keys(&key, after.as_deref(), 1000).await?;
            let Ok(next) = course.after(&page, || self.place(from)) else { return Ok(false) };
            after = next;
            for object in page.objects.iter().filter(|object| object.key.starts_with(&key)) {
                let moved = self.moved_below(from, to, &object.key.as_bytes()[key.len()..], answered);
                let is_marker = object.key.ends_with('/') && object.size == 0;
                let contents = Contents::listed(&object.etag, object.size);
                if !is_marker && moved.is_some_and(|moved| !moved.is_of(&contents)) {
                    return Ok(false);
                }
            }
            if after.is_none() {
                return Ok(true);
            }
        }
    }

    fn moved_below(&self, from: &Reference, to: &Reference, below: &[u8], answered: bool) -> Option<Moved> {
        let (old, new) = ([&from.0, below].concat(), [&to.0, below].concat());
        self.moves.find(&old, &new).filter(|moved| answered || !moved.is_ended())
    }
}

fn ours_if(is_ours: bool) -> RenameLeftover {
    if is_ours { RenameLeftover::Ours } else { RenameLeftover::Foreign }
}
