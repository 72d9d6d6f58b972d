//! Metrics of the S3 front.

use std::sync::atomic::AtomicI64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct MethodLabels {
    pub method: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct HttpStatusLabels {
    pub status: u16,
}

pub struct Metrics {
    /// The time of a request until the head of its answer.
    pub seconds: Family<MethodLabels, Histogram>,
    pub failures: Family<HttpStatusLabels, Counter>,
    /// The bytes of answers to GET, as their heads announce.
    pub read_bytes: Counter,
    /// The part of these that the kernel sent from the cached file.
    pub lent_bytes: Counter,
    pub written_bytes: Counter,
    /// Requests that were refused for their signature.
    pub refused: Counter,
    /// Answers that were cut short because the object was replaced meanwhile, or could not be read.
    pub aborted: Counter,
    /// Names that were left out of listings because they cannot be keys.
    pub skipped_names: Counter,
    pub connections: Gauge<i64, AtomicI64>,
}

/// 50 us to 13 s.
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
            refused: Counter::default(),
            aborted: Counter::default(),
            skipped_names: Counter::default(),
            connections: Gauge::default(),
        }
    }
}

impl Metrics {
    pub fn register(&self, registry: &mut Registry) {
        let seconds = "Time of a request until the head of its answer";
        registry.register("forebay_s3_request_seconds", seconds, self.seconds.clone());
        registry.register("forebay_s3_failures", "Answers of status 400 and above", self.failures.clone());
        registry.register("forebay_s3_read_bytes", "Bytes of answers to GET", self.read_bytes.clone());
        let lent = "Of these, sent by the kernel from the cached file";
        registry.register("forebay_s3_read_lent_bytes", lent, self.lent_bytes.clone());
        let written = "Bytes taken in PUT requests";
        registry.register("forebay_s3_written_bytes", written, self.written_bytes.clone());
        let refused = "Requests refused for their signature";
        registry.register("forebay_s3_refused", refused, self.refused.clone());
        let aborted = "Answers cut short because the object changed or could not be read on";
        registry.register("forebay_s3_aborted", aborted, self.aborted.clone());
        let skipped = "Names left out of listings because they cannot be keys or never be reached";
        registry.register("forebay_s3_skipped_names", skipped, self.skipped_names.clone());
        registry.register("forebay_s3_connections", "Open connections", self.connections.clone());
    }
}
