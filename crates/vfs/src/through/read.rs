//! Reading a file of which bytes are pending: these over the bytes below.
//!
//! While parts are sent, the origin's version changes with each, and names nothing that we know. So what is in the cache
//! is served from there, and for what is not, the sender pauses: then the origin has one version, ours, and the bytes
//! below are fetched as of any file.

use std::sync::Arc;
use std::time::Duration;

use cache::Piece;
use fetch::key_of;
use types::{ByteRange, ErrorKind, Result};
use write_buffer::BufferedFile;

use crate::Vfs;
use crate::gather::GatherReach;

/// Longest pause of a sender that is waited for; then the reader is told to try again.
const PATIENCE: Duration = Duration::from_secs(10);
/// Plans that come to nothing because the cache was given other bytes meanwhile (then the sender is held up all the same),
/// and as many because the origin has another version.
const PLANS_MAX: usize = 8;

/// Dirty bytes over clean ones. `None` if nothing is pending any more.
pub async fn read_buffered(
    vfs: &Vfs,
    file: &Arc<BufferedFile>,
    range: ByteRange,
) -> Result<Option<Vec<Piece>>> {
    let (mut relaid, mut changed) = (0, 0);
    while changed < PLANS_MAX {
        let (segments, clean, is_readable) = {
            let state = file.lock();
            if state.closed {
                return Ok(None);
            }
            (state.extents.segments(range.clamp_to(state.size())), state.clean, state.is_readable())
        };
        if is_readable && let Some(data) = vfs.gather(segments, Some(&clean), GatherReach::Cache).await? {
            return Ok(Some(data));
        }
        // What was here is being given to the cache, or was: no need to hold up the sender.
        if relaid < PLANS_MAX && file.lays_anew(clean).await {
            relaid += 1;
            continue;
        }
        let held = tokio::time::timeout(PATIENCE, file.hold()).await;
        let Some(_held) = held.map_err(|_| Vfs::busy(file.id))? else { return Ok(None) };
        let (segments, clean) = {
            let state = file.lock();
            (state.extents.segments(range.clamp_to(state.size())), state.clean)
        };
        match vfs.gather(segments, Some(&clean), GatherReach::CacheAndOrigin).await {
            Err(e) if e.kind() == ErrorKind::VersionChanged => {
                let now = vfs.namespace.refresh_changed(file.id).await?;
                file.lock().found(key_of(&now)?);
                changed += 1;
            }
            data => return data,
        }
    }
    Err(Vfs::busy(file.id))
}
