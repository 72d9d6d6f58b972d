//! What the journal counts.

use std::sync::atomic::{AtomicI64, AtomicU64};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

pub struct Metrics {
    pub appended_entries: Counter,
    pub appended_bytes: Counter,
    pub waited_for_room: Counter,
    pub compacted_bytes: Counter,
    pub entries: Gauge<i64, AtomicI64>,
    pub live_bytes: Gauge<i64, AtomicI64>,
    pub used_bytes: Gauge<i64, AtomicI64>,
    pub max_bytes: Gauge<i64, AtomicI64>,
    pub oldest_seconds: Gauge<f64, AtomicU64>,
    pub latched: Gauge<i64, AtomicI64>,
    pub sync_seconds: Histogram,
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            appended_entries: Counter::default(),
            appended_bytes: Counter::default(),
            waited_for_room: Counter::default(),
            compacted_bytes: Counter::default(),
            entries: Gauge::default(),
            live_bytes: Gauge::default(),
            used_bytes: Gauge::default(),
            max_bytes: Gauge::default(),
            oldest_seconds: Gauge::default(),
            latched: Gauge::default(),
            // 50 us (a disk with its own battery) to 26 s.
            sync_seconds: Histogram::new(exponential_buckets(0.000_05, 2.0, 20)),
        }
    }
}

impl Metrics {
    pub fn register(&self, registry: &mut Registry) {
        let counters: [(&str, &str, &Counter); 4] = [
            ("appended_entries", "Entries written to the journal", &self.appended_entries),
            ("appended_bytes", "Bytes of their operations and data", &self.appended_bytes),
            ("waited_for_room", "Appends that waited because the journal was full", &self.waited_for_room),
            (
                "compacted_bytes",
                "Bytes of entries moved so that their segment could go",
                &self.compacted_bytes,
            ),
        ];
        for (name, help, counter) in counters {
            registry.register(format!("forebay_journal_{name}"), help, counter.clone());
        }
        let gauges: [(&str, &str, &Gauge<i64, AtomicI64>); 5] = [
            ("entries", "Entries that are not at the origin yet", &self.entries),
            ("live_bytes", "Bytes of the journal that these take", &self.live_bytes),
            ("used_bytes", "Bytes of all segments", &self.used_bytes),
            ("max_bytes", "Bytes that the journal may take", &self.max_bytes),
            ("latched", "1 after a failed write or sync: nothing is accepted any more", &self.latched),
        ];
        for (name, help, gauge) in gauges {
            registry.register(format!("forebay_journal_{name}"), help, gauge.clone());
        }
        let oldest = "Age of the oldest entry that is not at the origin yet";
        registry.register("forebay_journal_oldest_entry_seconds", oldest, self.oldest_seconds.clone());
        registry.register("forebay_journal_sync_seconds", "Time of one fdatasync", self.sync_seconds.clone());
    }
}
