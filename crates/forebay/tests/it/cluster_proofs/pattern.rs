//! Bytes of which each part says of which file and from where it is: a file begins somewhere in one long period.

use std::path::Path;

use bytes::Bytes;

/// Odd, and longer than what is read at once: blocks of one file are all different.
const PERIOD: usize = (1 << 20) + 4099;
/// Between the beginnings of two files.
const STEP: usize = 7919;

pub struct Pattern(Vec<u8>);

impl Pattern {
    pub fn new() -> Pattern {
        let byte = |at: usize| ((at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u8;
        Pattern((0..PERIOD).map(byte).collect())
    }

    /// The bytes of a file from `offset` on, up to the end of the period.
    fn from(&self, file: usize, offset: u64) -> &[u8] {
        &self.0[(file * STEP + (offset % PERIOD as u64) as usize) % PERIOD..]
    }

    pub fn is(&self, file: usize, offset: u64, bytes: &[u8]) -> bool {
        let (mut offset, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let expected = self.from(file, offset);
            let length = expected.len().min(rest.len());
            if rest[..length] != expected[..length] {
                return false;
            }
            (offset, rest) = (offset + length as u64, &rest[length..]);
        }
        true
    }

    /// What is wrong with bytes that are not those of the file at `offset`: runs that differ, and whose bytes they are instead.
    pub fn tell(&self, file: usize, offset: u64, bytes: &[u8]) -> String {
        let expected = self.bytes(file, offset, bytes.len());
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for (at, _) in bytes.iter().zip(&expected[..]).enumerate().filter(|(_, (is, should))| is != should) {
            match runs.last_mut() {
                Some((_, end)) if at <= *end + 64 => *end = at + 1,
                _ => runs.push((at, at + 1)),
            }
        }
        let of = |(begin, end): &(usize, usize)| {
            let run = &bytes[*begin..*end];
            let whose = if run.iter().all(|byte| *byte == 0) {
                "zeros".to_owned()
            } else {
                let probe = &run[..run.len().min(64)];
                let found = self.0.windows(probe.len()).position(|place| place == probe);
                let should = (file * STEP + ((offset + *begin as u64) % PERIOD as u64) as usize) % PERIOD;
                format!("those at {found:?} of the period, where {should} should be")
            };
            format!("{begin}..{end}: {whose}")
        };
        let told: Vec<String> = runs.iter().take(9).map(of).collect();
        format!("{} bytes, in {} runs wrong: {}", bytes.len(), runs.len(), told.join("; "))
    }

    pub fn bytes(&self, file: usize, offset: u64, length: usize) -> Bytes {
        let mut bytes = Vec::with_capacity(length);
        while bytes.len() < length {
            let part = self.from(file, offset + bytes.len() as u64);
            bytes.extend_from_slice(&part[..part.len().min(length - bytes.len())]);
        }
        bytes.into()
    }

    pub fn write(&self, file: usize, path: &Path, size: u64) {
        let mut out = std::fs::File::create(path).expect("made");
        let mut at = 0;
        while at < size {
            let part = self.from(file, at);
            let part = &part[..part.len().min((size - at) as usize)];
            std::io::Write::write_all(&mut out, part).expect("written");
            at += part.len() as u64;
        }
    }
}
