//! What every output shows beyond the tables that the experiment made itself: the ten lines, findings in order, the latencies of the
//! histograms, the repetitions with their noise and drift. Markdown and HTML both draw from here.

use serde_json::Value;

use crate::bottleneck;
use crate::format;
use crate::histogram::{self, Histogram};
use crate::model::{
    AnswerLine, AnswerPart, Axis, Cell, Finding, Measure, Noise, Plot, PlotKind, ResultFile, Severity, Table,
    TableRow,
};
use crate::summary::{
    coefficient_of_variation, drift, drift_warning, estimate, minimum_detectable_effect, noise_floor,
};

const VALIDITY: &str = "validity";
/// More curves than this in one plot are a tangle.
const CURVES_MAX: usize = 8;

/// The sentence that is passed on: the first verdict. What limits a run explains it, and is none.
pub fn lead(file: &ResultFile) -> Option<&str> {
    let verdicts = file.findings.iter().filter(|finding| finding.severity == Severity::Verdict);
    verdicts.map(|finding| finding.text.as_str()).find(|text| !text.contains(bottleneck::WORDS))
}

/// The ten lines, each as what it tells and the text of it. What is known comes first, and how far it may be believed
/// stays behind it.
pub fn answer(file: &ResultFile) -> Vec<(String, String)> {
    let nothing = |line: &AnswerLine| line.parts.iter().all(|part| matches!(part.value, Cell::Missing(_)));
    let (last, lines): (Vec<_>, Vec<_>) = file.answer.iter().partition(|line| line.what == VALIDITY);
    let (unknown, known): (Vec<_>, Vec<_>) = lines.into_iter().partition(|line| nothing(line));
    let ordered = known.into_iter().chain(last).chain(unknown);
    ordered.map(|line| (line.what.clone(), answer_text(line))).collect()
}

fn answer_text(line: &AnswerLine) -> String {
    let part = |part: &AnswerPart| {
        let (value, unit) = match &part.value {
            Cell::Missing(why) => (format!("not known ({why})"), ""),
            cell => (format::cell(cell), part.unit.as_str()),
        };
        // The unit belongs to the median, and stands before what doubts it.
        let (value, doubt) = match (&part.value, value.split_once(' ')) {
            (Cell::Estimate { .. }, Some((median, doubt))) => (median.to_owned(), doubt.to_owned()),
            _ => (value, String::new()),
        };
        let words = [part.name.as_str(), value.as_str(), unit, doubt.as_str()];
        words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    };
    // A text may have commas of its own.
    let text = |part: &AnswerPart| matches!(part.value, Cell::Text(_) | Cell::Missing(_));
    let between = if line.parts.iter().any(text) { "; " } else { ", " };
    let (unknown, known): (Vec<_>, Vec<_>) =
        line.parts.iter().partition(|part| matches!(part.value, Cell::Missing(_)));
    known.into_iter().chain(unknown).map(part).collect::<Vec<_>>().join(between)
}

/// The last of the ten lines: how far the others may be believed.
pub fn validity(file: &ResultFile) -> AnswerLine {
    let rows = file.tables.iter().flat_map(|table| &table.rows).filter(|row| !row.invalid.is_empty());
    let (struck, first) = (rows.clone().count(), rows.flat_map(|row| &row.invalid).next());
    let whole = file.findings.iter().find(|finding| finding.severity == Severity::Invalid);
    let text = match (whole, first) {
        (Some(finding), _) => format!("INVALID: {}", finding.text),
        (None, Some(why)) => {
            let rows = if struck == 1 { "1 row".to_owned() } else { format!("{struck} rows") };
            format!("INVALID in {rows}, the first: {why}")
        }
        (None, None) => "no row is INVALID".to_owned(),
    };
    AnswerLine::one(VALIDITY, Cell::Text(text), "")
}

/// What the repetitions of all measures tell of the run's noise.
pub fn noise(file: &ResultFile) -> Option<Noise> {
    if file.measures.is_empty() {
        return None;
    }
    let mut noise = Noise {
        floor: noise_floor(file.measures.iter().map(|measure| measure.values.as_slice())),
        ..Noise::default()
    };
    for measure in &file.measures {
        noise.detectable_change.extend(noise_of(measure).1.map(|change| (measure.name.clone(), change)));
        noise.drift.extend(drift(&measure.values).map(|drift| (measure.name.clone(), drift.change)));
    }
    Some(noise)
}

/// The findings of the file but for the one that leads, and warnings of drift; invalid first, then verdicts, warnings,
/// notes.
pub fn findings(file: &ResultFile) -> Vec<Finding> {
    let lead = lead(file);
    let mut all = file.findings.clone();
    if let Some(at) =
        all.iter().position(|f| f.severity == Severity::Verdict && Some(f.text.as_str()) == lead)
    {
        all.remove(at);
    }
    let invalid_rows = file.tables.iter().flat_map(|t| &t.rows).filter(|r| !r.invalid.is_empty()).count();
    if invalid_rows > 0 {
        let rows = if invalid_rows == 1 { "1 row is".to_owned() } else { format!("{invalid_rows} rows are") };
        all.push(Finding::warning(format!("{rows} INVALID: struck out below, with the reason")));
    }
    all.extend(file.measures.iter().filter_map(drift_warning).map(Finding::warning));
    all.sort_by_key(|finding| finding.severity);
    all
}

