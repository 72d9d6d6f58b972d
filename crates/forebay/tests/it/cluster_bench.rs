//! `forebay bench` over the nodes of a cluster, in the lab: what is asserted is what was counted, never how fast something was. The
//! figures are measurements:
//! `cargo test --release -p forebay --test it cluster_bench::figures -- --ignored --nocapture --test-threads=1`

mod figures;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use testkit::lab::cluster::{ClusterLab, ClusterLabPlan, with_cluster_lab};
use testkit::lab::net::{LinkSide, eventually};
use testkit::lab::not_run;

use crate::bench::room::{column, columns, invalid, rows, table};
use crate::tier::forebay_bench;

const AROUND: &str = "from the storage, around the primary MiB";
const PATIENCE: Duration = Duration::from_secs(240);
/// The alarm is raised within this time of a loss.
const ALARM: f64 = 10.0;
/// Labels within each other, so that a topology has one, two or three of the nodes.
const LABELS: [&str; 3] = ["/all/two/one", "/all/two/other", "/all/rest"];
/// A junction for each of them: its path, the label that its copies are within, and how many there are.
const JUNCTIONS: [(&str, &str, usize); 3] =
    [("/one", LABELS[0], 1), ("/two", "/all/two", 2), ("/three", "/all", 3)];

fn plan(nodes: usize, links: usize) -> ClusterLabPlan {
    // The client is not what limits it.
    ClusterLabPlan {
        nodes,
        links,
        client_rate: 400_000_000,
        origin_rtt: Duration::from_millis(20),
        ..Default::default()
    }
}

/// What a copy is made again at in a test: slowly, so that it is seen missing.
const SLOWLY: &str = "2MB";

/// Three nodes at most, and the junctions; all nodes are up when this returns.
fn found(lab: &mut ClusterLab, repair_rate: &str) {
    let far = lab.far();
    for (node, label) in lab.nodes.iter().zip(LABELS) {
        let junction = |(path, topology, copies): (&str, &str, usize)| {
            format!(
                "[[junction]]\npath = \"{path}\"\norigin = \"nfs://{far}/?mountport={}\"\ntopology = \"{topology}\"\n\
                 copies = {copies}\n",
                far.port()
            )
        };
        // Two nodes alone have no third copy to make.
        let junctions: String = JUNCTIONS.into_iter().take(lab.nodes.len()).map(junction).collect();
        node.configure(&format!(
            "{junctions}[cluster]\nlabel = \"{label}\"\nrepair_rate = \"{repair_rate}\"\n"
        ));
    }
    lab.found();
    (0..lab.nodes.len()).for_each(|node| lab.start_node(node));
    await_nodes(lab);
}

fn await_nodes(lab: &ClusterLab) {
    let all = lab.nodes.len();
    for node in &lab.nodes {
        eventually("each node knows all of them, and each answers", PATIENCE, || {
            let cluster = &node.status()["cluster"];
            cluster["up"] == all && cluster["silent"].as_array().is_some_and(Vec::is_empty)
        });
    }
}

/// The bench, as it is typed on a client. `links`: of each node.
fn bench(lab: &ClusterLab, links: usize, arguments: &[&str], out: &Path) -> Command {
    let mut command = forebay_bench();
    command.args(arguments).arg("--origin").arg(lab.tree()).arg("--out").arg(out);
    for node in &lab.nodes {
        command.arg("--node").arg(node.bench_node(links));
    }
    command
}

/// Runs it on the client; `meanwhile` is called again and again.
fn run(lab: &mut ClusterLab, command: &Command, mut meanwhile: impl FnMut(&mut ClusterLab)) {
    let mut process = lab.clients[0].start("bench", command);
    let begun = std::time::Instant::now();
    let status = loop {
        if let Some(status) = process.wait(Duration::from_millis(100)) {
            break status;
        }
        assert!(begun.elapsed() < 4 * PATIENCE, "it hangs: {}", process.log());
        meanwhile(lab);
    };
    assert!(status.success(), "{}", process.log());
}

fn result(out: &Path, name: &str) -> Value {
    let text = std::fs::read_to_string(out.join(format!("{name}.json"))).expect("a result");
    serde_json::from_str(&text).expect("JSON")
}

/// Kills the node that a command of [`lose_by`] names, and starts it without its cache once another node has raised the alarm.
fn kill_who_is_named(lab: &mut ClusterLab, dir: &Path) {
    let (asked, done) = (dir.join("lose"), dir.join("lost"));
    let Ok(name) = std::fs::read_to_string(&asked) else { return };
    let node = lab.nodes.iter().position(|node| node.host().name() == name.trim()).expect("one of them");
    lab.nodes[node].service.kill();
    let counts = |at: usize| {
        let status = lab.nodes[at].status();
        status["cluster"]["under_replicated"].as_array().is_some_and(|all| !all.is_empty())
    };
    let others: Vec<usize> = (0..lab.nodes.len()).filter(|other| *other != node).collect();
    eventually("another node raises the alarm", PATIENCE, || others.iter().any(|other| counts(*other)));
    lab.nodes[node].wipe();
    lab.start_node(node);
    await_nodes(lab);
    std::fs::remove_file(asked).expect("it was there");
    std::fs::write(done, "").expect("written");
}

