//! A result file. Every experiment fills the same few shapes, so that every output and `compare` know them all.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The version of the JSON file's schema; a file of another one is refused.
pub const SCHEMA: u32 = 1;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResultFile {
    pub schema: u32,
    /// `render`, `probe`, ...
    pub experiment: String,
    pub title: String,
    /// `faithful`, `modern`
    pub preset: String,
    /// RFC 3339, UTC.
    pub started: String,
    pub seconds: f64,
    /// The command line that made it, and makes it again.
    pub command: Vec<String>,
    /// Every parameter with its unit in the name: `file_bytes`, `rtt_ms`.
    pub parameters: BTreeMap<String, serde_json::Value>,
    pub seed: u64,
    pub fingerprint: BTreeMap<String, String>,
    pub tables: Vec<Table>,
    pub plots: Vec<Plot>,
    /// What `compare` compares: the repetitions of each measured quantity.
    pub measures: Vec<Measure>,
    pub histograms: Vec<NamedHistogram>,
    pub findings: Vec<Finding>,
    /// What the whole experiment is for, in about ten lines; empty where nobody asked for so few. Files of before it was
    /// there have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub answer: Vec<AnswerLine>,
    /// What follows from the repetitions; written for programs that read the file, and calculated anew by ours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub noise: Option<Noise>,
}

/// One line of the answer: `speed-up: cold 1.52 [1.50, 1.55] x, warm 1.81 [1.79, 1.84] x`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnswerLine {
    pub what: String,
    pub parts: Vec<AnswerPart>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AnswerPart {
    /// `direct`, `cold`, `campus`; empty if the line has only one part.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    pub value: Cell,
    /// `s`, `ms`, `x`; empty if the value has none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
}

/// The variation of the repetitions, and what a comparison could find above it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// Coefficient of variation over all measures, as a fraction.
    pub floor: Option<f64>,
    /// By measure: the smallest relative change that a comparison with another such run finds four times out of five.
    pub detectable_change: BTreeMap<String, f64>,
    /// By measure: the relative change from the first to the last repetition, where it is no accident.
    pub drift: BTreeMap<String, f64>,
}

