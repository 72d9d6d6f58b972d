//! What was sent, counted.

use prometheus_client::metrics::counter::Counter;

#[derive(Default)]
pub struct Metrics {
    pub sent_parts: Counter,
    pub sent_bytes: Counter,
    pub again_parts: Counter,
    pub again_bytes: Counter,
    pub lost_writes: Counter,
}
