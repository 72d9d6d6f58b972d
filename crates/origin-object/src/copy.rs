//! Copies of objects at their store: the bytes do not come here. What is too long for one call is copied in parts, some at
//! a time.

use std::sync::Arc;

use types::{ByteRange, Result};

use crate::store::{Condition, Source, Store};
use crate::together::some_at_a_time;

/// Longest part of a longer object: a store tells nothing until it is done, and then only of all of it.
const PART_MAX: u64 = 1 << 30;

/// The copy's ETag. What the store knows of the source goes with it.
pub async fn copy(store: &Arc<dyn Store>, from: Source<'_>, to: &str) -> Result<String> {
    if from.size <= store.copy_max() {
        return store.copy(from, to).await;
    }
    let upload = Arc::new(store.begin_copy(from, to).await?);
    let length = store.copy_max().min(PART_MAX);
    let parts = (0..from.size.div_ceil(length)).zip(1..).map(|(index, number)| {
        let (store, upload) = (store.clone(), upload.clone());
        let (key, etag, size) = (from.key.to_owned(), from.etag.to_owned(), from.size);
        let range = ByteRange::new(index * length, length.min(size - index * length));
        async move {
            let from = Source { key: &key, etag: &etag, size };
            store.part_of(&upload, number, from, range).await
        }
    });
    let copied = match some_at_a_time(parts).await {
        Ok(parts) => store.complete(&upload, &parts, Condition::Always).await,
        Err(e) => Err(e),
    };
    if copied.is_err()
        && let Err(e) = store.abort(&upload).await
    {
        tracing::warn!(to, "parts of a copy that failed stay at the store: {e}");
    }
    copied.map(|made| made.etag)
}
