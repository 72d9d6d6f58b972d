//! Tables as CSV (RFC 4180: CRLF, quotes doubled), with more in them than people want to read: the ends of every
//! interval, the number of repetitions, bytes as bytes, and why a row is invalid or a value missing.

use crate::model::{Cell, ResultFile, Table};
use crate::report;

/// One file for each table and one for the repetitions: (name without directories, contents).
pub fn files(file: &ResultFile) -> Vec<(String, String)> {
    let latencies = report::latencies(file);
    let mut names: Vec<String> = Vec::new();
    let mut all = Vec::new();
    for table in file.tables.iter().chain(&latencies) {
        let stem = file_stem(&table.title);
        let taken = names.iter().filter(|name| **name == stem).count();
        names.push(stem.clone());
        let name = if taken == 0 { format!("{stem}.csv") } else { format!("{stem}-{}.csv", taken + 1) };
        all.push((name, self::table(table)));
    }
    if !file.measures.is_empty() {
        all.push(("repetitions.csv".to_owned(), measures(file)));
    }
    all
}

/// A column that holds estimates becomes four: the median, `low`, `high`, `n`. The last column says why a row is
/// invalid.
pub fn table(table: &Table) -> String {
    let wide: Vec<bool> = (0..table.columns.len())
        .map(|i| table.rows.iter().filter_map(|r| r.cells.get(i)).any(|c| matches!(c, Cell::Estimate { .. })))
        .collect();
    let mut head = Vec::new();
    for (column, wide) in table.columns.iter().zip(&wide) {
        head.push(column.clone());
        if *wide {
            head.extend(["low", "high", "n"].map(|part| format!("{column} {part}")));
        }
    }
    head.push("invalid".to_owned());
    let mut out = record(&head);
    for row in &table.rows {
        let mut fields = Vec::new();
        for (i, wide) in wide.iter().enumerate() {
            let cell = row.cells.get(i);
            fields.push(cell.map(plain).unwrap_or_default());
            if *wide {
                fields.extend(parts(cell));
            }
        }
        fields.push(row.invalid.join("; "));
        out.push_str(&record(&fields));
    }
    out
}

pub fn measures(file: &ResultFile) -> String {
    let mut out = record(&["measure", "unit", "repetition", "value"].map(str::to_owned));
    for measure in &file.measures {
        for (i, value) in measure.values.iter().enumerate() {
            let fields = [measure.name.clone(), measure.unit.clone(), (i + 1).to_string(), value.to_string()];
            out.push_str(&record(&fields));
        }
    }
    out
}

/// A cell's value with all its digits.
fn plain(cell: &Cell) -> String {
    match cell {
        Cell::Text(text) => text.clone(),
        Cell::Number(value) | Cell::Estimate { median: value, .. } => value.to_string(),
        Cell::Count(value) | Cell::Bytes(value) => value.to_string(),
        // An empty field is what every reader takes for "no value"; the reason is in the JSON.
        Cell::Missing(_) => String::new(),
    }
}

fn parts(cell: Option<&Cell>) -> [String; 3] {
    match cell {
        Some(Cell::Estimate { interval, n, .. }) => {
            let (low, high) = interval.map(|(l, h)| (l.to_string(), h.to_string())).unwrap_or_default();
            [low, high, n.to_string()]
        }
        _ => Default::default(),
    }
}

fn record(fields: &[String]) -> String {
    let quoted: Vec<String> = fields.iter().map(|f| quote(f)).collect();
    quoted.join(",") + "\r\n"
}

fn quote(field: &str) -> String {
    if field.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", field.replace('"', "\"\""))
    } else {
        field.to_owned()
    }
}

fn file_stem(title: &str) -> String {
    let mut stem = String::new();
    for c in title.chars().take(60) {
        if c.is_ascii_alphanumeric() {
            stem.push(c.to_ascii_lowercase());
        } else if !stem.ends_with('-') && !stem.is_empty() {
            stem.push('-');
        }
    }
    let stem = stem.trim_end_matches('-');
    if stem.is_empty() { "table".to_owned() } else { stem.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::TableRow;
    use crate::summary::estimate;

    #[test]
    fn estimates_have_their_ends_and_texts_their_quotes() {
        let rows = vec![
            TableRow::new(vec![Cell::text("a, \"b\"\nc"), estimate(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])]),
            TableRow { cells: vec![Cell::Bytes(5), Cell::missing("why")], invalid: vec!["short".to_owned()] },
        ];
        let text = table(&Table::new("T", ["name", "s"], rows));
        assert_eq!(
            text,
            "name,s,s low,s high,s n,invalid\r\n\"a, \"\"b\"\"\nc\",3.5,1,6,6,\r\n5,,,,,short\r\n"
        );
    }

    #[test]
    fn a_row_that_is_too_short_still_has_all_fields() {
        let text = table(&Table::new("T", ["a", "b"], vec![TableRow::new(vec![Cell::Number(0.1)])]));
        assert_eq!(text, "a,b,invalid\r\n0.1,,\r\n");
    }

    #[test]
    fn file_names_are_harmless() {
        assert_eq!(file_stem("../../etc: Räume & more!"), "etc-r-ume-more");
        assert_eq!(file_stem("///"), "table");
    }
}
