//! A table as the list of its columns: each head stands beside what its cells are made of.

use bench_report::{Cell, Table, TableRow};

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
    Table::new(title, columns.iter().map(|(head, _)| *head), rows.iter().map(row).collect())
}
