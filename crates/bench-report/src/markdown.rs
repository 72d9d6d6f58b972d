//! A result as Markdown, for a terminal, a mail or a repository. Cells are escaped: a file name with a bar in it stays
//! one cell, and no text becomes a tag. What it looks like is in the templates in `markdown/`.

use std::fmt::{Result, Write};

use askama::Template;
use askama::filters::Escaper;

use crate::model::{Cell, ResultFile, Severity, Table};
use crate::report;

#[derive(Template)]
#[template(path = "page.md")]
struct MarkdownPage<'a> {
    file: &'a ResultFile,
    tables: Vec<MarkdownTable<'a>>,
    command: String,
}

/// One table with its title and notes. Cells of invalid rows are struck, the reasons follow below.
#[derive(Template)]
#[template(path = "table.md")]
struct MarkdownTable<'a> {
    table: &'a Table,
    rules: Vec<&'static str>,
    reasons: Vec<(String, String)>,
}

pub fn render(file: &ResultFile) -> String {
    let (latencies, repetitions) = (report::latencies(file), report::repetitions(file));
    let tables = file.tables.iter().chain(&latencies).chain(&repetitions).map(MarkdownTable::of).collect();
    let command = report::command_line(file).replace(['`', '\n'], " ");
    MarkdownPage { file, tables, command }.to_string()
}

pub fn table(table: &Table) -> String {
    MarkdownTable::of(table).to_string()
}

impl MarkdownTable<'_> {
    fn of(table: &Table) -> MarkdownTable<'_> {
        let rule = |at| if is_text(table, at) { "---" } else { "---:" };
        MarkdownTable { table, rules: (0..table.columns.len()).map(rule).collect(), reasons: reasons(table) }
    }
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

/// A column with text in it is read from the left, one with numbers only from the right.
pub(crate) fn is_text(table: &Table, column: usize) -> bool {
    table.rows.iter().filter_map(|row| row.cells.get(column)).any(|cell| matches!(cell, Cell::Text(_)))
}

/// No character of a text means anything to Markdown.
#[derive(Clone, Copy)]
pub struct MarkdownText;

impl Escaper for MarkdownText {
    fn write_escaped_str<W: Write>(&self, mut out: W, text: &str) -> Result {
        text.chars().try_for_each(|c| match c {
            '\\' | '|' | '`' | '*' | '_' | '~' => write!(out, "\\{c}"),
            '<' => out.write_str("&lt;"),
            '&' => out.write_str("&amp;"),
            '\n' => out.write_str("<br>"),
            c if c.is_control() => out.write_char(' '),
            c => out.write_char(c),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::TableRow;
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
