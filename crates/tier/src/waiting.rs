//! What waits in the journal, by junction, for Prometheus. The journal and the flush count the rest themselves.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;
use vfs::{Unflushed, Vfs};

pub struct Waiting(pub Arc<Vfs>);

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waiting")
    }
}

impl Collector for Waiting {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        encode(&self.0.unflushed(), encoder)
    }
}

/// Without a junction that is written `back` nothing is told: no figure is not a zero.
fn encode(unflushed: &Unflushed, mut encoder: DescriptorEncoder) -> fmt::Result {
    if let Some(journal) = &unflushed.journal {
        let help = "Places where the journal is not what it was; while there are any, nothing is taken";
        let places = ConstGauge::new(journal.damaged.len() as i64);
        let kind = places.metric_type();
        places.encode(encoder.encode_descriptor("forebay_journal_damaged_places", help, None, kind)?)?;
    }
    if unflushed.junctions.is_empty() {
        return Ok(());
    }
    let kind = ConstGauge::new(0_i64).metric_type();
    let help = "Bytes of data that are not at the origin yet";
    let mut family = encoder.encode_descriptor("forebay_junction_dirty_bytes", help, None, kind)?;
    for junction in &unflushed.junctions {
        let bytes = ConstGauge::new(i64::try_from(junction.dirty_bytes).unwrap_or(i64::MAX));
        bytes.encode(family.encode_family(&[("junction", junction.path.as_str())])?)?;
    }
    let help = "Since the oldest operation that is not at the origin yet was acknowledged";
    let mut family = encoder.encode_descriptor("forebay_junction_oldest_seconds", help, None, kind)?;
    for junction in &unflushed.junctions {
        let seconds = ConstGauge::new(junction.oldest.unwrap_or_default().as_secs_f64());
        seconds.encode(family.encode_family(&[("junction", junction.path.as_str())])?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use prometheus_client::registry::Registry;
    use vfs::{JournalLoad, JunctionLoad};

    use super::*;

    #[derive(Debug)]
    struct Fixed(Unflushed);

    impl Collector for Fixed {
        fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
            encode(&self.0, encoder)
        }
    }

    fn page(unflushed: Unflushed) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Fixed(unflushed)));
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).expect("a page");
        page
    }

    #[test]
    fn each_junction_tells_its_bytes_and_their_age() {
        let load = |path: &str, dirty_bytes, oldest| JunctionLoad { path: path.into(), dirty_bytes, oldest };
        let journal = JournalLoad {
            dir: "/journal".into(),
            operations: 3,
            used_bytes: 4096,
            size_max: 1 << 30,
            failed: false,
            damaged: vec!["somewhere".into()],
        };
        let page = page(Unflushed {
            junctions: vec![load("/show", 700, Some(Duration::from_millis(1500))), load("/lib", 0, None)],
            journal: Some(journal),
            ..Unflushed::default()
        });
        for line in [
            "forebay_junction_dirty_bytes{junction=\"/show\"} 700",
            "forebay_junction_dirty_bytes{junction=\"/lib\"} 0",
            "forebay_junction_oldest_seconds{junction=\"/show\"} 1.5",
            "forebay_junction_oldest_seconds{junction=\"/lib\"} 0.0",
            "forebay_journal_damaged_places 1",
        ] {
            assert!(page.lines().any(|told| told == line), "{line} is missing in:\n{page}");
        }
    }

    #[test]
    fn where_nothing_is_written_back_nothing_is_told() {
        assert!(!page(Unflushed::default()).contains("forebay_"));
    }
}
