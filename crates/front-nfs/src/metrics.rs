//! Metrics of the NFS front.

use std::sync::atomic::AtomicI64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ProcedureLabels {
    pub procedure: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct NfsStatusLabels {
    /// nfsstat3
    pub status: u32,
}

pub struct Metrics {
    pub seconds: Family<ProcedureLabels, Histogram>,
    pub failures: Family<NfsStatusLabels, Counter>,
    pub read_bytes: Counter,
    /// The part of these that the kernel sent from the cached file.
    pub lent_bytes: Counter,
    pub written_bytes: Counter,
    /// Repeated changes: those that joined the first one while it was running, and those that got its reply.
    pub joins: Counter,
    pub replays: Counter,
    pub malformed: Counter,
    pub connections: Gauge<i64, AtomicI64>,
    pub calls_inflight: Gauge<i64, AtomicI64>,
}

/// 50 us to 13 s: from a cached attribute to a call that is put off.
fn histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.00005, 2.0, 19))
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            seconds: Family::new_with_constructor(histogram as fn() -> Histogram),
            failures: Family::default(),
            read_bytes: Counter::default(),
            lent_bytes: Counter::default(),
            written_bytes: Counter::default(),
            joins: Counter::default(),
            replays: Counter::default(),
            malformed: Counter::default(),
            connections: Gauge::default(),
            calls_inflight: Gauge::default(),
        }
    }
}

impl Metrics {
    pub fn register(&self, registry: &mut Registry) {
        registry.register("forebay_nfs_call_seconds", "Time of a call", self.seconds.clone());
        registry.register("forebay_nfs_failures", "Answers other than OK", self.failures.clone());
        registry.register("forebay_nfs_read_bytes", "Bytes sent in READ answers", self.read_bytes.clone());
        let lent = "Of these, sent by the kernel from the cached file";
        registry.register("forebay_nfs_read_lent_bytes", lent, self.lent_bytes.clone());
        let written = "Bytes taken in WRITE calls";
        registry.register("forebay_nfs_written_bytes", written, self.written_bytes.clone());
        let joins = "Repeated calls that joined the first one, which was running";
        registry.register("forebay_nfs_joins", joins, self.joins.clone());
        let replays = "Repeated calls that got the answer of the first one";
        registry.register("forebay_nfs_replays", replays, self.replays.clone());
        let malformed = "Calls and connections refused as malformed";
        registry.register("forebay_nfs_malformed", malformed, self.malformed.clone());
        registry.register("forebay_nfs_connections", "Open connections", self.connections.clone());
        registry.register("forebay_nfs_calls_inflight", "Calls being worked on", self.calls_inflight.clone());
    }
}
