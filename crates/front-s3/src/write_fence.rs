//! The fence that ends all writes to an upload's files before they become an object.

use tokio::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Fences the writers of one upload: each holds it shared during a write, and none can write after it is closed.
#[derive(Default)]
pub struct WriteFence(RwLock<bool>);

impl WriteFence {
    /// Keeps the fence open while the guard is held. `None`: it is closed.
    pub async fn enter(&self) -> Option<RwLockReadGuard<'_, bool>> {
        let has_ended = self.0.read().await;
        (!*has_ended).then_some(has_ended)
    }

    /// Waits for the writers and keeps others out; setting the guard to true closes the fence. `None`: it is closed
    /// already.
    pub async fn lock_to_end(&self) -> Option<RwLockWriteGuard<'_, bool>> {
        let has_ended = self.0.write().await;
        (!*has_ended).then_some(has_ended)
    }
}
