//! The same for many objects, some at a time.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use types::{Error, ErrorKind, Result};

/// Objects that are copied, composed or removed at the same time.
const TOGETHER: usize = 32;

/// What came of each, in their order. The first error counts; what was begun is finished.
pub async fn some_at_a_time<T, F>(work: impl Iterator<Item = F>) -> Result<Vec<T>>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let turns = Arc::new(Semaphore::new(TOGETHER));
    let mut under_way = JoinSet::new();
    for (at, one) in work.enumerate() {
        let turn = turns.clone().acquire_owned().await.expect("never closed");
        under_way.spawn(async move {
            let _turn = turn;
            (at, one.await)
        });
    }
    let (mut all, mut failed) = (Vec::with_capacity(under_way.len()), None);
    while let Some(done) = under_way.join_next().await {
        match done {
            Ok((at, Ok(made))) => all.push((at, made)),
            Ok((_, Err(e))) => failed = failed.or(Some(e)),
            Err(e) => {
                let lost = Error::new(ErrorKind::Io, "change", "many objects").with_source(e);
                failed = failed.or(Some(lost));
            }
        }
    }
    if let Some(e) = failed {
        return Err(e);
    }
    all.sort_by_key(|(at, _)| *at);
    Ok(all.into_iter().map(|(_, made)| made).collect())
}
