use std::os::unix::fs::PermissionsExt;

use cluster::{MapNode, NodeLabel, NodeState};

use super::*;

fn file() -> NodeFile {
    let node = MapNode {
        id: NodeId(0xff),
        name: "n1".to_owned(),
        weight: u64::MAX,
        label: NodeLabel::root(),
        state: NodeState::Up,
        addresses: vec!["10.0.0.1:7423".parse().expect("an address")],
    };
    let junction = KnownJunction { id: 3, path: "/show".to_owned(), url: "nfs://nas/show".to_owned() };
    let rules = CopyRules { revision: 9, rules: [("/a%20b".to_owned(), 3)].into() };
    NodeFile {
        cluster: ClusterId(7),
        node: NodeId(0xff),
        map: Some(ClusterMap::new(u64::MAX, vec![node]).expect("a map")),
        junctions: KnownJunctions { junctions: vec![junction], next: 4 },
        copy_rules: [(JunctionId(3), Arc::new(rules))].into(),
    }
}

#[test]
fn what_was_saved_is_loaded_and_is_nobody_elses() {
    let dir = tempfile::tempdir().expect("a directory");
    assert_eq!(NodeFile::load(dir.path()).expect("there is none"), None);
    let identity = NodeFile { map: None, ..file() };
    for saved in [identity, file()] {
        // What a crash has left behind is no obstacle.
        std::fs::write(dir.path().join(UNFINISHED), "half").expect("written");
        saved.save(dir.path()).expect("saved");
        assert_eq!(NodeFile::load(dir.path()).expect("it is good"), Some(saved));
    }
    let mode = std::fs::metadata(dir.path().join(NAME)).expect("it is there").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(dir.path()).expect("a directory").count(), 1);
    let missing = dir.path().join("missing");
    assert_eq!(file().save(&missing).expect_err("no directory").kind(), ErrorKind::NotFound);
}

#[test]
fn what_the_next_process_begins_with_is_written_at_once_and_other_news_of_the_map_later() {
    let kept = file();
    let with = |number: u64, own: NodeState, other: NodeState| {
        let mut own_node = kept.map.as_ref().expect("it has one").nodes()[0].clone();
        own_node.state = own;
        let other_node = MapNode { id: NodeId(1), name: "n2".to_owned(), state: other, ..own_node.clone() };
        let map = ClusterMap::new(number, vec![other_node, own_node]).expect("a map");
        NodeFile { map: Some(map), ..kept.clone() }
    };
    let before = with(9, NodeState::Up, NodeState::Up);
    assert!(!with(10, NodeState::Up, NodeState::Draining).is_urgent(Some(&before)), "another node drains");
    assert!(with(10, NodeState::Draining, NodeState::Up).is_urgent(Some(&before)), "it drains itself");
    assert!(with(8, NodeState::Up, NodeState::Up).is_urgent(Some(&before)), "etcd went back");
    let renumbered = NodeFile { junctions: KnownJunctions::default(), ..before.clone() };
    assert!(before.is_urgent(None) && renumbered.is_urgent(Some(&before)));
    assert!(before.is_urgent(Some(&NodeFile { map: None, ..before.clone() })), "it has just joined");
}

#[test]
fn rules_of_so_many_junctions_that_the_file_would_be_too_long_are_left_out_of_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let long = |at| (format!("/{at}{}", "x".repeat(4000)), 3);
    let full = Arc::new(CopyRules { revision: 9, rules: (0..16).map(long).collect() });
    let copy_rules: BTreeMap<_, _> = (1..400).map(|id| (JunctionId(id), full.clone())).collect();
    let saved = NodeFile { copy_rules, ..file() };
    saved.save(dir.path()).expect("saved");
    let loaded = NodeFile::load(dir.path()).expect("it is good").expect("it is there");
    assert!((10..400).contains(&loaded.copy_rules.len()), "{}", loaded.copy_rules.len());
    assert_eq!(loaded.junctions, saved.junctions);
}

#[test]
fn altered_bytes_are_an_error_or_a_file() {
    let dir = tempfile::tempdir().expect("a directory");
    file().save(dir.path()).expect("saved");
    let good = std::fs::read(dir.path().join(NAME)).expect("it is there");
    for at in 0..good.len() {
        for with in [0, b'"', b'9', 0xff] {
            let mut bad = good.clone();
            bad[at] = with;
            let _ = NodeFile::parse(&bad);
        }
        assert!(at + 2 > good.len() || NodeFile::parse(&good[..at]).is_err());
    }
}
