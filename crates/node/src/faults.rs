//! What a cluster is worth while nodes, links, disks and the coordinator fail: seeded runs of real nodes in one process, and proof
//! that the same runs find planted bugs.
//!
//! The cast:
//! - `played_run.rs`: a run. Readers read at all nodes, files change, and faults come and go, all drawn from the seed.
//! - `fault.rs`: the kinds of faults; by what it is seen that one hit something.
//! - `stage.rs`: the cluster of a run; `running_node.rs`: one of its nodes, with caches on disk, certificates and sockets, a membership
//!   over the coordinator's model, and a runtime of its own with which it dies.
//! - `link.rs`: a relay for each pair of nodes; `spoiling.rs`: answers that are wrong where they come from.
//! - `model_store.rs`: the store, and which bytes each version of a file has; `gateway.rs`: a read that is compared with it.
//!
//! What holds in each run: no read fails, for the store can always be read; each has the bytes of one version, which the file had at
//! that time; none takes longer than the cluster needs to notice what is gone. No old version comes back where a newer one lies, no
//! older map into force, nobody who is not in the map gets bytes. When nothing is wrong any more all nodes go by one map, and each file
//! is whole at all nodes that are to keep it.
//!
//! A run's faults and their order follow from its seed, which a run that fails has printed; when each hits follows from the sockets,
//! so a seed is no replay to the bit. `FOREBAY_SEED=n` plays one run (`FOREBAY_RUNS=m`: m times), `FOREBAY_FAULTS=n` so many faults.

mod fault;
mod gateway;
mod link;
mod model_store;
mod played_run;
mod running_node;
mod spoiling;
mod stage;

use tokio::task::JoinSet;

use crate::sabotage::Bug;
use fault::FaultKind;
use played_run::{RunScore, play};

const FAULTS: u64 = 300;
const FAULTS_OF_RUN: usize = 10;
/// Runs at once: they wait most of the time.
const AT_ONCE: usize = 8;
/// Runs in which a planted bug is to be found.
const RUNS_OF_BUG: u64 = 24;

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|value| value.parse().unwrap_or_else(|_| panic!("{name} is no number: {value}")))
}

/// Plays runs with these seeds until one finds something wrong, and tells which one.
async fn play_all(
    plays: impl IntoIterator<Item = (u64, &'static [FaultKind])>,
    bug: Option<Bug>,
) -> Result<RunScore, (u64, String)> {
    let (mut plays, mut score, mut runs) = (plays.into_iter(), RunScore::default(), JoinSet::new());
    loop {
        while runs.len() < AT_ONCE
            && let Some((seed, kinds)) = plays.next()
        {
            runs.spawn(
                async move { play(seed, FAULTS_OF_RUN, kinds, bug).await.map_err(|wrong| (seed, wrong)) },
            );
        }
        match runs.join_next().await {
            None => return Ok(score),
            // The stage broke, which proves nothing.
            Some(played) => score.add(&played.expect("a run ends")?),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn faults_cost_a_cluster_no_wrong_byte_no_error_and_no_absence() {
    let seed = from_environment("FOREBAY_SEED");
    let times = from_environment("FOREBAY_RUNS").unwrap_or(1);
    let seeds = match seed {
        Some(seed) => seed..seed + times,
        None => {
            let first = types::timeline::wall_clock().as_nanos() as u64;
            let faults = from_environment("FOREBAY_FAULTS").unwrap_or(FAULTS);
            first..first + faults.div_ceil(FAULTS_OF_RUN as u64)
        }
    };
    println!("seeds from {}", seeds.start);
    // Of so many faults each kind is drawn some times.
    let is_suite = (seeds.end - seeds.start) * FAULTS_OF_RUN as u64 >= FAULTS;
    let plays = seeds.map(|at| (seed.unwrap_or(at), &FaultKind::ALL[..]));
    let score = play_all(plays, None).await.unwrap_or_else(|(_, wrong)| panic!("{wrong}"));
    println!(
        "{} reads, {} changes, faults that hit something: {:?}",
        score.reads, score.changes, score.faults
    );
    let all: u64 = score.faults.values().map(|(played, _)| played).sum();
    assert!(score.reads > 10 * all && score.changes > all, "little was read while faults lasted");
    for kind in FaultKind::ALL.into_iter().filter(|_| is_suite) {
        let (played, hit) = score.faults.get(&kind).copied().unwrap_or_default();
        assert!(hit > 0, "{kind:?}: {played} times, and it never hit anything");
    }
    assert!(!is_suite || score.hits() * 10 >= all * 9, "{} of {all} faults hit something", score.hits());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn planted_bugs_of_a_cluster_are_found() {
    use FaultKind::*;
    // With the faults in which they can show: the suite has all of them.
    let bugs: [(Bug, &'static [FaultKind]); 10] = [
        (Bug::TrustAnyBytes, &[SpoilAnswers, Kill]),
        (Bug::ServeOtherVersion, &[Kill, LoseAnswers, Drain]),
        (Bug::AskOnAsPrimary, &[DelayMap, Drain]),
        (Bug::TakeOlderMap, &[OldMap, Drain]),
        (Bug::StayInHistory, &[CoordinatorRestored, Kill]),
        (Bug::CopyToWrongPlace, &[Wipe, Kill, Drain]),
        (Bug::CopyOverNewer, &[ReturnWithOldVersion, Kill]),
        (Bug::AnswerStrangers, &[Strangers, Kill]),
        (Bug::BelieveAbsence, &[Drain, DelayMap, Kill]),
        (Bug::WaitForTheGone, &[LoseAnswers, LoseCalls]),
    ];
    let (mut missed, mut found) = (Vec::new(), Vec::new());
    for (bug, kinds) in bugs {
        match play_all((1..=RUNS_OF_BUG).map(|seed| (seed, kinds)), Some(bug)).await {
            Ok(_) => missed.push(bug),
            Err((seed, wrong)) => {
                println!("{bug:?} is found: {}", wrong.lines().next().unwrap_or_default());
                found.push((seed, kinds));
            }
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
    let clean = play_all(found, None).await;
    assert!(clean.is_ok(), "red without a bug: {clean:?}");
}
