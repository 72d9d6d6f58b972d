//! Files and directories that only the tier's own user may read.

use std::fs::{DirBuilder, File, Metadata, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Cached bytes are for the tier's user alone: a file that others may not read at the origin must not be theirs to read
/// here, whatever the umask is.
pub const PRIVATE_FILE: u32 = 0o600;
const PRIVATE_DIR: u32 = 0o700;

pub fn create_private_dir(dir: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(PRIVATE_DIR).create(dir)
}

/// A new, empty file in the cache directory.
pub fn private_file(path: &Path) -> std::io::Result<File> {
    File::options().write(true).create(true).truncate(true).mode(PRIVATE_FILE).open(path)
}

/// What an older version left open to others is closed.
pub fn tighten(path: &Path, meta: &Metadata) {
    let closed = if meta.is_dir() { PRIVATE_DIR } else { PRIVATE_FILE };
    if meta.mode() & 0o7777 & !closed != 0
        && let Err(e) = std::fs::set_permissions(path, Permissions::from_mode(closed))
    {
        tracing::warn!("close {} to other users: {e}", path.display());
    }
}
