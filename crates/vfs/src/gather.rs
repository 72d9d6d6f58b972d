//! The bytes of a read of a file of which some are not at its origin: dirty bytes, zeros and clean bytes in order.

use std::sync::Arc;

use bytes::Bytes;
use cache::{CacheKey, Lend, Piece, Source};
use types::{ByteRange, Result};
use write_buffer::ReadSegment;

use crate::Vfs;

/// Zeros take no more memory than this, however many are read.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// From where clean bytes may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatherReach {
    Cache,
    CacheAndOrigin,
}

impl Vfs {
    /// The segments' bytes. `clean` names the clean version; a file of which the origin never had any bytes has none,
    /// and reads as zeros. Returns `None` if `reach` is the cache and the cache lacks some of the clean bytes.
    pub(crate) async fn gather(
        &self,
        segments: Vec<ReadSegment>,
        clean: Option<&CacheKey>,
        reach: GatherReach,
    ) -> Result<Option<Vec<Piece>>> {
        let mut data = Vec::new();
        for segment in segments {
            match (segment, clean) {
                (ReadSegment::Dirty(bytes), _) => data.push(Piece::Bytes(bytes)),
                (ReadSegment::Zeros(length), _) => zeros(length, &mut data),
                (ReadSegment::Clean(range), None) => zeros(range.length, &mut data),
                (ReadSegment::Clean(range), Some(clean)) => {
                    let there = range.clamp_to(clean.size);
                    match self.read_clean(clean, there, reach).await? {
                        Some(pieces) => data.extend(pieces),
                        None => return Ok(None),
                    }
                    zeros(range.length - there.length, &mut data);
                }
            }
        }
        Ok(Some(data))
    }

    async fn read_clean(
        &self,
        clean: &CacheKey,
        range: ByteRange,
        reach: GatherReach,
    ) -> Result<Option<Vec<Piece>>> {
        if reach == GatherReach::Cache {
            return self.cache.read_present(clean, range).await;
        }
        let source: Arc<dyn Source> = self.source_of(&self.namespace.getattr_known(clean.file)?);
        self.cache.read(clean, range, &source, Lend::Nothing).await.map(Some)
    }
}

fn zeros(mut length: u64, data: &mut Vec<Piece>) {
    while length > 0 {
        let piece = length.min(ZEROS.len() as u64);
        data.push(Piece::Bytes(Bytes::from_static(&ZEROS[..piece as usize])));
        length -= piece;
    }
}
