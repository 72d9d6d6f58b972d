//! What the five studies published that our experiments repeat, to be printed and drawn beside our numbers.
//!
//! The figures are data: `published.toml`, read once. A [`Printed`] is a table of it, as the study has it; what can be
//! calculated from a study's figures is a method of the study ([`Vfxt`], [`Azure`], [`Mapr`], [`sob::SobRun`]).

pub mod sob;

use std::sync::LazyLock;

use serde::Deserialize;

use crate::model::{Axis, Cell, Plot, PlotKind, Point, Series, Table, TableRow};

pub static PUBLISHED: LazyLock<Published> =
    LazyLock::new(|| toml::from_str(include_str!("../published.toml")).expect("the file was read by a test"));

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    pub vfxt: Vfxt,
    pub aistore: AiStore,
    pub azure: Azure,
    pub mapr: Mapr,
    pub tryggve: Tryggve,
}

/// Frames rendered from NAS at four distances.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Vfxt {
    /// Place, round trip in ms, and the seconds that it took directly, cold and warm.
    pub results: Printed,
}

/// Objects read directly and through the cache.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AiStore {
    pub object_bytes: u64,
    pub results: Printed,
    /// The columns of the earlier study of the same cluster.
    pub gets: Printed,
}

/// Files of several sizes read and written at Blob, Azure Files and a Lustre.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Azure {
    /// Single file, multiple readers.
    pub read: Printed,
    /// The same, by the number of nodes.
    pub nodes: Printed,
    /// Single file, multiple writers.
    pub sfmw: Printed,
    /// Multiple files, multiple writers.
    pub mfmw: Printed,
}

/// A file read through several gateways.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mapr {
    pub results: Printed,
    /// The columns of the result table that the study should have had, and ours has.
    pub wanted: Printed,
    pub placement: Printed,
    pub placement_by_node: Printed,
}

/// Nodes of two sites that share one NFS server.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tryggve {
    pub partitions: Printed,
    /// The cancer analysis workflow.
    pub caw: Printed,
    pub link: Printed,
    pub sob: Vec<sob::SobRun>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Printed {
    #[serde(default)]
    pub title: String,
    pub columns: Vec<String>,
    #[serde(default)]
    rows: Vec<Vec<PrintedCell>>,
    #[serde(default)]
    notes: Vec<String>,
    /// What an empty cell means. None: it is empty.
    missing: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum PrintedCell {
    Count(u64),
    Number(f64),
    Text(String),
}

impl Printed {
    pub fn table(&self) -> Table {
        let rows =
            self.rows.iter().map(|row| TableRow::new(row.iter().map(|cell| self.cell(cell)).collect()));
        Table {
            notes: self.notes.clone(),
            published: true,
            ..Table::new(&self.title, &self.columns, rows.collect())
        }
    }

    /// Its columns, with these rows and no figure of its own.
    pub fn filled(&self, rows: Vec<TableRow>) -> Table {
        Table::new(&self.title, &self.columns, rows)
    }

    pub fn rows(&self) -> usize {
        self.rows.len()
    }

    /// The rows that have a number in both columns.
    pub fn points(&self, x: usize, y: usize) -> Vec<Point> {
        let points =
            (0..self.rows.len()).map(|row| Some(Point::at(self.number(row, x)?, self.number(row, y)?)));
        points.flatten().collect()
    }

    fn cell(&self, cell: &PrintedCell) -> Cell {
        match (cell, &self.missing) {
            (PrintedCell::Count(count), _) => Cell::Count(*count),
            (PrintedCell::Number(number), _) => Cell::Number(*number),
            (PrintedCell::Text(text), Some(why)) if text.is_empty() => Cell::missing(why),
            (PrintedCell::Text(text), _) => Cell::text(text),
        }
    }

    fn number(&self, row: usize, column: usize) -> Option<f64> {
        match self.rows.get(row)?.get(column)? {
            PrintedCell::Count(count) => Some(*count as f64),
            PrintedCell::Number(number) => Some(*number),
            PrintedCell::Text(_) => None,
        }
    }

    fn text(&self, row: usize, column: usize) -> Option<&str> {
        match self.rows.get(row)?.get(column)? {
            PrintedCell::Text(text) => Some(text),
            PrintedCell::Count(_) | PrintedCell::Number(_) => None,
        }
    }
}

impl Vfxt {
    /// The NAS that was so many milliseconds away.
    pub fn place(&self, rtt_ms: f64) -> Option<&str> {
        let near = |row: &usize| self.results.number(*row, 1).is_some_and(|ms| (ms - rtt_ms).abs() < 0.01);
        (0..self.results.rows()).find(near).and_then(|row| self.results.text(row, 0))
    }

    pub fn direct(&self) -> Vec<(f64, f64)> {
        self.results.points(1, 2).iter().map(|point| (point.x, point.y)).collect()
    }

    /// Seconds against the round trip in ms: direct, cold, warm.
    pub fn series(&self) -> [Series; 3] {
        let of = |name, column| Series::published(name, self.results.points(1, column));
        [of("vFXT direct", 2), of("vFXT cold", 3), of("vFXT warm", 4)]
    }

    /// The original's chart: one group of bars for each region.
    pub fn plot(&self) -> Plot {
        let group =
            |row| Some(format!("{} ({}\u{a0}ms)", self.results.text(row, 0)?, self.results.number(row, 1)?));
        let by_group = |series: Series| {
            let points =
                series.points.iter().enumerate().map(|(group, point)| Point::at(group as f64, point.y));
            Series { points: points.collect(), ..series }
        };
        let x = Axis::named("", (0..self.results.rows()).filter_map(group));
        let (y, series) = (Axis::linear("500 frames (s)"), self.series().map(by_group));
        Plot::new(PlotKind::Bars, "Avere vFXT render study", x, y, series)
    }
}

impl Azure {
    pub fn tables(&self) -> [Table; 4] {
        [&self.read, &self.nodes, &self.sfmw, &self.mfmw].map(Printed::table)
    }

    /// MiB/s against MiB of a file, of each reader (SFMR) or of all writers: a series for each of the three targets; none for a
    /// target without a figure, or for a shape that the study did not measure.
    pub fn series(&self, shape: &str) -> Vec<Series> {
        let (of, first) = match shape {
            "SFMR" => (&self.read, 1),
            "SFMW" => (&self.sfmw, 2),
            "MFMW" => (&self.mfmw, 2),
            _ => return Vec::new(),
        };
        let all = ["Azure Blob", "Azure File", "Cirrus"]
            .iter()
            .zip(first..)
            .map(|(target, column)| Series::published(format!("{target}, {shape}"), of.points(0, column)));
        all.filter(|series| !series.points.is_empty()).collect()
    }
}

impl Mapr {
    /// MiB/s against replicas, as many gateways as replicas, after the replicas were in use.
    pub fn series(&self) -> Series {
        let all = self.results.points(0, 2);
        let settled = [0, 4, 6].iter().filter_map(|row| all.get(*row));
        let points = settled.map(|point| Point::at(point.x, point.y / 1024.0));
        Series::published("MapR-FS, as many gateways as replicas", points.collect())
    }
}

#[cfg(test)]
mod tests;
