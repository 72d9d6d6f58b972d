//! Counts what goes to an origin: calls by kind, bytes, errors, time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Instant;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use types::Result;

use crate::limit::LimitMetrics;
use crate::{CallClass, Layer, Origin, OriginAnswer, OriginCall, Sending};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct CallLabels {
    /// Path of the junction.
    pub junction: String,
    /// Name of the call: `lookup`, `read`, ...
    pub kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct JunctionLabels {
    pub junction: String,
}

/// Shared by the origins of all junctions.
#[derive(Clone)]
pub struct OriginMetrics {
    calls: Family<CallLabels, Counter>,
    errors: Family<CallLabels, Counter>,
    bytes: Family<JunctionLabels, Counter>,
    written: Family<JunctionLabels, Counter>,
    abandoned: Family<JunctionLabels, Counter>,
    inflight: Gauge<i64, AtomicI64>,
    seconds: Family<CallLabels, Histogram>,
    latency: Family<JunctionLabels, Gauge<f64, AtomicU64>>,
    rate: Family<JunctionLabels, Gauge<f64, AtomicU64>>,
    limit: Family<JunctionLabels, Gauge>,
    again: Family<JunctionLabels, Counter>,
    again_won: Family<JunctionLabels, Counter>,
}

/// 0.1 ms to 13 s: from a directory on this machine to a NAS that hardly answers.
fn histogram() -> Histogram {
    Histogram::new(exponential_buckets(0.0001, 2.0, 18))
}

impl Default for OriginMetrics {
    fn default() -> OriginMetrics {
        let seconds = Family::new_with_constructor(histogram as fn() -> Histogram);
        OriginMetrics {
            calls: Family::default(),
            errors: Family::default(),
            bytes: Family::default(),
            written: Family::default(),
            inflight: Gauge::default(),
            seconds,
            latency: Family::default(),
            rate: Family::default(),
            limit: Family::default(),
            abandoned: Family::default(),
            again: Family::default(),
            again_won: Family::default(),
        }
    }
}

impl OriginMetrics {
    pub fn register(&self, registry: &mut Registry) {
        registry.register("forebay_origin_calls", "Calls to the origin", self.calls.clone());
        registry.register("forebay_origin_errors", "Calls to the origin that failed", self.errors.clone());
        registry.register("forebay_origin_bytes", "Bytes read from the origin", self.bytes.clone());
        let written = "Bytes written to the origin";
        registry.register("forebay_origin_written_bytes", written, self.written.clone());
        let abandoned =
            "Bytes of reads that were given up before they were answered, and may have come all the same";
        registry.register("forebay_origin_abandoned_bytes", abandoned, self.abandoned.clone());
        registry.register("forebay_origin_calls_inflight", "Calls under way", self.inflight.clone());
        registry.register("forebay_origin_call_seconds", "Time of a call", self.seconds.clone());
        let latency = "Time of a call when nothing queues, as measured";
        registry.register("forebay_origin_latency_seconds", latency, self.latency.clone());
        let rate = "Bytes per second that the origin gives when kept busy, as measured; a guess until it was";
        registry.register("forebay_origin_rate_bytes", rate, self.rate.clone());
        let limit = "Reads that may be under way now";
        registry.register("forebay_origin_reads_limit", limit, self.limit.clone());
        let again = "Reads whose answer straggled, sent once more";
        registry.register("forebay_origin_reads_again", again, self.again.clone());
        let won = "Of these, those whose second answer was first";
        registry.register("forebay_origin_reads_again_won", won, self.again_won.clone());
    }

    /// Where the limit of this junction's origin tells what it finds out.
    pub fn limit_of(&self, junction: &str) -> LimitMetrics {
        let labels = JunctionLabels { junction: junction.to_owned() };
        LimitMetrics {
            latency: self.latency.get_or_create(&labels).clone(),
            rate: self.rate.get_or_create(&labels).clone(),
            limit: self.limit.get_or_create(&labels).clone(),
            again: self.again.get_or_create(&labels).clone(),
            again_won: self.again_won.get_or_create(&labels).clone(),
        }
    }

    /// Bytes read from the origin of this junction.
    pub fn bytes_of(&self, junction: &str) -> u64 {
        self.bytes.get_or_create(&JunctionLabels { junction: junction.to_owned() }).get()
    }

    /// Bytes written to the origin of this junction.
    pub fn written_bytes_of(&self, junction: &str) -> u64 {
        self.written.get_or_create(&JunctionLabels { junction: junction.to_owned() }).get()
    }

    /// Bytes of reads of this junction that were given up before they were answered.
    pub fn abandoned_bytes_of(&self, junction: &str) -> u64 {
        self.abandoned.get_or_create(&JunctionLabels { junction: junction.to_owned() }).get()
    }

    /// Calls of one kind to the origin of this junction.
    pub fn calls_of(&self, junction: &str, kind: &'static str) -> u64 {
        self.calls.get_or_create(&CallLabels { junction: junction.to_owned(), kind }).get()
    }

    /// Calls of every kind to the origin of this junction.
    pub fn all_calls_of(&self, junction: &str) -> u64 {
        KINDS.iter().map(|kind| self.calls_of(junction, kind)).sum()
    }
}

/// The calls of the trait.
pub const KINDS: [&str; 20] = [
    "root",
    "lookup",
    "getattr",
    "readlink",
    "readdir",
    "read",
    "statfs",
    "create",
    "mkdir",
    "symlink",
    "mknod",
    "link",
    "remove",
    "rmdir",
    "rename",
    "set",
    "xattrs",
    "set_xattr",
    "write",
    "commit",
];

pub struct Count {
    inner: Arc<dyn Origin>,
    junction: String,
    metrics: OriginMetrics,
}

impl Count {
    pub fn new(inner: Arc<dyn Origin>, junction: &str, metrics: OriginMetrics) -> Arc<Count> {
        Arc::new(Count { inner, junction: junction.to_owned(), metrics })
    }

    fn count_errors<A>(&self, labels: &CallLabels, result: Result<A>) -> Result<A> {
        if result.is_err() {
            self.metrics.errors.get_or_create(labels).inc();
        }
        result
    }
}

/// Also counts a call down that its caller gave up.
struct Inflight<'a>(&'a Gauge<i64, AtomicI64>);

