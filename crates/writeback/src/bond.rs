//! The bond: a small file on another disk (in the cache directory) that says which journal belongs to that cache, and how
//! far it had come. By it a start tells a journal that is missing, another one, or an older state of itself from an empty
//! one: what was acknowledged may be in the right one alone, and an old one must not be replayed over newer data.
//!
//! It lags behind: written at each open, when a segment begins, and at a clean end. So it says what must at least be there.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use types::{Error, ErrorKind, Result};

use crate::disk::Disk;
use crate::segment::{self, HEADER_BYTES, Header, JournalId, u32_at, u64_at};
use crate::state::{STATE_BYTES, STATE_NAME, State};

const BOND_BYTES: usize = 64;
const MAGIC: [u8; 8] = *b"FBAYBOND";

/// What the cache directory knows of its journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bond {
    pub journal: JournalId,
    /// The journal was closed after this was written; `waiting` is exact then.
    pub clean: bool,
    pub epoch: u64,
    /// This segment is there, or a later one.
    pub segment: u32,
    /// Sequences below this one were given out.
    pub next_sequence: u64,
    /// Entries that were not at their origin.
    pub waiting: u64,
}

impl Bond {
    pub fn encode(&self) -> [u8; BOND_BYTES] {
        let mut bytes = [0; BOND_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..24].copy_from_slice(&self.journal);
        bytes[24..32].copy_from_slice(&self.epoch.to_le_bytes());
        bytes[32] = self.clean.into();
        bytes[36..40].copy_from_slice(&self.segment.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.next_sequence.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.waiting.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// `None`: damaged.
    pub fn decode(bytes: &[u8]) -> Option<Bond> {
        let bytes: &[u8; BOND_BYTES] = bytes.try_into().ok()?;
        if bytes[..8] != MAGIC || crc32c::crc32c(&bytes[..60]) != u32_at(bytes, 60) {
            return None;
        }
        let mut journal = [0; 16];
        journal.copy_from_slice(&bytes[8..24]);
        Some(Bond {
            journal,
            epoch: u64_at(bytes, 24),
            clean: bytes[32] == 1,
            segment: u32_at(bytes, 36),
            next_sequence: u64_at(bytes, 40),
            waiting: u64_at(bytes, 48),
        })
    }

    fn what_waited(&self) -> String {
        match (self.clean, self.waiting) {
            (true, 0) => "nothing waited in it when it was closed".to_owned(),
            (true, count) => format!("{count} acknowledged operations waited in it when it was closed"),
            (false, _) => {
                "it was not closed, and may have acknowledged operations that no origin has".to_owned()
            }
        }
    }
}

/// The file, and what stood in it.
pub struct BondFile {
    path: PathBuf,
    /// `None`: there was none, or it cannot be read.
    pub found: Option<Bond>,
    /// Something was there.
    existed: bool,
    file: Option<File>,
}

/// Is there a journal that belongs to this cache, and that may have what no origin has? For a start that has no use for a
/// journal.
pub fn journal_is_owed(bond: &Path) -> Result<bool> {
    let bond = BondFile::read(bond)?;
    Ok(bond.found.map_or(bond.existed, |bond| !bond.clean || bond.waiting > 0))
}

impl BondFile {
    pub fn read(path: &Path) -> Result<BondFile> {
        let (found, existed) = match std::fs::read(path) {
            Ok(bytes) => (Bond::decode(&bytes), true),
            Err(e) if e.kind() == io::ErrorKind::NotFound => (None, false),
            Err(e) => return Err(Error::io("read which journal belongs to the cache in", path.display(), e)),
        };
        Ok(BondFile { path: path.to_owned(), found, existed, file: None })
    }

    /// Durably, and whole or not at all.
    pub fn replace(&mut self, bond: &Bond) -> Result<()> {
        let unfinished = self.path.with_extension("unfinished");
        let write = || {
            let mut options = File::options();
            let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
            file.write_all(&bond.encode())?;
            file.sync_all()?;
            std::fs::rename(&unfinished, &self.path)?;
            let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
            parent.map_or(Ok(()), |parent| File::open(parent)?.sync_all())?;
            Ok(file)
        };
        let written = write().map_err(|e: io::Error| {
            Error::io("note which journal belongs to the cache in", self.path.display(), e)
        })?;
        (self.file, self.found, self.existed) = (Some(written), Some(*bond), true);
        Ok(())
    }

    /// In place, which needs no room. If it fails, what is noted is older, and still true.
    pub fn update(&self, bond: &Bond, durably: bool) {
        let Some(file) = &self.file else { return };
        let written = file.write_all_at(&bond.encode(), 0);
        if let Err(e) = written.and_then(|()| if durably { file.sync_data() } else { Ok(()) }) {
            tracing::warn!("note how far the journal is in {}: {e}", self.path.display());
        }
    }

    /// Before the journal in `disk` is opened: is it the one of this cache? If it is not, the start is refused; if that
    /// is accepted, what is there is set aside unread, and a new journal begins.
    pub fn check(&self, disk: &dyn Disk, dir: &Path, accepted: bool) -> Result<()> {
        let there = journal_in(disk).map_err(|e| Error::io("open journal", disk.place(), e))?;
        let wrong = match (&self.found, &there) {
            (None, There::Nothing) if self.existed => format!(
                "there is no journal in {}, and {}, which says which one belongs here, cannot be read",
                dir.display(),
                self.path.display()
            ),
            (None, _) => return Ok(()), // of an older version, or the first start
            (Some(bond), There::Nothing) => {
                format!("the journal of this cache is not in {}: {}", dir.display(), bond.what_waited())
            }
            (Some(bond), There::Journal(id)) if *id != bond.journal => format!(
                "the journal in {} is not the one of this cache, but another one, or one that was given up before; of the right \
                 one: {}",
                dir.display(),
                bond.what_waited()
            ),
            // The right one; or one of which the damage will be told.
            (Some(_), There::Journal(_) | There::Damaged) => return Ok(()),
        };
        if !accepted {
            let message = format!(
                "{wrong}; mount its disk or put the directory back, and start again; if it is lost, start once with \
                 --accept-journal-damage: a new journal begins, and what only the old one had is lost"
            );
            return Err(Error::new(ErrorKind::Config, "open journal:", message));
        }
        tracing::warn!("accepted, and a new journal begins: {wrong}");
        match there {
            There::Journal(id) => set_aside(disk, dir, &id),
            There::Nothing | There::Damaged => Ok(()),
        }
    }

    /// What a journal that begins anew must not give out again.
    pub fn sequence_after(&self) -> u64 {
        let given_out = u64::from(crate::SEGMENT_SIZE_MAX) / segment::FRAME_BYTES + 1;
        self.found.map_or(1, |bond| bond.next_sequence.saturating_add(given_out))
    }
}

enum There {
    Nothing,
    Journal(JournalId),
    /// Segments or a state, and none that says whose they are.
    Damaged,
}

fn journal_in(disk: &dyn Disk) -> io::Result<There> {
    let names = disk.list()?;
    let mut seen = false;
    if names.iter().any(|name| name == STATE_NAME) {
        let mut bytes = [0; STATE_BYTES];
        let count = disk.open(STATE_NAME)?.read_at(0, &mut bytes)?;
        if let Some(state) = State::decode(&bytes[..count]) {
            return Ok(There::Journal(state.journal));
        }
        seen = true;
    }
    for name in names.iter().filter(|name| segment::parse_name(name).is_some()) {
        let mut bytes = [0; HEADER_BYTES as usize];
        let count = disk.open(name)?.read_at(0, &mut bytes)?;
        if let Ok(header) = Header::decode(&bytes[..count]) {
            return Ok(There::Journal(header.journal));
        }
        seen = true;
    }
    Ok(if seen { There::Damaged } else { There::Nothing })
}

/// Everything of that journal into a directory beside it, where nobody reads it and an operator finds it.
fn set_aside(disk: &dyn Disk, dir: &Path, id: &JournalId) -> Result<()> {
    let digits: String = id[..4].iter().map(|byte| format!("{byte:02x}")).collect();
    let aside = dir.join(format!("set-aside-{digits}"));
    let fail = |e| Error::io("set the journal aside in", aside.display(), e);
    match std::fs::create_dir(&aside) {
        Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(fail(e)),
        _ => {}
    }
    // The state goes last: until then the directory is still the other journal's.
    let mut names = disk.list().map_err(fail)?;
    names.retain(|name| name != "LOCK" && !dir.join(name).is_dir());
    names.sort_by_key(|name| name == STATE_NAME);
    for name in names {
        std::fs::rename(dir.join(&name), aside.join(&name)).map_err(fail)?;
    }
    tracing::warn!("the other journal is in {} now; nothing reads it", aside.display());
    disk.sync_dir().map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bond_is_believed_to_the_bit() {
        let bond = Bond {
            journal: *b"0123456789abcdef",
            clean: true,
            epoch: 7,
            segment: 9,
            next_sequence: 1 << 33,
            waiting: 12,
        };
        let bytes = bond.encode();
        assert_eq!(Bond::decode(&bytes), Some(bond));
        for bit in 0..bytes.len() * 8 {
            let mut other = bytes;
            other[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Bond::decode(&other), None, "bit {bit}");
        }
        assert_eq!(Bond::decode(&bytes[..63]), None);
    }
}
