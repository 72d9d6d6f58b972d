//! What the cluster costs and saves, for Prometheus.

use std::collections::BTreeMap;

use peer::message::ReadRole;
use prometheus_client::encoding::{EncodeLabelSet, EncodeLabelValue};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
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

/// So many whole copies.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct CopiesLabels {
    pub copies: u64,
}

/// Copies that have a number of their own; stripes with more are counted with those that have this many.
const COPIES_MAX: usize = 16;

#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// Reads of this node for its clients.
    pub reads: Family<FromLabels, Counter>,
    pub read_bytes: Family<FromLabels, Counter>,
    /// Bytes sent to other nodes.
    pub served_bytes: Counter,
    /// Asks of a node that failed, so that another node or the origin was asked. A holder that has no such bytes is no failure.
    pub failed_asks: Counter,
    /// Stripes that this node counts, by how many whole copies they have, as the last walk found.
    pub stripes: Family<CopiesLabels, Gauge>,
    pub copies_missing_bytes: Gauge,
    /// Missing at nodes whose caches are full of other bytes, as the last walk found.
    pub copies_no_room_bytes: Gauge,
    /// Bytes that came here as copies.
    pub repair_bytes: Counter,
    /// Stripes that were filled here and of which nobody was told, since too many waited.
    pub dropped_fills: Gauge,
    /// Stripes that wait to be copied here, and those that were dropped since too many did.
    pub pulls_waiting: Gauge,
    pub dropped_pulls: Gauge,
    /// Files in the cache whose junction is not known, so that their copies are neither made nor counted.
    pub unknown_files: Gauge,
    /// Stripes that are hot, as far as this node knows.
    pub hot_stripes: Gauge,
    /// Walks over all that the cache holds that came to their end.
    pub walks: Counter,
    /// Files that this node told others of since it changed them, once for each node and call.
    pub sent_notices: Counter,
    /// Files that other nodes told this one of.
    pub received_notices: Counter,
    /// Files that a node was not told of: too many waited for it, or it takes none.
    pub dropped_notices: Counter,
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
        registry.register(
            name("stripes"),
            "Stripes that this node counts, by whole copies, as of the last walk",
            self.stripes.clone(),
        );
        registry.register(
            name("copies_missing_bytes"),
            "Bytes that nodes are to keep copies of and lack, of stripes that this node counts",
            self.copies_missing_bytes.clone(),
        );
        registry.register(
            name("copies_no_room_bytes"),
            "Bytes that nodes lack whose caches are full, of stripes that this node counts",
            self.copies_no_room_bytes.clone(),
        );
        registry.register(name("repair_bytes"), "Bytes that came here as copies", self.repair_bytes.clone());
        registry.register(
            name("dropped_fills"),
            "Stripes that were filled and left to the next walk, since too many waited to be told",
            self.dropped_fills.clone(),
        );
        registry.register(
            name("pulls_waiting"),
            "Stripes that wait to be copied to this node",
            self.pulls_waiting.clone(),
        );
        registry.register(
            name("dropped_pulls"),
            "Stripes that were to be copied to this node and were left to a later look, since too many waited",
            self.dropped_pulls.clone(),
        );
        registry.register(
            name("unknown_files"),
            "Files in the cache whose junction is not known, as of the last walk",
            self.unknown_files.clone(),
        );
        registry.register(
            name("hot_stripes"),
            "Stripes that are read so much that more nodes than wanted serve them, as far as this node knows",
            self.hot_stripes.clone(),
        );
        registry.register(
            name("walks"),
            "Walks over the cache, to find what lacks copies, that came to their end",
            self.walks.clone(),
        );
        registry.register(
            name("sent_notices"),
            "Files that other nodes were told of since this one changed them",
            self.sent_notices.clone(),
        );
        registry.register(
            name("received_notices"),
            "Files that other nodes told this one of",
            self.received_notices.clone(),
        );
        registry.register(
            name("dropped_notices"),
            "Files that a node was not told of, since too many waited for it or it takes no notices",
            self.dropped_notices.clone(),
        );
    }

    pub(crate) fn set_stripes(&self, by_copies: &BTreeMap<usize, u64>) {
        // There may be none any more with as many copies as before.
        self.stripes.clear();
        for (copies, stripes) in by_copies {
            let labels = CopiesLabels { copies: (*copies).min(COPIES_MAX) as u64 };
            self.stripes.get_or_create(&labels).inc_by(i64::try_from(*stripes).unwrap_or(i64::MAX));
        }
    }

    pub(crate) fn count(&self, from: ReadFrom, bytes: u64) {
        let labels = FromLabels { from };
        self.reads.get_or_create(&labels).inc();
        self.read_bytes.get_or_create(&labels).inc_by(bytes);
    }
}