/// One quantity under one condition, measured again and again.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measure {
    /// `direct seconds, rtt 69.5 ms`
    pub name: String,
    /// `s`, `MiB/s`, `calls`
    pub unit: String,
    pub better: Better,
    /// In the order they were measured.
    pub values: Vec<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Better {
    Lower,
    Higher,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Table {
    pub title: String,
    /// Heads, with the unit: `Direct Connect (s)`.
    pub columns: Vec<String>,
    pub rows: Vec<TableRow>,
    /// Below the table: what the numbers are, and are not.
    pub notes: Vec<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub published: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TableRow {
    pub cells: Vec<Cell>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub invalid: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cell {
    Text(String),
    Number(f64),
    Count(u64),
    Bytes(u64),
    /// A median with its 95 % confidence interval, absent below six repetitions.
    Estimate {
        median: f64,
        interval: Option<(f64, f64)>,
        n: usize,
    },
    /// No value, and why.
    Missing(String),
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plot {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub kind: PlotKind,
    pub series: Vec<Series>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// With the unit.
    pub label: String,
    pub logarithmic: bool,
    /// Of an x axis without numbers (regions, partitions): the point with x = i belongs to the name i.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlotKind {
    Lines,
    /// One group of bars for each x, one bar for each series.
    Bars,
    /// A step function: throughput against time, cumulative distributions.
    Steps,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    pub name: String,
    pub points: Vec<Point>,
    /// Values that somebody else published, drawn so that they are not taken for ours.
    pub published: bool,
    /// A fit or an ideal: a thin line without points, as nothing was measured there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub model: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    /// The ends of the error bar.
    pub interval: Option<(f64, f64)>,
}

/// An HDR histogram of microseconds, in the V2 format of the HdrHistogram family, base64.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NamedHistogram {
    pub name: String,
    pub v2_base64: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    pub severity: Severity,
    pub text: String,
}

/// In the order in which they are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// The result as a whole must not be believed.
    Invalid,
    /// An answer: "limited by: WAN round trips".
    Verdict,
    Warning,
    Note,
}

impl Measure {
    pub fn new(
        name: impl Into<String>,
        unit: impl Into<String>,
        better: Better,
        values: Vec<f64>,
    ) -> Measure {
        Measure { name: name.into(), unit: unit.into(), better, values }
    }
}

impl AnswerLine {
    pub fn new(what: impl Into<String>, parts: Vec<AnswerPart>) -> AnswerLine {
        AnswerLine { what: what.into(), parts }
    }

    /// With a single value that says all.
    pub fn one(what: impl Into<String>, value: Cell, unit: &str) -> AnswerLine {
        AnswerLine::new(what, vec![AnswerPart::new("", value, unit)])
    }
}

impl AnswerPart {
    pub fn new(name: impl Into<String>, value: Cell, unit: &str) -> AnswerPart {
        AnswerPart { name: name.into(), value, unit: unit.to_owned() }
    }
}

impl Cell {
    pub fn text(text: impl Into<String>) -> Cell {
        Cell::Text(text.into())
    }

    pub fn missing(why: impl Into<String>) -> Cell {
        Cell::Missing(why.into())
    }

    /// A number if there is one, and why not otherwise.
    pub fn known(number: Option<f64>, why_not: &str) -> Cell {
        number.map_or_else(|| Cell::missing(why_not), Cell::Number)
    }
}

impl TableRow {
    pub fn new(cells: Vec<Cell>) -> TableRow {
        TableRow { cells, invalid: Vec::new() }
    }
}

impl Table {
    pub fn new<C: Into<String>>(
        title: impl Into<String>,
        columns: impl IntoIterator<Item = C>,
        rows: Vec<TableRow>,
    ) -> Table {
        let columns = columns.into_iter().map(Into::into).collect();
        Table { title: title.into(), columns, rows, notes: Vec::new(), published: false }
    }

    /// With these notes below it.
    pub fn noted<N: Into<String>>(self, notes: impl IntoIterator<Item = N>) -> Table {
        Table { notes: notes.into_iter().map(Into::into).collect(), ..self }
    }
}

impl Plot {
    pub fn new(
        kind: PlotKind,
        title: impl Into<String>,
        x: Axis,
        y: Axis,
        series: impl IntoIterator<Item = Series>,
    ) -> Plot {
        Plot { title: title.into(), x, y, kind, series: series.into_iter().collect() }
    }
}

impl Axis {
    pub fn linear(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), ..Axis::default() }
    }

    pub fn log(label: impl Into<String>) -> Axis {
        Axis { label: label.into(), logarithmic: true, ..Axis::default() }
    }

    pub fn named<N: Into<String>>(label: impl Into<String>, names: impl IntoIterator<Item = N>) -> Axis {
        let names = names.into_iter().map(Into::into).collect();
        Axis { label: label.into(), names, ..Axis::default() }
    }
}

impl Point {
    pub fn at(x: f64, y: f64) -> Point {
        Point { x, y, interval: None }
    }
}

impl Series {
    /// Measured here.
    pub fn ours(name: impl Into<String>, points: Vec<Point>) -> Series {
        Series { name: name.into(), points, published: false, model: false }
    }

    /// Measured by somebody else.
    pub fn published(name: impl Into<String>, points: Vec<Point>) -> Series {
        Series { name: name.into(), points, published: true, model: false }
    }

    /// Calculated: a fit, an ideal.
    pub fn model(name: impl Into<String>, points: Vec<Point>) -> Series {
        Series { name: name.into(), points, published: false, model: true }
    }
}

impl Finding {
    pub fn new(severity: Severity, text: impl Into<String>) -> Finding {
        Finding { severity, text: text.into() }
    }

    pub fn verdict(text: impl Into<String>) -> Finding {
        Finding::new(Severity::Verdict, text)
    }

    pub fn warning(text: impl Into<String>) -> Finding {
        Finding::new(Severity::Warning, text)
    }
}
