//! What this machine is called, and where others may reach it.
//!
//! A host's name may resolve to its loopback, and a machine may have addresses that no other can reach, so a member is
//! given all that there are and tries one after the other; the handshake tells it which is the right machine.

use std::net::{IpAddr, SocketAddr};

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;

/// This machine's name, as the kernel knows it.
pub fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().replace(char::is_control, "");
    if name.is_empty() { "unknown".into() } else { name }
}

/// `HOST:PORT` for each way in: the name, then addresses, without loopback and those of one link.
pub fn ways_in(port: u16) -> Vec<String> {
    let mut ways = vec![format!("{}:{port}", host_name())];
    let up = getifaddrs().into_iter().flatten().filter(|it| it.flags.contains(InterfaceFlags::IFF_UP));
    for address in up.filter_map(address_of).filter(is_reachable) {
        let way = SocketAddr::new(address, port).to_string();
        // Two interfaces may have one address.
        if !ways.contains(&way) {
            ways.push(way);
        }
    }
    ways
}

/// The interface that has this address, if it is this machine's.
pub fn interface_of(own: IpAddr) -> Option<String> {
    let name_of = |it: InterfaceAddress| {
        let name = it.interface_name.clone();
        (address_of(it)? == own).then_some(name)
    };
    getifaddrs().ok()?.find_map(name_of)
}

fn address_of(interface: InterfaceAddress) -> Option<IpAddr> {
    let address = interface.address?;
    let ipv4 = address.as_sockaddr_in().map(|address| IpAddr::V4(address.ip()));
    ipv4.or_else(|| address.as_sockaddr_in6().map(|address| IpAddr::V6(address.ip())))
}

fn is_reachable(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !address.is_loopback(),
        IpAddr::V6(address) => !address.is_loopback() && !address.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_that_other_machines_cannot_reach_are_left_out() {
        for (address, expected) in
            [("192.0.2.2", true), ("127.0.0.1", false), ("fd00::2", true), ("fe80::1", false), ("::1", false)]
        {
            assert_eq!(is_reachable(&address.parse().unwrap()), expected, "{address}");
        }
        let found: Vec<IpAddr> = getifaddrs().unwrap().filter_map(address_of).collect();
        assert!(found.iter().any(IpAddr::is_loopback), "{found:?}");
    }

    #[test]
    fn this_machine_has_a_name() {
        assert!(!host_name().is_empty());
        assert_eq!(ways_in(7).first(), Some(&format!("{}:7", host_name())));
    }
}
