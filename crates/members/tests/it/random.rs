//! Random histories of nodes that start, stop, die, are drained and forgotten, of stewards and junctions, some of whose answers are
//! lost, against a model that is a few maps.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster::NodeState;
use coordinator::model::{LostAnswer, ModelClient, ModelEtcd};
use coordinator::{Coordinator, KeyWatch, Lease, SwapOutcome};
use members::{
    ClusterRoll, Incarnation, JoinApplicant, JunctionProfile, KnownJunction, KnownJunctions, NewCluster,
    NextStep, NodeChange, NodeProfile, OutReason, Steward, StewardSeat, assign, change_node, init, register,
    remove_junction, settle,
};
use relay::SplitMix;
use types::{ErrorKind, JunctionId, NodeId, Result};

use crate::stage::{WIRE, junction, profile};

const NODES: u64 = 4;
const NAMES: u64 = 5;
const PATHS: u64 = 4;
const LEASE: Duration = Duration::from_secs(2);
const DOWN_AFTER: Duration = Duration::from_secs(60);
const PATIENCE: Duration = Duration::from_secs(5);

/// A node's process, or the lack of one.
struct RandomNode {
    id: NodeId,
    client: ModelClient,
    profile: NodeProfile,
    incarnation: Incarnation,
    lease: Option<Lease>,
    steward: Steward,
    known: KnownJunctions,
}

/// What should be there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Expectation {
    nodes: BTreeMap<NodeId, (String, NodeState, Option<OutReason>)>,
    alive: BTreeMap<NodeId, Incarnation>,
    steward: Option<NodeId>,
    junctions: BTreeMap<JunctionId, String>,
    /// All that were ever given out, and for which path.
    given: BTreeMap<JunctionId, String>,
}

impl Expectation {
    fn of(roll: &ClusterRoll, given: BTreeMap<JunctionId, String>) -> Expectation {
        assert_eq!(roll.bad_records(), []);
        let node = |id| roll.node(id).map(|node| (node.name.clone(), node.state, node.out_reason));
        let steward = roll.steward.as_ref().and_then(|kept| kept.good());
        let alive = roll.alive.iter().filter_map(|(id, kept)| Some((*id, kept.good()?.incarnation)));
        let junctions = roll.junctions.iter().filter_map(|(id, kept)| Some((*id, kept.good()?.path.clone())));
        Expectation {
            nodes: roll.nodes.keys().filter_map(|id| Some((*id, node(*id)?))).collect(),
            alive: alive.collect(),
            steward: steward.and_then(|steward| steward.node.parse().ok()),
            junctions: junctions.collect(),
            given,
        }
    }

    fn named(&self, name: &str) -> Option<NodeId> {
        self.nodes.iter().find(|(_, (held, ..))| held == name).map(|(id, _)| *id)
    }

    fn change(&mut self, name: &str, change: NodeChange) -> std::result::Result<(), ErrorKind> {
        let id = self.named(name).ok_or(ErrorKind::NotFound)?;
        let is_alive = self.alive.contains_key(&id);
        let (_, state, why) = self.nodes.get_mut(&id).ok_or(ErrorKind::NotFound)?;
        let changed = match (change, *state) {
            (NodeChange::Forget, _) if is_alive => return Err(ErrorKind::Busy),
            (NodeChange::Forget, _) => {
                self.nodes.remove(&id);
                return Ok(());
            }
            (NodeChange::Leave, _) => (NodeState::Out, Some(OutReason::Left)),
            (_, NodeState::Out) => return Err(ErrorKind::InvalidArgument),
            (NodeChange::Drain, _) => (NodeState::Draining, None),
            (NodeChange::Undrain, _) => (NodeState::Up, None),
        };
        (*state, *why) = changed;
        Ok(())
    }
}

struct History {
    etcd: ModelEtcd,
    operator: ModelClient,
    nodes: Vec<RandomNode>,
    random: SplitMix,
    expected: Expectation,
    watch: KeyWatch,
    watched: ClusterRoll,
    now: Duration,
    /// Of maps, by their numbers.
    maps: BTreeMap<u64, String>,
    lost: u64,
}

#[tokio::test(start_paused = true)]
async fn random_histories_are_as_the_model_says() {
    let mut lost = 0;
    for seed in seeds(60) {
        println!("seed {seed}");
        let mut history = History::begin(seed).await;
        for _ in 0..150 {
            history.step().await;
            history.look().await;
        }
        lost += history.lost;
    }
    assert!(lost > 0, "no answer was lost");
}

