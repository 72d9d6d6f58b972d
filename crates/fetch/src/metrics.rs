//! What fetching whole files ahead of their readers has cost and brought.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;

#[derive(Default)]
pub struct Metrics {
    pub prefetched_bytes: Counter,
    pub used_bytes: Counter,
    pub wasted_bytes: Counter,
}

impl Metrics {
    pub fn register(&self, registry: &mut Registry) {
        let counters = [
            (
                "fetched_bytes",
                "Bytes of files fetched because the ones before them were read",
                &self.prefetched_bytes,
            ),
            ("used_bytes", "Of these, bytes of files that were read then", &self.used_bytes),
            (
                "wasted_bytes",
                "Of these, bytes of files nobody read before they were forgotten",
                &self.wasted_bytes,
            ),
        ];
        for (name, help, counter) in counters {
            registry.register(format!("forebay_prefetch_{name}"), help, counter.clone());
        }
    }
}
