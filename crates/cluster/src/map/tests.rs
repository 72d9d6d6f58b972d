use super::*;

fn node(id: u64) -> MapNode {
    MapNode {
        id: NodeId(id),
        name: format!("n{id}"),
        weight: 20 << 40,
        label: "/dc1/rack1".parse().expect("a label"),
        state: NodeState::Up,
        addresses: vec![SocketAddr::from(([10, 0, 0, 1], 7423)), SocketAddr::from(([10, 1, 0, 1], 7423))],
    }
}

/// What each commit has to read, and to write: older versions of Forebay do.
const TEXT: &str = concat!(
    r#"{"v":1,"number":17,"nodes":["#,
    r#"{"id":"0000000000000001","name":"n1","weight":21990232555520,"label":"/dc1/rack1","state":"up","#,
    r#""addresses":["10.0.0.1:7423","10.1.0.1:7423"]},"#,
    r#"{"id":"00000000000000ff","name":"gate","weight":0,"label":"/","state":"draining","#,
    r#""addresses":["[2001:db8::1]:7423"]}]}"#
);

fn parse(text: &str) -> Result<ClusterMap> {
    ClusterMap::from_json(text.as_bytes())
}

#[test]
fn the_json_of_a_map_is_as_it_was() {
    let map = parse(TEXT).expect("a map");
    assert_eq!(map.number(), 17);
    assert_eq!(map.nodes().len(), 2);
    assert_eq!(map.node(NodeId(1)), Some(&node(1)));
    let gate = map.node_named("gate").expect("it is there");
    assert_eq!((gate.id, gate.weight, gate.state), (NodeId(255), 0, NodeState::Draining));
    assert!(gate.label.is_root());
    assert_eq!(map.node(NodeId(2)), None);
    assert_eq!(map.to_json().expect("JSON"), TEXT);
}

#[test]
fn nodes_are_sorted_and_no_id_is_there_twice() {
    let map = ClusterMap::new(1, vec![node(3), node(1), node(2)]).expect("a map");
    assert!(map.nodes().is_sorted_by_key(|node| node.id));
    assert_eq!(map, ClusterMap::new(1, vec![node(2), node(3), node(1)]).expect("the same map"));
    let error = ClusterMap::new(1, vec![node(3), node(1), node(3)]).expect_err("twice");
    assert_eq!(error.to_string(), "read the cluster map node 0000000000000003 is there twice: Corrupt");
}

