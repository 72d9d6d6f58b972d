//! Copies of objects at their store, without the bytes coming here. What is too long for one call is copied in
//! parts, some in parallel.

use std::sync::Arc;

use types::{ByteRange, Result};

use crate::bounded_tasks::run_bounded;
use crate::store::{CopySource, Metadata, ObjectStore, Precondition};

/// The least size of a part. A store may answer only when a part is done, and a call on which nothing moves is given
/// up.
const PART: u64 = 128 << 20;
const PARTS_MAX: u64 = 10_000;
/// The parts of one object in flight.
const PARTS_TOGETHER: usize = 4;

/// Copies an object, with all that the store knows of it; returns the copy's ETag.
pub async fn copy(store: &Arc<dyn ObjectStore>, from: CopySource<'_>, to: &str) -> Result<String> {
    if from.size <= store.copy_max() {
        return store.copy(from, to).await;
    }
    in_parts(store, from, to, None, Precondition::Always).await
}

/// Replaces an object's metadata; returns its new ETag.
pub async fn describe(
    store: &Arc<dyn ObjectStore>,
    object: CopySource<'_>,
    metadata: &Metadata,
) -> Result<String> {
    if object.size <= store.describe_max() {
        return store.describe(object, metadata).await;
    }
    in_parts(store, object, object.key, Some(metadata), Precondition::Unchanged(object.etag)).await
}

async fn in_parts(
    store: &Arc<dyn ObjectStore>,
    from: CopySource<'_>,
    to: &str,
    metadata: Option<&Metadata>,
    condition: Precondition<'_>,
) -> Result<String> {
    let upload = Arc::new(store.begin_copy(from, to, metadata).await?);
    let length = PART.max(from.size.div_ceil(PARTS_MAX)).min(store.copy_max());
    let parts = (0..from.size.div_ceil(length)).zip(1..).map(|(index, number)| {
        let (store, upload) = (store.clone(), upload.clone());
        let (key, etag, size) = (from.key.to_owned(), from.etag.to_owned(), from.size);
        let range = ByteRange::new(index * length, length.min(size - index * length));
        async move {
            let from = CopySource { key: &key, etag: &etag, size };
            store.part_of(&upload, number, from, range).await
        }
    });
    let copied = match run_bounded(PARTS_TOGETHER, parts).await {
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
