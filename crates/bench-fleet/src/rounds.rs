//! The steps that all ranks take together, one after the other. Pure: who entered what in, what is complete out.
//!
//! All steps are of one form: a rank enters, and goes on when all have entered the same. So no rank is ever more than
//! one step ahead, one round is all there is to remember, and ranks that have gone different ways are noticed at once
//! instead of waiting for each other for ever.

use std::collections::BTreeMap;

use bytes::Bytes;

use crate::protocol::Collective;

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
}

impl CollectiveRounds {
    pub fn new(size: u32) -> CollectiveRounds {
        CollectiveRounds { size, round: 0, step: None, entered: BTreeMap::new(), round_trip: 0 }
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
        let all_are_in = u32::try_from(self.entered.len()) == Ok(self.size);
        Ok(if all_are_in { self.complete() } else { None })
    }

    fn complete(&mut self) -> Option<Complete> {
        let (step, _) = self.step.take()?;
        let payloads = std::mem::take(&mut self.entered).into_values().collect();
        let round_trip = std::mem::take(&mut self.round_trip);
        let complete = Complete { round: self.round, step, payloads, round_trip };
        self.round = self.round.wrapping_add(1);
        Some(complete)
    }

    /// The step that some have entered and others have not: for a message.
    pub fn waiting(&self) -> Option<&Collective> {
        self.step.as_ref().map(|(step, _)| step)
    }
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
            assert_eq!(rounds.waiting(), Some(&Collective::Gather));
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
}
