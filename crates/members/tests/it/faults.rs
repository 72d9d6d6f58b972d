//! etcd that takes no writes, a watch that tells nothing, a disk that hangs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use cluster::NodeState;
use coordinator::{Coordinator, KeyWatch, Lease, PrefixState, Revision, Swap, SwapOutcome};
use members::{ClusterAlarm, Membership, NewCluster, NodeChange, change_node, init};
use types::{Error, ErrorKind, Result};

use crate::stage::{
    DOWN_AFTER, ModelStage, Stage, TestNode, WIRE, agree, junction, make_cluster, roll, soon,
};

/// The model of etcd with what it cannot do by itself.
struct FaultyEtcd {
    inner: Arc<dyn Coordinator>,
    refuses: AtomicBool,
    is_deaf: AtomicBool,
}

impl FaultyEtcd {
    async fn of(stage: &impl Stage) -> Arc<FaultyEtcd> {
        let (refuses, is_deaf) = (AtomicBool::new(false), AtomicBool::new(false));
        Arc::new(FaultyEtcd { inner: stage.client().await, refuses, is_deaf })
    }

    async fn join(self: &Arc<FaultyEtcd>, stage: &impl Stage, node: &mut TestNode) {
        node.process = Some(Membership::start(self.clone(), node.config()).expect("it starts"));
        soon(stage, &format!("{} joins", node.name), async || node.is_joined()).await;
    }
}

#[async_trait]
impl Coordinator for FaultyEtcd {
    fn url(&self) -> String {
        self.inner.url()
    }

    fn heard(&self) -> Option<Duration> {
        self.inner.heard()
    }

    async fn read(&self, prefix: &str) -> Result<PrefixState> {
        self.inner.read(prefix).await
    }

    async fn swap(&self, swap: &Swap) -> Result<SwapOutcome> {
        if self.refuses.load(Ordering::Relaxed) {
            return Err(Error::new(ErrorKind::NoSpace, "swap keys in etcd", "database space exceeded"));
        }
        self.inner.swap(swap).await
    }

    fn watch(&self, prefix: &str, behind: Option<Revision>) -> KeyWatch {
        let is_deaf = self.is_deaf.swap(false, Ordering::Relaxed);
        self.inner.watch(if is_deaf { "nothing/" } else { prefix }, behind)
    }

    async fn grant(&self, ttl: Duration) -> Result<Lease> {
        self.inner.grant(ttl).await
    }
}

