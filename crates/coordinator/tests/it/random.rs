//! Random operations of several nodes at once, some of whose answers are lost, checked against the order that the revisions
//! give: no search is needed, because every outcome names the revision at which it was true.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use coordinator::{
    Coordinator, KeyChange, KeyEntry, KeyWatch, PrefixState, Revision, Swap, SwapAction, SwapOutcome,
    WatchEvent,
};
use relay::SplitMix;
use testkit::etcd::with_etcd;
use types::{ErrorKind, Result};

use crate::stage::{ATTEMPT, EtcdStage, ModelStage, Stage, etcd_client, next, put};

const NODES: u64 = 4;
const KEYS: u64 = 5;

/// One call and what came of it.
struct Call {
    began: u64,
    ended: u64,
    what: Called,
}

enum Called {
    Swap(Swap, Result<SwapOutcome>),
    Read(PrefixState),
    /// A read that was not answered.
    Nothing,
}

impl Call {
    /// At which it took effect, as it says itself.
    fn revision(&self) -> Option<Revision> {
        match &self.what {
            Called::Swap(_, Ok(SwapOutcome::Won(revision))) => Some(*revision),
            Called::Swap(_, Ok(SwapOutcome::Lost(loss))) => Some(loss.revision),
            Called::Swap(_, Err(_)) | Called::Nothing => None,
            Called::Read(state) => Some(state.revision),
        }
    }
}

