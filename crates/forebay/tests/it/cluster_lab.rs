//! The lab that clusters are tested in, with the program: a far origin, nodes and clients, each in a network of its own.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use testkit::lab::cluster::{ClusterLab, ClusterLabPlan, with_cluster_lab};
use testkit::lab::net::LinkSide;
use testkit::lab::not_run;

const SIZE: u64 = 6_000_000;
const RTT: Duration = Duration::from_millis(40);
const PATIENCE: Duration = Duration::from_secs(60);
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
        let bytes: Vec<u8> = (0..SIZE).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let file = lab.tree().join("plate.exr");
        std::fs::write(&file, bytes).expect("written");
        let sum = Command::new("sha256sum").stdin(std::fs::File::open(&file).expect("there")).output();
        let sum = String::from_utf8(sum.expect("it runs").stdout).expect("digits");

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
