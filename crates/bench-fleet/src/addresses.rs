//! What this machine is called, and where others may reach it.
//!
//! A host's name may resolve to its loopback, and a machine may have addresses that no other can reach, so a member is
//! given all that there are and tries one after the other; the handshake tells it which is the right machine.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// This machine's name, as the kernel knows it.
pub fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let name: String = name.trim().chars().filter(|c| !c.is_control()).take(64).collect();
    if name.is_empty() { "unknown".into() } else { name }
}

/// `HOST:PORT` for each way in: the name, then addresses, without loopback and those of one link.
pub fn ways_in(port: u16) -> Vec<String> {
    let ipv4 = std::fs::read_to_string("/proc/net/fib_trie").unwrap_or_default();
    let ipv6 = std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    let addresses = local_ipv4(&ipv4).into_iter().map(IpAddr::V4);
    let addresses = addresses.chain(global_ipv6(&ipv6).into_iter().map(IpAddr::V6));
    let mut ways = vec![format!("{}:{port}", host_name())];
    ways.extend(addresses.map(|address| std::net::SocketAddr::new(address, port).to_string()));
    ways
}

/// This machine's addresses in `/proc/net/fib_trie`: each is on the line before `/32 host LOCAL`.
fn local_ipv4(trie: &str) -> Vec<Ipv4Addr> {
    let mut found = Vec::new();
    let mut last = None;
    for line in trie.lines() {
        if let Some(address) = line.trim().strip_prefix("|-- ") {
            last = address.parse::<Ipv4Addr>().ok();
        } else if line.trim() == "/32 host LOCAL"
            && let Some(address) = last.filter(|a| !a.is_loopback() && !found.contains(a))
        {
            found.push(address);
        }
    }
    found
}

/// The global addresses in `/proc/net/if_inet6`: address, interface, prefix, scope (0 is global), flags, name.
fn global_ipv6(table: &str) -> Vec<Ipv6Addr> {
    let global = |line: &str| {
        let mut fields = line.split_whitespace();
        let address = u128::from_str_radix(fields.next()?, 16).ok()?;
        (fields.nth(2)? == "00").then(|| Ipv6Addr::from_bits(address))
    };
    table.lines().filter_map(global).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_in_the_kernels_tables() {
        let trie = "Main:\n  +-- 0.0.0.0/0 3 0 5\n     |-- 0.0.0.0\n        /0 universe UNICAST\n     +-- 127.0.0.0/8 2 0 2\n        \
                    |-- 127.0.0.1\n           /32 host LOCAL\n     |-- 192.0.2.2\n           /32 host LOCAL\n     |-- \
                    192.0.2.255\n           /32 link BROADCAST\nLocal:\n     |-- 192.0.2.2\n           /32 host LOCAL\n";
        assert_eq!(local_ipv4(trie), [Ipv4Addr::new(192, 0, 2, 2)]);
        let table = "fd000000000000000000000000000002 02 40 00 80 eth0\nfe8000000000000000fc00fffe000001 02 40 20 80 eth0\n\
                     00000000000000000000000000000001 01 80 10 80 lo\nnonsense\n";
        assert_eq!(global_ipv6(table), ["fd00::2".parse::<Ipv6Addr>().unwrap()]);
    }

    #[test]
    fn this_machine_has_a_name() {
        assert!(!host_name().is_empty());
        assert_eq!(ways_in(7).first(), Some(&format!("{}:7", host_name())));
    }
}
