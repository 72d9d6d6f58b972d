//! What the cache counts.

use std::sync::atomic::AtomicI64;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Default)]
pub struct Metrics {
    pub hit_bytes: Counter,
    pub miss_bytes: Counter,
    pub hit_reads: Counter,
    pub miss_reads: Counter,
    pub coalesced_waits: Counter,
    pub unjoined_bytes: Counter,
    pub fetched_bytes: Counter,
    pub readahead_bytes: Counter,
    pub readahead_used_bytes: Counter,
    pub readahead_evicted_bytes: Counter,
    pub fetch_errors: Counter,
    pub abandoned_fetches: Counter,
    pub corrupt_blocks: Counter,
    pub evicted_bytes: Counter,
    pub read_through_bytes: Counter,
    pub guest_admitted_bytes: Counter,
    pub guest_refused_bytes: Counter,
    pub guest_dropped_bytes: Counter,
    pub guest_bytes: Gauge<i64, AtomicI64>,
    pub inflight_bytes: Gauge<i64, AtomicI64>,
    pub used_bytes: Gauge<i64, AtomicI64>,
    pub max_bytes: Gauge<i64, AtomicI64>,
}

impl Metrics {
    pub fn register(&self, registry: &mut Registry) {
        let counters: [(&str, &str, &Counter); 18] = [
            ("hit_bytes", "Bytes of reads that were on disk when asked for", &self.hit_bytes),
            ("miss_bytes", "Bytes of reads that had to be waited for", &self.miss_bytes),
            ("hits", "Reads answered from disk alone", &self.hit_reads),
            ("misses", "Reads that waited for the origin", &self.miss_reads),
            ("coalesced_waits", "Reads that joined a fetch begun by another", &self.coalesced_waits),
            (
                "unjoined_bytes",
                "Bytes of reads that joined no fetch of them, since it may wait for a node that waits for the read",
                &self.unjoined_bytes,
            ),
            ("fetched_bytes", "Bytes fetched to fill the cache", &self.fetched_bytes),
            ("readahead_bytes", "Bytes of those fetched before anybody asked", &self.readahead_bytes),
            ("readahead_used_bytes", "Bytes of those that somebody read later", &self.readahead_used_bytes),
            (
                "readahead_evicted_bytes",
                "Bytes of those evicted before anybody read them",
                &self.readahead_evicted_bytes,
            ),
            ("fetch_errors", "Fetches that failed", &self.fetch_errors),
            (
                "abandoned_fetches",
                "Fetches given up before they began: who wanted them had gone",
                &self.abandoned_fetches,
            ),
            ("corrupt_blocks", "Blocks whose checksum did not match, refetched", &self.corrupt_blocks),
            ("evicted_bytes", "Bytes evicted to make room or by the operator", &self.evicted_bytes),
            ("read_through_bytes", "Bytes passed on without being kept", &self.read_through_bytes),
            ("guest_admitted_bytes", "Bytes of guests that were stored", &self.guest_admitted_bytes),
            (
                "guest_refused_bytes",
                "Bytes of guests passed on without being stored: a first read, or no room among the guests",
                &self.guest_refused_bytes,
            ),
            ("guest_dropped_bytes", "Bytes of guests that left the disk", &self.guest_dropped_bytes),
        ];
        for (name, help, counter) in counters {
            registry.register(format!("forebay_cache_{name}"), help, counter.clone());
        }
        let inflight = "Bytes on their way from the origin";
        registry.register("forebay_cache_inflight_bytes", inflight, self.inflight_bytes.clone());
        let guests = "Bytes on the cache disk that another node is to keep";
        registry.register("forebay_cache_guest_bytes", guests, self.guest_bytes.clone());
        registry.register("forebay_cache_used_bytes", "Bytes on the cache disk", self.used_bytes.clone());
        registry.register("forebay_cache_max_bytes", "Bytes that it may have there", self.max_bytes.clone());
    }
}