#[tokio::test]
async fn random_operations_of_several_nodes_have_one_order_in_the_model() {
    for seed in seeds(20) {
        println!("seed {seed}");
        run(ModelStage::new(), seed, 200).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn random_operations_of_several_nodes_have_one_order_in_etcd() {
    let name = "random_operations_of_several_nodes_have_one_order_in_etcd";
    with_etcd(name, 1, async |etcd| {
        let seed = seeds(1)[0];
        println!("seed {seed}");
        run(EtcdStage::new(etcd), seed, 150).await;
    })
    .await;
}

/// `FOREBAY_TEST_SEED` is the one that a failed run has printed.
fn seeds(count: u64) -> Vec<u64> {
    if let Some(seed) = std::env::var("FOREBAY_TEST_SEED").ok().and_then(|seed| seed.parse().ok()) {
        return vec![seed];
    }
    let now = types::timeline::wall_clock().as_nanos() as u64;
    (0..count).map(|n| now.wrapping_add(n)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn random_operations_have_one_order_while_servers_stop_and_die() {
    with_etcd("random_operations_have_one_order_while_servers_stop_and_die", 3, async |mut etcd| {
        let seed = seeds(1)[0];
        println!("seed {seed}");
        let url = etcd.url();
        let observer = etcd_client(&url).await;
        let mut watch = observer.watch("", None);
        let begin = first(&mut watch).await;
        let mut nodes = Vec::new();
        for node in 0..NODES {
            nodes.push((etcd_client(&url).await, format!("{node}")));
        }
        let (clock, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
        let mut tasks = Vec::new();
        for (node, (client, name)) in nodes.into_iter().enumerate() {
            let random = SplitMix::new(seed.wrapping_mul(NODES).wrapping_add(node as u64));
            let ended = ended.clone();
            let until = move |_| ended.load(Ordering::Relaxed);
            tasks.push(tokio::spawn(work(client, random, clock.clone(), name, until)));
        }
        // What is done and not answered is what a fault makes of calls under way.
        let mut random = SplitMix::new(!seed);
        for _ in 0..5 {
            let busy = Duration::from_millis(random.draw() % 400);
            let index = (random.draw() % 3) as usize;
            let leads = random.draw().is_multiple_of(2);
            tokio::time::sleep(busy).await;
            let index = if leads { etcd.leader() } else { index };
            if random.draw().is_multiple_of(2) {
                etcd.kill(index);
                tokio::time::sleep(busy).await;
                etcd.start_again(index);
            } else {
                etcd.stop(index);
                tokio::time::sleep(2 * ATTEMPT).await;
                etcd.go_on(index);
            }
        }
        tokio::time::sleep(ATTEMPT).await;
        ended.store(true, Ordering::Relaxed);
        let mut done = Vec::new();
        for task in tasks {
            done.extend(task.await.expect("it does not panic"));
        }
        // A call of which nobody knows may yet be done.
        tokio::time::sleep(2 * ATTEMPT).await;
        let log = log_of(&*observer, &mut watch).await;
        check(begin, &log, &done);
    })
    .await;
}

async fn first(watch: &mut KeyWatch) -> PrefixState {
    match next(watch).await {
        WatchEvent::Reset { state, .. } => state,
        other => panic!("a watch begins with a reset: {other:?}"),
    }
}

type Log = BTreeMap<Revision, Vec<KeyChange>>;

/// All that the watch has told, up to now.
async fn log_of(observer: &dyn Coordinator, watch: &mut KeyWatch) -> Log {
    let last = put(observer, "last", "v").await;
    let mut log = BTreeMap::new();
    loop {
        match next(watch).await {
            WatchEvent::Changed { revision, .. } if revision == last => return log,
            WatchEvent::Changed { revision, changes } => {
                assert!(log.insert(revision, changes).is_none(), "{revision} is told twice");
            }
            reset => panic!("nothing is compacted here: {reset:?}"),
        }
    }
}

async fn run(stage: impl Stage, seed: u64, calls: u64) {
    let clock = Arc::new(AtomicU64::new(0));
    let observer = stage.client().await;
    let mut watch = observer.watch("", None);
    let begin = first(&mut watch).await;
    let mut nodes = Vec::new();
    for node in 0..NODES {
        let (client, clock) = (stage.client().await, clock.clone());
        let random = SplitMix::new(seed.wrapping_mul(NODES).wrapping_add(node));
        nodes.push(tokio::spawn(work(client, random, clock, format!("{node}"), move |n| n == calls)));
    }
    // Beside them, a few calls whose answers are lost.
    let mut random = SplitMix::new(!seed);
    let mut done = Vec::new();
    for n in 0..4 {
        let lossy = stage.lossy_client().await;
        let mut seen = observer.read("").await.expect("read");
        let call = call(&*lossy, &mut random, &clock, &mut seen, format!("lossy {n}"), true).await;
        stage.lose_no_more();
        done.push(call);
        tokio::task::yield_now().await;
    }
    for node in nodes {
        done.extend(node.await.expect("it does not panic"));
    }
    let log = log_of(&*observer, &mut watch).await;
    check(begin, &log, &done);
}

async fn work(
    client: Arc<dyn Coordinator>,
    mut random: SplitMix,
    clock: Arc<AtomicU64>,
    name: String,
    is_over: impl Fn(u64) -> bool,
) -> Vec<Call> {
    let mut done = Vec::new();
    let mut seen = PrefixState { entries: Vec::new(), revision: Revision(0) };
    for n in 0.. {
        if is_over(n) {
            break;
        }
        let is_swap = !random.draw().is_multiple_of(4);
        done.push(call(&*client, &mut random, &clock, &mut seen, format!("{name} {n}"), is_swap).await);
        // The model answers at once: others take their turn, so that what was seen is old.
        for _ in 0..random.draw() % 4 {
            tokio::task::yield_now().await;
        }
    }
    done
}

/// A read, or a swap that expects what was seen last. `value` is nobody else's.
async fn call(
    client: &dyn Coordinator,
    random: &mut SplitMix,
    clock: &AtomicU64,
    seen: &mut PrefixState,
    value: String,
    is_swap: bool,
) -> Call {
    if !is_swap {
        let began = clock.fetch_add(1, Ordering::SeqCst);
        let read = client.read("").await;
        let ended = clock.fetch_add(1, Ordering::SeqCst);
        let what = match read {
            Ok(state) => {
                seen.clone_from(&state);
                Called::Read(state)
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
                Called::Nothing
            }
        };
        return Call { began, ended, what };
    }
    let mut swap = Swap::new();
    let first = random.draw() % KEYS;
    for n in 0..1 + random.draw() % 3 {
        let key = format!("k{}", (first + n) % KEYS);
        swap = match seen.entries.iter().find(|entry| entry.key == key) {
            Some(entry) if random.draw().is_multiple_of(4) => swap.delete(key, entry.revision),
            Some(entry) => swap.replace(key, entry.revision, value.clone(), None),
            None => swap.create(key, value.clone(), None),
        };
    }
    let began = clock.fetch_add(1, Ordering::SeqCst);
    let outcome = client.swap(&swap).await;
    let ended = clock.fetch_add(1, Ordering::SeqCst);
    match &outcome {
        Ok(SwapOutcome::Won(revision)) => {
            for key in swap.keys() {
                seen.entries.retain(|entry| entry.key != key.key);
                seen.entries.extend(put_by(key, *revision));
            }
        }
        Ok(SwapOutcome::Lost(loss)) => {
            for (key, current) in swap.keys().iter().zip(&loss.current) {
                seen.entries.retain(|entry| entry.key != key.key);
                seen.entries.extend(current.clone());
            }
        }
        Err(_) => {}
    }
    Call { began, ended, what: Called::Swap(swap, outcome) }
}

fn put_by(key: &coordinator::KeySwap, revision: Revision) -> Option<KeyEntry> {
    match &key.action {
        SwapAction::Put { value, lease } => {
            Some(KeyEntry { key: key.key.clone(), value: value.clone(), revision, lease: *lease })
        }
        _ => None,
    }
}

/// What a watch would tell of it.
fn changes_of(swap: &Swap, revision: Revision) -> Vec<KeyChange> {
    let mut changes: Vec<KeyChange> = swap
        .keys()
        .iter()
        .map(|key| match put_by(key, revision) {
            Some(entry) => KeyChange::Put(entry),
            None => KeyChange::Deleted { key: key.key.clone() },
        })
        .collect();
    changes.sort_by(|one, other| one.key().cmp(other.key()));
    changes
}

type Keys = BTreeMap<String, KeyEntry>;

fn check(begin: PrefixState, log: &Log, calls: &[Call]) {
    let mut keys: Keys = begin.entries.into_iter().map(|entry| (entry.key.clone(), entry)).collect();
    let mut states = BTreeMap::from([(begin.revision, keys.clone())]);
    for (revision, changes) in log {
        for change in changes {
            match change {
                KeyChange::Put(entry) => keys.insert(entry.key.clone(), entry.clone()),
                KeyChange::Deleted { key } => keys.remove(key),
            };
        }
        states.insert(*revision, keys.clone());
    }
    let state_at = |revision: Revision| states.range(..=revision).next_back().expect("the first one").1;
    let (mut won, mut lost, mut unknown) = (0, 0, 0);
    let mut unclaimed = log.clone();
    let mut doubtful = Vec::new();
    for call in calls {
        match &call.what {
            Called::Read(state) => {
                assert!(state.entries.iter().eq(state_at(state.revision).values()), "{state:?}");
            }
            Called::Swap(swap, Ok(SwapOutcome::Won(revision))) => {
                won += 1;
                let mut told =
                    unclaimed.remove(revision).unwrap_or_else(|| panic!("{swap:?} won at {revision}"));
                told.sort_by(|one, other| one.key().cmp(other.key()));
                assert_eq!(told, changes_of(swap, *revision));
                assert_met(swap, state_at(Revision(revision.0 - 1)));
            }
            Called::Swap(swap, Ok(SwapOutcome::Lost(loss))) => {
                lost += 1;
                for (key, current) in swap.keys().iter().zip(&loss.current) {
                    assert_eq!(state_at(loss.revision).get(&key.key), current.as_ref(), "{swap:?}");
                }
            }
            Called::Swap(swap, Err(error)) if error.kind() == ErrorKind::OutcomeUnknown => {
                unknown += 1;
                doubtful.push(swap);
            }
            // Nothing was done: if it was, nobody claims it below.
            Called::Swap(_, Err(error)) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
            Called::Nothing => {}
        }
    }
    // Whatever nobody claims was done by a swap of which nobody knows.
    for (revision, mut told) in unclaimed {
        told.sort_by(|one, other| one.key().cmp(other.key()));
        let by = doubtful.iter().position(|swap: &&Swap| changes_of(swap, revision) == told);
        let by = by.unwrap_or_else(|| panic!("nobody did {told:?} at {revision}"));
        let swap = doubtful.swap_remove(by);
        assert_met(swap, state_at(Revision(revision.0 - 1)));
    }
    check_order(calls);
    println!("{won} won, {lost} lost, {unknown} unknown");
    assert!(won > 20 && lost > 5, "{won} won, {lost} lost: nobody was in anybody's way");
}

fn assert_met(swap: &Swap, before: &Keys) {
    for key in swap.keys() {
        let now = before.get(&key.key).map(|entry| entry.revision);
        let expected = match key.expected {
            coordinator::Expected::Absent => None,
            coordinator::Expected::At(revision) => Some(revision),
        };
        assert_eq!(now, expected, "{swap:?}");
    }
}

/// What began after another call had ended is not of an earlier revision.
fn check_order(calls: &[Call]) {
    let mut by_end: Vec<(u64, Revision)> =
        calls.iter().filter_map(|call| Some((call.ended, call.revision()?))).collect();
    by_end.sort_unstable();
    let mut highest = Revision(0);
    for (_, revision) in &mut by_end {
        highest = highest.max(*revision);
        *revision = highest;
    }
    for call in calls {
        let before = by_end.partition_point(|(ended, _)| *ended < call.began);
        let (Some(revision), Some(index)) = (call.revision(), before.checked_sub(1)) else { continue };
        assert!(revision >= by_end[index].1, "{revision} behind {}", by_end[index].1);
    }
}
