//! Addresses: an IP address or a host name, with a port.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

use serde::de::{Deserialize, Deserializer};

use crate::parsed;

/// `127.0.0.1:2049`, `[::1]:2049`, `localhost:2049`, or `:2049` for every address of this machine. A name is looked up when it is
/// read, and its first IPv4 address is taken where it has one.
pub fn address(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let wrong = |why: &str| {
        format!(
            "\"{text}\" is no address: {why}; write HOST:PORT such as 127.0.0.1:2049, [::1]:2049 or localhost:2049, or :2049 \
             for every address of this machine"
        )
    };
    let Some((host, port)) = text.rsplit_once(':') else { return Err(wrong("it has no port")) };
    let port: u16 = port.parse().map_err(|_| wrong("the port must be a number up to 65535"))?;
    if host.is_empty() {
        return Ok(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port));
    }
    if host.contains(':') {
        return Err(wrong("an IPv6 address stands in brackets"));
    }
    let found: Vec<SocketAddr> =
        (host, port).to_socket_addrs().map_err(|e| wrong(&format!("the name {host}: {e}")))?.collect();
    let first = found.iter().find(|address| address.is_ipv4()).or(found.first());
    first.copied().ok_or_else(|| wrong(&format!("the name {host} has no address")))
}

/// `127.0.0.1:2049`, `[::1]:2049`, `localhost:2049`, or `:2049` for every address of this machine. A name is looked up
/// when it is read, and its first IPv4 address is taken where it has one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Address(pub SocketAddr);

impl Address {
    /// Where a client on this machine reaches it: what listens on every address is reached on loopback.
    pub fn to_reach(self) -> SocketAddr {
        let Address(address) = self;
        let ip = match address.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
            IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
            ip => ip,
        };
        SocketAddr::new(ip, address.port())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        address(text).map(Address)
    }
}

impl<'de> Deserialize<'de> for Address {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Address, D::Error> {
        parsed(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_bare_ports_are_addresses_and_what_is_none_is_told_what_would_be() {
        for (text, address, reached) in [
            ("127.0.0.1:2049", "127.0.0.1:2049", "127.0.0.1:2049"),
            ("localhost:2049", "127.0.0.1:2049", "127.0.0.1:2049"),
            (":2049", "0.0.0.0:2049", "127.0.0.1:2049"),
            ("[::]:9", "[::]:9", "[::1]:9"),
        ] {
            let read: Address = text.parse().expect(text);
            assert_eq!((read.to_string(), read.to_reach().to_string()), (address.into(), reached.into()));
        }
        for (text, why) in [
            ("2049", "no port"),
            ("localhost", "no port"),
            ("127.0.0.1:port", "number"),
            ("::1:2049:", "number"),
            ("::1:x:1", "brackets"),
            ("no such name:1", "no such name"),
        ] {
            let told = text.parse::<Address>().expect_err(text);
            assert!(told.contains(why) && told.contains("localhost:2049"), "{text}: {told}");
        }
    }
}
