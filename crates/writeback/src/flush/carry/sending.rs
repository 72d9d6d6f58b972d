//! Bytes of one unit on their way: drawn together where they touch, several parts at a time.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use types::{Error, ErrorKind, FileId, Result};

use super::Carry;
use super::foreign_write::{ComparedVersion, StatesTold};
use crate::DirtyPiece;
use crate::conflict::ConflictPolicy;
use crate::flush::FlushEngine;
use crate::flush_target::{TargetObject, TargetPresence};
use crate::operation::Attributes;
use crate::plan::ContentChange;

/// Commits that say that something was lost, one after another, before the origin is left alone for a while.
const COMMITS_MAX: u32 = 3;
/// Bytes that one call should carry: below it calls are what costs, above it nothing is won.
const PART_MAX: u64 = 1 << 20;
/// Parts of one unit under way. 32 of 1 MiB at 221 ms is 1.2 Gbit/s.
const TOGETHER: usize = 32;

impl Carry<'_> {
    /// Also whether it has these attributes then. `found`: the object before.
    pub(super) async fn write(
        &mut self,
        object: FileId,
        found: &TargetObject,
        content: &ContentChange,
        set: &Attributes,
    ) -> Result<(TargetObject, bool)> {
        let target = self.shared.target.clone();
        let (written, ()) =
            tokio::join!(self.send(object, found, content, set), target.travels(object, content));
        written
    }

    /// The first part goes alone: it tells whether the object still is what was looked at. The answers to all parts
    /// together tell whether somebody else may have written between them; then what is there is compared.
    async fn send(
        &mut self,
        object: FileId,
        found: &TargetObject,
        content: &ContentChange,
        set: &Attributes,
    ) -> Result<(TargetObject, bool)> {
        let target = self.shared.target.clone();
        let parts = parts(&content.pieces);
        let Some((first, others)) = parts.split_first() else {
            return Err(Error::new(ErrorKind::InvalidArgument, "write nothing to", object));
        };
        let mut version = found.version;
        let end = content.pieces.iter().map(|piece| piece.range().end()).max().unwrap_or(0);
        let size = content.size.map(|_| end.max(found.attr.size));
        let mut is_sent_again = false;
        for _ in 0..COMMITS_MAX {
            let (offset, data) = part_bytes(self.shared, first).await?;
            let written = target.write(object, offset, data).await?;
            if let Some(before) = written.before
                && before != version
                && !self.is_ours(before).await?
            {
                self.overtaken(object, written.before).await?;
            }
            let mut states = StatesTold::new(written.before.unwrap_or(version));
            states.note(&written);
            let is_set = set.is_nothing() || target.set_at_commit(object, set).await?;
            let shared = self.shared;
            let turn = shared.turn(self.unit.junction, others.len().min(TOGETHER)).await;
            let told = &Mutex::new(states);
            let send = |part| async move {
                let (offset, data) = part_bytes(shared, part).await?;
                let answer = shared.target.write(object, offset, data).await?;
                told.lock().unwrap_or_else(PoisonError::into_inner).note(&answer);
                Ok(())
            };
            together(TOGETHER, others.iter().map(|part| send(part.as_slice()))).await?;
            drop(turn);
            let may_be_mixed = told.lock().unwrap_or_else(PoisonError::into_inner).leave_a_gap();
            if let Some(found) = target.commit(object).await? {
                if !may_be_mixed || is_sent_again {
                    return Ok((found, is_set));
                }
                let ComparedVersion { found, is_ours } = self.read_back(object, found, &parts, size).await?;
                if is_ours {
                    self.is_alone = false;
                    return Ok((found, is_set));
                }
                if self.policy != ConflictPolicy::Ours {
                    self.is_mixed = true;
                    return Ok((found, is_set));
                }
                self.overtaken(object, Some(found.version)).await?;
                (version, is_sent_again) = (found.version, true);
                continue;
            }
            // What was lost took its version with it.
            if let TargetPresence::Found(found) = self.shared.look(object).await? {
                version = found.version;
            }
        }
        let context = format!("{object}: the origin keeps losing what it has not stored");
        Err(Error::new(ErrorKind::Unavailable, "commit", context))
    }
}

