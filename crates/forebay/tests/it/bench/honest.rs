//! What a result says of itself: its limit, what it was measured on, and that it ended early.

use super::room::{Room, findings, invalid, rows, table};

#[test]
fn a_load_tells_its_limit_what_it_lay_on_and_what_measured_it() {
    let room = Room::new();
    let target = room.target();
    let result =
        room.result(&["sob", "3", "--target", &target, "-n", "1", "--nodes", "1", "--scale", "0.0005"]);
    let told = findings(&result);
    for phase in ["write", "sequential read", "random read"] {
        let limit = format!("{phase}: limited by: ");
        assert!(told.iter().any(|text| text.contains(&limit)), "{phase}: {told:?}");
    }
    let of = |name: &str| result["fingerprint"][name].as_str().unwrap_or_default().to_owned();
    let mount = of("target");
    assert!(mount.starts_with(&target) && mount.contains(" on /"), "type, place and options: {mount:?}");
    let commit = of("tool commit");
    let is_hash = commit.len() >= 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(commit == "unknown" || is_hash, "{commit:?}");
    assert!(!of("clock error").is_empty());
    room.assert_nothing_is_left();
}

#[test]
fn a_tier_that_is_named_is_told_and_one_that_is_not_there_is_warned_of() {
    let room = Room::new();
    let target = room.target();
    let run = ["sob", "4", "--target", &target, "-n", "1", "--nodes", "1", "--scale", "0.001"];
    // Nobody listens on port 1.
    let result = room.result(&[&run[..], &["--admin", "127.0.0.1:1"]].concat());
    assert!(findings(&result).iter().any(|text| text.contains("the tier at 127.0.0.1:1")), "{result}");
    let far = tempfile::tempdir().expect("temporary directory");
    let origin = far.path().join("origin");
    std::fs::create_dir(&origin).expect("created");
    let junctions = format!("[[junction]]\npath = \"/show\"\norigin = \"file://{}\"\n", origin.display());
    let tier = crate::tier::Tier::start(far.path(), &junctions);
    let result = room.result(&[&run[..], &["--admin", &tier.admin.to_string()]].concat());
    let told = result["fingerprint"]["tier"].as_str().expect("told");
    assert!(told.contains("through, cache 4.00 GiB, /show = file://"), "{told}");
}

#[test]
fn a_workflow_ends_with_its_time_budget_and_says_so() {
    let room = Room::new();
    let graph = room.text("graph.json");
    let task = r#"[{"name": "a", "after": [], "near_seconds": 0.05, "far_seconds": 0.05, "files": 1, "file_bytes": 4096}]"#;
    std::fs::write(&graph, task).expect("written");
    let run =
        ["workflow", "--graph", &graph, "--rtt", "1ms", "--nodes", "2", "-n", "5", "--time-budget", "1ms"];
    let result = room.result(&run);
    // Four splits, five times; both ways each.
    let cut = "the time budget ended it after 1 of 20 pairs of runs";
    assert!(findings(&result).contains(&cut), "{:?}", findings(&result));
    assert_eq!(rows(table(&result, "Makespan")).len(), 4, "what was not run is missing and not left out");
    room.assert_nothing_is_left();
}

#[test]
fn a_run_that_its_time_budget_cuts_is_invalid_and_one_that_was_to_take_so_long_is_not() {
    let room = Room::new();
    let target = room.target();
    let endless =
        ["load", "--target", &target, "--files", "1", "--file-size", "1MiB", "--epochs", "100000000"];
    let result = room.result(&[&endless[..], &["-n", "3", "--time-budget", "1200ms"]].concat());
    let reasons = invalid(table(&result, "The load"));
    assert!(reasons.iter().any(|why| why.contains("the time budget was used up")), "{reasons:?}");
    assert!(findings(&result).contains(&"the time budget ended it after 1 of 3 repetitions"));
    let result = room.result(&[&endless[..], &["-n", "1", "--seconds", "1200ms"]].concat());
    assert_eq!(invalid(table(&result, "The load")), Vec::<&str>::new());
    room.assert_nothing_is_left();
}
