//! Removing what a bench wrote: a phase of its own, with a result of its own.

use std::sync::Arc;
use std::time::Instant;

use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use types::{Error, ErrorKind, Result};

use super::{MARKER, RunDir};
use crate::dataset::DESCRIPTION;
use crate::outcome::{Errors, TOLD_MAX};
use crate::shape::Layout;
use crate::target::{Client, EntryKind, TargetEntry};

/// Removals under way at the same time.
const REMOVING_MAX: usize = 32;
/// A layout is three directories deep.
const DEPTH_MAX: usize = 3;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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

    fn fail(&mut self, error: &Error) {
        self.errors.record(&format!("{:?}", error.kind()), || error.to_string());
    }
}

/// The caller has seen the marker.
pub async fn remove(dir: &RunDir, clients: &[Arc<dyn Client>]) -> Result<Cleanup> {
    let began = Instant::now();
    let mut done = Cleanup::default();
    let root = dir.path();
    let client = clients.first().ok_or_else(|| Error::new(ErrorKind::Config, "clean up", "no client"))?;
    // Depth first; the marker is the last to go, so that a cleanup cut short can be taken up again.
    below(clients, &root, 0, &mut done).await?;
    if done.complete() {
        match client.remove(&format!("{root}/{MARKER}")).await {
            Err(error) => done.fail(&error),
            Ok(()) => done.files += 1,
        }
        match client.rmdir(&root).await {
            Err(error) => done.fail(&error),
            Ok(()) => done.directories += 1,
        }
    }
    done.seconds = began.elapsed().as_secs_f64();
    Ok(done)
}

async fn below(clients: &[Arc<dyn Client>], path: &str, depth: usize, done: &mut Cleanup) -> Result<()> {
    let client = clients.first().ok_or_else(|| Error::new(ErrorKind::Config, "clean up", "no client"))?;
    let mut removing = JoinSet::new();
    let mut directories = Vec::new();
    let mut entries = client.list(path).await?;
    if let (Some(at), 0 | 1) = (entries.iter().position(|entry| entry.name == DESCRIPTION), depth) {
        // Before the first of its files, so that a data set that has lost some does not say that it is whole.
        match client.remove(&format!("{path}/{}", entries.swap_remove(at).name)).await {
            Err(error) => done.fail(&error),
            Ok(()) => done.files += 1,
        }
    }
    for (entry, turn) in entries.into_iter().zip(clients.iter().cycle()) {
        let full = format!("{path}/{}", entry.name);
        match what_of(&**client, &entry, &full, depth).await {
            Remnant::Own if depth == 0 => {}
            Remnant::File => {
                if removing.len() >= REMOVING_MAX {
                    removed(&mut removing, done).await;
                }
                let turn = Arc::clone(turn);
                removing.spawn(async move { turn.remove(&full).await });
            }
            Remnant::Directory => directories.push(full),
            Remnant::Own | Remnant::Foreign => done.leave(full),
        }
    }
    while !removing.is_empty() {
        removed(&mut removing, done).await;
    }
    for directory in directories {
        let left = done.left;
        Box::pin(below(clients, &directory, depth + 1, done)).await?;
        if done.left > left {
            continue;
        }
        match client.rmdir(&directory).await {
            Err(error) => done.fail(&error),
            Ok(()) => done.directories += 1,
        }
    }
    Ok(())
}

async fn removed(removing: &mut JoinSet<Result<()>>, done: &mut Cleanup) {
    match removing.join_next().await {
        Some(Ok(Ok(()))) => done.files += 1,
        Some(Ok(Err(error))) => done.fail(&error),
        Some(Err(error)) => done.fail(&Error::new(ErrorKind::Io, "remove", error)),
        None => {}
    }
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
