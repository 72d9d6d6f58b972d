//! Runs the same work for many objects, some in parallel.

use tokio::task::JoinSet;
use types::{Error, ErrorKind, Result};

/// The most objects that are copied, composed or removed in parallel.
pub const TOGETHER: usize = 32;

/// Returns the results in order. After the first error no more work begins, and what was begun is finished.
pub async fn run_bounded<T, F>(most: usize, work: impl Iterator<Item = F>) -> Result<Vec<T>>
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
