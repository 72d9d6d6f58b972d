//! What all operations that are not flushed do to one object's attributes together, known without looking at each: a file
//! may have tens of thousands of them, and a directory one for each name.

use std::collections::BTreeMap;

use super::alteration::Alteration;

#[derive(Default)]
pub struct ObjectAlterations {
    /// By sequence.
    each: BTreeMap<u64, Alteration>,
    all: Alteration,
    /// `all` is of more than there is.
    stale: bool,
}

impl ObjectAlterations {
    pub fn is_empty(&self) -> bool {
        self.each.is_empty()
    }

    /// After a removal to be asked for when that is settled.
    pub fn all(&self) -> &Alteration {
        debug_assert!(!self.stale);
        &self.all
    }

    pub fn add(&mut self, sequence: u64, alteration: &Alteration) {
        let is_last = self.each.last_key_value().is_none_or(|(last, _)| *last <= sequence);
        self.each.entry(sequence).or_default().join(alteration);
        if is_last {
            self.all.join(alteration);
        } else {
            self.sum_up();
        }
    }

    pub fn remove(&mut self, sequence: u64) -> Option<Alteration> {
        let removed = self.each.remove(&sequence)?;
        if removed.links_by != 0 {
            // It went ahead of these, which saw the names without it.
            let before = self.each.range_mut(..sequence).filter_map(|(_, it)| it.links.as_mut());
            for links in before {
                *links = links.saturating_add_signed(removed.links_by);
                self.stale = true;
            }
        }
        match self.each.last_key_value() {
            // Writes to a file, names in a directory.
            Some((last, alteration)) if *last > sequence && alteration.covers(&removed) => {
                self.all.subdirs -= removed.subdirs;
                self.all.links_by -= removed.links_by;
            }
            _ => self.stale = true,
        }
        Some(removed)
    }

    /// Once for all that was removed together.
    pub fn settle(&mut self) {
        if self.stale {
            self.sum_up();
        }
    }

    fn sum_up(&mut self) {
        self.stale = false;
        self.all = Alteration::default();
        self.each.values().for_each(|alteration| self.all.join(alteration));
    }
}

#[cfg(test)]
mod tests {
    use types::Timestamp;

    use super::*;
    use crate::operation::Attributes;
    use crate::random::TestRandom;

    fn some(random: &mut TestRandom) -> Alteration {
        let now = Timestamp { seconds: random.below(1000) as i64, nanos: 0 };
        let mode = |random: &mut TestRandom| Attributes {
            mode: Some(random.below(512) as u32),
            ..Attributes::default()
        };
        match random.below(6) {
            0 => Alteration::set(mode(random), now),
            1 => Alteration::links(random.below(5) as u32, random.below(3) as i32 - 1, now),
            2 => Alteration { subdirs: 1, ..Alteration::written(now) },
            3 => Alteration { subdirs: -1, ..Alteration::written(now) },
            _ => Alteration::written(now),
        }
    }

    #[test]
    fn all_is_what_each_adds_up_to() {
        let mut random = TestRandom(5);
        for _ in 0..200 {
            let mut changes = ObjectAlterations::default();
            for n in 0..60 {
                let sequence = if random.below(9) == 0 { random.below(60) } else { n };
                if random.below(2) == 0 {
                    changes.add(sequence, &some(&mut random));
                } else {
                    changes.remove(random.below(n + 1));
                    if random.below(2) == 0 {
                        continue;
                    }
                    changes.settle();
                }
                let mut all = Alteration::default();
                changes.each.values().for_each(|alteration| all.join(alteration));
                changes.settle();
                assert_eq!(*changes.all(), all);
            }
        }
    }
}
