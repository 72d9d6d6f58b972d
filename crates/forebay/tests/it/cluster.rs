//! The demo of a cluster, as `make cluster` runs it: etcd and three processes.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use testkit::lab::not_run;
use testkit::ports::free_port;
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
        "Killed n3 while made-by-forebay-demo.bin was read",
    ] {
        assert!(told.contains(line), "{line:?} is missing in {told}");
    }
}

#[test]
fn a_new_node_waits_for_etcd_and_ends_by_a_signal() {
    let dir = tempfile::tempdir().expect("made");
    let path = dir.path().join("n1.token");
    let authority = peer::make_authority("00000000000000aa").expect("an authority");
    authority.token("n1", types::NodeId(1)).and_then(|token| token.write(&path)).expect("written");
    let log = dir.path().join("log");
    let mut node = Command::new(env!("CARGO_BIN_EXE_forebay"))
        .args(["serve", "--nfs", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
        .args(["--cluster", &format!("etcd://127.0.0.1:{}/nobody", free_port())])
        .args(["--address", &format!("127.0.0.1:{}", free_port())])
        .arg("--token")
        .arg(&path)
        .arg("--origin")
        .arg(format!("file://{}", dir.path().display()))
        .arg("--cache")
        .arg(dir.path().join("cache"))
        .stderr(Stdio::from(std::fs::File::create(&log).expect("made")))
        .spawn()
        .expect("started");
    let begun = Instant::now();
    let told = || std::fs::read_to_string(&log).expect("there");
    while !told().contains("waits for etcd") {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", told());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(node.try_wait().expect("asked").is_none(), "{}", told());
    kill_process(Pid::from_child(&node), Signal::TERM).expect("sent");
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = node.try_wait().expect("asked") {
            break status;
        }
        assert!(begun.elapsed() < Duration::from_secs(30), "it does not end: {}", told());
        std::thread::sleep(Duration::from_millis(50));
    };
    assert!(status.success(), "{status}: {}", told());
}
