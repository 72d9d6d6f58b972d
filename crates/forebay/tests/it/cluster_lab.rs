//! The program in the lab that clusters are tested in: a far origin, nodes and clients, each in a network of its own.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use testkit::lab::cluster::{ClusterLab, ClusterLabPlan, with_cluster_lab};
use testkit::lab::net::{LinkSide, eventually};
use testkit::lab::not_run;

const SIZE: u64 = 6_000_000;
const RTT: Duration = Duration::from_millis(40);
const PATIENCE: Duration = Duration::from_secs(180);
const SILENCE: Duration = Duration::from_secs(1);

/// What a client runs to read the file from a node over the link of this number.
fn reader(lab: &ClusterLab, node: usize, link: usize) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "nfs-cat \"$0\" | sha256sum", &lab.nodes[node].nfs_url(link, "/plate.exr")]);
    command
}

/// Its sum, and how long it took.
fn read(lab: &ClusterLab, node: usize, link: usize) -> (String, Duration) {
    let begun = Instant::now();
    let output = lab.clients[0].run(&reader(lab, node, link), PATIENCE);
    assert_eq!(output.stderr, "");
    (output.stdout, begun.elapsed())
}

/// Write the file at the origin; its sum.
fn write(lab: &ClusterLab, size: u64) -> String {
    let bytes: Vec<u8> = (0..size).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let file = lab.tree().join("plate.exr");
    std::fs::write(&file, bytes).expect("written");
    let sum = Command::new("sha256sum").stdin(std::fs::File::open(&file).expect("there")).output();
    String::from_utf8(sum.expect("it runs").stdout).expect("digits")
}

/// What has left the origin's host.
fn far_bytes(lab: &ClusterLab) -> u64 {
    lab.origin.host().link(0).bytes(LinkSide::Out)
}

#[test]
fn a_client_in_the_lab_reads_a_far_origin_through_nodes_that_are_stopped_and_killed() {
    let name = "a_client_in_the_lab_reads_a_far_origin_through_nodes_that_are_stopped_and_killed";
    if Command::new("nfs-cat").output().is_err() {
        return not_run(name, "Debian's libnfs-utils is not installed");
    }
    let plan = ClusterLabPlan { nodes: 2, links: 2, origin_rtt: RTT, ..Default::default() };
    with_cluster_lab(name, Path::new(env!("CARGO_BIN_EXE_forebay")), &plan, |lab| {
        let sum = write(lab, SIZE);
        lab.start_node(0);
        assert_eq!(lab.nodes[0].status()["junctions"][0]["path"], "/show");
        let (cold, took) = read(lab, 0, 0);
        assert_eq!(cold, sum);
        assert!(took > 2 * RTT, "{took:?} from an origin that is {RTT:?} away");
        let asked = far_bytes(lab);
        assert!(asked >= SIZE, "{asked} bytes of {SIZE} left the origin");
        assert_eq!(lab.nodes[0].metric("forebay_origin_bytes_total{junction=\"/show\"}") as u64, SIZE);

        let over_the_second = |lab: &ClusterLab| lab.nodes[0].host().link(1).bytes(LinkSide::Out);
        let before = over_the_second(lab);
        assert_eq!(read(lab, 0, 1).0, sum);
        assert!(over_the_second(lab) >= before + SIZE, "it did not take the link it was asked by");

        lab.nodes[0].service.stop();
        let mut waiting = lab.clients[0].start("reader", &reader(lab, 0, 0));
        assert!(waiting.wait(SILENCE).is_none(), "a stopped node answered");
        lab.nodes[0].service.go_on();
        assert!(waiting.wait(PATIENCE).is_some_and(|status| status.success()));
        assert_eq!(waiting.log(), sum);

        lab.nodes[0].service.kill();
        assert!(lab.nodes[0].get("/v1/status").is_err(), "it was killed, and answers");
        lab.start_node(0);
        assert_eq!(read(lab, 0, 0).0, sum);
        assert!(far_bytes(lab) < asked + SIZE / 10, "what was cached was read again");

        lab.nodes[0].service.kill();
        lab.nodes[0].wipe();
        lab.start_node(0);
        assert_eq!(read(lab, 0, 0).0, sum);
        assert!(far_bytes(lab) >= asked + SIZE, "what was wiped was not read again");

        lab.origin.kill();
        lab.etcd.kill();
        lab.start_etcd();
        lab.start_origin();
        lab.start_node(1);
        assert_eq!(read(lab, 1, 1).0, sum);
        assert!(lab.nodes[1].service.end().success());
    });
}

/// Some stripes.
const LARGE: u64 = 200_000_000;
/// Bytes that a node asked the origin for itself, since it could not ask the stripe's primary: on a machine that does much else
/// there are some.
const AROUND: &str = "forebay_cluster_read_bytes_total{from=\"Around\"}";
/// All that it read there.
const ORIGIN_BYTES: &str = "forebay_origin_bytes_total{junction=\"/show\"}";

#[test]
fn what_clients_of_all_nodes_read_at_once_leaves_the_origin_once_but_for_counted_reads_around() {
    let name = "what_clients_of_all_nodes_read_at_once_leaves_the_origin_once_but_for_counted_reads_around";
    if Command::new("nfs-cat").output().is_err() {
        return not_run(name, "Debian's libnfs-utils is not installed");
    }
    let plan = ClusterLabPlan { nodes: 3, clients: 3, links: 2, origin_rtt: RTT, ..Default::default() };
    with_cluster_lab(name, Path::new(env!("CARGO_BIN_EXE_forebay")), &plan, |lab| {
        let sum = write(lab, LARGE);
        lab.found();
        (0..3).for_each(|node| lab.start_node(node));
        for node in &lab.nodes {
            eventually("each node knows all three", PATIENCE, || node.status()["cluster"]["up"] == 3);
        }
        let before = far_bytes(lab);
        let read = |at: usize| lab.clients[at].start("reader", &reader(lab, at, at % 2));
        let readers: Vec<_> = (0..3).map(read).collect();
        for mut reader in readers {
            assert!(reader.wait(PATIENCE).is_some_and(|status| status.success()), "{}", reader.log());
            assert_eq!(reader.log(), sum);
        }
        let asked = far_bytes(lab) - before;
        let around: f64 = lab.nodes.iter().map(|node| node.metric(AROUND)).sum();
        let twice = asked as f64 - LARGE as f64;
        println!("cluster lab: of {LARGE} bytes {twice} left the origin again, {around} around the primary");
        assert!(twice >= 0.0, "{asked} bytes of {LARGE} left the origin");
        // Any node tells of all.
        let at_origins: f64 = lab.nodes.iter().map(|node| node.metric(ORIGIN_BYTES)).sum();
        for node in &lab.nodes {
            let told = || node.status()["cluster"].clone();
            eventually("a node tells what all have read from afar", PATIENCE, || {
                told()["far_bytes"].as_u64() == Some(at_origins as u64)
            });
            assert!(told()["cached"].as_u64() >= Some(LARGE), "{}", told());
        }
        // With frames, and with names, which each node asks for itself.
        assert!(
            twice <= around + LARGE as f64 / 100.0,
            "{twice} bytes left the origin again, {around} are accounted for"
        );
        assert!(twice < LARGE as f64 / 2.0, "the nodes do not share what they read");
    });
}
