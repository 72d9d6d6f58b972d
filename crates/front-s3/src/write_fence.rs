//! The end of the writes to an upload's files.

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The end of a file that several drafts write to: each does so for a moment at a time, and none after the end.
#[derive(Default)]
pub struct WriteFence(RwLock<bool>);

impl WriteFence {
    /// As long as this is held it does not end. `None`: it has ended.
    pub async fn enter(&self) -> Option<RwLockReadGuard<'_, bool>> {
        let has_ended = self.0.read().await;
        (!*has_ended).then_some(has_ended)
    }

    /// As long as this is held nobody else writes, or ends it; made true, it has ended. `None`: it has already.
    pub async fn lock_to_end(&self) -> Option<RwLockWriteGuard<'_, bool>> {
        let has_ended = self.0.write().await;
        (!*has_ended).then_some(has_ended)
    }
}
