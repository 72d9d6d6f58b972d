//! Changes of the same name or object one after the other, from the look at what is there to the entry in the journal.
//!
//! Stripes: two that share one wait for each other for the length of an append. Names are locked before objects, and
//! each once and in order, so that nobody waits in a circle.

use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;
use tokio::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use types::{FileId, Name};

const STRIPES: usize = 4096;

pub struct Locks {
    names: Vec<Mutex<()>>,
    objects: Vec<RwLock<()>>,
}

/// Let go when it is dropped.
pub enum StripeGuard<'a> {
    Name { _guard: MutexGuard<'a, ()> },
    Together { _guard: RwLockReadGuard<'a, ()> },
    Alone { _guard: RwLockWriteGuard<'a, ()> },
}

impl Locks {
    pub fn new() -> Locks {
        Locks {
            names: (0..STRIPES).map(|_| Mutex::default()).collect(),
            objects: (0..STRIPES).map(|_| RwLock::default()).collect(),
        }
    }

    pub async fn names(&self, places: &[(FileId, &Name)]) -> Vec<StripeGuard<'_>> {
        let mut stripes: Vec<_> = places.iter().map(|(dir, name)| stripe(*dir, name.as_bytes())).collect();
        stripes.sort_unstable();
        stripes.dedup();
        let mut held = Vec::with_capacity(stripes.len());
        for stripe in stripes {
            held.push(StripeGuard::Name { _guard: self.names[stripe].lock().await });
        }
        held
    }

    /// `together`: directories whose names change, which others may do as well. After the names.
    pub async fn objects(&self, together: &[FileId], alone: &[FileId]) -> Vec<StripeGuard<'_>> {
        let alone = alone.iter().map(|id| (stripe(*id, b""), false));
        let together = together.iter().map(|id| (stripe(*id, b""), true));
        let mut stripes: Vec<(usize, bool)> = alone.chain(together).collect();
        // Of one stripe the stronger wish comes first, and is the one that stays.
        stripes.sort_unstable();
        stripes.dedup_by_key(|(stripe, _)| *stripe);
        let mut held = Vec::with_capacity(stripes.len());
        for (stripe, together) in stripes {
            let lock = &self.objects[stripe];
            held.push(match together {
                true => StripeGuard::Together { _guard: lock.read().await },
                false => StripeGuard::Alone { _guard: lock.write().await },
            });
        }
        held
    }
}

fn stripe(id: FileId, name: &[u8]) -> usize {
    let mut hasher = SipHasher13::new();
    hasher.write(&id.0);
    hasher.write(name);
    usize::try_from(hasher.finish() % STRIPES as u64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn id(n: u8) -> FileId {
        FileId([n; 16])
    }

    #[tokio::test]
    async fn an_object_that_is_wanted_in_both_ways_is_held_alone() {
        let locks = Locks::new();
        let held = locks.objects(&[id(1), id(2)], &[id(1)]).await;
        assert_eq!(held.len(), 2);
        let other = tokio::time::timeout(Duration::from_millis(20), locks.objects(&[id(1)], &[])).await;
        assert!(other.is_err());
        drop(locks.objects(&[id(2)], &[]).await);
        drop(held);
        drop(locks.objects(&[id(1)], &[]).await);
    }

    #[tokio::test]
    async fn a_name_given_twice_is_locked_once() {
        let locks = Locks::new();
        let name = Name::new("x").unwrap();
        assert_eq!(locks.names(&[(id(1), &name), (id(1), &name)]).await.len(), 1);
    }
}
