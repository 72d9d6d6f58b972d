//! The probe against the relay, as two commands of a shell.

use rustix::process::Signal;
use serde_json::Value;

use super::room::{Room, column, end, result, rows, signal, start, table};
use testkit::ports::free_port;

use crate::tier::forebay;

/// Starts it and waits until its port answers.
fn serve(command: std::process::Command, port: u16) -> super::room::RunningTier {
    let running = start(command);
    super::room::wait_for("the server", || std::net::TcpStream::connect(("127.0.0.1", port)).ok());
    running
}

#[test]
fn one_call_costs_one_round_trip_over_a_relay_of_50_ms() {
    let room = Room::new();
    std::fs::write(room.path("target/small"), vec![7; 4096]).expect("written");
    std::fs::write(room.path("target/big"), vec![8; 8 << 20]).expect("written");
    let (nas_port, relay_port) = (free_port(), free_port());
    let mut command = forebay();
    command.args(["nas", &room.target(), "--nfs", &format!("127.0.0.1:{nas_port}")]);
    command.env("TMPDIR", room.path("tmp"));
    let nas = serve(command, nas_port);
    let (to, listen) = (format!("127.0.0.1:{nas_port}"), format!("127.0.0.1:{relay_port}"));
    let relay = serve(room.bench(&["relay", "--to", &to, "--listen", &listen, "--rtt", "50ms"]), relay_port);

    let url = format!("nfs://127.0.0.1:{relay_port}/?mountport={relay_port}");
    let probe = [
        "probe",
        &url,
        "-n",
        "6",
        "--samples",
        "6",
        "--streams",
        "1",
        "--stream-time",
        "50ms",
        "--out",
        &room.text("out"),
    ];
    // A busy machine is late now and then; a wrong count is wrong each time.
    let mut wrong = String::new();
    let counted = (0..4).any(|_| {
        let probed = result(room.bench(&[&probe[..], &["--json"]].concat()));
        let calls = one_call_operations(&probed);
        wrong = format!("{calls:?}");
        calls.len() >= 2 && calls.iter().all(|(_, slope)| (0.95..=1.05).contains(slope))
    });
    assert!(counted, "{wrong}");
    for server in [relay, nas] {
        signal(server.id(), Signal::TERM);
        let ended = server.end();
        assert_eq!(ended.code, Some(0), "{:?}", ended.err);
    }
    assert_eq!(end(room.bench(&["show", &room.text("out/probe.json")])).code, Some(0));
    room.assert_nothing_is_left();
}

/// Their names, and the round trips of each.
fn one_call_operations(probed: &Value) -> Vec<(String, f64)> {
    let operations = table(probed, "");
    let names =
        rows(operations).iter().map(|row| row["cells"][0]["text"].as_str().unwrap_or_default().to_owned());
    let all = names.zip(column(operations, "Round trips").into_iter().map(number));
    all.filter(|(name, _)| ["NULL", "GETATTR", "LOOKUP"].iter().any(|call| name.contains(call))).collect()
}

fn number(cell: &Value) -> f64 {
    cell["number"].as_f64().or_else(|| cell["estimate"]["median"].as_f64()).unwrap_or(f64::NAN)
}
