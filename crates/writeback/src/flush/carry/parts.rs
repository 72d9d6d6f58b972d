//! The parts that the bytes of a unit are sent in, and read back in, several at a time.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use types::{Error, ErrorKind, Result};

use crate::DirtyPiece;
use crate::flush::FlushEngine;

/// Bytes that one call should carry: below it calls are what costs, above it nothing is won.
const PART_MAX: u64 = 1 << 20;

/// Pieces that touch, as far as one call should carry them.
pub(super) fn parts(pieces: &[DirtyPiece]) -> Vec<Vec<DirtyPiece>> {
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

    const TOGETHER: usize = 32;

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
