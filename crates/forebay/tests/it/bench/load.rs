//! Loads put together by hand: they run, and an open loop sees what a closed one hides.

use rustix::process::Signal;

use super::room::{Room, column, end, findings, invalid, measure, result, signal, start, table, wait_for};
use testkit::ports::free_port;

use crate::tier::forebay;

#[test]
fn mixtures_walks_and_strides_do_what_they_say_without_a_fault() {
    let room = Room::new();
    let target = room.target();
    let small = ["--files", "20", "--file-size", "4KiB-64KiB", "-n", "1", "--nodes", "2", "--workers", "2"];
    let runs: [&[&str]; 4] = [
        &[
            "--operation",
            "read=50,range=15,write=15,stat=8,list=2,delete=10",
            "--order",
            "zipf:0.9",
            "--draws",
            "500",
        ],
        &["--operation", "walk", "--files-per-directory", "5", "--epochs", "3"],
        &[
            "--operation",
            "read",
            "--unit",
            "block",
            "--block",
            "4KiB",
            "--order",
            "strided:4",
            "--think",
            "1ms",
        ],
        &["--operation", "write", "--private", "--order", "random"],
    ];
    for load in runs {
        let loaded =
            result(room.bench(&[&["load", "--target", &target, "--json"], &small[..], load].concat()));
        let load_table = table(&loaded, "The load");
        assert!(column(load_table, "Touches")[0]["count"].as_u64().is_some_and(|n| n > 0), "{load:?}");
        assert_eq!(column(load_table, "errors")[0]["count"], 0, "{load:?}");
        // It may be over in less than a second, which is no fault of the load's.
        let faults: Vec<&str> =
            invalid(load_table).into_iter().filter(|why| !why.contains("too short")).collect();
        assert_eq!(faults, Vec::<&str>::new(), "{load:?}");
        room.assert_nothing_is_left();
    }
}

