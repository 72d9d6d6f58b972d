//! etcd away, wiped, restored from a backup.

use std::time::Duration;

use cluster::NodeState;
use coordinator::{Swap, SwapOutcome};
use members::{ClusterAlarm, MembershipStatus, NewCluster, NodeChange, change_node, init, set_copies};

use crate::stage::{DOWN_AFTER, LEASE, Stage, TestNode, WIRE, agree, junction, make_cluster, roll, soon};

fn is_went_back(alarm: &ClusterAlarm) -> bool {
    matches!(alarm, ClusterAlarm::EtcdWentBack { .. })
}

pub async fn with_etcd_away_a_member_starts_from_its_file_and_a_new_node_waits(mut stage: impl Stage) {
    make_cluster(&stage).await;
    let mut n1 = TestNode::new("n1");
    n1.junctions = vec![junction("/in", "d"), junction("/show", "d")];
    n1.join(&stage).await;
    let n2 = TestNode::joined(&stage, "n2").await;
    agree(&stage, &[&n1, &n2], 2).await;
    let show = n1.news().junctions["/show"];
    set_copies(&*stage.client().await, show, "/plates", Some(3)).await.expect("set");
    soon(&stage, "the rule is known", async || n1.news().copy_rules.contains_key(&show)).await;
    let rules = n1.news().copy_rules.clone();
    let (map, ids) = (n1.map(), n1.news().junctions.clone());
    n1.stop().await;
    stage.set_away(true);
    n1.start(&stage).await;
    let mut n3 = TestNode::new("n3");
    n3.start(&stage).await;
    soon(&stage, "the member has its map", async || n1.news().map.is_some()).await;
    assert!(matches!(n1.news().status, MembershipStatus::FromFile(_)), "{:?}", n1.news().status);
    assert_eq!((n1.map(), n1.news().junctions.clone()), (map.clone(), ids.clone()));
    assert_eq!(n1.news().copy_rules, rules, "rules on copies are in the file, too");
    let first = n1.process.as_ref().expect("it runs").first_map().await.expect("from its file");
    assert_eq!(first, map);
    soon(&stage, "the new node says that it waits", async || {
        matches!(n3.news().status, MembershipStatus::Waiting(_))
    })
    .await;
    soon(&stage, "the outage is told", async || {
        [&n1, &n2]
            .iter()
            .all(|node| node.has_alarm(|alarm| matches!(alarm, ClusterAlarm::EtcdUnreachable { .. })))
    })
    .await;
    assert!(n3.news().map.is_none());
    assert_eq!(n2.map(), map, "who runs goes on");
    stage.set_away(false);
    soon(&stage, "all join", async || n1.is_joined() && n3.is_joined()).await;
    agree(&stage, &[&n1, &n2, &n3], 3).await;
    soon(&stage, "it is over", async || [&n1, &n2, &n3].iter().all(|node| node.alarms().is_empty())).await;
    assert_eq!(n1.news().junctions, ids);
}

pub async fn an_outage_marks_nobody_out(mut stage: impl Stage) {
    make_cluster(&stage).await;
    let n1 = TestNode::joined(&stage, "n1").await;
    let n2 = TestNode::joined(&stage, "n2").await;
    agree(&stage, &[&n1, &n2], 2).await;
    let map = n1.map();
    stage.set_away(true);
    stage.pass(DOWN_AFTER + 2 * LEASE + Duration::from_secs(1)).await;
    stage.set_away(false);
    stage.pass(DOWN_AFTER / 2).await;
    soon(&stage, "both are there again", async || {
        let roll = roll(&stage).await;
        roll.is_alive(n1.id()) && roll.is_alive(n2.id())
    })
    .await;
    stage.pass(DOWN_AFTER).await;
    assert_eq!((n1.map(), n2.map()), (map.clone(), map));
}

