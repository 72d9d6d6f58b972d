//! The secret that signs NFS handles, in the cache directory: made at the first start, readable by us alone.
//!
//! Its 16 bytes are followed by their CRC-32C. With another key all handles that clients hold would be refused without a word
//! why; so a damaged one is put aside, and it is told what that means.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use tracing::{error, info};
use types::{Error, Result};

const FILE: &str = "handle.key";
const KEY_BYTES: usize = 16;
const SUMMED_BYTES: usize = KEY_BYTES + 4;

pub type HandleKey = [u8; KEY_BYTES];

/// The key, and what was lost with the one before. `used`: a tier was here before.
pub fn of(dir: &Path, used: bool) -> Result<(HandleKey, Option<String>)> {
    let path = dir.join(FILE);
    let failed = |e| Error::io("make the handle key", path.display(), e);
    match std::fs::read(&path) {
        Ok(bytes) => match decode(&bytes) {
            Some(key) => {
                if bytes.len() == KEY_BYTES {
                    write(&path, &key).map_err(failed)?; // of an older version
                }
                return Ok((key, None));
            }
            None => std::fs::rename(&path, path.with_extension("key.damaged")).map_err(failed)?,
        },
        Err(e) if e.kind() == ErrorKind::NotFound => {
            if used {
                info!("{} is made: NFS clients of before, if there were any, mount again", path.display());
            }
            return Ok((make(&path).map_err(failed)?, None));
        }
        Err(e) => return Err(failed(e)),
    }
    let lost = format!(
        "{} was damaged and is made anew (the damaged one has .damaged at its end). Lost: all handles of NFS clients; they get \
         \"stale file handle\" and must mount again",
        path.display()
    );
    error!("{lost}");
    Ok((make(&path).map_err(failed)?, Some(lost)))
}

fn make(path: &Path) -> std::io::Result<HandleKey> {
    let mut key = [0; KEY_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut key)?;
    write(path, &key)?;
    Ok(key)
}

/// Whole or not at all: a crash must not leave half a key.
fn write(path: &Path, key: &HandleKey) -> std::io::Result<()> {
    let unfinished = path.with_extension("unfinished");
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    file.write_all(key)?;
    file.write_all(&crc32c::crc32c(key).to_le_bytes())?;
    file.sync_all()?;
    std::fs::rename(&unfinished, path)
}

fn decode(bytes: &[u8]) -> Option<HandleKey> {
    let (key, sum) = bytes.split_first_chunk::<KEY_BYTES>()?;
    let is_right = match bytes.len() {
        KEY_BYTES => true,
        SUMMED_BYTES => sum == crc32c::crc32c(key).to_le_bytes(),
        _ => false,
    };
    is_right.then_some(*key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_stays_and_one_that_is_not_what_was_written_is_told() {
        let dir = tempfile::tempdir().expect("temporary directory");
        let path = dir.path().join(FILE);
        std::fs::write(&path, [7; KEY_BYTES]).expect("written");
        assert_eq!(of(dir.path(), true).expect("read"), ([7; KEY_BYTES], None), "of an older version");
        let whole = std::fs::read(&path).expect("there");
        assert_eq!(whole.len(), SUMMED_BYTES);
        for bit in 0..whole.len() * 8 {
            let mut other = whole.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, other).expect("written");
            let (key, lost) = of(dir.path(), true).expect("made");
            assert!(key != [7; KEY_BYTES] && lost.is_some(), "bit {bit}");
            assert_eq!(of(dir.path(), true).expect("read"), (key, None), "told once");
        }
        for end in (0..whole.len()).filter(|end| *end != KEY_BYTES) {
            std::fs::write(&path, &whole[..end]).expect("written");
            assert!(of(dir.path(), true).expect("made").1.is_some(), "cut to {end}");
        }
    }
}
