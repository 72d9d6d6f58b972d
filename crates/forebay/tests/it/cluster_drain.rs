//! A node is taken out of a cluster in the lab, as operations.md says: drain, wait, stop, forget.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use testkit::lab::cluster::{ClusterLab, ClusterLabPlan, with_cluster_lab};
use testkit::lab::net::{LinkSide, eventually};
use testkit::lab::{Output, not_run};

const PATIENCE: Duration = Duration::from_secs(180);
const STRIPES: u64 = 2;
const STRIPE: u64 = 64 << 20;
/// A stripe takes eight seconds, so that the drain is seen under way.
const SLOWLY: &str = "8MB";

/// A command of an operator on a node.
fn forebay(lab: &ClusterLab, node: usize, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    let token = lab.nodes[node].cache().join("admin.token");
    command.args(arguments).arg("--token-file").arg(token);
    lab.nodes[node].host().run(&command, PATIENCE)
}

fn read(lab: &ClusterLab, node: usize) {
    let mut command = Command::new("sh");
    command.args(["-c", "nfs-cat \"$0\" | wc -c", &lab.nodes[node].nfs_url(0, "/plate.exr")]);
    let told = lab.clients[0].run(&command, PATIENCE);
    assert_eq!(told.stdout.trim().parse(), Ok(STRIPES * STRIPE), "{}", told.stderr);
}

#[test]
fn a_node_that_is_safe_to_stop_leaves_nothing_behind_that_is_read_from_afar_again() {
    let name = "a_node_that_is_safe_to_stop_leaves_nothing_behind_that_is_read_from_afar_again";
    if Command::new("nfs-cat").output().is_err() {
        return not_run(name, "Debian's libnfs-utils is not installed");
    }
    let plan = ClusterLabPlan { nodes: 3, ..Default::default() };
    with_cluster_lab(name, Path::new(env!("CARGO_BIN_EXE_forebay")), &plan, |lab| {
        let file = std::fs::File::create(lab.tree().join("plate.exr")).expect("made");
        file.set_len(STRIPES * STRIPE).expect("made long");
        for node in &lab.nodes {
            node.configure(&format!("[cluster]\nrepair_rate = \"{SLOWLY}\"\n"));
        }
        lab.found();
        (0..3).for_each(|node| lab.start_node(node));
        for node in &lab.nodes {
            eventually("each node knows all three", PATIENCE, || node.status()["cluster"]["up"] == 3);
        }
        read(lab, 0);
        // The one that leaves keeps something, whichever it is.
        let placed = forebay(lab, 0, &["placement", "/show/plate.exr", "--json"]).stdout;
        let placed: Value = serde_json::from_str(&placed).expect("JSON");
        let leaving = placed["stripes"][0]["copies"][0]["node"].as_str().expect("it has a primary");
        let at = lab.nodes.iter().position(|node| node.host().name() == leaving).expect("one of them");
        let asked = (at + 1) % 3;

        let early = forebay(lab, asked, &["drain", leaving, "--wait", "--patience", "0s"]);
        assert!(early.status == 1 && early.stdout.contains("not safe to stop yet"), "{}", early.stdout);
        let drained = forebay(lab, asked, &["drain", leaving, "--wait"]);
        assert_eq!(drained.status, 0, "{}", drained.stderr);
        assert!(drained.stdout.contains("is safe to stop"), "{}", drained.stdout);
        assert!(lab.nodes[at].service.end().success());
        let forgotten = || forebay(lab, asked, &["forget", leaving]).status == 0;
        eventually("the node's lease has ended, and it is forgotten", PATIENCE, forgotten);

        let far = lab.origin.host().link(0);
        let before = far.bytes(LinkSide::Out);
        for node in (0..3).filter(|node| *node != at) {
            read(lab, node);
        }
        let again = far.bytes(LinkSide::Out) - before;
        assert!(again < STRIPE / 100, "{again} bytes were read from afar again");
    });
}
