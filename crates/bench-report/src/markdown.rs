//! A result as Markdown, for a terminal, a mail or a repository. Cells are escaped: a file name with a bar in it stays
//! one cell, and no text becomes a tag.

use std::fmt::Write;

use crate::format;
use crate::model::{Cell, ResultFile, Severity, Table, TableRow};
use crate::report;

pub fn render(file: &ResultFile) -> String {
    let mut out = String::new();
    // Writing to a string cannot fail.
    let [title, experiment, preset, started] =
        [&file.title, &file.experiment, &file.preset, &file.started].map(|text| escape(text));
    let _ = writeln!(out, "# {title}\n");
    let _ = writeln!(out, "{experiment} ({preset}), {started}, {}\n", format::duration(file.seconds));
    if let Some(lead) = report::lead(file) {
        let _ = writeln!(out, "**{}**\n", escape(lead));
    }
    for (what, told) in report::answer(file) {
        let _ = writeln!(out, "- **{}:** {}", escape(&what), escape(&told));
    }
    if !file.answer.is_empty() {
        // Two lists: the ten lines, and what there is to be said about them.
        out.push_str("\n<!-- -->\n\n");
    }
    for finding in report::findings(file) {
        let mark = match finding.severity {
            Severity::Invalid => "**INVALID:** ",
            Severity::Verdict => "",
            Severity::Warning => "**Warning:** ",
            Severity::Note => "Note: ",
        };
        let _ = writeln!(out, "- {mark}{}", escape(&finding.text));
    }
    out.push('\n');
    for table in file.tables.iter().chain(&report::latencies(file)).chain(&report::repetitions(file)) {
        out.push_str(&self::table(table));
        out.push('\n');
    }
    pairs(&mut out, "Parameters", report::parameters(file));
    pairs(&mut out, "Fingerprint", file.fingerprint.clone());
    let _ = writeln!(out, "Made by: `{}`", report::command_line(file).replace(['`', '\n'], " "));
    out
}

/// One table with its title and notes. Cells of invalid rows are struck, the reasons follow below the table.
pub fn table(table: &Table) -> String {
    let mut out = String::new();
    if !table.title.is_empty() {
        let _ = writeln!(out, "## {}\n", escape(&table.title));
    }
    let heads: Vec<String> = table.columns.iter().map(|c| escape(c)).collect();
    let _ = writeln!(out, "| {} |", heads.join(" | "));
    let rules: Vec<&str> =
        (0..table.columns.len()).map(|i| if is_text(table, i) { "---" } else { "---:" }).collect();
    let _ = writeln!(out, "| {} |", rules.join(" | "));
    for row in &table.rows {
        let _ = writeln!(out, "| {} |", cells(row).join(" | "));
    }
    let notes = reasons(table)
        .into_iter()
        .map(|(rows, why)| format!("**INVALID**, {rows}: {}", escape(&why)))
        .chain(table.notes.iter().map(|n| escape(n)));
    for (i, note) in notes.enumerate() {
        let _ = writeln!(out, "{}- {note}", if i == 0 { "\n" } else { "" });
    }
    out
}

/// Each reason once, with the rows that it strikes.
fn reasons(table: &Table) -> Vec<(String, String)> {
    let mut all: Vec<(Vec<String>, String)> = Vec::new();
    for (i, row) in table.rows.iter().enumerate().filter(|(_, row)| !row.invalid.is_empty()) {
        let (number, why) = ((i + 1).to_string(), row.invalid.join("; "));
        match all.iter_mut().find(|(_, known)| *known == why) {
            Some((rows, _)) => rows.push(number),
            None => all.push((vec![number], why)),
        }
    }
    let named =
        |rows: Vec<String>| format!("{} {}", if rows.len() == 1 { "row" } else { "rows" }, rows.join(", "));
    all.into_iter().map(|(rows, why)| (named(rows), why)).collect()
}

fn cells(row: &TableRow) -> Vec<String> {
    let strike = |text: String| {
        if row.invalid.is_empty() || text.is_empty() { text } else { format!("~~{text}~~") }
    };
    row.cells.iter().map(|cell| strike(escape(&format::cell(cell)))).collect()
}

/// A column with text in it is read from the left, one with numbers only from the right.
pub(crate) fn is_text(table: &Table, column: usize) -> bool {
    table.rows.iter().filter_map(|row| row.cells.get(column)).any(|cell| matches!(cell, Cell::Text(_)))
}

fn pairs(out: &mut String, title: &str, pairs: impl IntoIterator<Item = (String, String)>) {
    let line = |(name, value): (String, String)| format!("| {} | {} |", escape(&name), escape(&value));
    let lines: Vec<String> = pairs.into_iter().map(line).collect();
    if !lines.is_empty() {
        let _ = writeln!(out, "## {title}\n\n| Name | Value |\n| --- | --- |\n{}\n", lines.join("\n"));
    }
}

/// No character of a text means anything to Markdown.
fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '|' | '`' | '*' | '_' | '~' => out.extend(['\\', c]),
            '<' => out.push_str("&lt;"),
            '&' => out.push_str("&amp;"),
            '\n' => out.push_str("<br>"),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published::PUBLISHED;

    /// Exact: the columns of the seed.
    #[test]
    fn the_published_table_looks_as_it_was_published() {
        let text = table(&PUBLISHED.vfxt.results.table());
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[2],
            "| NFS Location | Roundtrip Latency (ms) to East US | Direct Connect (s) | Cold E32x3 vFXT (s) | \
             Warm E32x3 vFXT (s) |"
        );
        assert_eq!(lines[3], "| --- | ---: | ---: | ---: | ---: |");
        assert_eq!(lines[4], "| NFS East US | 1.9 | 497 | 393 | 331 |");
        assert_eq!(lines[7], "| NFS Southeast Asia | 221 | 1280 | 375 | 312 |");
    }

    #[test]
    fn texts_stay_in_their_cells() {
        let row = TableRow::new(vec![Cell::text("a|b\n<script>*x*"), Cell::Number(1.0)]);
        let text = table(&Table::new("", ["name", "value"], vec![row]));
        assert_eq!(text.lines().nth(2), Some(r"| a\|b<br>&lt;script>\*x\* | 1 |"));
    }

    #[test]
    fn invalid_rows_are_struck_and_say_why() {
        let row = TableRow {
            cells: vec![Cell::Number(5.0)],
            invalid: vec!["too short".to_owned(), "random".to_owned()],
        };
        let text = table(&Table::new("T", ["MiB/s"], vec![row]));
        assert!(text.contains("| ~~5~~ |"), "{text}");
        assert!(text.contains("- **INVALID**, row 1: too short; random"), "{text}");
    }

    #[test]
    fn a_reason_is_told_once_for_all_its_rows() {
        let row = |why: &str| TableRow { cells: vec![Cell::Number(5.0)], invalid: vec![why.to_owned()] };
        let text = table(&Table::new("T", ["MiB/s"], vec![row("a"), row("b"), row("a")]));
        assert!(text.contains("- **INVALID**, rows 1, 3: a\n- **INVALID**, row 2: b"), "{text}");
        assert_eq!(text.matches("INVALID").count(), 2);
    }
}
