//! Comparing two results, for a person and for a CI: what the exit code says.

use serde_json::{Value, json};

use super::room::{Ended, Room};

/// Eight repetitions that scatter by a few percent, as real ones do.
const TIMES: [f64; 8] = [10.02, 9.91, 10.17, 9.98, 10.08, 9.87, 10.11, 9.95];

fn result(experiment: &str, times: &[f64]) -> Value {
    json!({
        "schema": 1, "experiment": experiment, "title": "A result", "preset": "modern",
        "started": "2026-01-02T03:04:05Z", "seconds": 60.0, "command": ["forebay", "bench", experiment],
        "parameters": {"nodes": 4}, "seed": 1, "fingerprint": {"kernel": "Linux"},
        "tables": [], "plots": [], "histograms": [], "findings": [],
        "measures": [{"name": "direct time", "unit": "s", "better": "lower", "values": times}],
    })
}

struct Pair(Room);

impl Pair {
    fn of(a: &Value, b: &Value) -> Pair {
        let room = Room::new();
        std::fs::write(room.path("a.json"), a.to_string()).expect("written");
        std::fs::write(room.path("b.json"), b.to_string()).expect("written");
        Pair(room)
    }

    fn compare(&self, more: &[&str]) -> Ended {
        let (a, b) = (self.0.text("a.json"), self.0.text("b.json"));
        self.0.run(&[&["compare", &a, &b], more].concat())
    }
}

/// The same times in another order, each a little off: what a second run gives.
fn once_more() -> Vec<f64> {
    TIMES.iter().rev().enumerate().map(|(i, t)| t + if i % 2 == 0 { 0.03 } else { -0.03 }).collect()
}

#[test]
fn two_runs_of_the_same_thing_do_not_differ() {
    let compared = Pair::of(&result("render", &TIMES), &result("render", &once_more())).compare(&[]);
    assert_eq!(compared.code, Some(0), "{} {:?}", compared.out, compared.err);
    assert!(compared.out.contains("no significant difference"), "{}", compared.out);
}

#[test]
fn a_run_slowed_by_a_tenth_is_found_and_one_that_got_faster_is_no_failure() {
    let slower: Vec<f64> = once_more().iter().map(|t| t * 1.1).collect();
    let pair = Pair::of(&result("render", &TIMES), &result("render", &slower));
    let compared = pair.compare(&[]);
    assert_eq!(compared.code, Some(1), "{} {:?}", compared.out, compared.err);
    assert!(compared.out.contains("B is worse") && compared.out.contains("direct time"), "{}", compared.out);

    let told = pair.compare(&["--json"]);
    let told: Value = serde_json::from_str(&told.out).expect("JSON");
    assert_eq!((&told["verdict"], &told["exit_code"]), (&json!("B is worse"), &json!(1)));
    assert_eq!(pair.compare(&["--smallest-change", "20"]).code, Some(0), "a tenth is less than a fifth");

    let faster = Pair::of(&result("render", &slower), &result("render", &TIMES)).compare(&[]);
    assert_eq!(faster.code, Some(0), "{}", faster.out);
    assert!(faster.out.contains("B is better"), "{}", faster.out);
}

#[test]
fn what_cannot_be_compared_is_told_in_one_line() {
    let good = result("render", &TIMES);
    let of = |change: fn(&mut Value)| {
        let mut other = good.clone();
        change(&mut other);
        Pair::of(&good, &other)
    };
    let mut nodes = good.clone();
    nodes["parameters"]["nodes"] = json!(8);
    let cases: [(Pair, &str); 5] = [
        (of(|other| other["schema"] = json!(99)), "schema 99"),
        (of(|other| other["experiment"] = json!("shapes")), "different experiments"),
        (of(|other| other["measures"] = json!("none")), "damaged"),
        (of(|other| other["measures"] = json!([])), "no measure in common"),
        (Pair::of(&good, &nodes), "nodes is 4 in A and 8 in B"),
    ];
    for (pair, right) in cases {
        let compared = pair.compare(&[]);
        assert_eq!(compared.code, Some(2), "{right}: {} {:?}", compared.out, compared.err);
        let said: Vec<&str> = compared
            .out
            .lines()
            .chain(compared.err.iter().map(String::as_str))
            .filter(|l| !l.is_empty())
            .collect();
        assert!(said.len() == 1 && said[0].contains(right), "{right}: {said:?}");
    }
    let differing = Pair::of(&good, &nodes).compare(&["--may-differ", "nodes"]);
    assert_eq!(differing.code, Some(0), "{} {:?}", differing.out, differing.err);
}

#[test]
fn a_file_that_is_no_result_is_told_in_one_line() {
    let pair = Pair::of(&result("render", &TIMES), &json!(null));
    let whole = result("render", &TIMES).to_string();
    for (text, right) in
        [("", "not valid JSON"), (&whole[..whole.len() / 2], "not valid JSON"), ("{}", "not a result")]
    {
        std::fs::write(pair.0.path("b.json"), text).expect("written");
        for verb in [&["compare", &pair.0.text("a.json")][..], &["show"], &["again"]] {
            let ended = pair.0.run(&[verb, &[&pair.0.text("b.json")]].concat());
            assert_eq!(ended.code, Some(2), "{verb:?} {text:?}: {:?}", ended.err);
            assert!(
                ended.err.len() == 1 && ended.err[0].contains(right),
                "{verb:?} {text:?}: {:?}",
                ended.err
            );
        }
    }
    let missing = pair.0.run(&["show", &pair.0.text("nothing.json")]);
    assert_eq!((missing.code, missing.err.len()), (Some(2), 1), "{:?}", missing.err);
    assert!(missing.err[0].contains("--out"), "{:?}", missing.err);
}
