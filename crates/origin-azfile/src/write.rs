//! Writes. A range can only be put inside a file, so the file is extended first, and the interface has no condition
//! for that. So each look at the size and what follows from it are done one at a time for a file within this
//! process; ranges are put in parallel. A change by another machine in between is overwritten (docs/SEMANTICS.md).
//!
//! What is put is stored when it is answered, so there is nothing to commit.

use ::origin::change::end_of_write;
use ::origin::{Reference, Written};
use bytes::Bytes;
use types::{Error, ErrorKind, Result, Stability};

use crate::attributes::{FileStat, now};
use crate::calls::{FileProperties, RANGE_MAX};
use crate::names::ShareRef;
use crate::origin::AzFileOrigin;
use crate::write_session::{VERIFIER, WriteSession};

/// The attempts while others keep truncating the file.
const TRIES: u32 = 8;

impl AzFileOrigin {
    pub(crate) async fn write_file(
        &self,
        reference: &Reference,
        offset: u64,
        data: Bytes,
    ) -> Result<Written> {
        let end = end_of_write(offset, data.len())?;
        let place = ShareRef::of(reference)?;
        if place.is_dir {
            return Err(Error::new(ErrorKind::IsADirectory, "write to", self.display_path(&place.path)));
        }
        let end = if data.is_empty() { 0 } else { end };
        let session = self.sessions.join(&place.path, Some(end));
        let alone = || session.is_alone();
        let mut before = None;
        for _ in 0..TRIES {
            let seen = self.make_long_enough(&place, &session, end).await?;
            let before = *before.get_or_insert(seen.filter(|_| alone()).map(|stat| stat.version()));
            match self.put(&place, offset, &data).await {
                // Somebody else truncated it.
                Err(e) if e.kind() == ErrorKind::VersionChanged => *session.state().await = None,
                put => {
                    put?;
                    // Other writes of ours were in flight: the states before and after cannot be told from theirs.
                    let after = match alone() {
                        true => Some(self.look_at("write to", &place).await?),
                        false => None,
                    };
                    let after = after.filter(|_| alone()).map(|stat| self.object(&place.path, &stat));
                    let before = before.filter(|_| after.is_some());
                    let stability = Stability::FileSync;
                    return Ok(Written { stability, verifier: VERIFIER, before, after, resent: false });
                }
            }
        }
        Err(Error::new(ErrorKind::Busy, "write to", self.display_path(&place.path)))
    }

    /// Extends the file to `end` if need be. Returns the stat before, if it was looked at.
    async fn make_long_enough(
        &self,
        place: &ShareRef,
        session: &WriteSession,
        end: u64,
    ) -> Result<Option<FileStat>> {
        let mut state = session.state().await;
        if state.as_ref().is_some_and(|known| known.size >= end) {
            return Ok(None);
        }
        let seen = self.look_at("write to", place).await?;
        if seen.size < end {
            // For all writes that wait.
            let size = session.end_of_all().max(end);
            let set = FileProperties { size: Some(size), written: Some(now()) };
            *state = None;
            self.api
                .set_properties(&place.path, &seen, set)
                .await
                .map_err(|e| self.removed_by_others(place, e))?;
            *state = Some(FileStat { size, ..seen.clone() });
        } else {
            *state = Some(seen.clone());
        }
        Ok(Some(seen))
    }

    /// Puts all data, in parallel ranges.
    async fn put(&self, place: &ShareRef, offset: u64, data: &Bytes) -> Result<()> {
        let piece = |at: usize| {
            let data = data.slice(at..data.len().min(at + RANGE_MAX));
            self.api.put_range(&place.path, offset + at as u64, data)
        };
        let mut outcome = Ok(());
        for at in (0..data.len()).step_by(2 * RANGE_MAX) {
            let second = at + RANGE_MAX;
            let (first, second) = tokio::join!(piece(at), async {
                if second < data.len() { piece(second).await } else { Ok(()) }
            });
            outcome = outcome.and(first).and(second);
        }
        outcome.map_err(|e| self.removed_by_others(place, e))
    }
}
