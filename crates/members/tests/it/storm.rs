//! Whole memberships under random faults: whatever happened, soon after it has ended all nodes that run have one map, and it is right.

use std::sync::Arc;
use std::time::Duration;

use cluster::NodeState;
use coordinator::Coordinator;
use coordinator::model::{LostAnswer, ModelClient, ModelEtcd, ModelSnapshot};
use members::{ClusterRoll, Membership, MembershipStatus, NewCluster, init};
use relay::SplitMix;
use testkit::etcd::with_etcd;

use crate::random::seeds;
use crate::stage::{EtcdStage, Stage, TestNode, WIRE, agree, junction, make_cluster, soon};

const NODES: u64 = 4;
const STEP: Duration = Duration::from_millis(50);

struct Storm {
    etcd: ModelEtcd,
    nodes: Vec<(TestNode, Option<ModelClient>)>,
    random: SplitMix,
    backup: ModelSnapshot,
}

#[tokio::test(start_paused = true)]
async fn after_a_storm_all_nodes_have_the_right_map() {
    for seed in seeds(8) {
        println!("seed {seed}");
        let etcd = ModelEtcd::new();
        init(&etcd.client(), WIRE, &NewCluster::draw().expect("drawn")).await.expect("a new cluster");
        let node = |n| {
            let mut node = TestNode::new(&format!("n{n}"));
            node.junctions = (0..=n).map(|n| junction(&format!("/{n}"), "d")).collect();
            (node, None)
        };
        let backup = etcd.snapshot();
        let mut storm =
            Storm { nodes: (0..NODES).map(node).collect(), random: SplitMix::new(seed), backup, etcd };
        for fault in 0..40 {
            storm.fault();
            match fault {
                10 => storm.backup = storm.etcd.snapshot(),
                25 => storm.etcd.restore(&storm.backup),
                _ => {}
            }
            let steps = storm.random.draw() % 40;
            storm.pass(STEP * steps as u32).await;
        }
        storm.ends().await;
    }
}

impl Storm {
    /// What is kept alive each third of a lease is kept alive.
    async fn pass(&self, time: Duration) {
        let mut left = time;
        while !left.is_zero() {
            let step = left.min(STEP);
            tokio::time::sleep(step).await;
            self.etcd.advance(step);
            left -= step;
        }
    }

    fn start(&mut self, index: usize) {
        let client = self.etcd.client();
        let (node, held) = &mut self.nodes[index];
        node.process =
            Some(Membership::start(Arc::new(client.clone()), node.config()).expect("its file is good"));
        *held = Some(client);
    }

    fn fault(&mut self) {
        let index = (self.random.draw() % NODES) as usize;
        let hows = [LostAnswer::ReadBack, LostAnswer::Tried, LostAnswer::NeverSent];
        let how = hows[(self.random.draw() % 3) as usize];
        let (node, client) = &mut self.nodes[index];
        match (self.random.draw() % 16, client) {
            (0..=5, _) if node.process.is_none() => self.start(index),
            (6, _) => node.process = None,
            (7..=9, Some(client)) => client.lose_next_answer(how),
            (10, Some(client)) => client.set_cut_off(true),
            (11, Some(client)) => client.set_cut_off(false),
            (12, _) => self.etcd.set_away(true),
            (13, _) => self.etcd.set_away(false),
            (14, _) => self.etcd.compact(),
            (15, _) if self.random.draw().is_multiple_of(4) => self.etcd.restore(&self.backup.clone()),
            (15, _) => self.backup = self.etcd.snapshot(),
            _ => {}
        }
    }

    /// Nothing happens any more, and two of the nodes do not run.
    async fn ends(&mut self) {
        self.etcd.set_away(false);
        for index in 0..NODES as usize {
            if let Some(client) = &self.nodes[index].1 {
                client.set_cut_off(false);
            }
            let is_refused = || matches!(self.nodes[index].0.news().status, MembershipStatus::Refused(_));
            // Its former process was cut off when the next one began.
            if self.nodes[index].0.process.is_none() || is_refused() {
                self.nodes[index].0.process = None;
                self.pass(Duration::from_secs(3)).await;
                self.start(index);
            }
        }
        self.pass(Duration::from_secs(10)).await;
        for index in 2..NODES as usize {
            self.nodes[index].0.process = None;
        }
        self.pass(Duration::from_secs(10)).await;
        let roll = ClusterRoll::of(&self.etcd.client().read("").await.expect("etcd answers"));
        let expected = roll.map().expect("a map");
        assert_eq!(expected.nodes().len(), NODES as usize);
        let ids = self.nodes[0].0.news().junctions.clone();
        for (node, _) in &self.nodes[..2] {
            assert!(node.is_joined(), "{}: {:?} {:?}", node.name, node.news().status, node.alarms());
            assert_eq!(*node.map(), expected, "{}", node.name);
            for (index, (other, _)) in self.nodes.iter().enumerate() {
                let state = if index < 2 { NodeState::Up } else { NodeState::Out };
                assert_eq!(node.sees(&other.name), Some(state), "{} at {}", other.name, node.name);
            }
            // An id that a node serves is the cluster's, or the node says that it is not.
            let news = node.news();
            for (path, id) in news.junctions.iter().filter(|(path, _)| !news.conflicted.contains(*path)) {
                let there = roll.junctions.get(id).and_then(|kept| kept.good());
                assert_eq!(there.map(|there| &there.path), Some(path), "{id} at {}", node.name);
            }
            // All have the first junction.
            assert_eq!(node.news().junctions["/0"], ids["/0"]);
            assert_eq!(node.file().map, Some(expected.clone()), "{}", node.name);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn fifty_nodes_that_start_at_once_are_in_soon() {
    let stage = crate::stage::ModelStage::new();
    make_cluster(&stage).await;
    let mut nodes: Vec<TestNode> = (0..50).map(|n| TestNode::new(&format!("n{n}"))).collect();
    for node in &mut nodes {
        node.junctions = vec![junction("/show", "d"), junction("/in", "d")];
        node.start(&stage).await;
    }
    let begun = tokio::time::Instant::now();
    agree(&stage, &nodes.iter().collect::<Vec<_>>(), 50).await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    let ids = nodes[0].news().junctions.clone();
    assert!(nodes.iter().all(|node| node.news().junctions == ids && node.alarms().is_empty()));
}

/// As a leader of etcd does that was stopped for a while.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_whose_lease_etcd_has_ended_gets_another_one() {
    with_etcd("a_node_whose_lease_etcd_has_ended_gets_another_one", 1, async |etcd| {
        let stage = EtcdStage::new(etcd);
        make_cluster(&stage).await;
        let n1 = TestNode::joined(&stage, "n1").await;
        let n2 = TestNode::joined(&stage, "n2").await;
        agree(&stage, &[&n1, &n2], 2).await;
        let map = n1.map();
        for _ in 0..3 {
            let before = crate::stage::roll(&stage).await.alive;
            for alive in before.values() {
                let lease = alive.lease.expect("it is under one");
                stage.end_lease(lease);
            }
            soon(&stage, "both are there again, under other leases", async || {
                let now = crate::stage::roll(&stage).await;
                let is_other = |id| now.alive.get(id).is_some_and(|alive| alive.lease != before[id].lease);
                before.keys().all(is_other) && now.steward.is_some()
            })
            .await;
        }
        stage.pass(crate::stage::DOWN_AFTER).await;
        assert_eq!((n1.map(), n2.map()), (map.clone(), map));
        assert!(n1.alarms().is_empty() && n2.alarms().is_empty());
    })
    .await;
}
