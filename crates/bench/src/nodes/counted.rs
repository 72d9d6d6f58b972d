//! What one node did while something was measured, by its counters.

use std::collections::BTreeMap;

use crate::CounterPage;

#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeCount {
    pub served: u64,
    pub sent: u64,
    /// Bytes that were not here when clients asked for them or were about to, by where they came from: the words of the counter.
    pub fetched: BTreeMap<String, u64>,
    /// Bytes read from the far origin, for whomever.
    pub origin: u64,
    /// Bytes that came here as copies.
    pub repaired: u64,
    /// Bytes that its disks were read for; `None` where that is not known.
    pub disk: Option<u64>,
}

impl NodeCount {
    pub fn between(before: &CounterPage, after: &CounterPage) -> NodeCount {
        let counted = after.since(before);
        NodeCount {
            served: counted.served_bytes(),
            sent: counted.total("forebay_cluster_served_bytes_total"),
            fetched: counted.by_label("forebay_cluster_read_bytes_total", "from"),
            origin: counted.origin_bytes(),
            repaired: counted.total("forebay_cluster_repair_bytes_total"),
            disk: counted.disk_bytes(),
        }
    }

    pub fn egress(&self) -> u64 {
        self.served.saturating_add(self.sent)
    }

    pub fn remote(&self) -> u64 {
        self.fetched.values().sum()
    }
}

/// Of what these nodes served, the share that they had themselves. What a node fetches ahead and nobody reads then counts as remote
/// as well. NaN if nothing was served.
pub fn local_percent<'a>(counts: impl IntoIterator<Item = &'a NodeCount>) -> f64 {
    let add =
        |(served, remote): (u64, u64), count: &NodeCount| (served + count.served, remote + count.remote());
    let (served, remote) = counts.into_iter().fold((0, 0), add);
    if served == 0 { f64::NAN } else { served.saturating_sub(remote) as f64 / served as f64 * 100.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_other_nodes_gave_is_no_local_read() {
        let page = CounterPage::parse(
            "forebay_nfs_read_bytes_total 1000\nforebay_cluster_read_bytes_total{from=\"Rank\"} 200\n\
             forebay_cluster_read_bytes_total{from=\"Around\"} 50\nforebay_cluster_served_bytes_total 30\n\
             forebay_cluster_repair_bytes_total 7\n",
        );
        let count = NodeCount::between(&CounterPage::default(), &page);
        assert_eq!((count.served, count.sent, count.egress(), count.remote()), (1000, 30, 1030, 250));
        assert_eq!((count.repaired, count.disk), (7, None));
        assert_eq!(count.fetched, BTreeMap::from([("Around".to_owned(), 50), ("Rank".to_owned(), 200)]));
        assert_eq!(local_percent([&count]), 75.0);
        let idle = NodeCount::default();
        assert_eq!(local_percent([&count, &idle]), 75.0);
        assert!(local_percent([&idle]).is_nan());
        // A node that was started anew begins at nothing.
        assert_eq!(NodeCount::between(&page, &CounterPage::default()), NodeCount::default());
    }
}