#[test]
fn what_is_no_map_is_an_error_that_says_why() {
    let changed = |from: &str, to: &str| {
        assert!(TEXT.contains(from), "{from}");
        TEXT.replacen(from, to, 1)
    };
    let address = |address: &str| changed("10.0.0.1:7423", address);
    let no_addresses = changed(r#"["10.0.0.1:7423","10.1.0.1:7423"]"#, "[]");
    let many = vec![r#""10.0.0.1:7423""#; ADDRESSES_MAX + 1].join(",");
    let many_addresses = changed(r#""10.0.0.1:7423","10.1.0.1:7423""#, &many);
    let long = "x".repeat(NAME_MAX + 1);
    for (text, word) in [
        ("".to_string(), "EOF"),
        ("[]".to_string(), "JSON"),
        (TEXT[..TEXT.len() - 1].to_string(), "EOF"),
        (format!("{TEXT} x"), "trailing"),
        (changed("\"v\":1", "\"v\":2"), "version is 2"),
        (changed("\"v\":1,", ""), "missing field `v`"),
        (changed("\"number\":17,", ""), "missing field `number`"),
        (changed(":17,", ":-17,"), "-17"),
        (changed(":17,", ":1.5,"), "1.5"),
        (changed(":17,", ":18446744073709551616,"), "JSON"),
        (changed("0000000000000001", "1"), "16 hexadecimal digits"),
        (changed("0000000000000001", "00000000000000ff"), "twice"),
        (changed("\"n1\"", "\"\""), "name"),
        (changed("\"n1\"", "\"-n1\""), "name"),
        (changed("\"n1\"", "\"n 1\\n\""), r#""n 1\n""#),
        (changed("\"n1\"", &format!("{long:?}")), "63 at most"),
        (changed("\"name\":\"n1\",", ""), "missing field `name`"),
        (changed("\"name\"", "\"id\""), "duplicate field `id`"),
        (changed("21990232555520", "-1"), "-1"),
        (changed("/dc1/rack1", "dc1"), "a label is a path"),
        (changed("\"up\"", "\"down\""), "down"),
        (address("10.0.0.1"), "JSON"),
        (address("host:7423"), "JSON"),
        (address("10.0.0.1:0"), "connect"),
        (address("0.0.0.0:7423"), "connect"),
        (address("[::]:7423"), "connect"),
        (no_addresses, "0 addresses"),
        (many_addresses, "17 addresses"),
        ("[".repeat(100_000), "JSON"),
        (" ".repeat(MAP_BYTES_MAX + 1), "bytes"),
    ] {
        let error = parse(&text).expect_err(&text);
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{text}: {error}");
        let message = error.to_string();
        assert!(message.contains(word), "{text}: {message:?} has no {word:?}");
    }
    let crowd = (0..=NODES_MAX as u64).map(node).collect();
    let error = ClusterMap::new(1, crowd).expect_err("too many");
    assert!(error.to_string().contains("4097 nodes"), "{error}");
    ClusterMap::new(1, (1..=NODES_MAX as u64).map(node).collect()).expect("the most nodes are a map");
}

#[test]
fn the_largest_map_with_usual_names_fits_in_the_bytes_of_one() {
    let nodes = (0..NODES_MAX as u64).map(|id| MapNode { weight: u64::MAX, ..node(u64::MAX - id) });
    let text = ClusterMap::new(u64::MAX, nodes.collect()).expect("a map").to_json().expect("JSON");
    assert!(text.len() < MAP_BYTES_MAX / 2, "{} bytes", text.len());
}

#[test]
fn the_largest_legal_map_is_read_back() {
    let longest = "[2001:db80:ffff:ffff:ffff:ffff:ffff:ffff%4294967295]:65535".parse().expect("an address");
    let label = format!("{}/{}", format!("/{}", "x".repeat(63)).repeat(3), "x".repeat(62));
    let nodes = (0..NODES_MAX as u64).map(|at| MapNode {
        id: NodeId(u64::MAX - at),
        name: "n".repeat(NAME_MAX),
        weight: u64::MAX,
        label: label.parse().expect("the longest label"),
        state: NodeState::Draining,
        addresses: vec![longest; ADDRESSES_MAX],
    });
    let map = ClusterMap::new(u64::MAX, nodes.collect()).expect("a map");
    let text = map.to_json().expect("JSON");
    assert!((5 << 20..MAP_BYTES_MAX).contains(&text.len()), "{} bytes", text.len());
    assert_eq!(parse(&text).expect("it is a map"), map);
}

#[test]
fn a_map_with_fields_that_are_not_known_yet_is_read() {
    let text =
        TEXT.replace("\"name\"", "\"build\":\"0.9\",\"name\"").replace("\"number\"", "\"x\":[],\"number\"");
    assert_eq!(parse(&text).expect("a map"), parse(TEXT).expect("a map"));
}

#[test]
fn a_map_with_any_byte_changed_is_a_map_or_an_error() {
    let mut maps = 0;
    for at in 0..TEXT.len() {
        for byte in [0, b'"', b'0', b'9', b',', b'}', b'[', b'/', b'-', b'\\', 0xff] {
            let mut bytes = TEXT.as_bytes().to_vec();
            bytes[at] = byte;
            let Ok(map) = ClusterMap::from_json(&bytes) else { continue };
            maps += 1;
            let again = parse(&map.to_json().expect("JSON")).expect("what was written is a map");
            assert_eq!(again, map);
        }
    }
    assert!(maps > 200, "only {maps} were maps");
}

#[test]
fn names_and_addresses_and_gateways_do_not_change_where_stripes_are() {
    let with = |change: fn(&mut MapNode)| {
        let mut changed = node(1);
        change(&mut changed);
        ClusterMap::new(2, vec![changed, node(2)]).expect("a map")
    };
    let map = with(|_| ());
    for same in [with(|node| node.name = "other".to_string()), with(|node| node.addresses.truncate(1))] {
        assert!(map.places_as(&same));
    }
    for other in [
        with(|node| node.id = NodeId(3)),
        with(|node| node.weight += 1),
        with(|node| node.weight = 0),
        with(|node| node.label = NodeLabel::root()),
        with(|node| node.state = NodeState::Draining),
        with(|node| node.state = NodeState::Out),
    ] {
        assert!(!map.places_as(&other));
    }
    let gateway = |state| MapNode { weight: 0, state, ..node(3) };
    let with_gateway = |state| ClusterMap::new(3, vec![node(1), node(2), gateway(state)]).expect("a map");
    assert!(NodeState::ALL.into_iter().all(|state| map.places_as(&with_gateway(state))));
}

#[test]
fn a_state_is_one_word() {
    for state in NodeState::ALL {
        assert_eq!(state.to_string().parse::<NodeState>().expect("a state"), state);
        assert_eq!(serde_json::to_string(&state).expect("JSON"), format!("{:?}", state.name()));
    }
    assert!("Up".parse::<NodeState>().is_err());
    assert_eq!(format!("{:>5}", NodeState::Up), "   up");
}
