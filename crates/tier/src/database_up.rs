//! Whether the metadata database takes what is learnt, and whether it was lost, for Prometheus.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;
use vfs::Vfs;

/// `forebay_namespace_database_up` and `forebay_namespace_database_lost`.
pub struct DatabaseUp(pub Arc<Vfs>);

impl fmt::Debug for DatabaseUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DatabaseUp")
    }
}

impl Collector for DatabaseUp {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let (trouble, lost) = self.0.database_trouble();
        let up = "1: the metadata database takes what is learnt; 0: its disk is full, read-only or fails";
        let gone = "1: the metadata database was damaged and begun anew since the start";
        let gauges = [
            ("forebay_namespace_database_up", up, trouble.is_none()),
            ("forebay_namespace_database_lost", gone, lost.is_some()),
        ];
        for (name, help, is) in gauges {
            let gauge = ConstGauge::new(i64::from(is));
            let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(metric)?;
        }
        Ok(())
    }
}
