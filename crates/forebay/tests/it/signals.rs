//! What signals do to a tier, and how it tells that it is well.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::tier::Tier;

/// A look every 10 s, and what an origin is given to answer.
const SEEN_WITHIN: Duration = Duration::from_secs(90);

fn junction(origin: &str) -> String {
    format!("[[junction]]\npath = \"/\"\norigin = \"{origin}\"\n")
}

fn served(dir: &Path) -> Tier {
    let tree = dir.join("tree");
    std::fs::create_dir_all(&tree).expect("made");
    std::fs::write(tree.join("hello.txt"), b"hello, far away\n").expect("written");
    Tier::start(dir, &junction(&format!("file://{}", tree.display())))
}

fn until(what: &str, tier: &Tier, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < SEEN_WITHIN, "{what} is not seen; the log:\n{}", tier.log_tail());
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_hangup_takes_in_what_can_change_and_names_what_cannot_and_no_other_signal_ends_a_tier() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let tier = served(dir.path());
    let send = |signal| kill_process(Pid::from_raw(tier.pid()).expect("a pid"), signal).expect("it runs");
    let logged = |text: &str| {
        until(text, &tier, || {
            std::fs::read_to_string(dir.path().join("forebay.log")).expect("a log").contains(text)
        });
    };
    let exported = || crate::serve::libnfs("nfs-ls", &tier, "/").map(|listed| listed.status.success());
    let before = exported();
    send(Signal::USR1);
    logged("SIGUSR1: forebay ");
    send(Signal::PIPE);
    let config = dir.path().join("forebay.toml");
    let text = std::fs::read_to_string(&config).expect("read");
    let changed = text
        .replace("clients = [\"*\"]", "clients = [\"192.0.2.1\"]")
        .replace("size = \"4GiB\"", "inflight = \"64MiB\"\nsize = \"4GiB\"");
    std::fs::write(&config, format!("{changed}[[junction]\n")).expect("written");
    send(Signal::HUP);
    logged("SIGHUP: nothing is changed: configuration");
    std::fs::write(&config, changed).expect("written");
    send(Signal::HUP);
    logged("needs a restart key=\"[cache]\"");
    logged("changed, and in force key=\"[[nfs.export]]\"");
    if let Some(before) = before {
        assert!(before && exported() == Some(false), "the export is withdrawn");
    }
    assert!(tier.get("/healthz").starts_with("HTTP/1.0 200"));
}

#[test]
fn an_origin_that_is_away_is_known_to_be_so_though_nobody_asks_for_it() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let nas_dir = dir.path().join("nas");
    std::fs::create_dir(&nas_dir).expect("made");
    let mut nas = served(&nas_dir);
    let port = nas.nfs_port;
    let near_dir = dir.path().join("near");
    std::fs::create_dir(&near_dir).expect("made");
    let near = Tier::start(&near_dir, &junction(&format!("nfs://127.0.0.1:{port}/?mountport={port}")));
    let ready = || near.get("/readyz").starts_with("HTTP/1.0 200");
    until("that it is ready", &near, ready);
    let well = near.ask(&["status", "--check"]);
    assert_eq!(well.status.code(), Some(0), "{well:?}");
    near.json(&["warm", "/"]);
    nas.kill_nine();
    until("that its origin is away", &near, || !ready());
    let told = near.get("/readyz");
    assert!(told.starts_with("HTTP/1.0 503") && told.contains("junction /: its origin is away"), "{told}");
    assert!(near.get("/metrics").contains("forebay_junction_up{junction=\"/\",reason=\"unreachable\"} 0"));
    assert!(near.get("/healthz").starts_with("HTTP/1.0 200"), "it is alive");
    let admin = near.admin.to_string();
    let checked =
        crate::tier::forebay().args(["status", "--check", "--admin", &admin]).output().expect("runs");
    let said = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert_eq!(checked.status.code(), Some(1), "{said}");
    assert!(
        said.starts_with("ALARM     /: the origin does not answer") && said.lines().count() == 1,
        "{said}"
    );
    let evicted = near.ask(&["evict", "/"]);
    let said = String::from_utf8_lossy(&evicted.stderr).into_owned();
    assert!(!evicted.status.success() && said.contains("--force") && said.contains("1 files"), "{said}");
    assert_eq!(near.json(&["evict", "/", "--force"])["files"], 1);
    nas.start_again();
    until("that its origin is back", &near, ready);
}
