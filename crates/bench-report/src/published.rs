//! What the five studies published that our experiments repeat, as data, to be printed and drawn beside our numbers.
//!
//! Columns are named as in the originals, so that the tables can be laid side by side. Values are as printed there;
//! what was found to be wrong with them is a note below the table, and never corrected in it.

pub mod aistore;
pub mod azure_hpc_io;
pub mod mapr;
pub mod tryggve;
pub mod vfxt;

use crate::model::{Cell, Row, Table};

/// For a cell that the original left empty.
const NOT_PUBLISHED: &str = "not published";

fn number_or_empty(value: Option<f64>) -> Cell {
    value.map_or_else(|| Cell::missing(NOT_PUBLISHED), Cell::Number)
}

fn table(title: &str, columns: &[&str], rows: impl Iterator<Item = Vec<Cell>>, notes: &[&str]) -> Table {
    let mut table = Table::new(title, columns.iter().copied(), rows.map(Row::new).collect());
    table.notes = notes.iter().map(|n| (*n).to_owned()).collect();
    table.published = true;
    table
}

#[cfg(test)]
mod tests;
