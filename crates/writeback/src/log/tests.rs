//! Random histories with power cuts, kills, failed syncs, full disks and rot, against a model; and proof that the
//! same harness finds planted bugs.

mod history;
mod model;

use std::collections::BTreeMap;

use history::{Outcome, play};

use crate::sabotage::Bug;
use crate::step::Step;

#[test]
fn what_was_acknowledged_survives_every_cut() {
    let mut total = Outcome::default();
    for seed in 1..=2_500 {
        match play(seed, None) {
            Ok(outcome) => total.add(&outcome),
            Err(violation) => panic!("seed {seed}: {violation}"),
        }
    }
    println!("seeds 1 to 2500: {total:#?}");
    // The harness would find nothing if these did not happen.
    for step in Step::ALL {
        assert!(total.cuts_at.contains_key(&format!("{step:?}")), "no cut at {step:?}");
    }
    for (what, count) in [
        ("cuts with acknowledged entries", total.cuts_with_acknowledged),
        ("cuts with unacknowledged entries", total.cuts_with_unacknowledged),
        ("entries lost that nobody was promised", total.lost_unacknowledged),
        ("failed syncs", total.failed_syncs),
        ("kills", total.kills),
        ("clean ends", total.clean_ends),
        ("appends refused for lack of room", total.refused_for_room),
        ("segments compacted", total.compacted),
        ("rotten bytes", total.rotten),
    ] {
        assert!(count >= 100, "{what}: {count}");
    }
}

#[test]
fn planted_bugs_are_found() {
    const BUGS: [Bug; 17] = [
        Bug::SkipSync,
        Bug::AcknowledgeBeforeSync,
        Bug::IgnoreFailedSync,
        Bug::SkipSyncDir,
        Bug::SkipSyncDirOnRemove,
        Bug::SkipSyncOnSeal,
        Bug::ReuseSequence,
        Bug::DoneBeforeMove,
        Bug::RemoveBeforeCopy,
        Bug::RemoveOutOfOrder,
        Bug::ShortCrc,
        Bug::KeepVerifier,
        Bug::CutSealed,
        Bug::TrustTail,
        Bug::TrustCache,
        Bug::ForgetDone,
        Bug::StalePosition,
    ];
    let mut found = BTreeMap::new();
    for bug in BUGS {
        let first = (1..=2_500).find_map(|seed| play(seed, Some(bug)).err().map(|what| (seed, what)));
        println!(
            "{bug:?}: {}",
            first.as_ref().map_or("NOT FOUND".into(), |(seed, what)| format!("seed {seed}: {what}"))
        );
        found.insert(format!("{bug:?}"), first);
    }
    let missed: Vec<_> = found.iter().filter(|(_, first)| first.is_none()).map(|(bug, _)| bug).collect();
    println!("planted bugs found: {}/{}", found.len() - missed.len(), found.len());
    assert!(missed.is_empty(), "not found: {missed:?}");
}
