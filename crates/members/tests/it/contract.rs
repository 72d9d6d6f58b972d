//! Joining, living, leaving.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use cluster::NodeState;
use coordinator::{Swap, SwapOutcome};
use members::{
    AliveRecord, ClusterAlarm, Incarnation, MembershipStatus, NewCluster, NodeChange, SettingsDifference,
    change_node, init, remove_junction, set_copies, write_record,
};
use types::{ErrorKind, JunctionId};

use crate::stage::{DOWN_AFTER, LEASE, Stage, TestNode, WIRE, agree, junction, make_cluster, roll, soon};

pub async fn a_cluster_is_made_once(stage: impl Stage) {
    let mut early = TestNode::new("n1");
    early.start(&stage).await;
    soon(&stage, "there is no cluster yet", async || early.refusal().is_some()).await;
    assert!(early.refusal().expect("a sentence").contains("make it"), "{:?}", early.refusal());
    let id = make_cluster(&stage).await;
    let again = init(&*stage.client().await, WIRE, &NewCluster::draw().expect("drawn"))
        .await
        .expect_err("there is one");
    assert_eq!(again.kind(), ErrorKind::Exists);
    assert!(again.to_string().contains(&id.to_string()), "{again}");
    assert_eq!(roll(&stage).await.good_cluster().expect("it is there").id, id);
}

pub async fn three_nodes_join_and_see_one_map_with_one_number(stage: impl Stage) {
    let id = make_cluster(&stage).await;
    let mut nodes = [TestNode::new("n1"), TestNode::new("n2"), TestNode::new("n3")];
    for node in &mut nodes {
        node.junctions = vec![junction("/show", "d")];
        node.start(&stage).await;
    }
    let [n1, n2, n3] = &mut nodes;
    agree(&stage, &[n1, n2, n3], 3).await;
    assert!([&*n1, &*n2, &*n3].iter().all(|node| node.news().cluster == Some(id)));
    let number = n1.map().number();
    // A start that changes nothing leaves the map as it is, and a sign of life is no change.
    n2.stop().await;
    n2.join(&stage).await;
    agree(&stage, &[n1, n2, n3], 3).await;
    assert_eq!(n2.map().number(), number);
    // A node that starts behind a removal computes the same number.
    n3.stop().await;
    let client = stage.client().await;
    change_node(&*client, "n3", NodeChange::Forget).await.expect("it does not run");
    n2.stop().await;
    n2.join(&stage).await;
    agree(&stage, &[n1, n2], 2).await;
    assert!(n1.map().number() > number);
    assert_eq!(n1.map(), n2.map());
    assert_eq!((n1.file().cluster, n1.file().node), (id, n1.id()));
    soon(&stage, "the file has the map", async || n1.file().map.as_ref() == Some(&*n1.map())).await;
    // What etcd holds follows from nodes and junctions alone.
    let keys: BTreeSet<String> =
        client.read("").await.expect("read").entries.into_iter().map(|entry| entry.key).collect();
    let (n1, n2) = (n1.id(), n2.id());
    let expected = [
        format!("alive/{n1}"),
        format!("alive/{n2}"),
        "cluster".to_owned(),
        "junction-ids".to_owned(),
        "junctions/1".to_owned(),
        format!("nodes/{n1}"),
        format!("nodes/{n2}"),
        "roster".to_owned(),
        "steward".to_owned(),
    ];
    assert_eq!(keys, expected.into_iter().collect());
}

pub async fn of_several_nodes_with_one_name_one_gets_in(stage: impl Stage) {
    make_cluster(&stage).await;
    let mut nodes: Vec<TestNode> = (0..4).map(|_| TestNode::new("same")).collect();
    for node in &mut nodes {
        node.start(&stage).await;
    }
    soon(&stage, "each is in or refused", async || {
        nodes.iter().all(|node| node.is_joined() || node.refusal().is_some())
    })
    .await;
    let refusals: Vec<String> = nodes.iter().filter_map(TestNode::refusal).collect();
    assert_eq!(refusals.len(), 3, "{refusals:?}");
    assert!(refusals.iter().all(|why| why.contains("has that name")), "{refusals:?}");
    assert_eq!(roll(&stage).await.nodes.len(), 1);
}

