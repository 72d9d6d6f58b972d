//! Small files that outlive a database which is damaged: replaced whole, durably, and refused if a bit of them is not what
//! was written.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

pub struct ChecksummedFile {
    pub name: &'static str,
    /// It begins with this.
    pub magic: [u8; 8],
}

#[derive(Debug, PartialEq, Eq)]
pub enum Read {
    Missing,
    /// It is not what was written, or cannot be read.
    Damaged,
    Bytes(Vec<u8>),
}

impl ChecksummedFile {
    pub fn read(&self, dir: &Path) -> Read {
        match std::fs::read(dir.join(self.name)) {
            Ok(bytes) => self.open(&bytes).map_or(Read::Damaged, |bytes| Read::Bytes(bytes.to_vec())),
            Err(e) if e.kind() == ErrorKind::NotFound => Read::Missing,
            Err(_) => Read::Damaged,
        }
    }

    /// Durably, and whole or not at all.
    pub fn write(&self, dir: &Path, bytes: &[u8]) -> io::Result<()> {
        let (path, unfinished) = (dir.join(self.name), dir.join(format!("{}.unfinished", self.name)));
        let mut options = File::options();
        let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
        file.write_all(&self.close(bytes))?;
        file.sync_all()?;
        std::fs::rename(&unfinished, &path)?;
        File::open(dir)?.sync_all()
    }

    fn close(&self, bytes: &[u8]) -> Vec<u8> {
        let mut all = [&self.magic, bytes].concat();
        let sum = pagefile::checksum(&all);
        all.extend(sum.to_le_bytes());
        all
    }

    fn open<'a>(&self, all: &'a [u8]) -> Option<&'a [u8]> {
        let (bytes, sum) = all.split_last_chunk::<4>()?;
        if pagefile::checksum(bytes).to_le_bytes() != *sum {
            return None;
        }
        bytes.strip_prefix(&self.magic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: ChecksummedFile = ChecksummedFile { name: "FILE", magic: *b"FBAYTEST" };

    #[test]
    fn what_was_written_is_read_and_a_flipped_bit_or_a_cut_is_damage() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(FILE.read(dir.path()), Read::Missing);
        FILE.write(dir.path(), b"first").expect("written");
        FILE.write(dir.path(), b"second").expect("replaced");
        assert_eq!(FILE.read(dir.path()), Read::Bytes(b"second".to_vec()));
        let path = dir.path().join("FILE");
        let whole = std::fs::read(&path).expect("there");
        for bit in 0..whole.len() * 8 {
            let mut other = whole.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            std::fs::write(&path, other).expect("written");
            assert_eq!(FILE.read(dir.path()), Read::Damaged, "bit {bit}");
        }
        for end in 0..whole.len() {
            std::fs::write(&path, &whole[..end]).expect("written");
            assert_eq!(FILE.read(dir.path()), Read::Damaged, "cut to {end}");
        }
    }
}
