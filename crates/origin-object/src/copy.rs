//! Copies of objects at their store: the bytes do not come here. What is too long for one call is copied in parts, some at
//! a time.

use std::sync::Arc;

use types::{ByteRange, Result};

use crate::store::{Condition, Metadata, Source, Store};
use crate::together::some_at_a_time;

/// A store may tell nothing until a part is done, and a call on which nothing moves is given up.
const PART: u64 = 128 << 20;
const PARTS_MAX: u64 = 10_000;
/// Of one object.
const PARTS_TOGETHER: usize = 4;

/// The copy's ETag. What the store knows of the source goes with it.
pub async fn copy(store: &Arc<dyn Store>, from: Source<'_>, to: &str) -> Result<String> {
    if from.size <= store.copy_max() {
        return store.copy(from, to).await;
    }
    in_parts(store, from, to, None, Condition::Always).await
}

/// Other metadata for an object that is there; its ETag then.
pub async fn describe(store: &Arc<dyn Store>, object: Source<'_>, metadata: &Metadata) -> Result<String> {
    if object.size <= store.describe_max() {
        return store.describe(object, metadata).await;
    }
    in_parts(store, object, object.key, Some(metadata), Condition::Unchanged(object.etag)).await
}

async fn in_parts(
    store: &Arc<dyn Store>,
    from: Source<'_>,
    to: &str,
    metadata: Option<&Metadata>,
    condition: Condition<'_>,
) -> Result<String> {
    let upload = Arc::new(store.begin_copy(from, to, metadata).await?);
    let length = PART.max(from.size.div_ceil(PARTS_MAX)).min(store.copy_max());
    let parts = (0..from.size.div_ceil(length)).zip(1..).map(|(index, number)| {
        let (store, upload) = (store.clone(), upload.clone());
        let (key, etag, size) = (from.key.to_owned(), from.etag.to_owned(), from.size);
        let range = ByteRange::new(index * length, length.min(size - index * length));
        async move {
            let from = Source { key: &key, etag: &etag, size };
            store.part_of(&upload, number, from, range).await
        }
    });
    let copied = match some_at_a_time(PARTS_TOGETHER, parts).await {
        Ok(parts) => store.complete(&upload, &parts, condition).await,
        Err(e) => Err(e),
    };
    if copied.is_err()
        && let Err(e) = store.abort(&upload).await
    {
        tracing::warn!(to, "parts of a copy that failed stay at the store: {e}");
    }
    copied.map(|made| made.etag)
}
