//! A result file as JSON: written with its schema version, and read with suspicion.
//!
//! A file comes from another machine, another version or an editor. Whatever is wrong with it is one line that says
//! what to do; nothing in it can make a reader panic or print nonsense.

use serde_json::Value;
use types::{Error, ErrorKind, Result};

use crate::histogram::Histogram;
use crate::model::{Cell, Finding, Point, ResultFile, SCHEMA};
use crate::report;

/// Larger files are not results: the largest real ones, with a thousand histograms, have some tens of MiB.
pub const BYTES_MAX: usize = 256 << 20;

/// Indented, so that two results can be told apart by `diff`. JSON has no infinities: a cell with one is written as
/// missing, a repetition or point with one is left out and warned of, rather than lose the whole result.
pub fn write(file: &ResultFile) -> Result<String> {
    let failed = |e: serde_json::Error| {
        Error::new(ErrorKind::InvalidArgument, "write result", &file.title).with_source(e)
    };
    let mut told = finite(file.clone());
    told.noise = report::noise(&told);
    let mut text = serde_json::to_string_pretty(&told).map_err(failed)?;
    text.push('\n');
    Ok(text)
}

fn finite(mut file: ResultFile) -> ResultFile {
    let answer = file.answer.iter_mut().flat_map(|line| &mut line.parts).map(|part| &mut part.value);
    let tables = file.tables.iter_mut().flat_map(|t| &mut t.rows).flat_map(|r| &mut r.cells);
    for cell in tables.chain(answer) {
        if check_cell(cell).is_err() {
            *cell = Cell::missing("not a finite number");
        }
    }
    let mut lost = 0;
    for measure in &mut file.measures {
        let before = measure.values.len();
        measure.values.retain(|v| v.is_finite());
        lost += before - measure.values.len();
    }
    for series in file.plots.iter_mut().flat_map(|p| &mut p.series) {
        let before = series.points.len();
        series.points.retain(is_sound);
        lost += before - series.points.len();
    }
    if lost > 0 {
        file.findings
            .push(Finding::warning(format!("{lost} values were no finite numbers and are not in this file")));
    }
    file
}

/// `name` is what the user called the file, for the error.
pub fn read(name: &str, bytes: &[u8]) -> Result<ResultFile> {
    let refuse = |why: String| Error::new(ErrorKind::Config, "result file", format!("{name}: {why}"));
    if bytes.len() > BYTES_MAX {
        return Err(refuse(format!(
            "more than {} MiB are too much for a result; is it the right file?",
            BYTES_MAX >> 20
        )));
    }
    let value: Value = serde_json::from_slice(bytes).map_err(|e| {
        refuse(format!("not valid JSON ({e}); give a file written by `forebay bench --json`"))
    })?;
    check_schema(&value).map_err(&refuse)?;
    let mut file: ResultFile = serde_json::from_value(value)
        .map_err(|e| refuse(format!("damaged ({}); run the benchmark again", first_line(&e.to_string()))))?;
    // It follows from the measures, and what they say counts.
    file.noise = None;
    check(&file).map_err(|why| refuse(format!("damaged ({why}); run the benchmark again")))?;
    Ok(file)
}

fn check_schema(value: &Value) -> std::result::Result<(), String> {
    let what = "give a file written by `forebay bench --json`";
    let Some(schema) = value.get("schema") else { return Err(format!("not a result file; {what}")) };
    match schema.as_u64() {
        Some(schema) if schema == u64::from(SCHEMA) => Ok(()),
        Some(schema) => Err(format!(
            "has schema {schema} and this forebay reads schema {SCHEMA}; run the benchmark again, or use the forebay \
             that wrote it"
        )),
        None => Err(format!("its schema is not a number; {what}")),
    }
}

/// What the types do not say.
fn check(file: &ResultFile) -> std::result::Result<(), String> {
    if !file.seconds.is_finite() || file.seconds < 0.0 {
        return Err(format!("it took {} s", file.seconds));
    }
    for table in &file.tables {
        for (i, row) in table.rows.iter().enumerate() {
            let place = format!("row {} of table \"{}\"", i + 1, table.title);
            if row.cells.len() != table.columns.len() {
                return Err(format!("{place} has {} cells, not {}", row.cells.len(), table.columns.len()));
            }
            row.cells.iter().try_for_each(check_cell).map_err(|why| format!("{place}: {why}"))?;
        }
    }
    for line in &file.answer {
        let mut cells = line.parts.iter().map(|part| &part.value);
        cells.try_for_each(check_cell).map_err(|why| format!("answer \"{}\": {why}", line.what))?;
    }
    for plot in &file.plots {
        let mut points = plot.series.iter().flat_map(|series| &series.points);
        if let Some(point) = points.find(|p| !is_sound(p)) {
            return Err(format!("plot \"{}\" has a point {point:?}", plot.title));
        }
    }
    for measure in &file.measures {
        if let Some(value) = measure.values.iter().find(|v| !v.is_finite()) {
            return Err(format!("measure \"{}\" has a value {value}", measure.name));
        }
    }
    for histogram in &file.histograms {
        Histogram::decode(&histogram.v2_base64)
            .map_err(|e| format!("histogram \"{}\": {e}", histogram.name))?;
    }
    Ok(())
}

fn check_cell(cell: &Cell) -> std::result::Result<(), String> {
    match cell {
        Cell::Number(value) if !value.is_finite() => Err(format!("a number is {value}")),
        Cell::Estimate { n: 0, .. } => Err("a median of no samples".to_owned()),
        Cell::Estimate { median, interval, .. } if !ordered(*median, *interval) => {
            Err(format!("the median {median} lies outside its interval"))
        }
        _ => Ok(()),
    }
}

fn is_sound(point: &Point) -> bool {
    point.x.is_finite() && ordered(point.y, point.interval)
}

fn ordered(value: f64, interval: Option<(f64, f64)>) -> bool {
    value.is_finite()
        && interval
            .is_none_or(|(low, high)| low.is_finite() && high.is_finite() && low <= value && value <= high)
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests;
