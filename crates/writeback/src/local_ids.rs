//! File ids of what the origin does not have yet.

use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};

use types::{CreateVerifier, Error, FileId, JunctionId, Result};

use crate::sabotage::{Bug, Sabotage};

/// Gives out ids that no object had before: 128 bits of a hash over what was drawn at the start and a counter.
pub struct LocalIds {
    drawn: [u8; 16],
    given: AtomicU64,
}

impl LocalIds {
    pub fn new() -> Result<LocalIds> {
        let mut drawn = [0; 16];
        let source = "/dev/urandom";
        let read = std::fs::File::open(source).and_then(|mut file| file.read_exact(&mut drawn));
        read.map_err(|e| Error::io("read", source, e))?;
        Ok(LocalIds::from_drawn(drawn, Sabotage::default()))
    }

    pub(crate) fn from_drawn(drawn: [u8; 16], sabotage: Sabotage) -> LocalIds {
        let drawn = if sabotage.is(Bug::ReuseLocalId) { [0; 16] } else { drawn };
        LocalIds { drawn, given: AtomicU64::new(0) }
    }

    pub fn give(&self, junction: JunctionId) -> FileId {
        let count = self.given.fetch_add(1, Ordering::Relaxed);
        let identity = [&b"made here"[..], &self.drawn[..], &count.to_le_bytes()].concat();
        FileId::made_here(junction, &identity)
    }
}

/// With it the origin knows the repeated creation of this very file.
pub fn verifier_of(id: FileId) -> CreateVerifier {
    let [a, b, c, d, e, f, g, h, ..] = id.0;
    [a, b, c, d, e, f, g, h]
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_id_is_given_twice_by_this_start_or_another() {
        let (first, second) = (LocalIds::new().unwrap(), LocalIds::new().unwrap());
        let mut ids = HashSet::new();
        let mut verifiers = HashSet::new();
        for _ in 0..1000 {
            for id in [first.give(JunctionId(1)), first.give(JunctionId(2)), second.give(JunctionId(1))] {
                assert!(ids.insert(id));
                assert!(verifiers.insert(verifier_of(id)));
            }
        }
    }
}
