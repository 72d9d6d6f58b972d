//! What the flush needs of the journal.

use async_trait::async_trait;
use bytes::Bytes;
use types::{ByteRange, Result};

use crate::index::Position;
use crate::journal::Journal;

#[async_trait]
pub(crate) trait Entries: Send + Sync + 'static {
    /// All data of an entry, checked.
    async fn read(&self, position: Position) -> Result<Bytes>;

    /// Noted in this order. May come back after a crash until `done_synced`.
    async fn done(&self, sequences: &[u64]) -> Result<()>;

    /// All that is done stays done.
    async fn done_synced(&self) -> Result<()>;

    /// It needs room: nothing is too young to be flushed.
    fn is_filling(&self) -> bool;
}

#[async_trait]
impl Entries for Journal {
    async fn read(&self, position: Position) -> Result<Bytes> {
        Journal::read(self, position, ByteRange::new(0, position.data_length.into())).await
    }

    async fn done(&self, sequences: &[u64]) -> Result<()> {
        Journal::done(self, sequences).await
    }

    async fn done_synced(&self) -> Result<()> {
        Journal::done_synced(self).await
    }

    /// From where on appends are delayed.
    fn is_filling(&self) -> bool {
        let (used, max) = self.fill();
        used > max / 2
    }
}
