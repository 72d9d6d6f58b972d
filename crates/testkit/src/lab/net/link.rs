//! One link of a host: its rate, its faults, and what it carried.

use std::net::Ipv4Addr;
use std::sync::Arc;

use super::namespace::NetNamespace;
use super::{LabShared, must};
use crate::lab::{NotRun, run};

/// As the host sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkSide {
    /// What the host sends.
    Out,
    /// What it receives.
    In,
}

pub struct LabLink {
    host: Arc<NetNamespace>,
    switch: Arc<NetNamespace>,
    /// Its end in the host.
    inside: String,
    /// Its end in the switch.
    port: String,
    address: Ipv4Addr,
    rate: u64,
}

/// A frame, and a little.
const BURST_MIN: u64 = 1600;
const QUEUE_MIN: u64 = 16 << 10;

/// What leaves this interface of this namespace leaves at a rate, in bytes per second: 10 ms of it may leave at once, and 50 ms
/// of it wait.
pub(super) fn shape(interface: &str, rate: u64) -> Result<(), NotRun> {
    let burst = (rate / 100).max(BURST_MIN);
    let queue = (rate / 20).max(QUEUE_MIN) + burst;
    let shape =
        ["rate", &format!("{}bit", rate * 8), "burst", &burst.to_string(), "limit", &queue.to_string()];
    run("tc", &[&["qdisc", "replace", "dev", interface, "root", "tbf"][..], &shape[..]].concat())
}

/// Nothing leaves it any more.
pub(super) fn lose_all(interface: &str) -> Result<(), NotRun> {
    // A queue that no packet fits into.
    run("tc", &["qdisc", "replace", "dev", interface, "root", "bfifo", "limit", "1"])
}

impl LabLink {
    /// From this host to the bridge of this number.
    pub(super) fn make(
        lab: &LabShared,
        host: &Arc<NetNamespace>,
        host_number: u8,
        bridge: usize,
        rate: u64,
    ) -> LabLink {
        let subnet = u8::try_from(bridge).expect("few");
        let link = LabLink {
            host: host.clone(),
            switch: lab.switch.clone(),
            inside: format!("link{bridge}"),
            port: format!("host{host_number}link{bridge}"),
            address: Ipv4Addr::new(10, 77, subnet, host_number),
            rate,
        };
        link.switch.run(|| {
            let peer = ["type", "veth", "peer", "name", &link.inside, "netns", &host.path()];
            must("ip", &[&["link", "add", &link.port][..], &peer[..]].concat());
            must("ip", &["link", "set", &link.port, "master", &format!("bridge{bridge}"), "up"]);
        });
        link.host.run(|| {
            must("ip", &["addr", "add", &format!("{}/24", link.address), "dev", &link.inside]);
            must("ip", &["link", "set", &link.inside, "up"]);
        });
        link.set_rate(rate);
        link
    }

    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// As the host calls it.
    pub fn interface(&self) -> &str {
        &self.inside
    }

    /// In bytes per second of either direction; 1000 for a line that is all but dead. What waits in the queues is lost: packets
    /// there may be larger than what may leave at once from now on, and one of those would never leave.
    pub fn set_rate(&self, rate: u64) {
        for side in [LinkSide::Out, LinkSide::In] {
            self.on(side, |interface| {
                lose_all(interface)?;
                shape(interface, rate)
            });
        }
    }

    /// Nothing goes this way any more. In time the neighbours forget where the host is, as they would behind a real line, and
    /// what goes the other way is lost as well.
    pub fn lose(&self, side: LinkSide) {
        self.on(side, lose_all);
    }

    /// The cable is pulled: the host sees no carrier.
    pub fn down(&self) {
        self.switch.run(|| must("ip", &["link", "set", &self.port, "down"]));
    }

    /// Whatever was done to it has an end.
    pub fn restore(&self) {
        self.switch.run(|| must("ip", &["link", "set", &self.port, "up"]));
        self.set_rate(self.rate);
    }

    /// What it has carried so far, as the kernel counts it.
    pub fn bytes(&self, side: LinkSide) -> u64 {
        let counters =
            self.host.run(|| std::fs::read_to_string("/proc/thread-self/net/dev").expect("mounted"));
        let [received, sent] = bytes_in(&counters, &self.inside).expect("the kernel counts");
        match side {
            LinkSide::Out => sent,
            LinkSide::In => received,
        }
    }

    /// What goes this way leaves by that interface.
    fn on(&self, side: LinkSide, what: impl FnOnce(&str) -> Result<(), NotRun> + Send) {
        let (namespace, interface) = match side {
            LinkSide::Out => (&self.host, &self.inside),
            LinkSide::In => (&self.switch, &self.port),
        };
        if let Err(NotRun(why)) = namespace.run(|| what(interface)) {
            panic!("{why}");
        }
    }
}

/// Received and sent, by the lines of `/proc/net/dev`.
fn bytes_in(counters: &str, interface: &str) -> Option<[u64; 2]> {
    let line =
        counters.lines().find_map(|line| line.trim_start().strip_prefix(interface)?.strip_prefix(':'))?;
    let mut columns = line.split_whitespace().map(|column| column.parse().ok());
    Some([columns.next()??, columns.nth(7)??])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_an_interface_are_found_among_those_of_others() {
        let counters = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:       0       0    0    0    0     0          0         0        0       0    0    0    0     0       0          0
 link1: 20024112     362    0    0    0     0          0         0    23152     350    0    0    0     0       0          0
link10:       1     362    0    0    0     0          0         0        2     350    0    0    0     0       0          0
";
        assert_eq!(bytes_in(counters, "link1"), Some([20_024_112, 23_152]));
        assert_eq!(bytes_in(counters, "link10"), Some([1, 2]));
        assert_eq!(bytes_in(counters, "link"), None);
    }
}
