//! MapR-FS: one client reading one file of 10 GiB through one to three gateways, with one to three replicas.

use super::table;
use crate::model::{Cell, Point, Series, Table};

pub struct Read {
    pub replicas: u64,
    /// Gateways mounted, and jobs: one each.
    pub mounts: u64,
    /// fio's aggrb, KiB/s.
    pub aggregate: u64,
    /// fio's minb and maxb, KiB/s of a job.
    pub slowest: u64,
    pub fastest: u64,
    pub moved_mib: u64,
    /// Since the number of replicas was changed.
    pub since_change: &'static str,
}

#[rustfmt::skip]
pub const READS: [Read; 7] = [
    Read { replicas: 1, mounts: 1, aggregate: 247504, slowest: 247504, fastest: 247504, moved_mib: 10240, since_change: "" },
    Read { replicas: 1, mounts: 2, aggregate: 245347, slowest: 122673, fastest: 122684, moved_mib: 14378, since_change: "" },
    Read { replicas: 1, mounts: 3, aggregate: 245624, slowest: 72182, fastest: 89064, moved_mib: 14394, since_change: "" },
    Read { replicas: 2, mounts: 2, aggregate: 245675, slowest: 122837, fastest: 122837, moved_mib: 14396, since_change: "right after" },
    Read { replicas: 2, mounts: 2, aggregate: 402725, slowest: 201362, fastest: 203705, moved_mib: 20480, since_change: "later" },
    Read { replicas: 3, mounts: 3, aggregate: 573044, slowest: 191014, fastest: 209715, moved_mib: 30720, since_change: "soon after" },
    Read { replicas: 3, mounts: 3, aggregate: 735309, slowest: 245103, fastest: 247049, moved_mib: 30720, since_change: "about 1 h" },
];

pub const PLACEMENT_COLUMNS: [&str; 5] = ["chunk", "container/block id", "primary", "replica 2", "replica 3"];
pub const PLACEMENT_NODE_COLUMNS: [&str; 4] =
    ["node", "chunks as primary", "chunks held", "local-readable %"];
/// Of the result table that the study should have had, and ours has.
pub const COLUMNS: [&str; 14] = [
    "Replicas",
    "Gateways",
    "Jobs",
    "Block",
    "GiB moved",
    "Aggregate MiB/s [CI]",
    "min/job",
    "max/job",
    "fairness",
    "local-read %",
    "node egress max",
    "seconds since change",
    "under-replicated?",
    "x single",
];
const PUBLISHED_COLUMNS: [&str; 6] =
    ["Replicas", "Mounts", "aggrb KiB/s", "min-max per job KiB/s", "time since change", "x single"];

const NOTES: [&str; 2] = [
    "735309 KiB/s is 718 MiB/s or 753 MB/s; the text's \"735 MB/s\" is neither.",
    "When the replicas were in place was not proven before the runs: the first one with two still read from one.",
];

/// Aggregate over that of one replica and one mount.
fn times_single(read: &Read) -> f64 {
    read.aggregate as f64 / READS[0].aggregate as f64
}

pub fn results() -> Table {
    let rows = READS.iter().map(|read| {
        vec![
            Cell::Count(read.replicas),
            Cell::Count(read.mounts),
            Cell::Count(read.aggregate),
            Cell::text(if read.slowest == read.fastest {
                read.slowest.to_string()
            } else {
                format!("{}-{}", read.slowest, read.fastest)
            }),
            if read.since_change.is_empty() {
                Cell::missing("no change")
            } else {
                Cell::text(read.since_change)
            },
            Cell::Number((times_single(read) * 100.0).round() / 100.0),
        ]
    });
    table("MapR-FS: sequential reads of one file by one client", &PUBLISHED_COLUMNS, rows, &NOTES)
}

/// MiB/s against replicas, as many gateways as replicas, after the replicas were in use.
pub fn series() -> Series {
    let settled = [&READS[0], &READS[4], &READS[6]];
    let points = settled.map(|r| Point::at(r.replicas as f64, r.aggregate as f64 / 1024.0));
    Series::published("MapR-FS, as many gateways as replicas", points.to_vec())
}