pub async fn a_second_incarnation_is_refused_and_a_restart_is_not(stage: impl Stage) {
    make_cluster(&stage).await;
    let mut first = TestNode::joined(&stage, "n1").await;
    let mut second = TestNode::new("n1");
    std::fs::copy(first.dir.path().join("cluster.json"), second.dir.path().join("cluster.json"))
        .expect("a copy");
    second.start(&stage).await;
    let waits = |node: &TestNode| {
        let status = &node.news().status;
        matches!(status, MembershipStatus::Waiting(why) if why.contains("another process runs as this node"))
    };
    soon(&stage, "the second one waits", async || waits(&second)).await;
    // It cannot know how long: after an election of etcd all leases begin anew.
    stage.pass(Duration::from_secs(6)).await;
    assert!(waits(&second), "{:?}", second.news().status);
    second.stop().await;
    assert!(first.is_joined() && first.alarms().is_empty(), "{:?}", first.alarms());
    // One that ended well is no obstacle, and one that was killed is none for longer than its lease.
    first.stop().await;
    first.join(&stage).await;
    first.kill();
    first.join(&stage).await;
    assert_eq!(roll(&stage).await.nodes.len(), 1);
}

pub async fn a_silent_node_is_out_and_up_again_on_its_return(stage: impl Stage) {
    make_cluster(&stage).await;
    let n1 = TestNode::joined(&stage, "n1").await;
    let mut n2 = TestNode::joined(&stage, "n2").await;
    let mut n3 = TestNode::joined(&stage, "n3").await;
    let client = stage.client().await;
    change_node(&*client, "n3", NodeChange::Drain).await.expect("it drains");
    soon(&stage, "n3 drains", async || n1.sees("n3") == Some(NodeState::Draining)).await;
    let number = n1.map().number();
    n3.kill();
    n2.kill();
    stage.pass(LEASE / 2).await;
    assert_eq!((n1.sees("n2"), n1.map().number()), (Some(NodeState::Up), number));
    soon(&stage, "n2 is out", async || n1.sees("n2") == Some(NodeState::Out)).await;
    soon(&stage, "that is told", async || {
        n1.has_alarm(|alarm| matches!(alarm, ClusterAlarm::NodeOut { name } if name == "n2"))
    })
    .await;
    n2.join(&stage).await;
    soon(&stage, "n2 is up again", async || n1.sees("n2") == Some(NodeState::Up)).await;
    soon(&stage, "the alarm is over", async || n1.alarms().is_empty()).await;
    // One that drains goes on to, dead or alive.
    stage.pass(DOWN_AFTER).await;
    assert_eq!(n1.sees("n3"), Some(NodeState::Draining));
    n3.join(&stage).await;
    agree(&stage, &[&n1, &n2, &n3], 2).await;
    assert_eq!(n3.sees("n3"), Some(NodeState::Draining));
}

pub async fn when_the_steward_dies_another_one_takes_over(stage: impl Stage) {
    make_cluster(&stage).await;
    let mut nodes = Vec::new();
    for name in ["n1", "n2", "n3"] {
        nodes.push(TestNode::joined(&stage, name).await);
    }
    while nodes.len() > 1 {
        let mut steward = String::new();
        soon(&stage, "one of them is the steward", async || {
            let roll = roll(&stage).await;
            steward = roll
                .steward
                .as_ref()
                .and_then(|kept| kept.good())
                .map_or(String::new(), |held| held.node.clone());
            nodes.iter().any(|node| node.id().to_string() == steward)
        })
        .await;
        let index =
            nodes.iter().position(|node| node.id().to_string() == steward).expect("it is one of them");
        let dead = nodes.remove(index);
        let name = dead.name.clone();
        drop(dead);
        soon(&stage, "its successor marks it out", async || {
            nodes.iter().all(|node| node.sees(&name) == Some(NodeState::Out))
        })
        .await;
    }
}

