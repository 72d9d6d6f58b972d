//! What the flush counts.

use std::sync::atomic::{AtomicI64, AtomicU64};
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::conflict::AlarmKind;
use crate::plan::{FlushMoment, FlushPlan, FlushUnit};

#[derive(Default)]
pub struct FlushMetrics {
    pub units: Counter,
    pub operations: Counter,
    pub bytes: Counter,
    pub retries: Counter,
    pub conflicts: Counter,
    pub resumed: Counter,
    pub waiting: Gauge<i64, AtomicI64>,
    pub waiting_bytes: Gauge<i64, AtomicI64>,
    pub parked: Gauge<i64, AtomicI64>,
    pub oldest_seconds: Gauge<f64, AtomicU64>,
}

impl FlushMetrics {
    pub fn register(&self, registry: &mut Registry) {
        let counters: [(&str, &str, &Counter); 6] = [
            ("units", "Units that are at the origin, or came to nothing there", &self.units),
            ("operations", "Operations in these", &self.operations),
            ("bytes", "Bytes written to the origin for these", &self.bytes),
            ("retries", "Attempts that an outage or a refusal ended", &self.retries),
            ("conflicts", "Times that others had changed what was to be changed", &self.conflicts),
            ("resumed", "Times that an interrupted flush went on over what it had left", &self.resumed),
        ];
        for (name, help, counter) in counters {
            registry.register(format!("forebay_flush_{name}"), help, counter.clone());
        }
        let gauges: [(&str, &str, &Gauge<i64, AtomicI64>); 3] = [
            ("waiting_operations", "Operations that are not at the origin yet", &self.waiting),
            ("waiting_bytes", "Bytes of data of these", &self.waiting_bytes),
            ("parked_operations", "Operations that the origin refuses", &self.parked),
        ];
        for (name, help, gauge) in gauges {
            registry.register(format!("forebay_flush_{name}"), help, gauge.clone());
        }
        let oldest = "Since the oldest of the waiting operations was acknowledged";
        registry.register("forebay_flush_oldest_operation_seconds", oldest, self.oldest_seconds.clone());
    }

    pub(super) fn flushed(&self, unit: &FlushUnit) {
        self.units.inc();
        self.operations.inc_by(unit.sequences.len() as u64);
        self.bytes.inc_by(unit.bytes);
    }

    pub(super) fn raised(&self, kind: AlarmKind) {
        match kind {
            AlarmKind::KeptBoth | AlarmKind::TookOurs | AlarmKind::Dropped | AlarmKind::Overtaken => {
                self.conflicts.inc();
            }
            AlarmKind::Resumed => {
                self.resumed.inc();
            }
            // A gauge tells.
            AlarmKind::Parked => {}
        }
    }

    /// Bring the gauges up to date.
    pub(super) fn note(&self, plan: &FlushPlan, now: FlushMoment) {
        let (bytes, oldest) = plan.load(None);
        self.waiting.set(plan.len() as i64);
        self.waiting_bytes.set(bytes as i64);
        self.parked.set(plan.parked().count() as i64);
        let age = oldest.map_or(Duration::ZERO, |oldest| now.steady.saturating_sub(oldest));
        self.oldest_seconds.set(age.as_secs_f64());
    }
}
