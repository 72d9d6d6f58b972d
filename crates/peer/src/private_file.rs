//! Files that hold keys: of mode 0600, in directories of mode 0700, and whole or not there at all.

use std::fmt::Display;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use types::{Error, ErrorKind, Result};

/// Certificates and keys have some hundred bytes each.
const SMALL_MAX: u64 = 64 << 10;

/// An error about keys and certificates.
pub(crate) fn refuse(why: impl Display) -> Error {
    Error::new(ErrorKind::Config, "certificates of the cluster:", why)
}

/// Makes the directory, or demands that no other user can look into the one that is there.
pub(crate) fn private_dir(dir: &Path) -> Result<()> {
    let shown = dir.display();
    match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => return Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(Error::io("make the directory", &shown, e)),
    }
    let about = std::fs::metadata(dir).map_err(|e| Error::io("look at", &shown, e))?;
    if about.is_dir() { only_ours(dir, &about) } else { Err(refuse(format!("{shown} is no directory"))) }
}

fn only_ours(path: &Path, about: &std::fs::Metadata) -> Result<()> {
    let mode = about.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let shown = path.display();
        return Err(refuse(format!("{shown} is open to other users (mode {mode:03o}); chmod go= {shown}")));
    }
    Ok(())
}

/// Writes a file of mode 0600 under its name only when it is whole.
pub(crate) fn write_private(dir: &Path, name: &str, text: &str) -> Result<()> {
    let (path, unfinished) = (dir.join(name), dir.join(format!("{name}.new")));
    let failed = |e| Error::io("write", unfinished.display(), e);
    match std::fs::remove_file(&unfinished) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed(e)),
        _ => {}
    }
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    std::fs::rename(&unfinished, &path).map_err(|e| Error::io("write", path.display(), e))?;
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(|e| Error::io("sync", dir.display(), e))
}

pub(crate) fn read_private(path: &Path) -> Result<String> {
    let about = std::fs::metadata(path).map_err(|e| Error::io("read", path.display(), e))?;
    only_ours(path, &about)?;
    read_small(path)
}

pub(crate) fn read_small(path: &Path) -> Result<String> {
    let failed = |e| Error::io("read", path.display(), e);
    if std::fs::metadata(path).map_err(failed)?.len() > SMALL_MAX {
        return Err(refuse(format!("{} is too long for a file of a cluster's keys", path.display())));
    }
    std::fs::read_to_string(path).map_err(failed)
}