pub async fn a_node_of_another_cluster_is_refused(mut stage: impl Stage) {
    let former = make_cluster(&stage).await;
    let mut node = TestNode::joined(&stage, "n1").await;
    node.stop().await;
    stage.wipe();
    let other = make_cluster(&stage).await;
    node.start(&stage).await;
    soon(&stage, "it is refused", async || node.refusal().is_some()).await;
    let why = node.refusal().expect("a sentence");
    assert!(why.contains(&former.to_string()) && why.contains(&other.to_string()), "{why}");
    assert!(roll(&stage).await.nodes.is_empty());
    // A file of another version, or none at all, is told as such.
    for (text, what) in [("{\"v\":2}", "version 2"), ("{\"v\":1,", "EOF"), ("\0", "expected value")] {
        std::fs::write(node.dir.path().join("cluster.json"), text).expect("written");
        let error = node.try_start(&stage).await.expect_err("it is malformed");
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains(what) && error.to_string().contains("remove it"), "{error}");
    }
}

pub async fn what_operators_do_to_a_node_is_done_once(stage: impl Stage) {
    make_cluster(&stage).await;
    let n1 = TestNode::joined(&stage, "n1").await;
    let mut n2 = TestNode::joined(&stage, "n2").await;
    let client = stage.client().await;
    let id = n2.id();
    for (change, state) in [
        (NodeChange::Drain, NodeState::Draining),
        (NodeChange::Undrain, NodeState::Up),
        (NodeChange::Leave, NodeState::Out),
    ] {
        for name in ["n2".to_owned(), id.to_string()] {
            assert_eq!(change_node(&*client, &name, change).await.expect("it is done"), id);
        }
        soon(&stage, "all see it", async || [&n1, &n2].iter().all(|node| node.sees("n2") == Some(state)))
            .await;
    }
    let refused = change_node(&*client, "n2", NodeChange::Drain).await.expect_err("it is out");
    assert!(refused.to_string().contains("n2: it is out already"), "{refused}");
    let refused = change_node(&*client, "n2", NodeChange::Forget).await.expect_err("it runs");
    assert!(refused.to_string().contains("it runs; stop it first"), "{refused}");
    // A node that its operator took out stays out for as long as it runs, and no steward brings it back.
    stage.pass(DOWN_AFTER).await;
    assert_eq!(n1.sees("n2"), Some(NodeState::Out));
    n2.stop().await;
    n2.join(&stage).await;
    soon(&stage, "it is back by being started", async || n1.sees("n2") == Some(NodeState::Up)).await;
    n2.stop().await;
    change_node(&*client, "n2", NodeChange::Forget).await.expect("it does not run");
    let refused = change_node(&*client, "n2", NodeChange::Forget).await.expect_err("it is gone");
    assert_eq!(refused.kind(), ErrorKind::NotFound);
    soon(&stage, "it is gone", async || n1.sees("n2").is_none()).await;
    // Its name is free.
    let other = TestNode::joined(&stage, "n2").await;
    assert_ne!(other.id(), id);
}

