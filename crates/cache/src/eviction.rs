//! Who goes first. SIEVE (NSDI '24): new keys enter at the head; a hand walks from the tail and takes the first
//! key that was not visited since it last passed. One pass over much data leaves what is used again in place.

use std::collections::HashMap;
use std::hash::Hash;

/// An order of leaving; knows nothing of bytes or files.
pub trait Policy<K> {
    fn insert(&mut self, key: K);
    /// The key was used again.
    fn visit(&mut self, key: &K);
    fn remove(&mut self, key: &K);
    /// The key that should leave; stays until removed. Asked again, names the next one.
    fn candidate(&mut self) -> Option<K>;
}

pub struct Sieve<K> {
    slots: Vec<Slot<K>>,
    free: Vec<usize>,
    index: HashMap<K, usize>,
    head: Option<usize>,
    tail: Option<usize>,
    hand: Option<usize>,
}

struct Slot<K> {
    key: K,
    visited: bool,
    /// Towards the head: entered later.
    newer: Option<usize>,
    older: Option<usize>,
}

impl<K: Copy + Eq + Hash> Sieve<K> {
    pub fn new() -> Sieve<K> {
        Sieve {
            slots: Vec::new(),
            free: Vec::new(),
            index: HashMap::new(),
            head: None,
            tail: None,
            hand: None,
        }
    }
}

impl<K: Copy + Eq + Hash> Policy<K> for Sieve<K> {
    fn insert(&mut self, key: K) {
        if self.index.contains_key(&key) {
            return;
        }
        let slot = Slot { key, visited: false, newer: None, older: self.head };
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at] = slot;
                at
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        if let Some(head) = self.head {
            self.slots[head].newer = Some(at);
        }
        self.head = Some(at);
        self.tail = self.tail.or(Some(at));
        self.index.insert(key, at);
    }

    fn visit(&mut self, key: &K) {
        if let Some(&at) = self.index.get(key) {
            self.slots[at].visited = true;
        }
    }

    fn remove(&mut self, key: &K) {
        let Some(at) = self.index.remove(key) else { return };
        let (newer, older) = (self.slots[at].newer, self.slots[at].older);
        match newer {
            Some(newer) => self.slots[newer].older = older,
            None => self.head = older,
        }
        match older {
            Some(older) => self.slots[older].newer = newer,
            None => self.tail = newer,
        }
        if self.hand == Some(at) {
            self.hand = newer;
        }
        self.free.push(at);
    }

    fn candidate(&mut self) -> Option<K> {
        // Two rounds clear every mark, so that the third step at the latest finds one.
        for _ in 0..=2 * self.index.len() {
            let at = self.hand.or(self.tail)?;
            self.hand = self.slots[at].newer;
            if !std::mem::take(&mut self.slots[at].visited) {
                return Some(self.slots[at].key);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evict(sieve: &mut Sieve<u32>) -> u32 {
        let key = sieve.candidate().expect("not empty");
        sieve.remove(&key);
        key
    }

    #[test]
    fn one_pass_over_many_keys_leaves_what_is_used_again() {
        let mut sieve = Sieve::new();
        (0..10).for_each(|hot| sieve.insert(hot));
        (0..10).for_each(|hot| sieve.visit(&hot));
        for scanned in 100..1000 {
            sieve.insert(scanned);
            assert!(evict(&mut sieve) >= 100, "a hot key was evicted by a scan");
            (0..10).for_each(|hot| sieve.visit(&hot));
        }
    }

    #[test]
    fn unvisited_keys_leave_in_the_order_in_which_they_came() {
        let mut sieve = Sieve::new();
        (0..4).for_each(|key| sieve.insert(key));
        sieve.visit(&0);
        assert_eq!([1, 2, 3, 0], [(); 4].map(|()| evict(&mut sieve)));
        assert_eq!(sieve.candidate(), None);
    }

    #[test]
    fn removing_anywhere_keeps_the_order_whole() {
        let mut sieve = Sieve::new();
        let mut random = 12345_u32;
        let mut model = std::collections::HashSet::new();
        for _ in 0..10_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let key = (random >> 16) % 64;
            match (random >> 8) % 4 {
                0 | 1 => {
                    sieve.insert(key);
                    model.insert(key);
                }
                2 => {
                    sieve.remove(&key);
                    model.remove(&key);
                }
                _ => sieve.visit(&key),
            }
            assert_eq!(sieve.candidate().is_some(), !model.is_empty());
        }
        while let Some(key) = sieve.candidate() {
            assert!(model.remove(&key), "{key} was not in the cache any more");
            sieve.remove(&key);
        }
        assert!(model.is_empty());
    }
}