/// Pieces that touch, as far as one call should carry them.
fn parts(pieces: &[DirtyPiece]) -> Vec<Vec<DirtyPiece>> {
    let mut parts: Vec<Vec<DirtyPiece>> = Vec::new();
    let (mut end, mut length) = (0, 0);
    for piece in pieces.iter().filter(|piece| matches!(piece, DirtyPiece::Dirty { .. })) {
        let range = piece.range();
        match parts.last_mut() {
            Some(part) if range.offset == end && length + range.length <= PART_MAX => {
                part.push(*piece);
                length += range.length;
            }
            _ => {
                parts.push(vec![*piece]);
                length = range.length;
            }
        }
        end = range.end();
    }
    parts
}

pub(super) async fn part_bytes(shared: &FlushEngine, part: &[DirtyPiece]) -> Result<(u64, Bytes)> {
    let offset = part.first().map_or(0, |piece| piece.range().offset);
    if let [piece] = part {
        return Ok((offset, piece_bytes(shared, piece).await?));
    }
    let mut joined = BytesMut::new();
    for piece in part {
        joined.extend_from_slice(&piece_bytes(shared, piece).await?);
    }
    Ok((offset, joined.freeze()))
}

/// Bytes of a piece, whole and checked.
async fn piece_bytes(shared: &FlushEngine, piece: &DirtyPiece) -> Result<Bytes> {
    let DirtyPiece::Dirty { range, position, skip } = piece else { return Ok(Bytes::new()) };
    // The whole entry, so that its checksum is checked: nothing that went bad on the disk reaches the origin.
    let data = shared.entries.read(*position).await?;
    let (from, to) = (*skip as usize, (*skip + range.length) as usize);
    let bytes = data.get(from..to).is_some().then(|| data.slice(from..to));
    bytes.ok_or_else(|| Error::new(ErrorKind::Corrupt, "read journal entry", position.sequence))
}

/// All of them, so many at a time; the first error ends it, and what is under way is given up.
pub(super) async fn together<F: Future<Output = Result<()>>>(
    at_a_time: usize,
    work: impl Iterator<Item = F>,
) -> Result<()> {
    let mut work = work.map(Box::pin);
    let mut under_way: Vec<Pin<Box<F>>> = work.by_ref().take(at_a_time).collect();
    poll_fn(|context| {
        let mut at = 0;
        while let Some(one) = under_way.get_mut(at) {
            match one.as_mut().poll(context) {
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                // The next one takes its place, and is looked at now.
                Poll::Ready(Ok(())) => match work.next() {
                    Some(next) => under_way[at] = next,
                    None => drop(under_way.swap_remove(at)),
                },
                Poll::Pending => at += 1,
            }
        }
        if under_way.is_empty() { Poll::Ready(Ok(())) } else { Poll::Pending }
    })
    .await
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use types::ByteRange;

    use super::*;
    use crate::index::Position;

    fn piece(offset: u64, length: u64) -> DirtyPiece {
        let (sequence, data_length) = (offset + 1, length as u32);
        let position = Position { sequence, segment: 0, offset: 0, head_length: 0, data_length };
        DirtyPiece::Dirty { range: ByteRange::new(offset, length), position, skip: 0 }
    }

    fn ranges(parts: &[Vec<DirtyPiece>]) -> Vec<(u64, usize)> {
        parts.iter().map(|part| (part[0].range().offset, part.len())).collect()
    }

    #[test]
    fn what_touches_is_one_part_until_it_is_large() {
        let small = [piece(0, 4096), piece(4096, 4096), piece(8192, 1), piece(9000, 5)];
        assert_eq!(ranges(&parts(&small)), [(0, 3), (9000, 1)]);
        let large: Vec<_> = (0..5).map(|n| piece(n * PART_MAX / 2, PART_MAX / 2)).collect();
        assert_eq!(ranges(&parts(&large)), [(0, 2), (PART_MAX, 2), (2 * PART_MAX, 1)]);
        assert!(parts(&[]).is_empty());
    }

    #[tokio::test]
    async fn never_more_than_so_many_are_under_way_and_all_of_them_are_done() {
        let (now, most, done) = (Cell::new(0_usize), Cell::new(0), Cell::new(0));
        let one = |_| async {
            now.set(now.get() + 1);
            most.set(most.get().max(now.get()));
            tokio::task::yield_now().await;
            now.set(now.get() - 1);
            done.set(done.get() + 1);
            Ok(())
        };
        together(TOGETHER, (0..3 * TOGETHER).map(one)).await.unwrap();
        assert_eq!((most.get(), done.get()), (TOGETHER, 3 * TOGETHER));
    }
}