pub async fn junctions_have_the_same_ids_on_all_nodes_and_none_twice(stage: impl Stage) {
    make_cluster(&stage).await;
    let paths = ["/show", "/in", "/out", "/lib"];
    let mut nodes: Vec<TestNode> = ["n1", "n2", "n3", "n4"].map(TestNode::new).into();
    for (turn, node) in nodes.iter_mut().enumerate() {
        // Each begins with another one, and all at once.
        node.junctions = paths.iter().map(|path| junction(path, "d")).collect();
        node.junctions.rotate_left(turn);
        node.start(&stage).await;
    }
    soon(&stage, "all have joined", async || nodes.iter().all(TestNode::is_joined)).await;
    soon(&stage, "all have all ids", async || {
        nodes.iter().all(|node| node.news().junctions.len() == paths.len())
    })
    .await;
    let ids = nodes[0].news().junctions.clone();
    assert!(nodes.iter().all(|node| node.news().junctions == ids));
    let given: BTreeSet<JunctionId> = ids.values().copied().collect();
    assert_eq!(given, (1..=4).map(JunctionId).collect());
    // The highest one is removed; whoever serves it puts it back, so that a new node gets the same id.
    let (path, removed) = ids.iter().max_by_key(|(_, id)| **id).expect("there are four");
    let client = stage.client().await;
    remove_junction(&*client, *removed).await.expect("it is there");
    soon(&stage, "it is back", async || roll(&stage).await.junctions.contains_key(removed)).await;
    let mut late = TestNode::new("n5");
    late.junctions = vec![junction("/new", "d"), junction(path, "d")];
    late.join(&stage).await;
    assert_eq!(late.news().junctions["/new"], JunctionId(5));
    assert_eq!(late.news().junctions[path], *removed);
    assert!(nodes.iter().all(|node| node.news().junctions == ids && node.alarms().is_empty()));
    // One that nobody serves is gone, and its id is given to nothing else.
    late.stop().await;
    for node in &mut nodes {
        node.stop().await;
    }
    remove_junction(&*client, *removed).await.expect("it is there");
    let gone = remove_junction(&*client, *removed).await.expect_err("it is gone");
    assert_eq!(gone.kind(), ErrorKind::NotFound);
    let mut new = TestNode::new("n6");
    new.junctions = vec![junction(path, "d")];
    new.join(&stage).await;
    assert_eq!(new.news().junctions[path], JunctionId(6));
    // Whoever remembers another one says so.
    nodes[1].join(&stage).await;
    assert_eq!(nodes[1].news().junctions[path], JunctionId(6));
    let is_renumbered = |alarm: &ClusterAlarm| matches!(alarm, ClusterAlarm::JunctionRenumbered { .. });
    assert!(nodes[1].has_alarm(is_renumbered) && nodes[1].news().conflicted.is_empty());
    // One that is removed and that nobody else has made anew is found again by who remembers it.
    let id = nodes[1].news().junctions["/lib"];
    nodes[1].stop().await;
    remove_junction(&*client, id).await.expect("it is there");
    nodes[1].join(&stage).await;
    assert_eq!(nodes[1].news().junctions["/lib"], id);
}

pub async fn a_junction_that_is_renumbered_under_a_process_is_told_as_conflicted(stage: impl Stage) {
    make_cluster(&stage).await;
    let mut n1 = TestNode::new("n1");
    n1.junctions = vec![junction("/show", "d"), junction("/in", "d")];
    n1.join(&stage).await;
    let was = n1.news().junctions["/show"];
    let client = stage.client().await;
    let key = format!("junctions/{was}");
    let there = client.read(&key).await.expect("read").entries.remove(0);
    let swap = Swap::new().delete(key.as_str(), there.revision).create("junctions/9", there.value, None);
    assert!(matches!(client.swap(&swap).await, Ok(SwapOutcome::Won(_))));
    soon(&stage, "it is told", async || n1.news().conflicted == ["/show".to_owned()].into()).await;
    assert_eq!(n1.news().junctions["/show"], was, "its handles have that id");
    let is_renumbered = |alarm: &ClusterAlarm| matches!(alarm, ClusterAlarm::JunctionRenumbered { .. });
    soon(&stage, "there is an alarm", async || n1.has_alarm(is_renumbered)).await;
    soon(&stage, "the next process knows it", async || {
        n1.file().junctions.id_of(&junction("/show", "d")) == Some(JunctionId(9))
    })
    .await;
    n1.stop().await;
    n1.join(&stage).await;
    assert_eq!(n1.news().junctions["/show"], JunctionId(9));
    assert!(n1.news().conflicted.is_empty());
}

pub async fn settings_that_differ_are_told_with_the_junction_and_the_nodes(stage: impl Stage) {
    make_cluster(&stage).await;
    let mut nodes: Vec<TestNode> = ["n1", "n2", "n3"].map(TestNode::new).into();
    for node in &mut nodes {
        node.junctions = vec![junction("/show", "old"), junction("/in", "same")];
        node.join(&stage).await;
    }
    // The file is changed on one node after the other, as an operator does it.
    nodes[2].stop().await;
    nodes[2].junctions[0].digest = "new".to_owned();
    nodes[2].join(&stage).await;
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    for (changed, like, unlike) in [(1, vec!["n3"], vec!["n1", "n2"]), (0, vec!["n2", "n3"], vec!["n1"])] {
        let expected =
            SettingsDifference { path: "/show".to_owned(), like: names(&like), unlike: names(&unlike) };
        soon(&stage, &format!("all tell {expected:?}"), async || {
            let is_it = |alarm: &ClusterAlarm| match alarm {
                ClusterAlarm::SettingsDiffer(told) => {
                    let mut told = told.clone();
                    told.like.sort();
                    told.unlike.sort();
                    told == expected
                }
                _ => false,
            };
            nodes.iter().all(|node| node.has_alarm(is_it))
        })
        .await;
        nodes[changed].stop().await;
        nodes[changed].junctions[0].digest = "new".to_owned();
        nodes[changed].join(&stage).await;
    }
    soon(&stage, "it is over", async || nodes.iter().all(|node| node.alarms().is_empty())).await;
}