impl<'a> Inflight<'a> {
    fn begin(gauge: &'a Gauge<i64, AtomicI64>) -> Inflight<'a> {
        gauge.inc();
        Inflight(gauge)
    }
}

impl Drop for Inflight<'_> {
    fn drop(&mut self) {
        self.0.inner().fetch_sub(1, Ordering::Relaxed);
    }
}

/// Counts the bytes that a read asked for, unless it is answered.
struct Abandoned(Option<(Counter, u64)>);

impl Abandoned {
    fn unless_answered(counter: &Counter, bytes: u64) -> Abandoned {
        Abandoned(Some((counter.clone(), bytes)))
    }

    fn answered(mut self) {
        self.0 = None;
    }
}

impl Drop for Abandoned {
    fn drop(&mut self) {
        if let Some((counter, bytes)) = self.0.take() {
            counter.inc_by(bytes);
        }
    }
}

impl Layer for Count {
    fn inner(&self) -> &dyn Origin {
        self.inner.as_ref()
    }

    async fn around<'a, A: OriginAnswer + 'a>(
        &'a self,
        call: OriginCall<'a>,
        send: impl Fn() -> Sending<'a, A> + Send + Sync + 'a,
    ) -> Result<A> {
        let class = call.class();
        if class == CallClass::Local {
            return send().await;
        }
        let junction = JunctionLabels { junction: self.junction.clone() };
        let labels = CallLabels { junction: self.junction.clone(), kind: call.kind() };
        let abandoned = (class == CallClass::Read).then(|| {
            Abandoned::unless_answered(&self.metrics.abandoned.get_or_create(&junction), call.bytes())
        });
        let _inflight = Inflight::begin(&self.metrics.inflight);
        // Counted when it is sent: a call whose answer nobody waits for any more has cost the origin as much.
        self.metrics.calls.get_or_create(&labels).inc();
        let start = Instant::now();
        let result = send().await;
        self.metrics.seconds.get_or_create(&labels).observe(start.elapsed().as_secs_f64());
        if let Some(abandoned) = abandoned {
            abandoned.answered();
        }
        let bytes = match class {
            CallClass::Read => &self.metrics.bytes,
            CallClass::Write => &self.metrics.written,
            CallClass::Local | CallClass::Metadata => return self.count_errors(&labels, result),
        };
        if result.is_ok() {
            bytes.get_or_create(&junction).inc_by(call.bytes());
        }
        self.count_errors(&labels, result)
    }
}