/// A command that has [`kill_who_is_named`] do its part, and waits until it is done.
fn lose_by(dir: &Path) -> String {
    let dir = dir.display();
    format!(
        "echo \"$NODE\" > {dir}/name && mv {dir}/name {dir}/lose && while ! [ -e {dir}/lost ]; do sleep 0.1; done; rm {dir}/lost"
    )
}

fn number(cell: &Value) -> f64 {
    cell["estimate"]["median"].as_f64().or_else(|| cell["number"].as_f64()).unwrap_or(f64::NAN)
}

/// `[copies, gateways]`, the state, and the figure of a column.
fn figures_of(table: &Value, name: &str) -> Vec<(u64, u64, String, f64)> {
    let count =
        |head: &str| column(table, head).into_iter().map(|cell| cell["count"].as_u64().expect("a count"));
    let states =
        column(table, "State").into_iter().map(|cell| cell["text"].as_str().expect("text").to_owned());
    let values = column(table, name).into_iter().map(number);
    let all = count("Replicas").zip(count("Gateways")).zip(states).zip(values);
    all.map(|(((copies, gateways), state), value)| (copies, gateways, state, value)).collect()
}

/// Reasons that are not about how fast this machine is. Where a node did not hear another one in time it asks the storage itself,
/// and counts that: such bytes have been accounted for.
fn wrong(table: &Value, around: f64) -> Vec<&str> {
    let mut reasons = invalid(table);
    reasons
        .retain(|why| !(why.contains("too short") || around > 0.0 && why.contains("came from the storage")));
    reasons
}

#[test]
fn local_reads_are_what_the_copies_say_and_a_lost_copy_is_read_elsewhere_until_it_is_made_again() {
    let name = "local_reads_are_what_the_copies_say_and_a_lost_copy_is_read_elsewhere_until_it_is_made_again";
    with_cluster_lab(name, Path::new(env!("CARGO_BIN_EXE_forebay")), &plan(3, 1), |lab| {
        found(lab, SLOWLY);
        let dir = tempfile::tempdir().expect("made");
        let junctions = JUNCTIONS.map(|(path, ..)| ["--junction", path]).concat();
        let arguments = [&["replicas", "-n", "1", "--file-size", "40MiB"], junctions.as_slice()].concat();
        let command = bench(lab, 1, &arguments, dir.path());
        run(lab, &command, |_| {});
        let told = result(dir.path(), "replicas");
        let copies = table(&told, "Copies, gateways and rates");
        let storage = table(&told, "Where the bytes came from");
        let around = figures_of(storage, AROUND);
        assert_eq!(wrong(copies, around.iter().map(|(.., mib)| mib).sum()), Vec::<&str>::new());
        let local = figures_of(copies, "local-read %");
        let states = |copies, gateways| {
            let of = local.iter().filter(|(c, g, ..)| (*c, *g) == (copies, gateways));
            of.map(|(_, _, state, _)| state.as_str()).collect::<Vec<_>>()
        };
        let find = |figures: &[(u64, u64, String, f64)], copies, gateways, state| {
            let found = figures.iter().find(|(c, g, s, _)| (*c, *g, s.as_str()) == (copies, gateways, state));
            found.unwrap_or_else(|| panic!("{copies} {gateways} {state}: {figures:?}")).3
        };
        // What was read around the primary was not local, and was to be.
        let is = |copies, gateways, state, expected: f64| {
            let percent = find(&local, copies, gateways, state);
            find(&around, copies, gateways, state) > 0.0 || (percent - expected).abs() < 8.0
        };
        assert_eq!(local.len(), 13, "{local:?}");
        let three = ["settled", "right after a loss", "after the repair"];
        assert_eq!(
            (states(2, 2), states(3, 3), states(2, 1)),
            (three.to_vec(), three.to_vec(), vec!["settled"])
        );
        // One node has it: the others have nothing.
        for (gateways, share) in [(1, 100.0), (2, 50.0), (3, 33.3)] {
            assert!(is(1, gateways, "settled", share), "{gateways}: {local:?}");
        }
        for copies in [2, 3] {
            assert!(is(copies, copies, "settled", 100.0), "{local:?}");
            assert!(find(&local, copies, copies, "right after a loss") < 99.0, "{local:?}");
            assert!(is(copies, copies, "after the repair", 100.0), "{local:?}");
        }
        assert!(is(2, 3, "settled", 66.7), "{local:?}");
        let from = figures_of(storage, "from the storage, by the primary MiB");
        assert!(from.iter().all(|(.., mib)| *mib == 0.0), "{from:?}");
        // It was read through one node alone, so the other one sent nothing.
        let sent = column(table(&told, "Rates of the nodes"), "to other nodes MiB/s");
        assert_eq!(number(sent[0]), 0.0);
        let by_node = table(&told, "Placement by node of /one");
        let held: Vec<u64> =
            column(by_node, "chunks held").iter().filter_map(|cell| cell["count"].as_u64()).collect();
        assert_eq!(held, [1, 0, 0]);
        let whole = column(table(&told, "Losses and repairs"), "copies whole, s after the loss");
        assert!(whole.iter().all(|cell| number(cell) >= 0.0) && whole.len() == 2, "{whole:?}");
        assert!(rows(table(&told, "MapR-FS")).len() == 7, "what was published stands beside it");
        // Everything is as it was: the node that was drained keeps stripes, and the files are gone.
        assert_eq!(lab.nodes[0].status()["cluster"]["up"], 3);
        assert_eq!(std::fs::read_dir(lab.tree()).expect("there").count(), 0);
    });
}