pub async fn a_record_that_cannot_be_read_is_left_out_alone(stage: impl Stage) {
    make_cluster(&stage).await;
    let n1 = TestNode::joined(&stage, "n1").await;
    let client = stage.client().await;
    let bad: [(&str, &[u8]); 8] = [
        ("nodes/00000000000000aa", b"{\"v\":2,\"name\":\"later\"}"),
        ("nodes/00000000000000ab", b"\xff\x00"),
        (
            "nodes/00000000000000ac",
            b"{\"v\":1,\"name\":\"\",\"addresses\":[],\"weight\":1,\"state\":\"up\",\"wire\":1}",
        ),
        ("nodes/n1", b"{}"),
        ("alive/00000000000000aa", b"[]"),
        ("junctions/0", b"{\"v\":1}"),
        ("junctions/7", b"{\"v\":1,\"path\":3}"),
        ("junction-ids", b"nothing"),
    ];
    for (key, value) in bad {
        let outcome = client.swap(&Swap::new().create(key, Bytes::copy_from_slice(value), None)).await;
        assert!(matches!(outcome, Ok(SwapOutcome::Won(_))), "{outcome:?}");
    }
    soon(&stage, "each is told by its key", async || {
        bad.iter().all(|(key, _)| {
            n1.has_alarm(|alarm| matches!(alarm, ClusterAlarm::UnreadableRecord(bad) if bad.key == *key))
        })
    })
    .await;
    // Everything else goes on, and no id is given out that a bad record may have.
    let mut n2 = TestNode::joined(&stage, "n2").await;
    agree(&stage, &[&n1, &n2], 2).await;
    assert_eq!(n1.map().nodes().len(), 2);
    n2.stop().await;
    n2.junctions = vec![junction("/show", "d")];
    n2.start(&stage).await;
    soon(
        &stage,
        "it waits, with the map that it had",
        async || matches!(&n2.news().status, MembershipStatus::FromFile(why) if why.contains("junction-ids")),
    )
    .await;
    for (key, _) in bad.iter().filter(|(key, _)| key.starts_with("junction")) {
        let there = client.read(key).await.expect("read").entries.remove(0);
        let removed = client.swap(&Swap::new().delete(*key, there.revision)).await;
        assert!(matches!(removed, Ok(SwapOutcome::Won(_))), "{removed:?}");
    }
    soon(&stage, "it is in", async || n2.is_joined()).await;
    assert_eq!(n2.news().junctions["/show"], JunctionId(8));
}

pub async fn a_node_that_is_removed_by_hand_leaves_one_number(stage: impl Stage) {
    make_cluster(&stage).await;
    let n1 = TestNode::joined(&stage, "n1").await;
    let mut n2 = TestNode::joined(&stage, "n2").await;
    let mut n3 = TestNode::joined(&stage, "n3").await;
    agree(&stage, &[&n1, &n2, &n3], 3).await;
    let (number, id) = (n1.map().number(), n3.id());
    n3.stop().await;
    let client = stage.client().await;
    let key = format!("nodes/{id}");
    let there = client.read(&key).await.expect("read").entries.remove(0);
    let removed = client.swap(&Swap::new().delete(key.as_str(), there.revision)).await;
    assert!(matches!(removed, Ok(SwapOutcome::Won(_))), "{removed:?}");
    soon(&stage, "the keys have the number", async || {
        let map = roll(&stage).await.map().expect("a map");
        map.nodes().len() == 2 && map == *n1.map() && map == *n2.map()
    })
    .await;
    assert!(n1.map().number() > number);
    n2.stop().await;
    n2.join(&stage).await;
    agree(&stage, &[&n1, &n2], 2).await;
    assert!(n1.alarms().is_empty() && n2.alarms().is_empty());
    assert_eq!((n1.news().history, n2.news().history), (0, 0));
}

