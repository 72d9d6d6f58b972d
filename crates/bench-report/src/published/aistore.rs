//! AIStore's multihoming study: ten clients of fifty workers reading objects of 10 MiB, direct and through the cache.

use super::table;
use crate::model::{Cell, Table};

/// Bytes of every object.
pub const OBJECT_BYTES: u64 = 10 << 20;
/// Clients x workers: requests in flight.
pub const WORKERS: u32 = 500;

pub struct Run {
    pub name: &'static str,
    pub throughput_gib_s: f64,
    pub latency_ms: f64,
}

pub const DIRECT: Run = Run { name: "Direct from PBSS", throughput_gib_s: 3.12, latency_ms: 1570.0 };
pub const WARM: Run = Run { name: "From AIS Warm GET", throughput_gib_s: 104.64, latency_ms: 46.7 };
/// A data set of 100 TiB, larger than all memory.
pub const LARGE: Run = Run { name: "Warm GET, 100 TiB", throughput_gib_s: 103.247, latency_ms: 47.29 };
/// Latency with 80 workers a client; the throughput was not published.
pub const LATENCY_MS_80_WORKERS: f64 = 72.0;

pub const COLUMNS: [&str; 3] = ["Metric", "Direct from PBSS", "From AIS Warm GET"];
/// Of the earlier study of the same cluster, kept for its disk column.
pub const LOADER_COLUMNS: [&str; 5] =
    ["GET from/how", "Object Size", "Throughput (GiB/s)", "Latency Avg (ms)", "Avg. Disk Util.(%)"];

const LITTLE: &str = "Throughput x latency = 500 objects in flight, clients x workers, in each column: this latency \
                      says nothing that the throughput does not.";

/// Units are in the cells, as in the original.
pub fn results() -> Table {
    let row = |metric: &str, of: fn(&Run) -> String| {
        vec![Cell::text(metric), Cell::text(of(&DIRECT)), Cell::text(of(&WARM))]
    };
    let rows = [
        row("Average Throughput", |r| format!("{} GiB/s", r.throughput_gib_s)),
        row("Average Latency", |r| format!("{} ms", r.latency_ms)),
    ];
    table(
        "AIStore multihoming: 10 clients x 50 workers, 10 MiB objects",
        &COLUMNS,
        rows.into_iter(),
        &[LITTLE],
    )
}

pub fn large() -> Table {
    let rows = [
        vec![Cell::text("Total average latency"), Cell::text(format!("{} ms", LARGE.latency_ms))],
        vec![Cell::text("Total throughput"), Cell::text(format!("{} GiB/s", LARGE.throughput_gib_s))],
    ];
    table(
        "AIStore multihoming: warm GET, 100 TiB",
        &["Metric", "From AIS Warm GET"],
        rows.into_iter(),
        &[LITTLE],
    )
}
