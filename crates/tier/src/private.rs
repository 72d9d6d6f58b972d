//! What the tier keeps on its disk is for the tier's own user alone: bytes of files that others may not read at the
//! origin, their names, the journal, the key that signs handles. Modes are 0700 and 0600 whatever the umask is.

use std::fs::{DirBuilder, Metadata, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::Path;

use tracing::warn;
use types::{Error, ErrorKind, Result};

/// Bits of a mode that let others in.
const OTHERS: u32 = 0o077;
/// Directories that a tier makes in its own, and what a file system has at its root. A directory with another one in it
/// is not the tier's alone (`/var/lib` was given, say), and keeps the mode that it has.
const OWN_DIRECTORIES: [&str; 5] = ["blocks", "metadata", "journal", "dropped", "lost+found"];

/// Make the tier's directories ours alone, before anything is read or made in them: `dir` and what is directly in it, and
/// the journal's, if it is there. A cache that an older version left open is tightened here; what is below `blocks` is
/// tightened while it is counted.
pub fn claim(dir: &Path, journal: &Path) -> Result<()> {
    let failed = |e: std::io::Error| {
        let message = format!("cannot make {}: {e}; name another directory with --cache", dir.display());
        Error::new(ErrorKind::Config, "cache directory:", message)
    };
    DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed)?;
    claim_directory(dir)?;
    for sub in ["blocks", "metadata"] {
        claim_directory(&dir.join(sub))?;
    }
    claim_directory(journal)
}

/// One directory, if it is there, and the files in it.
fn claim_directory(dir: &Path) -> Result<()> {
    let failed = |e| Error::io("look at", dir.display(), e);
    let found = match std::fs::metadata(dir) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        found => found.map_err(failed)?,
    };
    check_owner(dir, found.uid(), rustix::process::geteuid().as_raw())?;
    let mut shared_with = None;
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let of = entry.metadata().map_err(failed)?; // of a symbolic link, its own
        let name = entry.file_name();
        if of.is_dir() && !is_own(&name.to_string_lossy()) {
            shared_with.get_or_insert(name);
        } else if of.is_file() && of.uid() == found.uid() {
            tighten(&entry.path(), &of)?;
        }
    }
    match shared_with {
        Some(name) if found.mode() & OTHERS != 0 => {
            warn!(
                "{} keeps its mode {:o}, because {} in it is not the tier's; what the tier makes there is closed to others \
                 all the same",
                dir.display(),
                found.mode() & 0o7777,
                name.display()
            );
            Ok(())
        }
        _ => tighten(dir, &found),
    }
}

/// The two hexadecimal digits are directories of blocks.
fn is_own(name: &str) -> bool {
    OWN_DIRECTORIES.contains(&name)
        || name.starts_with("set-aside-")
        || name.len() == 2 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn tighten(path: &Path, found: &Metadata) -> Result<()> {
    if found.mode() & OTHERS == 0 {
        return Ok(());
    }
    let closed = Permissions::from_mode(found.mode() & 0o7777 & !OTHERS);
    std::fs::set_permissions(path, closed).map_err(|e| Error::io("close to other users", path.display(), e))
}

/// Who owns a directory can read all that is made in it, and put other things in its place.
fn check_owner(dir: &Path, owner: u32, we: u32) -> Result<()> {
    if owner == we {
        return Ok(());
    }
    let message = format!(
        "{} belongs to the user with the id {owner}, and this tier runs as {we}: its owner could read and change what is \
         cached; give a directory of this user, or run: chown -R {we} {}",
        dir.display(),
        dir.display()
    );
    Err(Error::new(ErrorKind::Config, "cache directory:", message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).expect("there").mode() & 0o7777
    }

    fn set(path: &Path, mode: u32) {
        std::fs::set_permissions(path, Permissions::from_mode(mode)).expect("ours");
    }

    #[test]
    fn a_new_directory_and_an_older_one_are_closed_to_others() {
        let place = tempfile::tempdir().expect("a directory");
        let (dir, journal) = (place.path().join("a/cache"), place.path().join("journal"));
        claim(&dir, &journal).expect("claimed");
        assert_eq!((mode(&dir), journal.exists()), (0o700, false), "an absent journal is not made here");
        for sub in ["blocks", "metadata"] {
            std::fs::create_dir(dir.join(sub)).expect("made");
        }
        std::fs::create_dir(&journal).expect("made");
        let files = [dir.join("metadata/namespace.redb"), dir.join("s3.redb"), journal.join("STATE")];
        files.iter().for_each(|file| std::fs::write(file, "x").expect("written"));
        files.iter().for_each(|file| set(file, 0o644));
        let dirs = [dir.clone(), dir.join("blocks"), dir.join("metadata"), journal.clone()];
        dirs.iter().for_each(|dir| set(dir, 0o755));
        claim(&dir, &journal).expect("claimed");
        assert_eq!(dirs.map(|dir| mode(&dir)), [0o700; 4]);
        assert_eq!(files.map(|file| mode(&file)), [0o600; 3]);
    }

    #[test]
    fn a_directory_with_other_things_in_it_keeps_its_mode() {
        let place = tempfile::tempdir().expect("a directory");
        std::fs::create_dir_all(place.path().join("somebody")).expect("made");
        std::fs::create_dir_all(place.path().join("blocks")).expect("made");
        [place.path().to_owned(), place.path().join("blocks")].iter().for_each(|dir| set(dir, 0o755));
        claim(place.path(), &place.path().join("journal")).expect("claimed");
        assert_eq!((mode(place.path()), mode(&place.path().join("blocks"))), (0o755, 0o700));
    }

    #[test]
    fn a_directory_of_somebody_else_is_refused_with_the_way_out() {
        let refused = check_owner(Path::new("/srv/cache"), 1000, 0).expect_err("refused");
        assert_eq!(refused.kind(), ErrorKind::Config);
        let told = refused.to_string();
        assert!(told.contains("/srv/cache") && told.contains("1000") && told.contains("chown"), "{told}");
        assert!(check_owner(Path::new("/srv/cache"), 1000, 1000).is_ok());
    }
}