/// The histograms that can be read; those that cannot are named in the notes of [`latencies`].
fn decoded(file: &ResultFile) -> Vec<(String, types::Result<Histogram>)> {
    file.histograms.iter().map(|h| (h.name.clone(), Histogram::decode(&h.v2_base64))).collect()
}

pub fn latencies(file: &ResultFile) -> Option<Table> {
    if file.histograms.is_empty() {
        return None;
    }
    let (mut good, mut notes) = (Vec::new(), Vec::new());
    for (name, histogram) in decoded(file) {
        match histogram {
            Ok(histogram) => good.push((name, histogram)),
            Err(error) => notes.push(format!("{name}: {error}")),
        }
    }
    notes.push("From histograms of three digits. A far percentile needs enough samples to exist.".to_owned());
    Some(histogram::table("Latency", &good).noted(notes))
}

/// Cumulative distributions of the first eight histograms that have samples, and which are not among them, and why.
pub fn latency_plot(file: &ResultFile) -> Option<(Plot, Vec<String>)> {
    let (mut series, mut empty, mut many) = (Vec::new(), Vec::new(), Vec::new());
    for (name, histogram) in decoded(file) {
        match histogram.ok().filter(|histogram| !histogram.is_empty()) {
            Some(_) if series.len() == CURVES_MAX => many.push(name),
            Some(histogram) => series.push(histogram.cumulative(name)),
            // If it cannot be read, the table says what is wrong with it.
            None => empty.push(name),
        }
    }
    let tangle = format!("more than {CURVES_MAX} curves are a tangle (their percentiles are in the table)");
    let left_out = [(tangle.as_str(), many), ("there is no sample", empty)];
    let left_out = left_out.into_iter().filter(|(_, names)| !names.is_empty());
    let left_out =
        left_out.map(|(why, names)| format!("Not drawn, as {why}: {}.", names.join("; "))).collect();
    let title = "Latency: share of all operations that were as fast";
    let (x, y) = (Axis::log("latency (ms)"), Axis::linear("operations (%)"));
    (!series.is_empty()).then(|| (Plot::new(PlotKind::Steps, title, x, y, series), left_out))
}

/// One row for each measure: its median, its noise, and what a comparison with it could find.
pub fn repetitions(file: &ResultFile) -> Option<Table> {
    if file.measures.is_empty() {
        return None;
    }
    let rows = file.measures.iter().map(|measure| TableRow::new(repetition_row(measure))).collect();
    let columns = ["Measure", "Unit", "n", "Median [95 %]", "Noise (%)", "Detectable change (%)"];
    let over_all = noise_floor(file.measures.iter().map(|m| m.values.as_slice()))
        .map(|noise| format!("Noise: coefficient of variation; {:.1} % over all measures.", noise * 100.0));
    let detectable =
        "Detectable: the smallest change that a comparison of two such runs finds four times out of five.";
    Some(Table::new("Repetitions", columns, rows).noted(over_all.into_iter().chain([detectable.to_owned()])))
}

/// How much the repetitions vary, and the smallest change that a comparison with them could find.
fn noise_of(measure: &Measure) -> (Option<f64>, Option<f64>) {
    let noise = coefficient_of_variation(&measure.values);
    (noise, noise.and_then(|noise| minimum_detectable_effect(noise, measure.values.len())))
}

fn repetition_row(measure: &Measure) -> Vec<Cell> {
    let n = measure.values.len();
    let (noise, detectable) = noise_of(measure);
    let percent = |fraction: Option<f64>| match fraction {
        Some(fraction) => Cell::Number((fraction * 1000.0).round() / 10.0),
        None => Cell::missing(format!("{n} repetitions are too few")),
    };
    vec![
        Cell::text(&measure.name),
        Cell::text(&measure.unit),
        Cell::Count(n as u64),
        estimate(&measure.values),
        percent(noise),
        percent(detectable),
    ]
}

pub fn parameters(file: &ResultFile) -> Vec<(String, String)> {
    let told = |(name, value): (&String, &Value)| match (value.as_u64(), name.as_str()) {
        (Some(bytes), name) if name.ends_with("bytes") => (name.to_owned(), format::bytes(bytes)),
        (Some(bytes), name) if name.ends_with("bytes_per_second") && bytes > 0 => {
            (name.to_owned(), format!("{}/s", format::bytes(bytes)))
        }
        _ => (name.clone(), plain(value)),
    };
    let mut all: Vec<_> = file.parameters.iter().map(told).collect();
    all.push(("seed".to_owned(), file.seed.to_string()));
    all
}

fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(n) => n.as_f64().filter(|_| n.is_f64()).map_or(n.to_string(), format::number),
        Value::Array(items) => items.iter().map(plain).collect::<Vec<_>>().join(", "),
        other => other.to_string(),
    }
}

/// The command that makes the result again, quoted for a shell.
pub fn command_line(file: &ResultFile) -> String {
    let plain = |word: &str| {
        !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c))
    };
    let quoted =
        |word: &String| if plain(word) { word.clone() } else { format!("'{}'", word.replace('\'', r"'\''")) };
    file.command.iter().map(quoted).collect::<Vec<_>>().join(" ")
}
