//! The render study at a size of seconds: columns, proofs by counters, the line through the direct times, and files.

use serde_json::Value;

use super::room::{Room, column, columns, end, findings, invalid, measure, names, result, rows, table};

const NODES: u64 = 4;
const FILES: u64 = 16;
const FILE_BYTES: u64 = 64 << 10;
/// LOOKUP, GETATTR and READ of each file, one after the other, and the root.
const ROUND_TRIPS: f64 = 3.0 * FILES as f64 + 1.0;

/// A text cell with three numbers in it: direct, cold, warm.
fn three(cell: &Value) -> [f64; 3] {
    let text = cell["text"].as_str().unwrap_or_else(|| panic!("{cell}: no text"));
    let parts: Vec<f64> = text.split(" / ").map(|part| part.parse().expect("a number")).collect();
    parts.try_into().expect("three numbers")
}

#[test]
fn the_render_study_proves_its_states_and_counts_the_round_trips_of_a_frame() {
    let room = Room::new();
    let run = ["render", "--rtt", "1.9ms,60ms,120ms,200ms", "-n", "1", "--nodes", "4", "--files", "16"];
    let shape = ["--compute", "1s", "--out", &room.text("out")];
    let result = room.result(&[&run[..], &shape].concat());

    let study = table(&result, "The study's table");
    assert_eq!(
        columns(study),
        [
            "NFS Location",
            "Roundtrip Latency (ms)",
            "Direct Connect (s)",
            "Cold Forebay (s)",
            "Warm Forebay (s)"
        ]
    );
    assert_eq!(rows(study).len(), 4);
    let extended = table(&result, "Extended");
    assert_eq!(invalid(study), Vec::<&str>::new());
    assert!(column(extended, "valid").iter().all(|cell| cell["text"] == "yes"));

    // What came from the storage, in GiB of which the table has four digits.
    let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
    let unique = gib(FILES * FILE_BYTES);
    for cell in column(extended, "origin GiB D/C/W") {
        let [direct, cold, warm] = three(cell);
        assert!(direct >= NODES as f64 * unique * 0.98, "{cell}");
        assert!((unique * 0.98 - 5e-5..=unique * 1.05 + 5e-5).contains(&cold), "{cell}");
        assert_eq!(warm, 0.0, "{cell}");
    }
    for cell in column(extended, "origin req D/C/W") {
        let [direct, cold, _] = three(cell);
        assert!(direct >= (NODES * FILES) as f64 && cold < direct, "{cell}");
    }

    the_answer_has_its_ten_lines(&result);
    room.assert_nothing_is_left();
    files_are_written_and_read_back(&room, &result);
    // A busy machine may bend the line once; a wrong count is wrong each time.
    if let Err(first) = line_through_direct(&result) {
        let second = room.result(&[&run[..], &shape].concat());
        line_through_direct(&second).unwrap_or_else(|second| panic!("{first}; and again: {second}"));
    }
}

/// What is known is there, with its interval or its unit, and what is not says why.
fn the_answer_has_its_ten_lines(result: &Value) {
    let lines = result["answer"].as_array().expect("an answer");
    let starts = [
        "round trip",
        "round trips per open-read-close",
        "predicted slow-down",
        "time of the job",
        "speed-up",
        "saved at the storage",
        "coalescing",
        "cost of each TB read",
        "limited",
        "validity",
    ];
    assert_eq!(lines.len(), starts.len(), "{lines:?}");
    for (line, start) in lines.iter().zip(starts) {
        assert!(line["what"].as_str().is_some_and(|what| what.starts_with(start)), "{start}: {line}");
        assert!(line["parts"].as_array().is_some_and(|parts| !parts.is_empty()), "{line}");
    }
    let trips = &lines[1]["parts"][0]["value"]["estimate"];
    assert!(
        trips["median"].as_f64().is_some_and(|n| (2.0..4.0).contains(&n)),
        "LOOKUP, GETATTR, READ: {trips}"
    );
    assert!(trips["interval"].is_array(), "{trips}");
    assert!(lines[7]["parts"][0]["value"]["missing"].as_str().is_some_and(|why| why.contains("--prices")));
    let tier = result["fingerprint"]["tier"].as_str().expect("the tier's configuration");
    assert!(tier.contains("cache 1.00 GiB") && tier.contains("nconnect=4"), "{tier}");
    assert!(result["noise"]["detectable_change"].is_object(), "{}", result["noise"]);
    let extended = table(result, "Extended");
    for cell in column(extended, "switches/call, clients D/C/W") {
        assert!(three(cell).iter().all(|switches| *switches > 0.0), "who waits leaves the processor: {cell}");
    }
    for cell in column(extended, "wire B / payload B D/C") {
        let text = cell["text"].as_str().expect("text");
        let all: Vec<f64> = text.split(" / ").map(|part| part.parse().expect("a number")).collect();
        assert!(all.iter().all(|bytes| (1.0..1.5).contains(bytes)), "payload and its headers: {cell}");
    }
}

