//! Files with secrets.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use types::{Error, ErrorKind, Result};

/// Reads a file with credentials. A warning is logged if others can read it, too.
pub fn read(path: &Path) -> Result<String> {
    let text = std::fs::read_to_string(path).map_err(|e| {
        let message = format!("cannot read the credentials in {}: {e}", path.display());
        Error::new(ErrorKind::Config, "origin", message)
    })?;
    warn_if_open(path);
    Ok(text)
}

/// Warns once for each file, which may be read often after refusals.
pub fn warn_if_open(path: &Path) {
    static TOLD: Mutex<BTreeSet<PathBuf>> = Mutex::new(BTreeSet::new());
    let mode = std::fs::metadata(path).map_or(0, |found| found.permissions().mode());
    if is_open(mode) && TOLD.lock().unwrap_or_else(PoisonError::into_inner).insert(path.to_owned()) {
        let path = path.display();
        tracing::warn!(
            "the secret in {path} may be read by others (mode {:04o}); chmod 600 {path}",
            mode & 0o7777
        );
    }
}

/// Open to everybody on the machine; a group is somebody's choice.
fn is_open(mode: u32) -> bool {
    mode & 0o007 != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_everybody_may_read_is_no_secret() {
        for (mode, open) in [(0o100_600, false), (0o100_640, false), (0o100_644, true), (0o100_602, true)] {
            assert_eq!(is_open(mode), open, "{mode:o}");
        }
    }
}
