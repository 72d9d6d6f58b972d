//! Who goes first. SIEVE (NSDI '24): new slots enter at the head; a hand walks from the tail and takes the first
//! slot that was not visited since it last passed. One pass over much data leaves what is used again in place.

/// An order of leaving. Knows nothing of bytes or files: the books (`space.rs`) number what they keep, so that an
/// order costs a few bytes for each.
pub trait Policy {
    /// A slot that is not in the order enters it.
    fn insert(&mut self, slot: u32);
    /// The slot was used again.
    fn visit(&mut self, slot: u32);
    fn remove(&mut self, slot: u32);
    /// The slot that should leave; it stays until removed. Asked again, names the next one.
    fn candidate(&mut self) -> Option<u32>;
    /// The candidate gave something and can give more: ask it first the next time.
    fn again(&mut self, slot: u32);
}

/// No slot.
const NONE: u32 = u32::MAX;

pub struct Sieve {
    /// By slot.
    links: Vec<QueueLink>,
    length: usize,
    head: u32,
    tail: u32,
    hand: u32,
}

#[derive(Clone, Copy)]
struct QueueLink {
    /// Towards the head: entered later.
    newer: u32,
    older: u32,
    visited: bool,
    present: bool,
}

const ABSENT: QueueLink = QueueLink { newer: NONE, older: NONE, visited: false, present: false };

impl Sieve {
    pub fn new() -> Sieve {
        Sieve { links: Vec::new(), length: 0, head: NONE, tail: NONE, hand: NONE }
    }

    fn link(&mut self, slot: u32) -> Option<&mut QueueLink> {
        self.links.get_mut(slot as usize).filter(|link| link.present)
    }
}

impl Policy for Sieve {
    fn insert(&mut self, slot: u32) {
        if self.link(slot).is_some() {
            return;
        }
        let at = slot as usize;
        if at >= self.links.len() {
            self.links.resize(at + 1, ABSENT);
        }
        self.links[at] = QueueLink { newer: NONE, older: self.head, visited: false, present: true };
        let head = self.head;
        match self.link(head) {
            Some(head) => head.newer = slot,
            None => self.tail = slot,
        }
        self.head = slot;
        self.length += 1;
    }

    fn visit(&mut self, slot: u32) {
        if let Some(link) = self.link(slot) {
            link.visited = true;
        }
    }

    fn remove(&mut self, slot: u32) {
        let Some(link) = self.link(slot) else { return };
        let QueueLink { newer, older, .. } = std::mem::replace(link, ABSENT);
        match self.link(newer) {
            Some(newer) => newer.older = older,
            None => self.head = older,
        }
        match self.link(older) {
            Some(older) => older.newer = newer,
            None => self.tail = newer,
        }
        if self.hand == slot {
            self.hand = newer;
        }
        self.length -= 1;
    }

    fn candidate(&mut self) -> Option<u32> {
        // The first round at most clears every mark, the second finds one without.
        for _ in 0..=self.length {
            let at = if self.hand == NONE { self.tail } else { self.hand };
            let link = self.link(at)?;
            let (newer, visited) = (link.newer, std::mem::take(&mut link.visited));
            self.hand = newer;
            if !visited {
                return Some(at);
            }
        }
        None
    }

    fn again(&mut self, slot: u32) {
        if self.link(slot).is_some() {
            self.hand = slot;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evict(sieve: &mut Sieve) -> u32 {
        let slot = sieve.candidate().expect("not empty");
        sieve.remove(slot);
        slot
    }

    #[test]
    fn one_pass_over_many_slots_leaves_what_is_used_again() {
        let mut sieve = Sieve::new();
        (0..10).for_each(|hot| sieve.insert(hot));
        (0..10).for_each(|hot| sieve.visit(hot));
        for scanned in 100..1000 {
            sieve.insert(scanned);
            assert!(evict(&mut sieve) >= 100, "a hot slot was evicted by a scan");
            (0..10).for_each(|hot| sieve.visit(hot));
        }
    }

    #[test]
    fn unvisited_slots_leave_in_the_order_in_which_they_came() {
        let mut sieve = Sieve::new();
        (0..4).for_each(|slot| sieve.insert(slot));
        sieve.visit(0);
        assert_eq!([1, 2, 3, 0], [(); 4].map(|()| evict(&mut sieve)));
        assert_eq!(sieve.candidate(), None);
    }

    #[test]
    fn a_candidate_that_can_give_more_is_asked_again_unless_it_was_used() {
        let mut sieve = Sieve::new();
        (0..4).for_each(|slot| sieve.insert(slot));
        assert_eq!(sieve.candidate(), Some(0));
        sieve.again(0);
        assert_eq!(sieve.candidate(), Some(0));
        sieve.again(0);
        sieve.visit(0);
        assert_eq!(sieve.candidate(), Some(1));
        assert_eq!(sieve.candidate(), Some(2));
    }

    #[test]
    fn removing_anywhere_keeps_the_order_whole() {
        let mut sieve = Sieve::new();
        let mut random = 12345_u32;
        let mut model = std::collections::HashSet::new();
        for _ in 0..10_000 {
            random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let slot = (random >> 16) % 64;
            match (random >> 8) % 5 {
                0 | 1 => {
                    sieve.insert(slot);
                    model.insert(slot);
                }
                2 => {
                    sieve.remove(slot);
                    model.remove(&slot);
                }
                3 => sieve.again(slot),
                _ => sieve.visit(slot),
            }
            assert_eq!(sieve.candidate().is_some(), !model.is_empty());
            assert_eq!(sieve.length, model.len());
        }
        while let Some(slot) = sieve.candidate() {
            assert!(model.remove(&slot), "{slot} was not in the cache any more");
            sieve.remove(slot);
        }
        assert!(model.is_empty());
    }
}