/// `FOREBAY_TEST_SEED` is the one that a failed run has printed.
pub fn seeds(count: u64) -> Vec<u64> {
    if let Some(seed) = std::env::var("FOREBAY_TEST_SEED").ok().and_then(|seed| seed.parse().ok()) {
        return vec![seed];
    }
    let now = types::timeline::wall_clock().as_nanos() as u64;
    (0..count).map(|n| now.wrapping_add(n)).collect()
}

impl History {
    async fn begin(seed: u64) -> History {
        let etcd = ModelEtcd::new();
        let operator = etcd.client();
        init(&operator, WIRE, &NewCluster::draw().expect("drawn")).await.expect("a new cluster");
        let node = |n| RandomNode {
            id: NodeId(0xa0 + n),
            client: etcd.client(),
            profile: profile("n0"),
            incarnation: Incarnation(0),
            lease: None,
            steward: Steward::new(DOWN_AFTER),
            known: KnownJunctions::default(),
        };
        let nodes = (0..NODES).map(node).collect();
        let watch = operator.watch("", None);
        History {
            etcd,
            operator,
            nodes,
            random: SplitMix::new(seed),
            expected: Expectation::default(),
            watch,
            watched: ClusterRoll::default(),
            now: Duration::ZERO,
            maps: BTreeMap::new(),
            lost: 0,
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random.draw() % below
    }

    /// One swap in three has no answer.
    fn lose_some(&mut self, node: Option<usize>) {
        let hows = [LostAnswer::ReadBack, LostAnswer::Tried, LostAnswer::NeverSent];
        let Some(how) = hows.get(self.draw(9) as usize) else { return };
        let client = node.map_or(&self.operator, |index| &self.nodes[index].client);
        client.lose_next_answer(*how);
        self.lost += 1;
    }

    async fn step(&mut self) {
        let index = self.draw(NODES) as usize;
        let is_running = self.nodes[index].lease.is_some();
        match self.draw(12) {
            0..=2 if !is_running => self.start(index).await,
            3 if is_running => {
                let lease = self.nodes[index].lease.take().expect("it runs");
                lease.revoke().await.expect("etcd answers");
                self.is_gone(self.nodes[index].id);
            }
            // It dies, and its sign of life lasts for a while.
            4 if is_running => self.nodes[index].lease = None,
            5 => {
                self.etcd.advance(LEASE + Duration::from_secs(1));
                let dead = self.nodes.iter().filter(|node| node.lease.is_none()).map(|node| node.id);
                dead.collect::<Vec<_>>().into_iter().for_each(|id| self.is_gone(id));
            }
            6..=8 => {
                let name = format!("n{}", self.draw(NAMES));
                let changes = [NodeChange::Drain, NodeChange::Undrain, NodeChange::Leave, NodeChange::Forget];
                let change = changes[self.draw(4) as usize];
                self.lose_some(None);
                let done = change_node(&self.operator, &name, change).await;
                let expected = self.expected.change(&name, change);
                assert_eq!(done.map(drop).map_err(|error| error.kind()), expected, "{change:?} {name}");
            }
            9 if is_running => self.steward(index).await,
            10 if is_running => self.assign(index).await,
            11 => {
                let id = JunctionId(1 + self.draw(6) as u32);
                self.lose_some(None);
                let done = remove_junction(&self.operator, id).await;
                let expected = self.expected.junctions.remove(&id).map(drop).ok_or(ErrorKind::NotFound);
                assert_eq!(done.map_err(|error| error.kind()), expected);
            }
            _ => {}
        }
    }

    fn is_gone(&mut self, id: NodeId) {
        self.expected.alive.remove(&id);
        self.expected.steward.take_if(|steward| *steward == id);
    }

    async fn start(&mut self, index: usize) {
        let name = format!("n{}", self.draw(NAMES));
        let incarnation = Incarnation(self.random.draw());
        self.lose_some(Some(index));
        let node = &mut self.nodes[index];
        (node.profile, node.incarnation) = (profile(&name), incarnation);
        let lease = node.client.grant(LEASE).await.expect("etcd answers");
        let nothing = BTreeMap::new();
        let applicant = JoinApplicant {
            id: node.id,
            incarnation,
            profile: &node.profile,
            cluster: None,
            lease: lease.id(),
            has_joined: false,
            before: None,
            differs: &nothing,
        };
        let joined = settle(&node.client, PATIENCE, |roll| register(roll, &applicant, incarnation.0)).await;
        let id = node.id;
        let expected = match self.expected.named(&name) {
            Some(other) if other != id => Err(ErrorKind::Exists),
            _ if self.expected.alive.contains_key(&id) => Err(ErrorKind::Busy),
            _ => Ok(()),
        };
        assert_eq!(joined.map_err(|error| error.kind()), expected, "{name}");
        if expected.is_ok() {
            self.nodes[index].lease = Some(lease);
            let before = self.expected.nodes.get(&id).map(|(_, state, _)| *state);
            let is_draining = before == Some(NodeState::Draining);
            let state = if is_draining { NodeState::Draining } else { NodeState::Up };
            self.expected.nodes.insert(id, (name, state, None));
            self.expected.alive.insert(id, incarnation);
        }
    }

    /// Two looks, between which the time of all that are silent is over.
    async fn steward(&mut self, index: usize) {
        for _ in 0..2 {
            loop {
                self.lose_some(Some(index));
                let node = &mut self.nodes[index];
                let lease = node.lease.as_ref().expect("it runs").id();
                let seat = StewardSeat { node: node.id, incarnation: node.incarnation, lease };
                let roll = ClusterRoll::of(&node.client.read("").await.expect("etcd answers"));
                let Some(swap) = node.steward.next(&roll, seat, self.now).expect("it decides") else { break };
                match node.client.swap(&swap).await {
                    Ok(SwapOutcome::Won(_)) => {}
                    Ok(SwapOutcome::Lost(loss)) => panic!("nobody else is at it: {loss:?}"),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::OutcomeUnknown),
                }
            }
            self.now += DOWN_AFTER;
        }
        let id = self.nodes[index].id;
        if *self.expected.steward.get_or_insert(id) != id {
            return;
        }
        for (id, (_, state, why)) in &mut self.expected.nodes {
            match (*state, self.expected.alive.contains_key(id)) {
                (NodeState::Up, false) => (*state, *why) = (NodeState::Out, Some(OutReason::Silent)),
                (NodeState::Out, true) if *why == Some(OutReason::Silent) => {
                    (*state, *why) = (NodeState::Up, None);
                }
                _ => {}
            }
        }
    }

