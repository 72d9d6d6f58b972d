//! This machine's network links: which one leads to an address, and what it carries.

use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::Path;

#[derive(Clone, Debug, PartialEq)]
pub struct Nic {
    pub name: String,
    /// Bytes a second in one direction; None where the driver does not tell, as in most virtual machines.
    pub rate: Option<f64>,
}

impl Nic {
    /// All that are up, but the loopback.
    pub fn all() -> Vec<Nic> {
        let entries = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
        let up = |name: &String| {
            let state = std::fs::read_to_string(Path::new("/sys/class/net").join(name).join("operstate"));
            name != "lo" && state.is_ok_and(|state| matches!(state.trim(), "up" | "unknown"))
        };
        let mut names: Vec<String> =
            entries.filter_map(|e| e.file_name().into_string().ok()).filter(up).collect();
        names.sort();
        names.into_iter().map(Nic::named).collect()
    }

    /// The one that leads there; None if the address is this machine's own, or if it cannot be told.
    pub fn to(address: IpAddr) -> Option<Nic> {
        let from = local_address(address)?;
        if address.is_loopback() || from == address {
            return None;
        }
        let name = match address {
            IpAddr::V4(to) => interface_v4(&std::fs::read_to_string("/proc/net/route").ok()?, to),
            IpAddr::V6(_) => interface_v6(&std::fs::read_to_string("/proc/net/if_inet6").ok()?, from),
        };
        name.map(Nic::named)
    }

    fn named(name: String) -> Nic {
        let speed = std::fs::read_to_string(Path::new("/sys/class/net").join(&name).join("speed"));
        let rate = speed.ok().and_then(|text| rate(&text));
        Nic { name, rate }
    }
}

impl std::fmt::Display for Nic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.rate {
            Some(rate) => write!(f, "{} {:.0} Mbit/s", self.name, rate * 8.0 / 1e6),
            None => write!(f, "{} of unknown speed", self.name),
        }
    }
}

/// The address that a packet to `to` would come from. Nothing is sent.
fn local_address(to: IpAddr) -> Option<IpAddr> {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).ok()?;
    // Any port but 0 will do.
    socket.connect((to, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

/// The bytes a second that a `speed` file tells, in Mbit/s or as -1.
fn rate(speed: &str) -> Option<f64> {
    let mbit: i64 = speed.trim().parse().ok()?;
    (mbit > 0).then(|| mbit as f64 * 1e6 / 8.0)
}

/// By the lines of `/proc/net/route`, where addresses are hexadecimal in the machine's byte order: the longest mask
/// that fits, and of those the least metric.
fn interface_v4(table: &str, to: Ipv4Addr) -> Option<String> {
    let to = u32::from_ne_bytes(to.octets());
    let routes = table.lines().skip(1).filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let hex = |at: usize| u32::from_str_radix(words.get(at)?, 16).ok();
        let (destination, mask) = (hex(1)?, hex(7)?);
        let metric: u32 = words.get(6)?.parse().ok()?;
        (to & mask == destination).then(|| {
            (mask.count_ones(), std::cmp::Reverse(metric), (*words.first().unwrap_or(&"")).to_owned())
        })
    });
    routes.max_by_key(|(bits, metric, _)| (*bits, *metric)).map(|(_, _, name)| name)
}

/// The interface that has this address, by the lines of `/proc/net/if_inet6`.
fn interface_v6(table: &str, own: IpAddr) -> Option<String> {
    let IpAddr::V6(own) = own else { return None };
    let own: String = own.octets().iter().map(|byte| format!("{byte:02x}")).collect();
    let line = table.lines().find(|line| line.starts_with(&own))?;
    line.split_whitespace().last().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_route_that_fits_tells_the_link() {
        // 0.0.0.0/0 by eth0, 192.168.1.0/24 by eth1, and by eth2 at a higher metric.
        let word = |address: [u8; 4]| format!("{:08X}", u32::from_ne_bytes(address));
        let line = |name: &str, to, mask, metric: u32| {
            format!("{name}\t{}\t00000000\t0001\t0\t0\t{metric}\t{}\t0\t0\t0\n", word(to), word(mask))
        };
        let table = format!(
            "Iface\tDestination\n{}{}{}",
            line("eth0", [0; 4], [0; 4], 0),
            line("eth1", [192, 168, 1, 0], [255, 255, 255, 0], 100),
            line("eth2", [192, 168, 1, 0], [255, 255, 255, 0], 200)
        );
        assert_eq!(interface_v4(&table, Ipv4Addr::new(192, 168, 1, 7)).as_deref(), Some("eth1"));
        assert_eq!(interface_v4(&table, Ipv4Addr::new(8, 8, 8, 8)).as_deref(), Some("eth0"));
        assert_eq!(interface_v4("Iface\nnonsense x y\n", Ipv4Addr::LOCALHOST), None);
        let own = "fe80::1".parse().expect("an address");
        let table = "fe800000000000000000000000000001 02 40 20 80     eth3\n";
        assert_eq!(interface_v6(table, own).as_deref(), Some("eth3"));
    }

    #[test]
    fn a_speed_that_the_driver_does_not_tell_is_unknown_and_not_zero() {
        assert_eq!(rate("10000\n"), Some(1.25e9));
        assert_eq!((rate("-1\n"), rate("0"), rate("")), (None, None, None));
        let told = |rate| Nic { name: "eth0".into(), rate }.to_string();
        assert_eq!(told(Some(1.25e9)), "eth0 10000 Mbit/s");
        assert_eq!(told(None), "eth0 of unknown speed");
    }

    #[test]
    fn this_machine_is_reached_without_a_link() {
        assert_eq!(Nic::to(IpAddr::V4(Ipv4Addr::LOCALHOST)), None);
        assert!(Nic::all().iter().all(|nic| nic.name != "lo"));
    }
}
