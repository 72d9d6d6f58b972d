//! The steps that all ranks take together, one after the other. Pure: who entered what in, what is complete out.
//!
//! All steps are of one form: a rank enters, and goes on when all have entered the same. So no rank is ever more than
//! one step ahead, one round is all there is to remember, and ranks that have gone different ways are noticed at once
//! instead of waiting for each other for ever.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;

use crate::protocol::{Collective, Skew};

/// What all ranks have entered.
#[derive(Debug, PartialEq)]
pub struct Complete {
    pub round: u64,
    pub step: Collective,
    /// Of the ranks, in order.
    pub payloads: Vec<Bytes>,
    /// The longest of the members' round trips, nanoseconds.
    pub round_trip: u64,
}

pub struct CollectiveRounds {
    size: u32,
    round: u64,
    /// The present step, and the rank that entered it first.
    step: Option<(Collective, u32)>,
    entered: BTreeMap<u32, Bytes>,
    round_trip: u64,
    barrier: Option<Awake>,
}

/// The times at which ranks left a barrier, as far as they have said so.
struct Awake {
    round: u64,
    name: String,
    /// By rank: nanoseconds of the fleet's time, and the bound of the error.
    woke: BTreeMap<u32, (u64, u64)>,
}

impl CollectiveRounds {
    pub fn new(size: u32) -> CollectiveRounds {
        CollectiveRounds {
            size,
            round: 0,
            step: None,
            entered: BTreeMap::new(),
            round_trip: 0,
            barrier: None,
        }
    }

    /// A rank enters a step. What is complete by that, or what is wrong with it.
    pub fn enter(
        &mut self,
        rank: u32,
        round: u64,
        step: Collective,
        round_trip: u64,
        payload: Bytes,
    ) -> Result<Option<Complete>, String> {
        if round != self.round {
            return Err(format!("it is in round {round}, the others in round {}", self.round));
        }
        match &self.step {
            None => self.step = Some((step, rank)),
            Some((agreed, _)) if *agreed == step => {}
            Some((agreed, first)) => {
                return Err(format!("it is at {step} while rank {first} is at {agreed}"));
            }
        }
        if rank >= self.size {
            return Err("there is no such rank".into());
        }
        if self.entered.insert(rank, payload).is_some() {
            return Err("it entered a step twice".into());
        }
        self.round_trip = self.round_trip.max(round_trip);
        Ok(if is_all(&self.entered, self.size) { self.complete() } else { None })
    }

    fn complete(&mut self) -> Option<Complete> {
        let (step, _) = self.step.take()?;
        let payloads = std::mem::take(&mut self.entered).into_values().collect();
        let round_trip = std::mem::take(&mut self.round_trip);
        if let Collective::Barrier { name } = &step {
            self.barrier = Some(Awake { round: self.round, name: name.clone(), woke: BTreeMap::new() });
        }
        let complete = Complete { round: self.round, step, payloads, round_trip };
        self.round = self.round.wrapping_add(1);
        Some(complete)
    }

    /// Who has not entered the present step, and which that is: for a message.
    pub fn waiting(&self) -> Option<(&Collective, Vec<u32>)> {
        let (step, _) = self.step.as_ref()?;
        Some((step, (0..self.size).filter(|rank| !self.entered.contains_key(rank)).collect()))
    }

    /// A rank has left a barrier. The skew, when all have.
    pub fn woke(&mut self, rank: u32, round: u64, at: u64, error: u64) -> Option<Skew> {
        let size = self.size;
        let awake = self.barrier.as_mut().filter(|awake| awake.round == round && rank < size)?;
        awake.woke.insert(rank, (at, error));
        let Awake { name, woke, .. } = self.barrier.take_if(|awake| is_all(&awake.woke, size))?;
        let first = woke.values().map(|(at, _)| *at).min()?;
        let (last_rank, (last, _)) = woke.iter().max_by_key(|(_, (at, _))| *at)?;
        // The first and the last may both be wrong, each by its own bound; the two worst are the bound of all pairs.
        let mut errors: Vec<u64> = woke.values().map(|(_, error)| *error).collect();
        errors.sort_unstable_by(|a, b| b.cmp(a));
        let error = errors.iter().take(2).fold(0_u64, |sum, e| sum.saturating_add(*e));
        Some(Skew {
            round,
            name,
            spread: Duration::from_nanos(last - first),
            error_bound: Duration::from_nanos(error),
            last_rank: *last_rank,
        })
    }
}

fn is_all<T>(of_ranks: &BTreeMap<u32, T>, size: u32) -> bool {
    u32::try_from(of_ranks.len()) == Ok(size)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn barrier(name: &str) -> Collective {
        Collective::Barrier { name: name.into() }
    }

    fn enter(
        rounds: &mut CollectiveRounds,
        rank: u32,
        round: u64,
        step: Collective,
    ) -> Result<Option<Complete>, String> {
        rounds.enter(rank, round, step, u64::from(rank), Bytes::from(vec![rank as u8]))
    }

    #[test]
    fn a_step_is_complete_when_the_last_rank_enters_whatever_the_order() {
        let mut rounds = CollectiveRounds::new(3);
        for round in 0..3 {
            assert_eq!(enter(&mut rounds, 2, round, Collective::Gather), Ok(None));
            assert_eq!(enter(&mut rounds, 0, round, Collective::Gather), Ok(None));
            assert_eq!(rounds.waiting(), Some((&Collective::Gather, vec![1])));
            let complete = enter(&mut rounds, 1, round, Collective::Gather).unwrap().unwrap();
            assert_eq!(complete.payloads, [vec![0], vec![1], vec![2]]);
            assert_eq!((complete.round, complete.round_trip), (round, 2));
            assert_eq!(rounds.waiting(), None);
        }
    }

    #[test]
    fn ranks_that_went_different_ways_are_noticed() {
        let mut rounds = CollectiveRounds::new(3);
        enter(&mut rounds, 2, 0, barrier("read")).unwrap();
        let wrong = enter(&mut rounds, 1, 0, barrier("write")).unwrap_err();
        assert_eq!(wrong, "it is at the barrier \"write\" while rank 2 is at the barrier \"read\"");
        assert!(enter(&mut rounds, 0, 1, barrier("read")).is_err());
        assert!(enter(&mut rounds, 2, 0, barrier("read")).is_err());
        assert!(enter(&mut rounds, 3, 0, barrier("read")).is_err());
    }

    #[test]
    fn the_skew_is_from_the_first_to_the_last_with_the_two_worst_errors() {
        let mut rounds = CollectiveRounds::new(3);
        for rank in 0..3 {
            enter(&mut rounds, rank, 0, barrier("go")).unwrap();
        }
        assert_eq!(rounds.woke(1, 0, 1_000_300, 7), None);
        assert_eq!(rounds.woke(0, 0, 1_000_000, 0), None);
        assert_eq!(rounds.woke(0, 5, 0, 0), None, "another round's");
        let skew = rounds.woke(2, 0, 1_000_100, 5).unwrap();
        assert_eq!((skew.spread, skew.error_bound), (Duration::from_nanos(300), Duration::from_nanos(12)));
        assert_eq!((skew.last_rank, skew.name.as_str()), (1, "go"));
        assert_eq!(rounds.woke(2, 0, 1_000_100, 5), None, "told once");
    }
}
