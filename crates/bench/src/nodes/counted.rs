//! What was read through the nodes of a cluster, and what each of them did meanwhile, by its counters.

use std::collections::BTreeMap;

use bench_load::outcome::PhaseOutcome;
use bench_report::sanity;

use crate::{CounterPage, MIB};

pub struct ClusterPass {
    pub outcome: PhaseOutcome,
    /// Of each node that is named.
    pub nodes: Vec<CounterPage>,
}

impl ClusterPass {
    pub fn seconds(&self) -> f64 {
        self.outcome.last_done_s().unwrap_or(0.0).max(1e-9)
    }

    /// Of all nodes.
    pub fn sum(&self, of: impl Fn(&CounterPage) -> u64) -> f64 {
        self.nodes.iter().map(of).sum::<u64>() as f64
    }

    /// MiB a second that a node moved, if it tells.
    pub fn node_rate(&self, node: usize, of: impl Fn(&CounterPage) -> Option<u64>) -> Option<f64> {
        Some(of(self.nodes.get(node)?)? as f64 / MIB / self.seconds())
    }

    /// Why it must not be believed, wherever the bytes came from.
    pub fn faults(&self, wanted: u64) -> Vec<String> {
        let read = self.outcome.bytes_read;
        let other = (read != wanted).then(|| format!("the clients read {read} bytes, not {wanted}"));
        self.outcome.faults().into_iter().chain(sanity::too_short(self.seconds())).chain(other).collect()
    }
}

impl CounterPage {
    /// Bytes to other nodes.
    pub fn sent(&self) -> u64 {
        self.total("forebay_cluster_served_bytes_total")
    }

    /// Bytes that were not here when clients asked for them or were about to, by where they came from: the words of the counter.
    pub fn fetched(&self) -> BTreeMap<String, u64> {
        self.by_label("forebay_cluster_read_bytes_total", "from")
    }

    pub fn remote(&self) -> u64 {
        self.fetched().values().sum()
    }

    /// Bytes that came here as copies.
    pub fn repaired(&self) -> u64 {
        self.total("forebay_cluster_repair_bytes_total")
    }
}

/// Of what these nodes served, the share that they had themselves. What a node fetches ahead and nobody reads then counts as remote
/// as well. NaN if nothing was served.
pub fn local_percent<'a>(counts: impl IntoIterator<Item = &'a CounterPage>) -> f64 {
    let add = |(served, remote): (u64, u64), count: &CounterPage| {
        (served + count.served_bytes(), remote + count.remote())
    };
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
        let count = page.since(&CounterPage::default());
        assert_eq!((count.served_bytes(), count.sent(), count.remote()), (1000, 30, 250));
        assert_eq!((count.repaired(), count.disk_bytes()), (7, None));
        assert_eq!(count.fetched(), BTreeMap::from([("Around".to_owned(), 50), ("Rank".to_owned(), 200)]));
        assert_eq!(local_percent([&count]), 75.0);
        let idle = CounterPage::default();
        assert_eq!(local_percent([&count, &idle]), 75.0);
        assert!(local_percent([&idle]).is_nan());
        // A node that was started anew begins at nothing.
        assert_eq!(CounterPage::default().since(&page).served_bytes(), 0);
    }
}