pub async fn a_wiped_etcd_takes_the_map_from_nobody(mut stage: impl Stage) {
    let id = make_cluster(&stage).await;
    let mut n1 = TestNode::new("n1");
    n1.junctions = vec![junction("/in", "d"), junction("/show", "d")];
    n1.join(&stage).await;
    let n2 = TestNode::joined(&stage, "n2").await;
    agree(&stage, &[&n1, &n2], 2).await;
    let (map, ids) = (n1.map(), n1.news().junctions.clone());
    stage.wipe();
    soon(&stage, "both tell it", async || {
        [&n1, &n2].iter().all(|node| {
            node.has_alarm(is_went_back) && node.has_alarm(|alarm| *alarm == ClusterAlarm::NoCluster)
        })
    })
    .await;
    assert_eq!((n1.map(), n2.map()), (map.clone(), map.clone()));
    // A member that starts meanwhile goes by its file.
    soon(&stage, "its file has the map", async || n1.file().map.as_ref() == Some(&*map)).await;
    n1.kill();
    n1.start(&stage).await;
    soon(&stage, "it has its map", async || n1.news().map.is_some()).await;
    assert_eq!(n1.map(), map);
    // The operator makes the cluster anew, under its id.
    let file = n1.file();
    assert_eq!(file.cluster, id);
    init(&*stage.client().await, WIRE, &NewCluster::again(&file)).await.expect("there is none");
    soon(&stage, "both are in again", async || {
        let roll = roll(&stage).await;
        roll.is_alive(n1.id()) && roll.is_alive(n2.id())
    })
    .await;
    agree(&stage, &[&n1, &n2], 2).await;
    soon(&stage, "the ids are as they were", async || {
        let roll = roll(&stage).await;
        ids.iter().all(|(path, id)| {
            roll.junctions.get(id).and_then(|kept| kept.good()).is_some_and(|there| there.path == *path)
        })
    })
    .await;
    assert_eq!(n1.news().junctions, ids);
    soon(&stage, "its numbers begin anew", async || n2.news().history > 0).await;
}

pub async fn a_cluster_that_is_made_anew_from_a_file_has_the_junctions_of_that_file(mut stage: impl Stage) {
    let id = make_cluster(&stage).await;
    let mut n1 = TestNode::new("n1");
    n1.junctions = vec![junction("/in", "d"), junction("/show", "d")];
    n1.join(&stage).await;
    let show = n1.news().junctions["/show"];
    n1.stop().await;
    stage.wipe();
    init(&*stage.client().await, WIRE, &NewCluster::again(&n1.file())).await.expect("there is none");
    assert_eq!(roll(&stage).await.good_cluster().expect("it is there").id, id);
    // One that remembers nothing is there first.
    let mut n2 = TestNode::new("n2");
    n2.junctions = vec![junction("/new", "d"), junction("/show", "d")];
    n2.join(&stage).await;
    assert_eq!((n2.news().junctions["/show"], n2.news().junctions["/new"].0), (show, 3));
    n1.join(&stage).await;
    assert_eq!(n1.news().junctions["/show"], show);
    assert!(!n1.has_alarm(|alarm| matches!(alarm, ClusterAlarm::JunctionRenumbered { .. })));
}

