//! A table as the list of its columns: each head stands beside what its cells are made of. What stands below it, whatever was measured,
//! is data.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use bench_report::{Cell, Table, TableRow};

/// By the title of a table.
static NOTES: LazyLock<BTreeMap<String, Vec<String>>> =
    LazyLock::new(|| toml::from_str(include_str!("../notes.toml")).expect("the file was read by a test"));

/// The head, and the cell of a row.
pub type Column<'a, R> = (&'a str, &'a dyn Fn(&R) -> Cell);

/// `invalid`: why a row must not be believed.
pub fn table<R>(
    title: impl Into<String>,
    rows: &[R],
    invalid: impl Fn(&R) -> Vec<String>,
    columns: &[Column<R>],
) -> Table {
    let row = |row: &R| {
        let cells = columns.iter().map(|(_, cell)| cell(row)).collect();
        TableRow { cells, invalid: invalid(row) }
    };
    let table = Table::new(title, columns.iter().map(|(head, _)| *head), rows.iter().map(row).collect());
    let notes = NOTES.get(&table.title).cloned().unwrap_or_default();
    table.noted(notes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entries::entries_below;

    #[test]
    fn each_note_stands_below_a_table_that_there_is() {
        let sources =
            entries_below(concat!(env!("CARGO_MANIFEST_DIR"), "/src").as_ref()).expect("the sources");
        let text: String = sources.filter_map(|(path, _)| std::fs::read_to_string(path).ok()).collect();
        for (title, notes) in NOTES.iter() {
            assert!(text.contains(&format!("\"{title}\",")), "{title} is no table");
            let made = table(title.as_str(), &[1], |_| Vec::new(), &[("n", &|n| Cell::Count(*n))]);
            assert!(!notes.is_empty() && made.notes == *notes);
        }
    }
}