/// The server stands still for a second, and the schedule does not wait for it: a hundred touches are late, not one.
#[test]
fn an_open_loop_tells_a_stall_by_all_that_it_delays() {
    let room = Room::new();
    let (target, port) = (room.target(), free_port());
    let mut command = forebay();
    command.args(["nas", &target, "--nfs", &format!("127.0.0.1:{port}")]).env("TMPDIR", room.path("tmp"));
    let nas = start(command);
    wait_for("the NAS", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    let (url, out) = (format!("nfs://127.0.0.1:{port}/?mountport={port}"), room.text("out"));
    let files =
        ["--files", "4", "--file-size", "4MiB", "--unit", "block", "--block", "4KiB", "--order", "uniform"];
    let open = ["--open", "100", "--draws", "400", "--workers", "150", "-n", "1", "--out", &out];
    let run = start(
        room.bench(&[&["load", "--target", &url, "--lay-out-at", &target], &files[..], &open].concat()),
    );
    let before = bytes_read(nas.id());
    wait_for("reads", || (bytes_read(nas.id()) > before + (100 << 10)).then_some(()));
    signal(nas.id(), Signal::STOP);
    std::thread::sleep(std::time::Duration::from_secs(1));
    signal(nas.id(), Signal::CONT);
    let ended = run.end();
    assert_eq!(ended.code, Some(0), "{:?}", ended.err);

    let latencies = std::fs::read_to_string(room.path("out/load-latency.csv")).expect("written");
    let head: Vec<&str> = latencies.lines().next().expect("a head").split(',').collect();
    let p90 = head.iter().position(|name| name.starts_with("p90")).expect("a p90");
    let of = |what: &str| -> f64 {
        let row = latencies.lines().find(|line| line.contains(what)).unwrap_or_else(|| panic!("{latencies}"));
        // The name has a comma in it, and is quoted.
        row.rsplit_once('"')
            .expect("quoted")
            .1
            .split(',')
            .nth(p90)
            .expect("a value")
            .parse()
            .expect("a number")
    };
    // A quarter of the touches should have begun while nobody answered: one in ten waited for most of the second.
    assert!(of("from when it should have begun") > 300.0, "{latencies}");
    signal(nas.id(), Signal::TERM);
    assert_eq!(nas.end().code, Some(0));
    room.assert_nothing_is_left();
    assert_eq!(end(room.bench(&["load", "--target", &target, "--open", "0"])).code, Some(2));
}

/// 10 ms each and 200 a second: how busy this machine is can make it less, and nothing can make it more.
#[test]
fn the_knee_of_a_limited_service_is_found_and_open_loops_stand_at_shares_of_it() {
    let room = Room::new();
    let target = room.target();
    let mut load = vec!["load", "--target", &target, "--limits", "requests=200/s,first-byte=10ms", "--knee"];
    load.extend([
        "--step",
        "1s",
        "-n",
        "1",
        "--open-percent",
        "50,90",
        "--files",
        "1",
        "--file-size",
        "4MiB",
    ]);
    load.extend(["--unit", "block", "--block", "4KiB", "--order", "random", "--json"]);
    let found = result(room.bench(&load));
    let steps = table(&found, "The knee");
    let workers = column(steps, "Workers");
    assert!(workers.len() >= 2 && workers[0]["count"] == 1 && workers[1]["count"] == 2, "{workers:?}");
    assert_eq!(invalid(steps), Vec::<&str>::new());
    let at_knee = measure(&found, "rate at the knee")[0];
    assert!(at_knee > 0.0 && at_knee < 200.0 * 1.1, "{at_knee}");
    let told = findings(&found).iter().any(|told| told.contains("knee is at") || told.contains("no knee"));
    assert!(told, "{:?}", findings(&found));
    let open = table(&found, "Open loops");
    let due: Vec<f64> =
        column(open, "due touches/s").iter().filter_map(|cell| cell["number"].as_f64()).collect();
    assert_eq!(due.len(), 2, "{open}");
    assert!(
        (due[0] / at_knee - 0.5).abs() < 0.01 && (due[1] / at_knee - 0.9).abs() < 0.01,
        "{due:?} {at_knee}"
    );
    assert_eq!(found["parameters"]["limits"], "requests=200/s,first-byte=10000us");
    room.assert_nothing_is_left();
    for wrong in [&["--knee", "--open", "5"][..], &["--open-percent", "50"], &["--limits", "file=60"]] {
        let ended = end(room.bench(&[&["load", "--target", &target], wrong].concat()));
        assert_eq!(ended.code, Some(2), "{wrong:?}: {:?}", ended.err);
    }
}

/// Direct reads are held to the storage's limit, which a busy machine can only fall short of.
#[test]
fn a_loader_reads_limited_storage_directly_no_faster_than_it_gives() {
    let room = Room::new();
    let loaded = result(room.bench(&[
        "loader",
        "--rtt",
        "1ms",
        "--limits",
        "all=1MiB/s",
        "--clients",
        "1",
        "--workers",
        "4",
        "--objects",
        "8",
        "--object-size",
        "256KiB",
        "-n",
        "1",
        "--json",
    ]));
    assert_eq!(loaded["parameters"]["limits"], "all=1MiB/s");
    let direct = column(table(&loaded, "Epochs"), "Direct")[0]["estimate"]["median"].as_f64();
    assert!(direct.is_some_and(|rate| rate * 1024.0 < 1.1), "GiB/s: {direct:?}");
    let told = findings(&loaded);
    assert!(told.iter().any(|text| text.contains("direct: limited by")), "{told:?}");
    room.assert_nothing_is_left();
    let ended = end(room.bench(&["loader", "--origin", "nfs://nas/x", "--limits", "all=1MiB/s"]));
    assert_eq!(ended.code, Some(2), "{:?}", ended.err);
}

/// By system calls, which a server makes for the files that it serves.
fn bytes_read(process: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{process}/io")).expect("it runs");
    let line = text.lines().find_map(|line| line.strip_prefix("rchar: ")).expect("Linux has this line");
    line.parse().expect("a number")
}
