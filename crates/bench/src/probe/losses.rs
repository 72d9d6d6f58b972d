//! Signs of loss while streams read: segments that came out of order, which is what a receiver sees of a segment that was
//! lost or overtaken. Counted by the kernel for the whole machine; so it is an estimate, from above.

use std::fs;

/// Segments since the machine was started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segments {
    pub received: u64,
    pub out_of_order: u64,
}

/// The share of received segments that came out of order; `None` if it cannot be told.
pub fn share(before: Option<Segments>, after: Option<Segments>) -> Option<f64> {
    let (before, after) = (before?, after?);
    let received = after.received.checked_sub(before.received).filter(|n| *n > 0)?;
    let out_of_order = after.out_of_order.checked_sub(before.out_of_order)?;
    Some(out_of_order as f64 / received as f64)
}

impl Segments {
    pub fn now() -> Option<Segments> {
        let snmp = fs::read_to_string("/proc/net/snmp").ok()?;
        let netstat = fs::read_to_string("/proc/net/netstat").ok()?;
        Some(Segments {
            received: value(&snmp, "Tcp:", "InSegs")?,
            out_of_order: value(&netstat, "TcpExt:", "TCPOFOQueue")?,
        })
    }
}

/// Both files have a line of names and below it a line of values, each for one protocol.
fn value(text: &str, protocol: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.split(' ').next() == Some(protocol));
    let (names, values) = (lines.next()?, lines.next()?);
    let at = names.split(' ').position(|n| n == name)?;
    values.split(' ').nth(at)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_their_names() {
        let text = "Ip: A B\nIp: 1 2\nTcp: InSegs OutSegs\nTcp: 30 40\nTcpExt: InSegs\nTcpExt: 50\n";
        assert_eq!(value(text, "Tcp:", "OutSegs"), Some(40));
        assert_eq!(value(text, "TcpExt:", "InSegs"), Some(50));
        assert_eq!(value(text, "Tcp:", "Nothing"), None);
        assert_eq!(value("Tcp: InSegs\n", "Tcp:", "InSegs"), None);
    }

    #[test]
    fn a_share_needs_segments_and_two_looks() {
        let look = |received, out_of_order| Some(Segments { received, out_of_order });
        assert_eq!(share(look(100, 5), look(300, 7)), Some(0.01));
        assert_eq!(share(look(100, 5), look(100, 5)), None, "nothing came");
        assert_eq!(share(look(100, 5), look(50, 0)), None, "the counters were reset");
        assert_eq!(share(None, look(1, 1)), None);
    }
}
