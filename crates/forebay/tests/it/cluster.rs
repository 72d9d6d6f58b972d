//! The demo of a cluster, as `make cluster` runs it: etcd and three processes.

use std::process::Command;

use testkit::lab::not_run;
use testkit::process::tool;

#[test]
fn three_nodes_read_as_one_and_one_of_them_is_killed_under_a_read() {
    if tool("etcd").is_none() {
        return not_run(
            "three_nodes_read_as_one_and_one_of_them_is_killed_under_a_read",
            "etcd is not installed",
        );
    }
    let dir = tempfile::tempdir().expect("made");
    let sample = dir.path().join("sample");
    std::fs::create_dir(&sample).expect("made");
    std::fs::write(sample.join("scene.bin"), vec![7; 70 << 20]).expect("written");
    std::fs::write(sample.join("small"), b"small").expect("written");
    let demo = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["demo", "--cluster", "--once", "--rtt", "5ms"])
        .arg("--sample")
        .arg(&sample)
        .arg("--cache")
        .arg(dir.path().join("cluster"))
        .output()
        .expect("run");
    let (told, errors) = (String::from_utf8_lossy(&demo.stdout), String::from_utf8_lossy(&demo.stderr));
    assert!(demo.status.success(), "{told}{errors}");
    for line in [
        "through n3",
        "asked for each of them once",
        "STRIPE",
        "PRIMARY",
        "Killed n3 while late.bin was read",
    ] {
        assert!(told.contains(line), "{line:?} is missing in {told}");
    }
}
