//! Removing what a bench wrote: a phase of its own, with a result of its own.

use std::sync::Arc;
use std::time::Instant;

use futures_util::{StreamExt, stream};
use types::{Error, ErrorKind, Result};

use super::{MARKER, RunDir};
use crate::dataset::DESCRIPTION;
use crate::outcome::{Errors, TOLD_MAX};
use crate::shape::Layout;
use crate::target::{Client, EntryKind};

/// Removals under way at the same time.
const REMOVING_MAX: usize = 32;
/// A layout is three directories deep.
const DEPTH_MAX: usize = 3;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cleanup {
    pub files: u64,
    pub directories: u64,
    /// Names that no bench makes: left where they are, as is the way to them.
    pub left: u64,
    /// The first of these.
    pub left_told: Vec<String>,
    pub errors: Errors,
    pub seconds: f64,
}

impl Cleanup {
    /// Everything is gone, the directory too.
    pub fn complete(&self) -> bool {
        self.left == 0 && self.errors.count == 0
    }

    fn leave(&mut self, path: String) {
        self.left = self.left.saturating_add(1);
        if self.left_told.len() < TOLD_MAX {
            self.left_told.push(path);
        }
    }

    /// How many that removed: one, unless it failed.
    fn removed(&mut self, done: Result<()>) -> u64 {
        if let Err(error) = &done {
            self.errors.record(&format!("{:?}", error.kind()), || error.to_string());
        }
        done.is_ok().into()
    }
}

impl RunDir {
    /// Removes what runs made in the directory, and the directory if nothing else is in it. `Config`, and
    /// nothing removed, if the marker is missing.
    pub async fn cleanup(&self, clients: &[Arc<dyn Client>]) -> Result<Cleanup> {
        let none = || Error::new(ErrorKind::Config, "clean up", "there is no client to do it with");
        let client = &**clients.first().ok_or_else(none)?;
        self.must_be_ours(client).await?;
        let (began, root) = (Instant::now(), self.path());
        let mut done = Cleanup::default();
        // Depth first; the marker is the last to go, so that a cleanup cut short can be taken up again.
        below(client, clients, &root, 0, &mut done).await?;
        if done.complete() {
            done.files += done.removed(client.remove(&self.marker()).await);
            done.directories += done.removed(client.rmdir(&root).await);
        }
        done.seconds = began.elapsed().as_secs_f64();
        Ok(done)
    }
}

async fn below(
    client: &dyn Client,
    clients: &[Arc<dyn Client>],
    path: &str,
    depth: usize,
    done: &mut Cleanup,
) -> Result<()> {
    let (mut files, mut directories) = (Vec::new(), Vec::new());
    let mut entries = client.list(path).await?;
    if let (Some(at), 0 | 1) = (entries.iter().position(|entry| entry.name == DESCRIPTION), depth) {
        // Before the first of its files, so that a data set that has lost some does not say that it is whole.
        let description = format!("{path}/{}", entries.swap_remove(at).name);
        done.files += done.removed(client.remove(&description).await);
    }
    for entry in entries {
        let full = format!("{path}/{}", entry.name);
        let is_a_name = Layout::makes_name(&entry.name);
        let kind = match entry.kind {
            Some(kind) => kind,
            None if !is_a_name => EntryKind::Other,
            None => client.stat(&full).await.map_or(EntryKind::Other, |status| status.kind),
        };
        // A link or a file in the place of a directory is nothing that we made.
        match (kind, entry.name.starts_with('f'), is_a_name) {
            (EntryKind::File, true, true) => files.push(full),
            (EntryKind::Directory, false, true) if depth < DEPTH_MAX => directories.push(full),
            _ if depth == 0 && matches!(entry.name.as_str(), MARKER | DESCRIPTION) => {}
            _ => done.leave(full),
        }
    }
    let removing = files.into_iter().zip(clients.iter().cycle().cloned());
    let removing = removing.map(|(file, client)| async move { client.remove(&file).await });
    let mut removed = stream::iter(removing).buffer_unordered(REMOVING_MAX);
    while let Some(result) = removed.next().await {
        done.files += done.removed(result);
    }
    for directory in directories {
        let left = done.left;
        Box::pin(below(client, clients, &directory, depth + 1, done)).await?;
        if done.left == left {
            done.directories += done.removed(client.rmdir(&directory).await);
        }
    }
    Ok(())
}
