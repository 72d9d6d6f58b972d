//! Files that stay: nothing of them is evicted to make room. They are named by file, not by version: a newer version of a
//! pinned file stays too.
//!
//! In `PINS` of the cache directory, an id in hexadecimal on each line, and a checksum on the last. Written whole, under another
//! name first; what cannot be read of it is left out and told, for the worst is that a file may leave.

use std::collections::HashSet;
use std::fmt::Write;
use std::path::Path;
use std::sync::PoisonError;

use tracing::warn;
use types::{Error, FileId, Result};

use crate::Cache;

const NAME: &str = "PINS";
/// How the last line begins; a CRC-32C of all before it follows.
const SUM: &str = "crc32c ";
/// Of the quota: the rest is for what is not pinned.
const PINNED_MAX_PERCENT: u64 = 80;
/// Of the quota: above it room is made, down to a little below it.
const WARM_MAX_PERCENT: u64 = 92;

/// Bytes on disk of a file of this size, with its map.
pub fn room_for(size: u64) -> u64 {
    if size == 0 { 0 } else { crate::disk_usage::room_of_whole(size) }
}

pub(crate) fn load(dir: &Path) -> HashSet<FileId> {
    let path = dir.join(NAME);
    let text = match std::fs::read(&path) {
        Ok(text) => String::from_utf8_lossy(&text).into_owned(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return HashSet::new(),
        Err(e) => {
            warn!("nothing is pinned any more: read {}: {e}", path.display());
            return HashSet::new();
        }
    };
    if !is_whole(&text) {
        warn!(
            "{} is not what was written: some files may not be pinned any more; pin them again",
            path.display()
        );
    }
    text.lines().filter_map(id_of).collect()
}

fn is_whole(text: &str) -> bool {
    let last = text.lines().last().unwrap_or_default();
    let ids = text.strip_suffix('\n').and_then(|text| text.strip_suffix(last));
    ids.is_some_and(|ids| last == format!("{SUM}{:08x}", crc32c::crc32c(ids.as_bytes())))
}

fn id_of(line: &str) -> Option<FileId> {
    let mut id = [0; 16];
    if line.len() != 32 || !line.is_ascii() {
        return None;
    }
    for (at, byte) in id.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&line[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(FileId(id))
}

fn save(dir: &Path, pins: &HashSet<FileId>) -> std::io::Result<()> {
    let mut text = String::with_capacity(pins.len() * 33);
    for FileId(id) in pins {
        for byte in id {
            let _ = write!(text, "{byte:02x}");
        }
        text.push('\n');
    }
    let sum = crc32c::crc32c(text.as_bytes());
    let _ = writeln!(text, "{SUM}{sum:08x}");
    let unfinished = dir.join("PINS.unfinished");
    let mut file = std::fs::File::create(&unfinished)?;
    std::io::Write::write_all(&mut file, text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&unfinished, dir.join(NAME))?;
    std::fs::File::open(dir)?.sync_all()
}

impl Cache {
    /// Nothing of this file leaves from now on, what is here and what comes. Durable with [`Cache::keep_pins`].
    pub fn pin(&self, file: FileId) {
        if !self.config.bypass {
            self.space().pin(file);
            self.keep_all(file);
        }
    }

    pub fn is_pinned(&self, file: FileId) -> bool {
        self.space().pins().contains(&file)
    }

    /// Make durable what was pinned and what was evicted since.
    pub fn keep_pins(&self) -> Result<()> {
        // One after the other, so that the last one has the last word.
        let _one = self.pinning.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(pins) = self.space().changed_pins() else { return Ok(()) };
        let saved = save(&self.config.dir, &pins);
        saved.map_err(|e| {
            self.space().pins_are_changed();
            Error::io("write the list of pinned files in", self.config.dir.display(), e)
        })
    }

    /// Bytes that a warm-up can bring here so that all of them are here at its end, besides what is pinned already; `to_pin`:
    /// so that they can be pinned.
    pub fn room_to_warm(&self, to_pin: bool) -> u64 {
        let space = self.space();
        let percent = if to_pin { PINNED_MAX_PERCENT } else { WARM_MAX_PERCENT };
        let by_quota = self.limits.size_max() / 100 * percent;
        let by_disk = space.reachable(self.limits.free_floor());
        by_quota.min(by_disk).saturating_sub(space.pinned_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_are_read_as_they_were_written_and_a_damaged_line_is_one_pin_less() {
        let dir = tempfile::tempdir().expect("temporary directory");
        assert!(load(dir.path()).is_empty());
        let pins: HashSet<_> = (0..5).map(|i| FileId([i * 51; 16])).collect();
        save(dir.path(), &pins).expect("written");
        assert_eq!(load(dir.path()), pins);
        let path = dir.path().join(NAME);
        let mut text = std::fs::read(&path).expect("read");
        let is_told = |bytes: &[u8]| !is_whole(&String::from_utf8_lossy(bytes));
        assert!(!is_told(&text));
        for at in 0..text.len() {
            let mut other = text.clone();
            other[at] ^= 1;
            assert!(is_told(&other) && is_told(&text[..at]), "byte {at}");
        }
        text[3] = b'x';
        text.extend_from_slice(b"\xff\xfe half");
        std::fs::write(&path, text).expect("written");
        assert_eq!(load(dir.path()).len(), 4);
    }
}
