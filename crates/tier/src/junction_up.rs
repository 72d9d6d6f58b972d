//! Whether each junction's origin can be used, and why not, for Prometheus.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::gauge::ConstGauge;
use types::OutageReason;
use vfs::Vfs;

/// `forebay_junction_up{junction,reason}`: one series of each junction, 1 with the reason `none` or 0 with that of the
/// outage.
pub struct JunctionUp(pub Arc<Vfs>);

impl fmt::Debug for JunctionUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JunctionUp")
    }
}

impl Collector for JunctionUp {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let junctions = self.0.junctions().into_iter();
        encode(
            junctions.map(|junction| (junction.path, junction.outage.map(|outage| outage.reason))),
            encoder,
        )
    }
}

fn encode(
    junctions: impl Iterator<Item = (String, Option<OutageReason>)>,
    mut encoder: DescriptorEncoder,
) -> fmt::Result {
    let kind = ConstGauge::new(0_i64).metric_type();
    let help = "1: the origin of the junction can be used; 0: it cannot, for this reason";
    let mut family = encoder.encode_descriptor("forebay_junction_up", help, None, kind)?;
    for (path, outage) in junctions {
        let up = ConstGauge::new(i64::from(outage.is_none()));
        let reason = outage.map_or("none", OutageReason::name);
        up.encode(family.encode_family(&[("junction", path.as_str()), ("reason", reason)])?)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use prometheus_client::registry::Registry;

    use super::*;

    #[derive(Debug)]
    struct Fixed(Vec<(String, Option<OutageReason>)>);

    impl Collector for Fixed {
        fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
            encode(self.0.iter().cloned(), encoder)
        }
    }

    #[test]
    fn each_junction_is_up_or_says_why_not() {
        let mut registry = Registry::default();
        let junctions = vec![("/a".into(), None), ("/b".into(), Some(OutageReason::Credentials))];
        registry.register_collector(Box::new(Fixed(junctions)));
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).expect("a page");
        for line in [
            r#"forebay_junction_up{junction="/a",reason="none"} 1"#,
            r#"forebay_junction_up{junction="/b",reason="credentials"} 0"#,
        ] {
            assert!(page.lines().any(|told| told == line), "{line} is missing in:\n{page}");
        }
    }
}
