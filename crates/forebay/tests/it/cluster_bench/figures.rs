//! The figures of a cluster whose links carry 50 MB/s each: measurements, not tests. What the bench found goes to the directory
//! `FOREBAY_BENCH_OUT`, and in words to standard output.

use std::path::{Path, PathBuf};

use testkit::lab::cluster::{ClusterLab, with_cluster_lab};

use super::{JUNCTIONS, bench, found, kill_who_is_named, lose_by, plan, run};

/// Medians of so many.
const REPETITIONS: &str = "3";
/// Half of what a link carries.
const REPAIR: &str = "25MB";

fn out(name: &str) -> PathBuf {
    let dir = std::env::var_os("FOREBAY_BENCH_OUT").map_or_else(std::env::temp_dir, PathBuf::from);
    dir.join(name)
}

fn show(out: &Path, experiment: &str) {
    let page = std::fs::read_to_string(out.join(format!("{experiment}.md"))).expect("written");
    println!("{page}\nall of it is in {}", out.display());
}

/// What the loader says through the first `links` links of each node.
fn load(lab: &mut ClusterLab, links: usize, junction: &str, name: &str) {
    let out = out(name);
    let arguments = ["loader", "-n", REPETITIONS, "--junction", junction, "--link-rate", "50MB/s"];
    let size = ["--objects", "64", "--object-size", "4MiB", "--workers", "8", "--row-time", "10s"];
    let command = bench(lab, links, &[&arguments[..], &size].concat(), &out);
    run(lab, &command, |_| {});
    show(&out, "loader");
}

#[test]
#[ignore = "a measurement"]
fn copies_and_gateways() {
    with_cluster_lab("copies_and_gateways", Path::new(env!("CARGO_BIN_EXE_forebay")), &plan(3, 1), |lab| {
        found(lab, REPAIR);
        let (dir, out) = (tempfile::tempdir().expect("made"), out("replicas"));
        let junctions = JUNCTIONS.map(|(path, ..)| ["--junction", path]).concat();
        let lose = lose_by(dir.path());
        let arguments = [&["replicas", "-n", REPETITIONS, "--lose", &lose], junctions.as_slice()].concat();
        let command = bench(lab, 1, &arguments, &out);
        run(lab, &command, |lab| kill_who_is_named(lab, dir.path()));
        show(&out, "replicas");
    });
}

/// One link of each node, then both: the same nodes, clients and files.
#[test]
#[ignore = "a measurement"]
fn one_link_and_two_links_of_each_node() {
    let name = "one_link_and_two_links_of_each_node";
    with_cluster_lab(name, Path::new(env!("CARGO_BIN_EXE_forebay")), &plan(3, 2), |lab| {
        found(lab, REPAIR);
        load(lab, 1, "/three", "loader-one-link");
        load(lab, 2, "/three", "loader-two-links");
    });
}
