//! Metrics of the FUSE front.

use std::sync::atomic::AtomicI64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OperationLabels {
    pub operation: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ErrnoLabels {
    pub errno: i32,
}

/// `passthrough`, `snapshot`, `following` or `writing`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OpenLabels {
    pub how: &'static str,
}

#[derive(Clone)]
pub struct Metrics {
    pub seconds: Family<OperationLabels, Histogram>,
    pub failures: Family<ErrnoLabels, Counter>,
    pub opens: Family<OpenLabels, Counter>,
    pub requests: Counter,
    pub read_bytes: Counter,
    pub write_bytes: Counter,
    pub invalidations: Counter,
    pub inflight: Gauge<i64, AtomicI64>,
    pub awake: Gauge<i64, AtomicI64>,
}

/// 20 us to 40 s: from a cached attribute to a read that is given up.
fn histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.00002, 2.0, 21))
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            seconds: Family::new_with_constructor(histogram as fn() -> Histogram),
            failures: Family::default(),
            opens: Family::default(),
            requests: Counter::default(),
            read_bytes: Counter::default(),
            write_bytes: Counter::default(),
            invalidations: Counter::default(),
            inflight: Gauge::default(),
            awake: Gauge::default(),
        }
    }
}

impl Metrics {
    pub fn register(&self, registry: &mut Registry) {
        registry.register("forebay_fuse_request_seconds", "Time of a request", self.seconds.clone());
        registry.register("forebay_fuse_requests", "Requests of the kernel", self.requests.clone());
        registry.register("forebay_fuse_failures", "Answers with an error", self.failures.clone());
        let opens =
            "Files opened: read by the kernel itself, one version through us, as it is written, or to write";
        registry.register("forebay_fuse_opens", opens, self.opens.clone());
        let bytes = "Bytes answered to READ (not those that the kernel reads by itself)";
        registry.register("forebay_fuse_read_bytes", bytes, self.read_bytes.clone());
        let bytes = "Bytes taken from WRITE";
        registry.register("forebay_fuse_write_bytes", bytes, self.write_bytes.clone());
        let invalidations = "Times the kernel was told to drop what it has of an inode";
        registry.register("forebay_fuse_invalidations", invalidations, self.invalidations.clone());
        registry.register(
            "forebay_fuse_requests_inflight",
            "Requests being worked on",
            self.inflight.clone(),
        );
        let awake =
            "1 while the mount keeps this machine's processors awake, as [mount] low_latency wants it";
        registry.register("forebay_fuse_awake", awake, self.awake.clone());
    }

    /// The number of files opened in this way so far.
    pub fn opens_of(&self, how: &'static str) -> u64 {
        self.opens.get_or_create(&OpenLabels { how }).get()
    }

    /// The number of requests that were answered by a task.
    pub fn requests(&self) -> u64 {
        self.requests.get()
    }

    pub fn opened(&self, how: &'static str) {
        self.opens.get_or_create(&OpenLabels { how }).inc();
    }
}
