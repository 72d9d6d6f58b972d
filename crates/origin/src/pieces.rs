//! A long read in as many calls as its origin wants.

use bytes::{Bytes, BytesMut};
use types::{ByteRange, Result, Version};

use crate::{Origin, Reference};

/// `range` by calls of `read` for at most `most` bytes each, one after the other.
pub(crate) async fn in_pieces<F: Future<Output = Result<Bytes>>>(
    range: ByteRange,
    most: u32,
    read: impl Fn(ByteRange) -> F,
) -> Result<Bytes> {
    let most = u64::from(most).max(1);
    if range.length <= most {
        return read(range).await;
    }
    let mut whole = BytesMut::with_capacity(usize::try_from(range.length).unwrap_or(0));
    let mut offset = range.offset;
    while offset < range.end() {
        let piece = ByteRange::new(offset, most.min(range.end() - offset));
        whole.extend_from_slice(&read(piece).await?);
        offset = piece.end();
    }
    Ok(whole.freeze())
}

/// Exactly the bytes of `range`, as [`Origin::read`], from the store itself.
pub async fn read_in_pieces(
    origin: &dyn Origin,
    object: &Reference,
    version: Version,
    range: ByteRange,
) -> Result<Bytes> {
    in_pieces(range, origin.traits().read_max, |piece| origin.read(object, version, piece)).await
}
