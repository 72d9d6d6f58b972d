//! Where ranks that a launcher has started find rank 0: a file in a directory that all of them see.
//!
//! No launcher tells a process, portably, where another of its ranks is. Rank 0 leaves its addresses and the run's
//! token in a file that only its user may read, and removes it when all have come. A file that an earlier run left
//! behind does no harm: the handshake fails, and the member looks again until rank 0 has replaced it.

use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use types::{Error, ErrorKind, Result};

use crate::token::RunToken;

/// The largest file: more than all addresses of a machine take.
const FILE_MAX: u64 = 64 << 10;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Rendezvous {
    /// `HOST:PORT`, to be tried in order.
    pub addresses: Vec<String>,
    pub token: String,
}

/// The file of rank 0; gone when this is dropped.
pub struct Left {
    path: PathBuf,
}

impl Left {
    pub fn new(path: &Path, addresses: Vec<String>, token: &RunToken) -> Result<Left> {
        let rendezvous = Rendezvous { addresses, token: token.reveal().to_owned() };
        let json = serde_json::to_vec(&rendezvous).expect("strings are always JSON");
        let failed = |e| {
            let what =
                format!("{} (--rendezvous DIR or --coordinator HOST:PORT says otherwise)", path.display());
            Error::io("leave the address of rank 0 in", what, e)
        };
        // Renamed, so that it is seen whole or not at all, whatever was there before; and this user's alone from the first.
        let mut file = tempfile::NamedTempFile::new_in(directory_of(path)).map_err(failed)?;
        file.write_all(&json).and_then(|()| file.as_file().sync_all()).map_err(failed)?;
        file.persist(path).map_err(|e| failed(e.error))?;
        Ok(Left { path: path.to_owned() })
    }
}

impl Drop for Left {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// The directory that a file is in.
fn directory_of(path: &Path) -> &Path {
    path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The file, if it is there. An error for one that must not be trusted.
pub fn find(path: &Path) -> Result<Option<Rendezvous>> {
    // An NFS client remembers for up to a minute that a name was not there, unless the directory is opened, which by
    // close-to-open makes it ask.
    let dir = directory_of(path);
    std::fs::read_dir(dir).map_err(|e| Error::io("look for rank 0 in", dir.display(), e))?;
    let flags = i32::try_from(OFlags::NOFOLLOW.bits()).unwrap_or(0);
    let file = match std::fs::OpenOptions::new().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(Error::io("read the address of rank 0 in", path.display(), e)),
    };
    let meta = file.metadata().map_err(|e| Error::io("look at", path.display(), e))?;
    // A directory may be anybody's, but who writes this file directs us. A server may show root's files as another's.
    let me = geteuid();
    if meta.mode() & 0o077 != 0 || (meta.uid() != me.as_raw() && !me.is_root()) {
        let what = format!("{} is not this user's alone: remove it", path.display());
        return Err(Error::new(ErrorKind::Config, "the address of rank 0", what));
    }
    let mut bytes = Vec::new();
    file.take(FILE_MAX).read_to_end(&mut bytes).map_err(|e| Error::io("read", path.display(), e))?;
    Ok(serde_json::from_slice(&bytes).ok())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn what_rank_0_leaves_is_found_and_is_gone_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("meet");
        assert_eq!(find(&path).unwrap(), None);
        let token = RunToken::random().unwrap();
        std::fs::write(&path, "an earlier run's").unwrap();
        let left = Left::new(&path, vec!["a:1".into()], &token).unwrap();
        let expected = Rendezvous { addresses: vec!["a:1".into()], token: token.reveal().to_owned() };
        assert_eq!(find(&path).unwrap(), Some(expected));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        drop(left);
        assert_eq!(find(&path).unwrap(), None);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_that_others_could_have_written_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("meet");
        std::fs::write(&path, r#"{"addresses":["evil:1"],"token":"0123456789abcdef"}"#).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
        assert!(find(&path).unwrap_err().to_string().contains("not this user's alone"));
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert!(find(&link).is_err());
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_an_error_that_says_what_to_do() {
        let token = RunToken::random().unwrap();
        let error = Left::new(Path::new("/proc/meet"), vec![], &token).err().unwrap().to_string();
        assert!(error.contains("--rendezvous"), "{error}");
    }
}
