//! After a crash: where did the flush that was interrupted leave things?
//!
//! A name may be changed at the origin although nobody wrote that down here, and an origin whose references are paths
//! then has the object, and all below it, where nobody would look. So what a flush had begun to rename is looked for under
//! its new name; before that nothing is answered, and nothing is flushed.

use std::collections::HashSet;
use std::sync::Arc;

use namespace::Namespace;
use tokio::sync::watch;
use tokio::task::JoinSet;
use types::{ErrorKind, FileId, Name, Result};
use writeback::{Action, JournalOperation};

use super::flush_target::FlushNote;

/// Questions to the origin at the same time.
const PARALLEL: usize = 32;

/// `operations`: what the journal holds, in order. Tells `found` at the end.
pub async fn find(namespace: Arc<Namespace>, operations: Vec<JournalOperation>, found: watch::Sender<bool>) {
    if let Err(e) = look(&namespace, &operations).await {
        // In an outage nobody is told that anything is stale either.
        tracing::debug!("not everything was looked for: {e}");
    }
    found.send_replace(true);
}

async fn look(namespace: &Arc<Namespace>, operations: &[JournalOperation]) -> Result<()> {
    let begun: HashSet<FileId> =
        operations.iter().map(JournalOperation::object).filter(|id| was_begun(namespace, *id)).collect();
    let renames = operations.iter().filter_map(|operation| match &operation.action {
        Action::Rename(rename) if begun.contains(&rename.object) => Some(rename),
        _ => None,
    });
    let renames = renames.inspect(|rename| namespace.may_be_at(rename.object, rename.to_dir, &rename.to));
    let (directories, files): (Vec<_>, Vec<_>) = renames.partition(|rename| rename.is_dir);
    // One after the other: the next may be in the one before.
    for rename in directories {
        look_under(namespace.clone(), rename.to_dir, rename.to.clone()).await?;
    }
    let places: Vec<_> = files.into_iter().map(|rename| (rename.to_dir, rename.to.clone())).collect();
    let mut looking = JoinSet::new();
    for (dir, name) in places {
        if looking.len() >= PARALLEL {
            joined(looking.join_next().await)?;
        }
        looking.spawn(look_under(namespace.clone(), dir, name));
    }
    while !looking.is_empty() {
        joined(looking.join_next().await)?;
    }
    Ok(())
}

fn joined(looked: Option<std::result::Result<Result<()>, tokio::task::JoinError>>) -> Result<()> {
    match looked {
        Some(Ok(result)) => result,
        _ => Ok(()), // it has panicked, or none was left
    }
}

/// The namespace takes in what it hears. Only who does not answer ends the search.
async fn look_under(namespace: Arc<Namespace>, dir: FileId, name: Name) -> Result<()> {
    match namespace.lookup_now(dir, &name).await {
        Err(e) if e.is_retryable() && e.kind() != ErrorKind::Busy => Err(e),
        _ => Ok(()),
    }
}

/// What cannot be read counts as begun.
fn was_begun(namespace: &Namespace, id: FileId) -> bool {
    FlushNote::of(namespace, id).map_or(true, |note| note.begun)
}
