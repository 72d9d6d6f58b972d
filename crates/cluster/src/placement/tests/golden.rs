//! Ranks that no build may change: nodes of different builds would look for a stripe in different places.

use std::fmt::Write as _;

use super::*;

/// The nodes of each map, and below them some stripes, each with the topology, the file, the index, and its ranks by
/// name; draining nodes stand behind `|`, and `..` where more ranks follow.
const FILE: &str = "tests/ranks.txt";
const HEAD: &str = "\
# Ranks of stripes. A change of this file moves the stripes of every cluster: it needs a new version `v` of the map.
# FOREBAY_GOLDEN=write cargo test -p cluster golden writes it anew.
";
/// Of a map with many nodes only so many are written.
const RANKS_WRITTEN: usize = 12;

fn maps() -> Vec<(&'static str, Vec<MapNode>, &'static [&'static str])> {
    let mut random = Random(0x0066_6f72_6562_6179);
    let mut nodes = |shape: &[(u64, &str)]| -> Vec<MapNode> {
        let numbered = shape.iter().zip(1..);
        let named = |((weight, label), number): (&(u64, &str), u64)| MapNode {
            name: format!("n{number}"),
            ..node(random.next(), *weight, label)
        };
        numbered.map(named).collect()
    };
    let one = nodes(&[(20 * TIB, "/")]);
    let even = nodes(&[(20 * TIB, "/"); 3]);
    // From a byte to all that a number holds.
    let uneven = nodes(&[
        (1, "/"),
        (TIB, "/"),
        (2 * TIB, "/"),
        (2 * TIB + 1, "/"),
        (7 * TIB, "/"),
        (0, "/"),
        (u64::MAX / 1_000_000, "/"),
        (u64::MAX, "/"),
    ]);
    let mut states =
        nodes(&[(8 * TIB, "/a"), (8 * TIB, "/a"), (4 * TIB, "/b"), (4 * TIB, "/b"), (2 * TIB, "/c")]);
    states[0].state = NodeState::Draining;
    states[3].state = NodeState::Draining;
    states[4].state = NodeState::Out;
    let mut ends = nodes(&[(TIB, "/"), (TIB, "/")]);
    ends[0].id = NodeId(0);
    ends[1].id = NodeId(u64::MAX);
    let racks = nodes(&[
        (10 * TIB, "/rack1"),
        (10 * TIB, "/rack1"),
        (10 * TIB, "/rack1"),
        (10 * TIB, "/rack1"),
        (10 * TIB, "/rack2"),
        (20 * TIB, "/rack2"),
        (30 * TIB, "/rack3"),
        (30 * TIB, "/"),
    ]);
    let sites = nodes(&[
        (10 * TIB, "/dc1/rack1"),
        (10 * TIB, "/dc1/rack1"),
        (10 * TIB, "/dc1/rack2"),
        (20 * TIB, "/dc1/rack2"),
        (10 * TIB, "/dc2/rack1"),
        (10 * TIB, "/dc2/rack2"),
        (20 * TIB, "/dc2/rack2"),
        (10 * TIB, "/dc22/rack1"),
    ]);
    let labels: Vec<String> = (0..100).map(|at| format!("/rack{}", at % 10)).collect();
    let hundred: Vec<(u64, &str)> = labels.iter().zip(1..).map(|(label, at)| (at * TIB, &**label)).collect();
    let hundred = nodes(&hundred);
    let all: &[&str] = &["/"];
    vec![
        ("one", one, all),
        ("even", even, all),
        ("uneven", uneven, all),
        ("states", states, &["/", "/a", "/c"]),
        ("ends", ends, all),
        ("racks", racks, &["/", "/rack1", "/rack2"]),
        ("sites", sites, &["/", "/dc1", "/dc2", "/dc2/rack2", "/dc22", "/dc3"]),
        ("hundred", hundred, &["/", "/rack7"]),
    ]
}

fn golden() -> String {
    let mut random = Random(0x7374_7269_7065_7321);
    let mut text = HEAD.to_string();
    for (title, nodes, topologies) in maps() {
        let map = map(nodes);
        writeln!(text, "\nmap {title}").expect("a string");
        for MapNode { id, name, weight, label, state, .. } in map.nodes() {
            writeln!(text, "node {name} {id} {weight} {label} {state}").expect("a string");
        }
        for topology in topologies {
            let placement = Placement::new(map.clone(), &topology.parse().expect("a label"));
            for round in 0..24 {
                let file = match round {
                    0 => FileId([0; 16]),
                    1 => FileId([0xff; 16]),
                    _ => random.file(),
                };
                let indexes = [0, 1, 2, 159, 1 << 37, u64::MAX];
                let stripe = Stripe { file, index: indexes[round % indexes.len()] };
                let line = line(&map, &placement.ranks(stripe));
                writeln!(text, "{title} {topology} {file} {} = {line}", stripe.index).expect("a string");
            }
        }
    }
    text
}

fn line(map: &ClusterMap, ranks: &StripeRanks) -> String {
    let name = |node: NodeId| map.node(node).expect("it is in the map").name.as_str();
    let mut names: Vec<&str> = ranks.keepers(RANKS_WRITTEN).iter().map(|node| name(*node)).collect();
    if ranks.keepers(usize::MAX).len() > RANKS_WRITTEN {
        names.push("..");
    }
    let mut leaving = ranks.leaving(usize::MAX).map(name).peekable();
    if leaving.peek().is_some() {
        names.push("|");
    }
    names.extend(leaving);
    if names.is_empty() { "none".to_string() } else { names.join(" ") }
}

#[test]
fn the_golden_file_of_ranks_is_kept() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(FILE);
    let found = golden();
    if std::env::var("FOREBAY_GOLDEN").is_ok_and(|how| how == "write") {
        std::fs::write(&path, &found).expect("the golden file is written");
    }
    let kept = std::fs::read_to_string(&path).expect("the golden file is there");
    for (at, (kept, found)) in kept.lines().zip(found.lines()).enumerate() {
        assert_eq!(kept, found, "line {} of {FILE}", at + 1);
    }
    assert_eq!(kept.len(), found.len(), "{FILE} has another length");
    assert!(kept.lines().filter(|line| line.contains(" = ")).count() >= 300);
}
