//! The file COVERED: which segment is the oldest, and how far into which one a sync was last seen to succeed.
//!
//! Written in place after each commit and not synced then, so it costs a copy into the kernel's memory. A killed process
//! leaves it exact; a power cut leaves an older one, which is true as well: it is synced before a segment leaves. By it a
//! start tells bytes that rotted after they were acknowledged from a tail that a crash tore, and a segment that somebody
//! removed from one that had left. Lost or damaged, it says nothing.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::disk::{Disk, DiskFile};
use crate::segment::{JournalId, u32_at};

pub const COVERED_NAME: &str = "COVERED";
const COVERED_BYTES: usize = 40;
const SUMMED: usize = COVERED_BYTES - 4;
const MAGIC: [u8; 8] = *b"FBAYCOVR";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Covered {
    pub journal: JournalId,
    /// This segment is there, and those behind it.
    pub oldest: u32,
    pub segment: u32,
    /// The segment is durable up to here.
    pub end: u32,
}

impl Covered {
    fn encode(&self) -> [u8; COVERED_BYTES] {
        let mut bytes = [0; COVERED_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..24].copy_from_slice(&self.journal);
        bytes[24..28].copy_from_slice(&self.oldest.to_le_bytes());
        bytes[28..32].copy_from_slice(&self.segment.to_le_bytes());
        bytes[32..SUMMED].copy_from_slice(&self.end.to_le_bytes());
        let crc = crc32c::crc32c(&bytes[..SUMMED]);
        bytes[SUMMED..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Covered> {
        let bytes: &[u8; COVERED_BYTES] = bytes.try_into().ok()?;
        if bytes[..8] != MAGIC || crc32c::crc32c(&bytes[..SUMMED]) != u32_at(bytes, SUMMED) {
            return None;
        }
        let mut journal = [0; 16];
        journal.copy_from_slice(&bytes[8..24]);
        Some(Covered {
            journal,
            oldest: u32_at(bytes, 24),
            segment: u32_at(bytes, 28),
            end: u32_at(bytes, 32),
        })
    }

    /// What is known of this journal.
    pub fn read(disk: &dyn Disk, names: &[String], journal: &JournalId) -> io::Result<Option<Covered>> {
        if !names.iter().any(|name| name == COVERED_NAME) {
            return Ok(None);
        }
        let mut bytes = [0; COVERED_BYTES + 1];
        let count = disk.open(COVERED_NAME)?.read_at(0, &mut bytes)?;
        Ok(Covered::decode(&bytes[..count]).filter(|covered| covered.journal == *journal))
    }
}

/// The file, while the journal is open.
#[derive(Default)]
pub struct CoveredFile(Mutex<Option<Noted>>);

struct Noted {
    file: Arc<dyn DiskFile>,
    covered: Covered,
}

impl CoveredFile {
    fn noted(&self) -> MutexGuard<'_, Option<Noted>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on it is kept. What stood in it is noted elsewhere by then. Where it cannot be written, there is none.
    pub fn begin(&self, disk: &dyn Disk, covered: Covered) {
        let made = disk.create(COVERED_NAME, COVERED_BYTES as u64).and_then(|file| {
            file.write_at(0, &[&covered.encode()])?;
            Ok(Noted { file, covered })
        });
        let made = made.inspect_err(|e| {
            tracing::info!("how far the journal in {} is synced is not noted: {e}", disk.place());
            let _ = disk.remove(COVERED_NAME);
        });
        *self.noted() = made.ok();
    }

    /// A sync was seen to succeed. What stands in the file stays true if this fails.
    pub fn note(&self, segment: u32, end: u32) {
        let mut noted = self.noted();
        let Some(known) = noted.as_mut() else { return };
        if (segment, end) > (known.covered.segment, known.covered.end) {
            known.covered = Covered { segment, end, ..known.covered };
            let _ = known.file.write_at(0, &[&known.covered.encode()]);
        }
    }

    /// Before the segments below this one leave: nobody is to miss them.
    pub fn leave(&self, disk: &dyn Disk, oldest: u32) -> io::Result<()> {
        let mut noted = self.noted();
        let Some(known) = noted.as_mut() else { return Ok(()) };
        known.covered.oldest = known.covered.oldest.max(oldest);
        if known.file.write_at(0, &[&known.covered.encode()]).and_then(|()| known.file.sync()).is_err() {
            *noted = None;
            disk.remove(COVERED_NAME)?;
            disk.sync_dir()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_covered_is_believed_to_the_bit() {
        let covered = Covered { journal: *b"0123456789abcdef", oldest: 3, segment: 7, end: 4096 };
        let bytes = covered.encode();
        assert_eq!(Covered::decode(&bytes), Some(covered));
        for bit in 0..bytes.len() * 8 {
            let mut other = bytes;
            other[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Covered::decode(&other), None, "bit {bit}");
        }
        assert_eq!(Covered::decode(&bytes[..COVERED_BYTES - 1]), None);
    }
}