#[tokio::test(start_paused = true)]
async fn an_etcd_that_refuses_writes_is_told_until_it_takes_one() {
    let stage = ModelStage::new();
    make_cluster(&stage).await;
    let (etcd, mut n1) = (FaultyEtcd::of(&stage).await, TestNode::new("n1"));
    etcd.join(&stage, &mut n1).await;
    let mut n2 = TestNode::joined(&stage, "n2").await;
    agree(&stage, &[&n1, &n2], 2).await;
    etcd.refuses.store(true, Ordering::Relaxed);
    n2.kill();
    let is_refusal = |alarm: &ClusterAlarm| {
        alarm.to_string().contains("refuses writes") && alarm.to_string().contains("space exceeded")
    };
    stage.pass(DOWN_AFTER + Duration::from_secs(5)).await;
    assert!(!n1.has_alarm(is_refusal), "it may pass");
    soon(&stage, "it is told", async || n1.has_alarm(is_refusal)).await;
    etcd.refuses.store(false, Ordering::Relaxed);
    soon(&stage, "it is over", async || n1.sees("n2") == Some(NodeState::Out) && !n1.has_alarm(is_refusal))
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_tells_nothing_is_found_out() {
    let stage = ModelStage::new();
    make_cluster(&stage).await;
    let (etcd, mut n1) = (FaultyEtcd::of(&stage).await, TestNode::new("n1"));
    n1.join(&stage).await;
    n1.stop().await;
    // Its keys are there, so that it needs to hear of none but its sign of life.
    etcd.is_deaf.store(true, Ordering::Relaxed);
    n1.process = Some(Membership::start(etcd, n1.config()).expect("it starts"));
    let n2 = TestNode::joined(&stage, "n2").await;
    agree(&stage, &[&n1, &n2], 2).await;
    assert!(n1.is_joined());
}

#[tokio::test(start_paused = true)]
async fn after_a_wipe_the_former_map_is_held_until_the_others_had_time_to_register() {
    let mut stage = ModelStage::new();
    let id = make_cluster(&stage).await;
    let mut n1 = TestNode::joined(&stage, "n1").await;
    let mut n2 = TestNode::joined(&stage, "n2").await;
    let n3 = TestNode::joined(&stage, "n3").await;
    agree(&stage, &[&n1, &n2, &n3], 3).await;
    change_node(&*stage.client().await, "n3", NodeChange::Leave).await.expect("it is out");
    soon(&stage, "n3 is out", async || n1.sees("n3") == Some(NodeState::Out)).await;
    drop(n3);
    for restarts in [false, true] {
        let map = n1.map();
        n2.kill();
        soon(&stage, "its file has the map", async || n1.file().map.as_ref() == Some(&*map)).await;
        if restarts {
            n1.stop().await;
        }
        stage.wipe();
        init(&*stage.client().await, WIRE, &NewCluster::again(&n1.file())).await.expect("there is none");
        if restarts {
            n1.join(&stage).await;
        }
        soon(&stage, "one is in", async || roll(&stage).await.is_alive(n1.id())).await;
        stage.pass(DOWN_AFTER / 2).await;
        assert_eq!(n1.map().nodes(), map.nodes());
        if restarts {
            // Who does not come is not waited for.
            soon(&stage, "it is alone", async || n1.map().nodes().len() == 1).await;
        } else {
            n2.join(&stage).await;
            soon(&stage, "both are in", async || n1.news().history > 0 && n1.map().nodes().len() == 2).await;
        }
    }
    assert_eq!(n1.news().cluster, Some(id));
}

/// Every write of a file waits for one that never ends.
#[test]
fn a_disk_that_hangs_stops_no_membership() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
    let (end, ended) = std::sync::mpsc::sync_channel::<()>(1);
    runtime.expect("a runtime").block_on(async move {
        let stage = ModelStage::new();
        make_cluster(&stage).await;
        let mut n1 = TestNode::joined(&stage, "n1").await;
        soon(&stage, "its file has the map", async || n1.file().map.is_some()).await;
        let n2 = TestNode::joined(&stage, "n2").await;
        tokio::task::spawn_blocking(move || ended.recv());
        let client = stage.client().await;
        change_node(&*client, "n2", NodeChange::Drain).await.expect("it drains");
        soon(&stage, "the map goes on", async || n1.sees("n2") == Some(NodeState::Draining)).await;
        let is_told = |alarm: &ClusterAlarm| alarm.to_string().contains("has not answered");
        soon(&stage, "it is told", async || n1.has_alarm(is_told)).await;
        change_node(&*client, "n2", NodeChange::Undrain).await.expect("it is up");
        soon(&stage, "the map goes on", async || n1.sees("n2") == Some(NodeState::Up)).await;
        tokio::time::timeout(Duration::from_secs(8), n1.stop()).await.expect("it ends");
        end.send(()).expect("it waits");
        drop(n2);
    });
}

#[tokio::test(start_paused = true)]
async fn a_file_that_cannot_be_written_is_told_and_tried_again() {
    let stage = ModelStage::new();
    make_cluster(&stage).await;
    let n1 = TestNode::joined(&stage, "n1").await;
    soon(&stage, "its file has the map", async || n1.file().map.is_some()).await;
    std::fs::remove_dir_all(n1.dir.path()).expect("removed");
    // What it knows of junctions is to be written at once.
    let mut n2 = TestNode::new("n2");
    n2.junctions = vec![junction("/show", "d")];
    n2.join(&stage).await;
    let is_told = |alarm: &ClusterAlarm| matches!(alarm, ClusterAlarm::FileNotWritten { .. });
    soon(&stage, "it is told", async || n1.has_alarm(is_told)).await;
    agree(&stage, &[&n1, &n2], 2).await;
    std::fs::create_dir(n1.dir.path()).expect("made again");
    soon(&stage, "it is over", async || !n1.has_alarm(is_told)).await;
    soon(&stage, "it is written", async || n1.file().map.as_ref() == Some(&*n1.map())).await;
}