    async fn assign(&mut self, index: usize) {
        let wanted: Vec<JunctionProfile> = (0..PATHS)
            .filter(|_| self.random.draw().is_multiple_of(2))
            .map(|n| junction(&format!("/{n}"), "d"))
            .collect();
        self.lose_some(Some(index));
        let node = &mut self.nodes[index];
        let all_at_once =
            |roll: &ClusterRoll| -> Result<NextStep<bool>> { assign(roll, &wanted, &node.known, node.id) };
        assert!(settle(&node.client, PATIENCE, all_at_once).await.expect("it is done"));
        let roll = ClusterRoll::of(&node.client.read("").await.expect("etcd answers"));
        for junction in &wanted {
            let mut found = roll.junctions.iter().filter(|(_, kept)| {
                kept.good().is_some_and(|there| there.path == junction.path && there.url == junction.url)
            });
            let (id, _) = found.next().expect("it has an id");
            assert_eq!(found.next(), None, "{} has two ids", junction.path);
            let before = self.expected.junctions.insert(*id, junction.path.clone());
            assert!(before.is_none_or(|before| before == junction.path));
            // For ever.
            let given = self.expected.given.entry(*id).or_insert_with(|| junction.path.clone());
            assert_eq!(*given, junction.path, "{id:?} was given out twice");
            node.known.junctions.retain(|known| known.path != junction.path);
            let KnownJunctions { junctions, next } = &mut node.known;
            junctions.push(KnownJunction {
                id: id.0,
                path: junction.path.clone(),
                url: junction.url.clone(),
            });
            *next = (*next).max(id.0 + 1);
        }
    }

    /// etcd holds what is expected, and whoever watches knows it, under the same number.
    async fn look(&mut self) {
        let state = self.operator.read("").await.expect("etcd answers");
        let read = ClusterRoll::of(&state);
        assert_eq!(Expectation::of(&read, self.expected.given.clone()), self.expected);
        while let Ok(event) = tokio::time::timeout(Duration::from_micros(1), self.watch.next()).await {
            self.watched.take(&event.expect("it goes on"));
        }
        let (map, watched) = (read.map().expect("a map"), self.watched.map().expect("a map"));
        assert_eq!(map, watched);
        let text = map.to_json().expect("JSON");
        let before = self.maps.entry(map.number()).or_insert_with(|| text.clone());
        assert_eq!(*before, text, "one number is one map");
        assert_eq!(self.maps.keys().next_back(), Some(&map.number()), "numbers only rise");
        let names: BTreeSet<&str> = map.nodes().iter().map(|node| node.name.as_str()).collect();
        assert_eq!(names.len(), map.nodes().len(), "a name is there twice");
        let others = [
            read.roster.is_some(),
            read.cluster.is_some(),
            read.steward.is_some(),
            read.junction_ids.is_some(),
        ];
        let others = others.into_iter().filter(|there| *there).count();
        let keys = read.nodes.len() + read.alive.len() + read.junctions.len() + others;
        assert_eq!(state.entries.len(), keys, "nothing else grows");
    }
}