#[test]
fn the_loss_of_a_node_raises_an_alarm_that_ends_when_the_copies_are_made_again() {
    let name = "the_loss_of_a_node_raises_an_alarm_that_ends_when_the_copies_are_made_again";
    with_cluster_lab(name, Path::new(env!("CARGO_BIN_EXE_forebay")), &plan(3, 1), |lab| {
        found(lab, SLOWLY);
        let dir = tempfile::tempdir().expect("made");
        let lose = lose_by(dir.path());
        let arguments =
            ["replicas", "-n", "1", "--file-size", "24MiB", "--gateways", "3", "--junction", "/three"];
        let command = bench(lab, 1, &[&arguments[..], &["--lose", &lose]].concat(), dir.path());
        run(lab, &command, |lab| kill_who_is_named(lab, dir.path()));
        let told = result(dir.path(), "replicas");
        let around =
            figures_of(table(&told, "Where the bytes came from"), AROUND).iter().map(|(.., mib)| mib).sum();
        assert_eq!(wrong(table(&told, "Copies, gateways and rates"), around), Vec::<&str>::new());
        let losses = table(&told, "Losses and repairs");
        let figure = |head: &str| number(column(losses, head)[0]);
        let raised = figure("alarm, s after the loss began");
        assert!(raised > 0.0 && raised < ALARM, "{raised} s until the alarm");
        assert!(figure("alarm over, s after the loss") >= 0.0, "{losses}");
    });
}

#[test]
fn each_link_of_each_node_carries_its_clients_and_disks_are_held_against_fio() {
    let name = "each_link_of_each_node_carries_its_clients_and_disks_are_held_against_fio";
    if Command::new("fio").arg("--version").output().is_err() {
        return not_run(name, "Debian's fio is not installed");
    }
    with_cluster_lab(name, Path::new(env!("CARGO_BIN_EXE_forebay")), &plan(2, 2), |lab| {
        found(lab, SLOWLY);
        let dir = tempfile::tempdir().expect("made");
        let arguments =
            ["loader", "-n", "1", "--row-time", "1s", "--junction", "/two", "--link-rate", "50MB/s"];
        let size = ["--objects", "8", "--object-size", "4MiB", "--workers", "2"];
        let command = bench(lab, 2, &[&arguments[..], &size].concat(), dir.path());
        let sent = |lab: &ClusterLab, node: usize, link: usize| {
            lab.nodes[node].host().link(link).bytes(LinkSide::Out)
        };
        let before: Vec<u64> =
            [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(node, link)| sent(lab, node, link)).to_vec();
        run(lab, &command, |_| {});
        let told = result(dir.path(), "loader");
        let epochs = table(&told, "Epochs");
        assert_eq!(columns(epochs), ["Metric", "Cold", "Warm", "From the disks"]);
        // A warm epoch that asked the storage says why by its counters; this test has no such column.
        assert_eq!(wrong(epochs, f64::INFINITY), Vec::<&str>::new());
        let links = table(&told, "Links");
        let nodes: Vec<&str> =
            column(links, "Node").iter().filter_map(|cell| cell["text"].as_str()).collect();
        assert_eq!(nodes, ["n1", "n1", "n2", "n2"]);
        for head in ["cold MiB/s", "warm MiB/s", "warm, share of the link"] {
            assert!(column(links, head).into_iter().all(|cell| number(cell) > 0.0), "{head}: {links}");
        }
        // A client at each link, which reads 32 MiB cold, warm and from the disks.
        for (at, (node, link)) in [(0, 0), (0, 1), (1, 0), (1, 1)].into_iter().enumerate() {
            let carried = sent(lab, node, link) - before[at];
            assert!(carried >= 3 * (32 << 20), "link {link} of node {node} carried {carried} bytes");
        }
        let amplified = rows(epochs)
            .iter()
            .find(|row| row["cells"][0]["text"] == "Amplification (storage bytes / data set)");
        let cold = number(&amplified.expect("a row")["cells"][1]);
        assert!((1.0..1.9).contains(&cold), "{cold} times the data set came from the storage");
        let disks = table(&told, "Disks");
        assert!(column(disks, "fio MiB/s").into_iter().all(|cell| number(cell) > 0.0), "{disks}");
        let served = column(table(&told, "Nodes"), "to clients, warm MiB/s");
        assert!(served.into_iter().all(|cell| number(cell) > 0.0));
    });
}
