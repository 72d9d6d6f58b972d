//! Azure HPC IO: 20 processes on 5 nodes reading and writing Blob, Azure Files and the Lustre of Cirrus.

use super::{number_or_empty, table};
use crate::model::{Cell, Point, Series, Table};

pub const READ_COLUMNS: [&str; 4] =
    ["File Size(MiB)", "Azure Block Blob (MiB/s)", "Azure File (MiB/s)", "Cirrus (MiB/s)"];
pub const NODES_COLUMNS: [&str; 5] =
    ["Procs/Node", "Nodes", "Azure Block Blob (MiB/s)", "Azure File (MiB/s)", "Cirrus (MiB/s)"];
pub const WRITE_COLUMNS: [&str; 5] =
    ["Size(MiB) per Proc", "Total Size(MiB)", "Blob(MiB/s)", "File(MiB/s)", "Cirrus(MiB/s)"];
/// Of the later version of the document, which printed the latency of each target too.
pub const LATER_COLUMNS: [&str; 7] = [
    "File Size (MiB)",
    "Blob Latency (s)",
    "Blob Bandwidth (MiB/s)",
    "File Latency (s)",
    "File Bandwidth (MiB/s)",
    "Cirrus Latency (s)",
    "Cirrus Bandwidth (MiB/s)",
];

/// MiB of the file, then MiB/s of Blob, File, Cirrus: for each reader.
pub const SFMR: [(f64, [f64; 3]); 11] = [
    (1.0, [28.571, 20.408, 333.333]),
    (2.0, [37.736, 29.412, 1000.0]),
    (4.0, [39.604, 38.462, 400.0]),
    (8.0, [48.485, 43.478, 800.0]),
    (16.0, [52.632, 50.314, 800.0]),
    (32.0, [53.872, 49.536, 1103.448]),
    (64.0, [51.077, 52.373, 901.408]),
    (128.0, [52.096, 56.487, 914.286]),
    (256.0, [53.256, 57.749, 948.148]),
    (512.0, [53.618, 60.157, 971.537]),
    (1024.0, [55.804, 62.280, 837.285]),
];

/// Processes a node, nodes, then MiB/s of Blob, File, Cirrus: for each reader, 64 MiB.
pub const NODES: [(u64, u64, [Option<f64>; 3]); 5] = [
    (1, 20, [Some(50.235), Some(52.980), Some(771.084)]),
    (2, 10, [Some(52.545), Some(53.601), Some(1163.636)]),
    (4, 5, [Some(50.354), Some(53.872), Some(1103.448)]),
    (6, 4, [None, None, Some(1032.258)]),
    (8, 3, [None, None, Some(941.176)]),
];

/// MiB of each process, MiB in all, then MiB/s of Blob, File, Cirrus: of all writers together.
type Write = (f64, u64, [Option<f64>; 3]);

pub const SFMW: [Write; 10] = [
    (1.0, 20, [Some(111.111), Some(133.333), None]),
    (2.0, 40, [Some(205.128), Some(174.672), None]),
    (4.0, 80, [Some(255.591), Some(249.221), None]),
    (8.0, 160, [Some(330.579), Some(325.203), None]),
    (16.0, 320, [Some(397.022), Some(308.285), None]),
    (32.0, 640, [Some(385.775), Some(259.004), None]),
    (64.0, 1280, [Some(448.179), Some(277.838), None]),
    (128.0, 2560, [Some(444.290), Some(311.473), None]),
    (256.0, 5120, [Some(475.483), Some(291.854), None]),
    (512.0, 10240, [Some(515.039), Some(340.143), None]),
];

pub const MFMW: [Write; 10] = [
    (1.0, 20, [Some(243.902), Some(139.860), Some(5000.0)]),
    (2.0, 40, [Some(231.214), Some(132.450), Some(10000.0)]),
    (4.0, 80, [Some(325.203), Some(188.679), Some(11428.571)]),
    (8.0, 160, [Some(441.989), Some(336.842), Some(5714.286)]),
    (16.0, 320, [Some(415.045), Some(376.028), Some(2388.060)]),
    (32.0, 640, [Some(390.959), Some(343.164), Some(2549.801)]),
    (64.0, 1280, [Some(475.836), Some(360.259), Some(3350.785)]),
    (128.0, 2560, [Some(500.685), Some(393.060), Some(2952.710)]),
    (256.0, 5120, [Some(492.402), Some(371.742), Some(3017.089)]),
    (512.0, 10240, [Some(515.039), Some(408.962), Some(2833.426)]),
];

const PER_READER: &str = "MiB/s of one reader: the file's size over the average time. All 20 readers together moved \
                          about 20 times as much.";
const TOO_SHORT: &str = "The Cirrus rows of 5000 MiB/s and more lasted 4 to 14 ms on a clock of 1 ms.";

pub fn read() -> Table {
    let rows = SFMR.iter().map(|(mib, rates)| {
        let mut cells = vec![Cell::Number(*mib)];
        cells.extend(rates.iter().map(|r| Cell::Number(*r)));
        cells
    });
    table(
        "Azure HPC IO: single file, multiple readers; 5 nodes x 4 processes",
        &READ_COLUMNS,
        rows,
        &[PER_READER],
    )
}

pub fn nodes() -> Table {
    let rows = NODES.iter().map(|(procs, nodes, rates)| {
        let mut cells = vec![Cell::Count(*procs), Cell::Count(*nodes)];
        cells.extend(rates.iter().map(|r| number_or_empty(*r)));
        cells
    });
    table("Azure HPC IO: 20 readers of a file of 64 MiB", &NODES_COLUMNS, rows, &[PER_READER])
}

/// Single file, multiple writers.
pub fn sfmw() -> Table {
    table(
        "Azure HPC IO: single file, multiple writers; 5 nodes x 4 processes",
        &WRITE_COLUMNS,
        writes(&SFMW),
        &[],
    )
}

/// Multiple files, multiple writers.
pub fn mfmw() -> Table {
    let title = "Azure HPC IO: multiple files, multiple writers; 5 nodes x 4 processes";
    table(title, &WRITE_COLUMNS, writes(&MFMW), &[TOO_SHORT])
}

fn writes(of: &[Write]) -> impl Iterator<Item = Vec<Cell>> {
    of.iter().map(|(each, total, rates)| {
        let mut cells = vec![Cell::Number(*each), Cell::Count(*total)];
        cells.extend(rates.iter().map(|r| number_or_empty(*r)));
        cells
    })
}

/// MiB/s of each reader against MiB of the file.
pub fn read_series() -> Vec<Series> {
    series("SFMR", SFMR.iter().map(|(mib, rates)| (*mib, rates.map(Some))))
}

/// MiB/s of all writers against MiB of each.
pub fn sfmw_series() -> Vec<Series> {
    series("SFMW", SFMW.iter().map(|(mib, _, rates)| (*mib, *rates)))
}

pub fn mfmw_series() -> Vec<Series> {
    series("MFMW", MFMW.iter().map(|(mib, _, rates)| (*mib, *rates)))
}

fn series(shape: &str, rows: impl Iterator<Item = (f64, [Option<f64>; 3])>) -> Vec<Series> {
    let mut all =
        ["Azure Blob", "Azure File", "Cirrus"].map(|t| Series::published(format!("{t}, {shape}"), vec![]));
    for (mib, rates) in rows {
        for (series, rate) in all.iter_mut().zip(rates) {
            series.points.extend(rate.map(|rate| Point::at(mib, rate)));
        }
    }
    all.into_iter().filter(|s| !s.points.is_empty()).collect()
}
