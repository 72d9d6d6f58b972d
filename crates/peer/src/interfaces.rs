//! The addresses of this machine, with their networks.

use std::net::IpAddr;

use nix::ifaddrs::{InterfaceAddress, getifaddrs};
use nix::net::if_::InterfaceFlags;
use nix::sys::socket::SockaddrStorage;

use crate::path::LocalAddress;

/// Those of interfaces that are up. An address that is good on one link only (`fe80::`) is left out: it needs the link's
/// name beside it.
pub fn local_addresses() -> Vec<LocalAddress> {
    let up = getifaddrs().into_iter().flatten().filter(|it| it.flags.contains(InterfaceFlags::IFF_UP));
    up.filter_map(|it| local_address(&it)).collect()
}

fn local_address(interface: &InterfaceAddress) -> Option<LocalAddress> {
    let address = ip_of(interface.address.as_ref()?)?;
    let prefix = match ip_of(interface.netmask.as_ref()?)? {
        IpAddr::V4(mask) => mask.to_bits().leading_ones(),
        IpAddr::V6(mask) => mask.to_bits().leading_ones(),
    };
    let is_local_to_link = matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    (!is_local_to_link).then_some(LocalAddress { address, prefix: u8::try_from(prefix).ok()? })
}

fn ip_of(address: &SockaddrStorage) -> Option<IpAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| IpAddr::V4(v4.ip()));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| IpAddr::V6(v6.ip())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_network_is_one_of_them() {
        let loopback = LocalAddress { address: IpAddr::from([127, 0, 0, 1]), prefix: 8 };
        assert!(local_addresses().contains(&loopback), "{:?}", local_addresses());
    }
}
