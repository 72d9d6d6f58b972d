//! What is drawn at random, from a seed.

pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        // Neighbouring seeds must not begin alike, and zero would stay zero.
        let mut chance = Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..8 {
            chance.below(2);
        }
        chance
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % bound
    }

    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    pub fn of<'a, T>(&mut self, choice: &'a [T]) -> &'a T {
        &choice[self.below(choice.len() as u64) as usize]
    }

    /// A chance of its own, for somebody who draws beside us.
    pub fn fork(&mut self) -> Chance {
        Chance::new(self.below(1 << 50))
    }
}