/// R2 of at least 0.98, and a slope that the client's calls explain.
fn line_through_direct(result: &Value) -> Result<(), String> {
    let line = findings(result).into_iter().find(|text| text.contains("serial round trips")).expect("a line");
    let r2 = line.split("R2 ").nth(1).and_then(|text| text.split(')').next()).expect("R2");
    let r2: f64 = r2.parse().expect("a number");
    let slopes = measure(result, "serial round trips in a frame, direct");
    let explained = slopes.iter().all(|slope| (0.7 * ROUND_TRIPS..=1.15 * ROUND_TRIPS).contains(slope));
    if r2 >= 0.98 && !slopes.is_empty() && explained { Ok(()) } else { Err(format!("{line}: {slopes:?}")) }
}

fn files_are_written_and_read_back(room: &Room, printed: &Value) {
    let written = names(&room.path("out"));
    for name in ["render.json", "render.md", "render.html"] {
        assert!(written.iter().any(|w| w == name), "{name} is not in {written:?}");
    }
    let tables = printed["tables"].as_array().expect("tables").len();
    let csv: Vec<&String> = written.iter().filter(|name| name.ends_with(".csv")).collect();
    assert!(csv.len() >= tables, "one for each table: {written:?}");
    assert!(written.iter().all(|name| !name.contains("unfinished")), "{written:?}");

    let json = room.text("out/render.json");
    let shown = result(room.bench(&["show", &json, "--json"]));
    assert_eq!(&shown, printed);
    let markdown = end(room.bench(&["show", &json]));
    let file = std::fs::read_to_string(room.path("out/render.md")).expect("written");
    assert_eq!(markdown.out.trim_end(), file.trim_end());
    assert!(file.find("- **round trip:**") < file.find("direct = "), "the answer comes first: {file}");
    assert!(file.contains("| Direct Connect (s) |") || file.contains("Direct Connect (s)"), "{file}");
    let page = std::fs::read_to_string(room.path("out/render.html")).expect("written");
    assert!(page.contains("<svg") && !page.contains("src=\"http"), "a page that needs nothing else");

    let again = end(room.bench(&["again", &json, "--dry-run"]));
    let said = format!("{}{}", again.out, again.err.join("\n"));
    assert_eq!(again.code, Some(0), "{said}");
    assert!(said.contains("bench render --rtt 1.9ms,60ms,120ms,200ms -n 1"), "{said}");
}

#[test]
fn five_hundred_clients_fit_one_process() {
    let room = Room::new();
    let run = ["render", "--nodes", "500", "--files", "4", "--rtt", "1.9ms,5ms,10ms", "-n", "1"];
    let begun = std::time::Instant::now();
    let ended = end(room.bench(&[&run[..], &["--compute", "1s", "--json"]].concat()));
    let took = begun.elapsed();
    assert_eq!(ended.code, Some(0), "{:?}", ended.err);
    let result: Value = serde_json::from_str(&ended.out).expect("JSON");
    let extended = table(&result, "Extended");
    assert_eq!(invalid(extended), Vec::<&str>::new());
    // How many of them had to wait for these few calls is a question of timing.
    for cell in column(extended, "origin req D/C/W") {
        let [direct, cold, warm] = three(cell);
        // On a busy machine the ttl runs out meanwhile, and the tier asks for a file's state again.
        assert!(direct >= 500.0 * 4.0 && cold < 40.0 && warm <= cold, "few fetches for 500 nodes: {cell}");
    }
    let tier = findings(&result).into_iter().find(|text| text.contains("resident")).unwrap_or("no peak told");
    eprintln!("500 clients: {:.1} s, peak resident {} MiB; {tier}", took.as_secs_f64(), ended.peak_mib);
    assert!((1..1000).contains(&ended.peak_mib), "{} MiB", ended.peak_mib);
    room.assert_nothing_is_left();
}
