use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::model::{AnswerLine, AnswerPart, Axis, Better, Measure, Plot, PlotKind, Series, Table, TableRow};
use crate::summary::{estimate, point};

fn example() -> ResultFile {
    let values = [10.1, 10.3, 9.9, 10.0, 10.2, 10.7];
    let mut latency = Histogram::new();
    latency.record_microseconds(1234, 500);
    ResultFile {
        schema: SCHEMA,
        experiment: "render".to_owned(),
        title: "Render".to_owned(),
        preset: "modern".to_owned(),
        started: "2026-01-02T03:04:05Z".to_owned(),
        seconds: 12.5,
        command: vec!["forebay".to_owned(), "bench".to_owned()],
        parameters: BTreeMap::from([("rtt_ms".to_owned(), json!(69.5))]),
        seed: u64::MAX,
        fingerprint: BTreeMap::from([("kernel".to_owned(), "6.1".to_owned())]),
        tables: vec![Table::new(
            "Results",
            ["Direct (s)", "Bytes"],
            vec![TableRow::new(vec![estimate(&values), Cell::Bytes(u64::MAX)])],
        )],
        plots: vec![Plot {
            title: "Time".to_owned(),
            x: Axis::log("RTT (ms)"),
            y: Axis::linear("s"),
            kind: PlotKind::Lines,
            series: vec![Series::ours("direct", point(69.5, &values).into_iter().collect())],
        }],
        measures: vec![Measure::new("direct", "s", Better::Lower, values.to_vec())],
        histograms: vec![latency.to_named("read")],
        findings: vec![Finding::verdict("limited by: WAN RTT")],
        answer: vec![AnswerLine::new(
            "time of the job",
            vec![
                AnswerPart::new("direct", estimate(&values), "s"),
                AnswerPart::new("cold", Cell::missing("why"), "s"),
            ],
        )],
        noise: None,
    }
}

fn read_value(value: &Value) -> Result<ResultFile> {
    read("a.json", value.to_string().as_bytes())
}

#[test]
fn what_was_written_is_read() {
    let file = example();
    assert_eq!(read("a.json", write(&file).unwrap().as_bytes()).unwrap(), file);
}

/// Every fault: one line, the name of the file, what to do.
#[test]
fn what_cannot_be_read_says_what_to_do_in_one_line() {
    let whole = serde_json::to_value(example()).unwrap();
    let with = |pointer: &str, new: Value| {
        let mut value = whole.clone();
        *value.pointer_mut(pointer).unwrap() = new;
        value.to_string()
    };
    let text = whole.to_string();
    let again = "run the benchmark again";
    let written_by = "give a file written by `forebay bench --json`";
    let cases = [
        (String::new(), "not valid JSON", written_by),
        (text[..text.len() / 2].to_owned(), "not valid JSON", written_by),
        ("{}".to_owned(), "not a result file", written_by),
        ("[1, 2]".to_owned(), "not a result file", written_by),
        (with("/schema", json!(2)), "has schema 2 and this forebay reads schema 1", again),
        (with("/schema", json!("one")), "its schema is not a number", written_by),
        (with("/schema", json!(-1)), "its schema is not a number", written_by),
        (with("/tables/0/rows/0/cells/0/estimate/n", json!(-6)), "invalid value: integer `-6`", again),
        (with("/tables/0/rows/0/cells/0/estimate/n", json!(0)), "a median of no samples", again),
        (with("/tables/0/rows/0/cells/0/estimate/median", json!(99)), "lies outside its interval", again),
        (with("/tables/0/rows/0/cells", json!([])), "has 0 cells, not 2", again),
        (with("/seconds", json!(-5.0)), "it took -5 s", again),
        (with("/plots/0/series/0/points/0/interval", json!([3.0, 2.0])), "has a point", again),
        (with("/measures/0/values", json!(["fast"])), "damaged (invalid type", again),
        (with("/histograms/0/v2_base64", json!("HISTFAAA")), "histogram \"read\"", again),
        (with("/findings/0/severity", json!("fatal\nerror")), "unknown variant", again),
        (text.replace("12.5", "1e999"), "not valid JSON", written_by),
    ];
    for (text, why, what_to_do) in cases {
        let error = read("a.json", text.as_bytes()).unwrap_err();
        let line = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(line.starts_with("result file a.json: ") && !line.contains('\n'), "{line}");
        assert!(line.contains(why) && line.contains(what_to_do), "{why:?} is not in: {line}");
    }
}

#[test]
fn values_that_json_cannot_carry_are_left_out_and_warned_of() {
    let mut file = example();
    file.tables[0].rows[0].cells[1] = Cell::Number(f64::NAN);
    file.measures[0].values.push(f64::INFINITY);
    file.plots[0].series[0].points.push(Point::at(1.0, f64::NAN));
    let back = read("a.json", write(&file).unwrap().as_bytes()).unwrap();
    assert_eq!(back.tables[0].rows[0].cells[1], Cell::missing("not a finite number"));
    assert_eq!(back.measures[0].values.len(), 6);
    assert!(back.findings.last().unwrap().text.starts_with("2 values were no finite numbers"));
}

#[test]
fn a_field_of_a_later_version_of_the_same_schema_does_not_matter() {
    let mut value = serde_json::to_value(example()).unwrap();
    value["colour"] = json!("blue");
    assert_eq!(read_value(&value).unwrap(), example());
}

proptest! {
    /// Whatever a disk or an editor does to it, it is read or refused.
    #[test]
    fn damage_is_never_a_panic(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = write(&example()).unwrap().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Err(error) = read("a.json", &bytes) {
            prop_assert!(!error.to_string().contains('\n'));
        }
    }
}

#[test]
fn a_file_of_before_there_was_an_answer_is_still_read() {
    let mut value = serde_json::to_value(example()).expect("JSON");
    let fields = value.as_object_mut().expect("an object");
    fields.remove("answer").expect("it is there now");
    fields.remove("noise");
    let file = read_value(&value).expect("an old file");
    assert_eq!(file, ResultFile { answer: Vec::new(), ..example() });
}

#[test]
fn noise_drift_and_what_could_be_found_are_written_with_the_result() {
    let mut file = example();
    let rising = (1..=12).map(f64::from).collect();
    file.measures.push(Measure::new("rising", "s", Better::Lower, rising));
    file.measures.push(Measure::new("twice", "s", Better::Lower, vec![1.0, 2.0]));
    let written: Value = serde_json::from_str(&write(&file).expect("written")).expect("JSON");
    let noise = &written["noise"];
    assert!(noise["floor"].as_f64().is_some_and(|floor| floor > 0.0), "{noise}");
    let change = noise["detectable_change"]["direct"].as_f64().expect("of six repetitions");
    assert!((0.01..0.2).contains(&change), "{change}");
    assert_eq!(noise["detectable_change"].get("twice"), None, "of two nothing can be found");
    assert!(noise["drift"]["rising"].as_f64().is_some_and(|drift| drift > 1.0), "{noise}");
    assert_eq!(noise["drift"].get("direct"), None);
    // What is claimed there is not believed: it follows from the measures.
    let mut claimed = written.clone();
    claimed["noise"]["floor"] = json!(0.0);
    let again = write(&read_value(&claimed).expect("read")).expect("written");
    assert_eq!(serde_json::from_str::<Value>(&again).expect("JSON"), written);
}