pub async fn a_node_that_is_kept_out_is_no_steward(stage: impl Stage) {
    make_cluster(&stage).await;
    let n1 = TestNode::joined(&stage, "n1").await;
    let n2 = TestNode::joined(&stage, "n2").await;
    let steward = async || roll(&stage).await.steward.and_then(|kept| Some(kept.good()?.node.clone()));
    assert_eq!(steward().await, Some(n1.id().to_string()));
    // Somebody else has its sign of life.
    let client = stage.client().await;
    let lease = client.grant(Duration::from_secs(60)).await.expect("a lease");
    let other = AliveRecord { incarnation: Incarnation(7), differs: Default::default() };
    let other = write_record(&other).expect("JSON");
    let key = format!("alive/{}", n1.id());
    soon(&stage, "it is put", async || {
        let there = client.read(&key).await.expect("read").entries.remove(0);
        let swap = Swap::new().replace(key.as_str(), there.revision, other.clone(), Some(lease.id()));
        matches!(client.swap(&swap).await, Ok(SwapOutcome::Won(_)))
    })
    .await;
    soon(&stage, "the other one is it", async || steward().await == Some(n2.id().to_string())).await;
    assert!(n1.has_alarm(|alarm| matches!(alarm, ClusterAlarm::NotIn { .. })));
}

pub async fn a_record_under_the_name_of_a_member_is_told(stage: impl Stage) {
    make_cluster(&stage).await;
    let mut n1 = TestNode::joined(&stage, "n1").await;
    let client = stage.client().await;
    let own = client.read(&format!("nodes/{}", n1.id())).await.expect("read").entries.remove(0);
    let put = client.swap(&Swap::new().create("nodes/0000000000000001", own.value, None)).await;
    assert!(matches!(put, Ok(SwapOutcome::Won(_))), "{put:?}");
    let is_twice = |alarm: &ClusterAlarm| matches!(alarm, ClusterAlarm::NameTwice { name, nodes } if name == "n1" && nodes.len() == 2);
    soon(&stage, "it is told", async || n1.has_alarm(is_twice)).await;
    n1.stop().await;
    n1.join(&stage).await;
    assert!(n1.has_alarm(is_twice));
}

pub async fn a_rule_on_copies_is_seen_by_all_nodes_until_it_is_taken_back(stage: impl Stage) {
    make_cluster(&stage).await;
    let mut nodes = [TestNode::new("n1"), TestNode::new("n2")];
    for node in &mut nodes {
        node.junctions = vec![junction("/show", "d")];
        node.join(&stage).await;
    }
    let client = stage.client().await;
    let show = nodes[0].news().junctions["/show"];
    let seen = |node: &TestNode| node.news().copy_rules.get(&show).map(|rules| rules.rules.clone());
    let rules = |of: &[(&str, u8)]| -> Option<BTreeMap<String, u8>> {
        Some(of.iter().map(|(path, copies)| ((*path).to_owned(), *copies)).collect())
    };
    // Two at once: neither is lost.
    let set = |path: &'static str, copies| set_copies(&*client, show, path, copies);
    let (one, two) = tokio::join!(set("/plates", Some(3)), set("/", Some(2)));
    one.and(two).expect("set");
    let both = rules(&[("/", 2), ("/plates", 3)]);
    soon(&stage, "both are seen", async || nodes.iter().all(|node| seen(node) == both)).await;
    let revisions = nodes.each_ref().map(|node| node.news().copy_rules[&show].revision);
    assert_eq!(revisions[0], revisions[1], "what nodes tell each other goes by it");
    set("/", None).await.expect("taken back");
    let one = rules(&[("/plates", 3)]);
    soon(&stage, "one is left", async || nodes.iter().all(|node| seen(node) == one)).await;
    assert!(nodes[0].news().copy_rules[&show].revision > revisions[0]);
    set("/plates", None).await.expect("taken back");
    soon(&stage, "none is left", async || nodes.iter().all(|node| seen(node).is_none())).await;
    assert!(client.read("copies/").await.expect("read").entries.is_empty(), "the key is gone, too");
    set("/plates", Some(2)).await.expect("set");
    remove_junction(&*client, show).await.expect("removed");
    assert!(client.read("copies/").await.expect("read").entries.is_empty(), "it goes with its junction");
}
