//! Reading a file of which bytes are pending: these over the bytes below.
//!
//! While parts are sent, the origin's version changes with each, and names nothing that we know. So what is in the cache
//! is served from there, and for what is not, the sender pauses: then the origin has one version, ours, and the bytes
//! below are fetched as of any file.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cache::{CacheKey, Lend, Piece};
use types::{ByteRange, ErrorKind, Result};

use super::{File, Place};
use crate::Vfs;
use crate::read::key_of;

/// Longest pause of a sender that is waited for; then the reader is told to try again.
const PATIENCE: Duration = Duration::from_secs(10);
/// Plans that come to nothing because the cache was given other bytes meanwhile (then the sender is held up all the same),
/// and as many because the origin has another version.
const PLANS_MAX: usize = 8;
/// Zeros are not more memory than this, however many are read.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

impl Vfs {
    /// `None` if nothing is pending any more.
    pub(crate) async fn read_pending(
        &self,
        file: &Arc<File>,
        range: ByteRange,
    ) -> Result<Option<Vec<Piece>>> {
        let (mut relaid, mut changed) = (0, 0);
        while changed < PLANS_MAX {
            let (places, clean, is_readable) = {
                let state = file.lock();
                if state.closed {
                    return Ok(None);
                }
                (state.extents.places(range.clamp_to(state.size())), state.clean, state.is_readable())
            };
            if is_readable && let Some(data) = self.gather(&places, &clean).await? {
                return Ok(Some(data));
            }
            // What was here is being given to the cache, or was: no need to hold up the sender.
            if relaid < PLANS_MAX && file.lays_anew(clean).await {
                relaid += 1;
                continue;
            }
            let held = tokio::time::timeout(PATIENCE, file.hold()).await;
            let Some(_held) = held.map_err(|_| Vfs::busy(file.id))? else { return Ok(None) };
            let (places, clean) = {
                let state = file.lock();
                (state.extents.places(range.clamp_to(state.size())), state.clean)
            };
            match self.fetch(&places, &clean).await {
                Ok(data) => return Ok(Some(data)),
                Err(e) if e.kind() == ErrorKind::VersionChanged => {
                    let now = self.namespace.refresh_changed(file.id).await?;
                    file.lock().found(key_of(&now)?);
                    changed += 1;
                }
                Err(e) => return Err(e),
            }
        }
        Err(Vfs::busy(file.id))
    }

    /// With what is here. `None` if some of it is not.
    async fn gather(&self, places: &[Place], clean: &CacheKey) -> Result<Option<Vec<Piece>>> {
        let mut data = Vec::new();
        for place in places {
            match place {
                Place::Here(bytes) => data.push(Piece::Bytes(bytes.clone())),
                Place::Below(range) => {
                    let there = range.clamp_to(clean.size);
                    match self.cache.read_present(clean, there).await? {
                        Some(pieces) => data.extend(pieces),
                        None => return Ok(None),
                    }
                    zeros(range.length - there.length, &mut data);
                }
            }
        }
        Ok(Some(data))
    }

    async fn fetch(&self, places: &[Place], clean: &CacheKey) -> Result<Vec<Piece>> {
        let source = self.source_of(&self.namespace.getattr_known(clean.file)?);
        let mut data = Vec::new();
        for place in places {
            match place {
                Place::Here(bytes) => data.push(Piece::Bytes(bytes.clone())),
                Place::Below(range) => {
                    let there = range.clamp_to(clean.size);
                    data.extend(self.cache.read(clean, there, &source, Lend::Nothing).await?);
                    zeros(range.length - there.length, &mut data);
                }
            }
        }
        Ok(data)
    }
}

pub fn zeros(mut length: u64, data: &mut Vec<Piece>) {
    while length > 0 {
        let piece = length.min(ZEROS.len() as u64);
        data.push(Piece::Bytes(Bytes::from_static(&ZEROS[..piece as usize])));
        length -= piece;
    }
}
