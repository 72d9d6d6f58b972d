//! Removing what a bench wrote: a phase of its own, with a result of its own.

use std::sync::Arc;
use std::time::Instant;

use futures_util::{StreamExt, stream};
use types::{Error, Result};

use super::{MARKER, RunDir};
use crate::dataset::DESCRIPTION;
use crate::outcome::{Errors, TOLD_MAX};
use crate::shape::Layout;
use crate::target::{Client, EntryKind, TargetEntry};

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

    fn count_file(&mut self, removed: Result<()>) {
        match removed {
            Ok(()) => self.files += 1,
            Err(error) => self.fail(&error),
        }
    }

    fn count_directory(&mut self, removed: Result<()>) {
        match removed {
            Ok(()) => self.directories += 1,
            Err(error) => self.fail(&error),
        }
    }

    fn fail(&mut self, error: &Error) {
        self.errors.record(&format!("{:?}", error.kind()), || error.to_string());
    }
}

/// The caller has seen the marker. `client` is the first of the clients.
pub async fn remove(dir: &RunDir, client: &dyn Client, clients: &[Arc<dyn Client>]) -> Result<Cleanup> {
    let began = Instant::now();
    let mut done = Cleanup::default();
    let root = dir.path();
    // Depth first; the marker is the last to go, so that a cleanup cut short can be taken up again.
    below(client, clients, &root, 0, &mut done).await?;
    if done.complete() {
        done.count_file(client.remove(&dir.marker()).await);
        done.count_directory(client.rmdir(&root).await);
    }
    done.seconds = began.elapsed().as_secs_f64();
    Ok(done)
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
        done.count_file(client.remove(&format!("{path}/{}", entries.swap_remove(at).name)).await);
    }
    for entry in entries {
        let full = format!("{path}/{}", entry.name);
        match what_of(client, &entry, &full, depth).await {
            Remnant::Own if depth == 0 => {}
            Remnant::File => files.push(full),
            Remnant::Directory => directories.push(full),
            Remnant::Own | Remnant::Foreign => done.leave(full),
        }
    }
    let removing = files.into_iter().zip(clients.iter().cycle().cloned());
    let removing = removing.map(|(file, client)| async move { client.remove(&file).await });
    let mut removed = stream::iter(removing).buffer_unordered(REMOVING_MAX);
    while let Some(result) = removed.next().await {
        done.count_file(result);
    }
    for directory in directories {
        let left = done.left;
        Box::pin(below(client, clients, &directory, depth + 1, done)).await?;
        if done.left == left {
            done.count_directory(client.rmdir(&directory).await);
        }
    }
    Ok(())
}

enum Remnant {
    /// A data file.
    File,
    /// A directory of data files.
    Directory,
    /// The marker, or a description that is not where it should be.
    Own,
    Foreign,
}

/// A link or a file in the place of a directory is nothing that we made.
async fn what_of(client: &dyn Client, entry: &TargetEntry, path: &str, depth: usize) -> Remnant {
    if matches!(entry.name.as_str(), MARKER | DESCRIPTION) {
        return Remnant::Own;
    }
    if !Layout::makes_name(&entry.name) {
        return Remnant::Foreign;
    }
    let kind = match entry.kind {
        Some(kind) => kind,
        None => client.stat(path).await.map_or(EntryKind::Other, |status| status.kind),
    };
    match (kind, entry.name.starts_with('f')) {
        (EntryKind::File, true) => Remnant::File,
        (EntryKind::Directory, false) if depth < DEPTH_MAX => Remnant::Directory,
        _ => Remnant::Foreign,
    }
}
