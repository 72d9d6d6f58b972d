use super::*;
use crate::map::{MapNode, NodeState};

/// Older versions of Forebay write it, and read it.
const TEXT: &str = concat!(
    r#"{"v":1,"cluster":"00000000000000aa","teller":"0000000000000001","map":{"v":1,"number":17,"nodes":["#,
    r#"{"id":"0000000000000001","name":"n1","weight":7,"label":"/dc1","state":"up","addresses":["10.0.0.1:7423"]}]},"#,
    r#""nfs":{"0000000000000001":["10.0.0.1:2049"]},"silent":["00000000000000ff"],"junctions":["#,
    r#"{"id":1,"path":"/show","copies":2,"topology":"/dc1"},{"id":2,"path":"/bucket","topology":"/"}]}"#
);

fn map() -> ClientMap {
    let node = MapNode {
        id: NodeId(1),
        name: "n1".to_owned(),
        weight: 7,
        label: "/dc1".parse().expect("a label"),
        state: NodeState::Up,
        addresses: vec!["10.0.0.1:7423".parse().expect("an address")],
    };
    let spread = JunctionSpread { copies: 2, topology: "/dc1".parse().expect("a label") };
    ClientMap {
        cluster: "00000000000000aa".to_owned(),
        teller: NodeId(1),
        map: Arc::new(ClusterMap::new(17, vec![node]).expect("a map")),
        nfs: [(NodeId(1), vec!["10.0.0.1:2049".parse().expect("an address")])].into(),
        silent: [NodeId(255)].into(),
        junctions: vec![
            ClientJunction { id: JunctionId(1), path: "/show".to_owned(), spread: Some(spread) },
            ClientJunction { id: JunctionId(2), path: "/bucket".to_owned(), spread: None },
        ],
    }
}

#[test]
fn the_document_for_clients_is_as_it_was_and_comes_back() {
    assert_eq!(String::from_utf8(map().to_json().expect("JSON")).expect("text"), TEXT);
    let read = ClientMap::from_json(TEXT.as_bytes()).expect("a map");
    assert_eq!(read, map());
    assert!(read.junction(JunctionId(2)).is_some_and(|bucket| bucket.spread.is_none()));
    assert_eq!(read.junction(JunctionId(3)), None);
}

#[test]
fn what_is_new_in_the_document_is_passed_over_and_another_version_is_not() {
    let more = TEXT.replacen(r#""silent""#, r#""later":{"a":[1]},"silent""#, 1);
    assert_eq!(ClientMap::from_json(more.as_bytes()).expect("a map"), map());
    let later = TEXT.replacen(r#""v":1"#, r#""v":2"#, 1);
    let error = ClientMap::from_json(later.as_bytes()).expect_err("another version").to_string();
    assert!(error.contains("its version is 2; this version of Forebay reads 1"), "{error}");
}

#[test]
fn a_document_that_names_what_cannot_be_is_an_error_that_says_why() {
    for (from, to, word) in [
        (r#""copies":2"#, r#""copies":0"#, "1 copy or more"),
        (r#""path":"/show""#, r#""path":"show""#, "begins with a slash"),
        (r#""teller":"0000000000000001""#, r#""teller":"n1""#, "16 hexadecimal digits"),
        (r#""cluster":"00000000000000aa""#, r#""cluster":"""#, "a cluster's id"),
        (r#"{"v":1,"number""#, r#"{"v":3,"number""#, "its version is 3"),
    ] {
        assert!(TEXT.contains(from), "{from}");
        let error = ClientMap::from_json(TEXT.replacen(from, to, 1).as_bytes()).expect_err(to).to_string();
        assert!(error.contains(word), "{to}: {error}");
    }
    let long = vec![b' '; CLIENT_MAP_BYTES_MAX + 1];
    assert!(ClientMap::from_json(&long).expect_err("too long").to_string().contains("are the most"));
}

#[test]
fn an_address_that_leads_nowhere_costs_the_client_that_address_alone() {
    for nowhere in ["0.0.0.0:2049", "10.0.0.1:0"] {
        let read =
            ClientMap::from_json(TEXT.replacen("10.0.0.1:2049", nowhere, 1).as_bytes()).expect("a map");
        assert_eq!(read.nfs[&NodeId(1)].len(), map().nfs[&NodeId(1)].len() - 1, "{nowhere}");
        assert_eq!(read.junctions, map().junctions);
    }
}

#[test]
fn a_document_with_altered_bytes_gives_a_map_or_an_error() {
    for at in 0..TEXT.len() {
        for with in [0, b'"', b'{', b'9', 0xff] {
            let mut bad = TEXT.as_bytes().to_vec();
            bad[at] = with;
            let _ = ClientMap::from_json(&bad);
        }
        let _ = ClientMap::from_json(&TEXT.as_bytes()[..at]);
    }
}
