//! The same for many objects, some at a time.

use tokio::task::JoinSet;
use types::{Error, ErrorKind, Result};

/// Objects that are copied, composed or removed at the same time.
pub const TOGETHER: usize = 32;

/// What came of each, in their order. The first error counts; what was begun is finished, and nothing else is begun.
pub async fn some_at_a_time<T, F>(most: usize, work: impl Iterator<Item = F>) -> Result<Vec<T>>
where
    T: Send + 'static,
    F: Future<Output = Result<T>> + Send + 'static,
{
    let mut work = work.enumerate();
    let mut under_way = JoinSet::new();
    let (mut all, mut failed) = (Vec::new(), None);
    loop {
        while failed.is_none()
            && under_way.len() < most
            && let Some((at, one)) = work.next()
        {
            under_way.spawn(async move { (at, one.await) });
        }
        let Some(done) = under_way.join_next().await else { break };
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
