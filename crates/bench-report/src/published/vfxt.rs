//! Avere vFXT: 500 frames rendered on 500 nodes, from NAS at four distances, with and without the cache.

use super::table;
use crate::model::{Axis, Cell, Plot, PlotKind, Point, Series, Table};

pub struct Region {
    pub location: &'static str,
    pub rtt_ms: f64,
    /// Makespan in seconds, measured once.
    pub direct: f64,
    pub cold: f64,
    pub warm: f64,
}

pub const REGIONS: [Region; 4] = [
    Region { location: "NFS East US", rtt_ms: 1.9, direct: 497.0, cold: 393.0, warm: 331.0 },
    Region { location: "NFS West US", rtt_ms: 69.5, direct: 836.0, cold: 386.0, warm: 316.0 },
    Region { location: "NFS West India", rtt_ms: 194.0, direct: 1168.0, cold: 384.0, warm: 262.0 },
    Region { location: "NFS Southeast Asia", rtt_ms: 221.0, direct: 1280.0, cold: 375.0, warm: 312.0 },
];

pub const COLUMNS: [&str; 5] = [
    "NFS Location",
    "Roundtrip Latency (ms) to East US",
    "Direct Connect (s)",
    "Cold E32x3 vFXT (s)",
    "Warm E32x3 vFXT (s)",
];

const NOTES: [&str; 2] = [
    "Each value was measured once; the warm column varies by 9.8 % over conditions that should be the same.",
    "Direct = 534 s + 3.38 s for each ms of round trip (R2 0.98, n = 4): about 3,400 serial round trips a job.",
];

pub fn results() -> Table {
    let rows = REGIONS.iter().map(|r| {
        vec![
            Cell::text(r.location),
            Cell::Number(r.rtt_ms),
            Cell::Number(r.direct),
            Cell::Number(r.cold),
            Cell::Number(r.warm),
        ]
    });
    table("Avere vFXT render study: 500 frames on 500 nodes", &COLUMNS, rows, &NOTES)
}

/// (round trip in ms, seconds), for a fit.
pub fn direct() -> [(f64, f64); 4] {
    REGIONS.each_ref().map(|r| (r.rtt_ms, r.direct))
}

/// Seconds against the round trip in ms: direct, cold, warm.
pub fn series() -> [Series; 3] {
    let of = |name: &str, seconds: fn(&Region) -> f64| {
        Series::published(name, REGIONS.iter().map(|r| Point::at(r.rtt_ms, seconds(r))).collect())
    };
    [of("vFXT direct", |r| r.direct), of("vFXT cold", |r| r.cold), of("vFXT warm", |r| r.warm)]
}

/// The original's chart: one group of bars for each region.
pub fn plot() -> Plot {
    let by_index = |series: Series| Series {
        points: series.points.iter().enumerate().map(|(i, p)| Point::at(i as f64, p.y)).collect(),
        ..series
    };
    Plot {
        title: "Avere vFXT render study".to_owned(),
        x: Axis::named("", REGIONS.iter().map(|r| format!("{} ({}\u{a0}ms)", r.location, r.rtt_ms))),
        y: Axis::linear("500 frames (s)"),
        kind: PlotKind::Bars,
        series: series().map(by_index).into(),
    }
}
