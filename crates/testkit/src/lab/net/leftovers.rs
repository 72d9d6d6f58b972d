//! Directories of labs: a lock on a file in it says that a lab is alive, whatever its process id means here.

use std::fs::{self, File, TryLockError};
use std::path::Path;

use tempfile::TempDir;

use crate::lab::NotRun;

const PREFIX: &str = "forebay-net-lab-";
const ALIVE: &str = "alive";

/// Held while the lab is there.
pub struct Claim {
    _locked: File,
}

/// A new directory, with the process id in its name for whoever looks.
pub fn claimed_dir() -> Result<(TempDir, Claim), NotRun> {
    let failed = |e: std::io::Error| NotRun(format!("the lab's directory: {e}"));
    let prefix = format!("{PREFIX}{}-", std::process::id());
    let dir = tempfile::Builder::new().prefix(&prefix).tempdir().map_err(failed)?;
    // It gets its name when it is locked: a file of this name that is not locked is a dead one's.
    let new = dir.path().join("new");
    let locked = File::create(&new).map_err(failed)?;
    locked.lock().map_err(failed)?;
    fs::rename(&new, dir.path().join(ALIVE)).map_err(failed)?;
    Ok((dir, Claim { _locked: locked }))
}

/// What is left of labs that were killed together with their undertakers.
pub fn remove() {
    let entries = fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    let labs = entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PREFIX));
    for lab in labs.map(|entry| entry.path()).filter(|lab| is_dead(lab)) {
        if let Err(e) = fs::remove_dir_all(&lab) {
            eprintln!("what a dead lab left in {} stays: {e}", lab.display());
        }
    }
}

fn is_dead(lab: &Path) -> bool {
    let Ok(alive) = File::open(lab.join(ALIVE)) else { return false };
    match alive.try_lock() {
        Ok(()) => true,
        Err(TryLockError::WouldBlock | TryLockError::Error(_)) => false,
    }
}