pub async fn a_restored_etcd_begins_a_new_history(mut stage: impl Stage) {
    make_cluster(&stage).await;
    let mut n1 = TestNode::new("n1");
    n1.junctions = vec![junction("/in", "d")];
    n1.join(&stage).await;
    stage.back_up();
    let mut n2 = TestNode::new("n2");
    n2.junctions = vec![junction("/in", "d"), junction("/show", "d")];
    n2.join(&stage).await;
    let mut n3 = TestNode::joined(&stage, "n3").await;
    agree(&stage, &[&n1, &n2, &n3], 3).await;
    let (before, ids) = (n1.map(), n2.news().junctions.clone());
    // One that does not run meanwhile learns it from its file.
    n3.kill();
    stage.restore();
    soon(&stage, "it is told", async || n1.has_alarm(is_went_back) && n2.has_alarm(is_went_back)).await;
    n3.join(&stage).await;
    soon(&stage, "the map has all of them again", async || {
        [&n1, &n2, &n3].iter().all(|node| {
            let (news, map) = (node.news(), node.map());
            map == n1.map() && news.history > 0 && map.nodes().len() == 3
        })
    })
    .await;
    let same = |name: &str| n1.map().node_named(name).map(|node| (node.id, node.state));
    for node in before.nodes() {
        assert_eq!(same(&node.name), Some((node.id, NodeState::Up)));
    }
    soon(&stage, "the ids are as they were", async || n2.news().junctions == ids).await;
    assert!(!n2.has_alarm(|alarm| matches!(alarm, ClusterAlarm::JunctionRenumbered { .. })));
    // What was given out behind the backup is not given out again.
    let mut n4 = TestNode::new("n4");
    n4.junctions = vec![junction("/new", "d")];
    n4.join(&stage).await;
    assert_eq!(n4.news().junctions["/new"].0, 3);
}

pub async fn a_cluster_record_that_cannot_be_read_takes_the_map_from_nobody(stage: impl Stage) {
    make_cluster(&stage).await;
    let mut n1 = TestNode::joined(&stage, "n1").await;
    let n2 = TestNode::joined(&stage, "n2").await;
    agree(&stage, &[&n1, &n2], 2).await;
    let map = n1.map();
    n1.stop().await;
    let client = stage.client().await;
    let good = client.read("cluster").await.expect("read").entries.remove(0);
    let bad = Swap::new().replace("cluster", good.revision, "{}", None);
    let SwapOutcome::Won(at) = client.swap(&bad).await.expect("an outcome") else {
        panic!("nobody else is at it")
    };
    n1.start(&stage).await;
    let mut n3 = TestNode::new("n3");
    n3.start(&stage).await;
    soon(&stage, "a member has its map", async || n1.news().map.is_some()).await;
    soon(&stage, "a new node is refused", async || n3.refusal().is_some()).await;
    soon(&stage, "it is told by its key", async || {
        [&n1, &n2].iter().all(|node| {
            node.has_alarm(
                |alarm| matches!(alarm, ClusterAlarm::UnreadableRecord(bad) if bad.key == "cluster"),
            )
        })
    })
    .await;
    assert_eq!((n1.map(), n2.map()), (map.clone(), map));
    let mended = Swap::new().replace("cluster", at, good.value, None);
    assert!(matches!(client.swap(&mended).await, Ok(SwapOutcome::Won(_))));
    soon(&stage, "all is well", async || n1.is_joined() && n1.alarms().is_empty() && n2.alarms().is_empty())
        .await;
}

pub async fn a_restored_etcd_does_not_undo_what_an_operator_did(mut stage: impl Stage) {
    make_cluster(&stage).await;
    let mut nodes = Vec::new();
    for name in ["n1", "n2", "n3"] {
        nodes.push(TestNode::joined(&stage, name).await);
    }
    let client = stage.client().await;
    change_node(&*client, "n3", NodeChange::Drain).await.expect("it drains");
    stage.back_up();
    change_node(&*client, "n1", NodeChange::Drain).await.expect("it drains");
    change_node(&*client, "n2", NodeChange::Leave).await.expect("it is out");
    change_node(&*client, "n3", NodeChange::Undrain).await.expect("it is up");
    let expected = [("n1", NodeState::Draining), ("n2", NodeState::Out), ("n3", NodeState::Up)];
    let is_seen = |node: &TestNode| expected.iter().all(|(name, state)| node.sees(name) == Some(*state));
    soon(&stage, "all see it", async || nodes.iter().all(is_seen)).await;
    stage.restore();
    soon(&stage, "all see it again", async || {
        nodes.iter().all(|node| node.has_alarm(is_went_back) && node.news().history > 0 && is_seen(node))
    })
    .await;
}
