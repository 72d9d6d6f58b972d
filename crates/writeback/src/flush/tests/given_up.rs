//! Operations that an operator gives up, and crashes while he does: what is left of them makes sense, and all else stays.

use std::collections::{BTreeMap, BTreeSet};

use super::world::{World, tell};
use crate::conflict::ConflictPolicy;
use crate::sabotage::{Bug, Sabotage};

#[derive(Default, Debug)]
struct GivenUpSeen {
    given_up: u64,
    /// Crashes after which some of the operations were gone and some were not.
    torn: u64,
}

fn play(seed: u64, bug: Option<Bug>) -> Result<GivenUpSeen, String> {
    let mut world = World::new(seed, Sabotage(bug), ConflictPolicy::KeepBoth);
    let mut seen = GivenUpSeen::default();
    for step in 0..20 + world.random.below(60) {
        world.operate(step);
        if world.random.below(8) == 0 {
            world.flush_steps(10);
        }
    }
    world.finish_units();
    let waiting: BTreeMap<u64, Vec<u64>> = world.left().into_iter().collect();
    if waiting.is_empty() {
        return Ok(seen);
    }
    let first = *waiting.keys().nth(world.random.below(waiting.len() as u64) as usize).expect("there is one");
    let chosen = world.with_dependents(&[first]);
    let is_cut_short = world.random.below(4) > 0;
    world.give_up(&chosen, is_cut_short);
    tell(|| format!("given up {chosen:?}, cut short: {is_cut_short}"));
    seen.given_up += 1;
    world.cut_power();
    let left: BTreeSet<u64> = world.left().into_iter().map(|(sequence, _)| sequence).collect();
    if let Some(gone) = waiting.keys().find(|it| !chosen.contains(it) && !left.contains(it)) {
        return Err(format!("{gone} was not given up and is gone"));
    }
    let back: Vec<u64> = chosen.intersection(&left).copied().collect();
    if !is_cut_short && !back.is_empty() {
        return Err(format!("{back:?} were given up for good and are back"));
    }
    seen.torn += u64::from(!back.is_empty() && back.len() < chosen.len());
    for sequence in &back {
        let missing = waiting[sequence].iter().find(|it| chosen.contains(it) && !left.contains(it));
        if let Some(missing) = missing {
            return Err(format!("{sequence} is back without {missing}, which it was done to"));
        }
    }
    world.flush_all()?;
    Ok(seen)
}

#[test]
fn a_crash_while_operations_are_given_up_leaves_none_without_what_it_was_done_to() {
    let (mut all, mut wrong) = (GivenUpSeen::default(), Vec::new());
    for seed in super::seeds(150) {
        match play(seed, None) {
            Ok(seen) => {
                all.given_up += seen.given_up;
                all.torn += seen.torn;
            }
            Err(what) => wrong.push(format!("seed {seed}: {what}")),
        }
    }
    assert!(wrong.is_empty(), "{} of them:\n{}", wrong.len(), wrong.join("\n"));
    println!("seeds {:?}: {all:?}", super::seeds(150));
    assert!(all.given_up > 0 && all.torn > 0, "{all:?}");
}

#[test]
fn giving_up_from_the_first_to_the_last_is_found() {
    let found = super::seeds(150).find(|seed| play(*seed, Some(Bug::GiveUpForwards)).is_err());
    assert!(found.is_some(), "planted and not found");
}
