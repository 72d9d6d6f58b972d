//! What is registered of the write buffer: its counters, and how much is pending at the moment.

use std::sync::{Arc, Weak};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

use super::buffer::WriteBuffer;

impl WriteBuffer {
    pub fn register(self: &Arc<Self>, registry: &mut Registry) {
        let counters = [
            ("sent_parts", "Writes sent to origins", &self.metrics.sent_parts),
            ("sent_bytes", "Bytes of those", &self.metrics.sent_bytes),
            (
                "again_parts",
                "Writes that did not come through and were sent again",
                &self.metrics.again_parts,
            ),
            ("again_bytes", "Bytes that an origin lost before they were stored", &self.metrics.again_bytes),
            ("lost_writes", "Pieces of writes that an origin refused for good", &self.metrics.lost_writes),
        ];
        for (name, help, counter) in counters {
            registry.register(format!("forebay_write_{name}"), help, counter.clone());
        }
        registry.register_collector(Box::new(BufferCollector(Arc::downgrade(self))));
    }
}

/// What is pending is counted when somebody asks.
#[derive(Debug)]
struct BufferCollector(Weak<WriteBuffer>);

impl Collector for BufferCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> Result<(), std::fmt::Error> {
        let Some(buffer) = self.0.upgrade() else { return Ok(()) };
        let files: Vec<_> = buffer.files().values().cloned().collect();
        let (mut bytes, mut oldest) = (0, None::<u64>);
        for file in &files {
            let state = file.lock();
            bytes += state.extents.bytes();
            oldest = oldest.into_iter().chain(state.extents.oldest_ms()).min();
        }
        let age = oldest.map_or(0.0, |oldest| buffer.now_ms().saturating_sub(oldest) as f64 / 1000.0);
        let gauges = [
            (
                "forebay_write_pending_bytes",
                "Bytes written by clients, not stored at the origin",
                bytes as f64,
            ),
            ("forebay_write_pending_files", "Files of which bytes are pending", files.len() as f64),
            ("forebay_write_pending_oldest_seconds", "Age of the oldest pending bytes", age),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(value);
            let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(metric)?;
        }
        Ok(())
    }
}
