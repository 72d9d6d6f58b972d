//! What the cluster costs and saves, for Prometheus.

use peer::message::ReadRole;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

/// Where bytes came from that were not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
pub enum ReadFrom {
    /// A node that keeps a copy.
    Rank,
    /// The stripe's primary.
    Primary,
    /// A node that had them from before the map changed, or from when it stood in for another one.
    Holder,
    /// The far origin, by the primary.
    Origin,
    /// The far origin, by a node that is not the primary: none of those that keep the stripe could be asked.
    Around,
}

impl ReadFrom {
    pub(crate) fn of(role: ReadRole) -> ReadFrom {
        match role {
            ReadRole::Rank => ReadFrom::Rank,
            ReadRole::Primary => ReadFrom::Primary,
            ReadRole::Holder => ReadFrom::Holder,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct FromLabels {
    pub from: ReadFrom,
}

#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// Reads of this node for its clients.
    pub reads: Family<FromLabels, Counter>,
    pub read_bytes: Family<FromLabels, Counter>,
    /// Bytes sent to other nodes.
    pub served_bytes: Counter,
    /// Asks of a node that failed, so that another node or the origin was asked. A holder that has no such bytes is no failure.
    pub failed_asks: Counter,
}

impl Metrics {
    pub fn register(&self, registry: &mut Registry) {
        let prefix = "forebay_cluster";
        let name = |name: &str| format!("{prefix}_{name}");
        registry.register(
            name("reads"),
            "Fetches for clients of this node, by where the bytes came from",
            self.reads.clone(),
        );
        registry.register(name("read_bytes"), "Bytes of those", self.read_bytes.clone());
        registry.register(name("served_bytes"), "Bytes sent to other nodes", self.served_bytes.clone());
        registry.register(
            name("failed_asks"),
            "Asks of other nodes for bytes that failed, so that somebody else was asked",
            self.failed_asks.clone(),
        );
    }

    pub(crate) fn count(&self, from: ReadFrom, bytes: u64) {
        let labels = FromLabels { from };
        self.reads.get_or_create(&labels).inc();
        self.read_bytes.get_or_create(&labels).inc_by(bytes);
    }
}
