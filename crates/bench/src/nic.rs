//! This machine's network links: which one leads to an address, and what it carries.

use std::net::{IpAddr, UdpSocket};
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
        bench_fleet::interface_of(from).map(Nic::named)
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

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn an_address_of_this_machine_tells_the_link() {
        let of = |address: &str| bench_fleet::interface_of(address.parse().expect("an address"));
        assert_eq!(of("127.0.0.1").as_deref(), Some("lo"));
        assert_eq!(of("192.0.2.1"), None, "of no machine");
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
