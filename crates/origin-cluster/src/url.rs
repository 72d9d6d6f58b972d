//! `forebay://a,b,c[:port]/path?nconnect=N&uid=U&gid=G`, both ways.

use std::fmt;

use origin_nfs::{AuthSysIdentity, NCONNECT_MAX, export_of_url, export_to_url, host_of_url};
use rpc_nfs3::cluster_map::READER;
use types::{Error, ErrorKind, Result};

const FORM: &str = "forebay://node1,node2[:port]/path?nconnect=3&uid=N&gid=N";
/// Of NFS.
const PORT: u16 = 2049;
/// The most hosts that are named. Any one that answers is enough: the others are in the map.
const HOSTS_MAX: usize = 64;
/// One connection for names, two for bytes.
const NCONNECT: usize = 3;

/// A node as the URL names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamedHost {
    pub host: String,
    pub port: u16,
}

impl fmt::Display for NamedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.contains(':') {
            true => write!(f, "[{}]:{}", self.host, self.port),
            false => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

/// Some nodes of a cluster, and what is mounted of its tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterUrl {
    pub hosts: Vec<NamedHost>,
    /// Absolute.
    pub path: Vec<u8>,
    /// TCP connections to each address of a node, 1 to 16.
    pub nconnect: usize,
    pub identity: AuthSysIdentity,
}

fn wrong(url: &str, why: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Config, "origin", format!("{url}: {why}"))
}

impl ClusterUrl {
    /// Errors say what would be right.
    pub fn parse(url: &str) -> Result<ClusterUrl> {
        let rest = url.strip_prefix("forebay://").ok_or_else(|| wrong(url, format!("expected {FORM}")))?;
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let Some((authority, path)) = place.split_once('/') else {
            return Err(wrong(url, format!("which path of the cluster's tree? expected {FORM}")));
        };
        let identity = AuthSysIdentity { machine: READER, ..AuthSysIdentity::default() };
        let (hosts, path) = (hosts(url, authority)?, export_of_url(url, path)?);
        let mut parsed = ClusterUrl { hosts, path, nconnect: NCONNECT, identity };
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            option(url, &mut parsed, pair)?;
        }
        Ok(parsed)
    }

    /// Which tree this is, as it was named. There are no secrets in it.
    pub fn url(&self) -> String {
        let hosts: Vec<String> = self.hosts.iter().map(|host| self.host_text(host)).collect();
        format!("forebay://{}{}", hosts.join(","), export_to_url(&self.path))
    }

    fn host_text(&self, host: &NamedHost) -> String {
        match host.port {
            PORT if host.host.contains(':') => format!("[{}]", host.host),
            PORT if self.hosts.last().is_none_or(|last| last.port == PORT) => host.host.clone(),
            _ => host.to_string(),
        }
    }

    /// As a plain NFS client would mount it from one of the nodes.
    pub fn as_nfs(&self, host: &NamedHost) -> String {
        format!("nfs://{host}{}", export_to_url(&self.path))
    }
}

/// A port behind the last host is that of all hosts without one.
fn hosts(url: &str, authority: &str) -> Result<Vec<NamedHost>> {
    if authority.contains('@') {
        return Err(wrong(url, "nodes have no user or password; give uid= and gid= instead"));
    }
    let missing = format!("a node without a name; expected {FORM}");
    let host = |text| host_of_url(url, text, "forebay://[fd00::1],[fd00::2]/path", &missing);
    let parsed = authority.split(',').map(host).collect::<Result<Vec<_>>>()?;
    if parsed.len() > HOSTS_MAX {
        let why = format!(
            "{} nodes; {HOSTS_MAX} are the most, and any one that answers tells of the others",
            parsed.len()
        );
        return Err(wrong(url, why));
    }
    let common = parsed.last().and_then(|(_, port)| *port).unwrap_or(PORT);
    let mut hosts = Vec::with_capacity(parsed.len());
    for (host, port) in parsed {
        let named = NamedHost { host, port: port.unwrap_or(common) };
        if !hosts.contains(&named) {
            hosts.push(named);
        }
    }
    Ok(hosts)
}

fn option(url: &str, parsed: &mut ClusterUrl, pair: &str) -> Result<()> {
    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
    let id = || -> Result<u32> {
        let why = || format!("{key} '{value}' should be a number from 0 to {}", u32::MAX);
        value.parse().map_err(|_| wrong(url, why()))
    };
    match key {
        "nconnect" => {
            let good = value.parse().ok().filter(|n| (1..=NCONNECT_MAX).contains(n));
            let why = || format!("nconnect '{value}' should be a number from 1 to {NCONNECT_MAX}");
            parsed.nconnect = good.ok_or_else(|| wrong(url, why()))?;
        }
        "uid" => {
            parsed.identity.uid = id()?;
            parsed.identity.groups.clear();
        }
        "gid" => {
            parsed.identity.gid = id()?;
            parsed.identity.groups.clear();
        }
        _ => return Err(wrong(url, format!("unknown option '{key}'; there are nconnect, uid and gid"))),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts_of(url: &str) -> Vec<String> {
        ClusterUrl::parse(url).expect(url).hosts.iter().map(NamedHost::to_string).collect()
    }

    #[test]
    fn nodes_a_path_and_options_are_understood() {
        let url = ClusterUrl::parse("forebay://a,b,c/sh%20ow/?nconnect=2&uid=7&gid=9").expect("valid");
        assert_eq!(url.hosts.len(), 3);
        assert_eq!((url.path.as_slice(), url.nconnect), (&b"/sh ow"[..], 2));
        assert_eq!((url.identity.uid, url.identity.gid), (7, 9));
        assert_eq!(url.url(), "forebay://a,b,c/sh%20ow");
        assert_eq!(url.as_nfs(&url.hosts[0]), "nfs://a:2049/sh%20ow");
    }

    #[test]
    fn a_port_behind_the_last_node_is_that_of_all_without_one() {
        assert_eq!(hosts_of("forebay://a,b/x"), ["a:2049", "b:2049"]);
        assert_eq!(hosts_of("forebay://a,b:2050/x"), ["a:2050", "b:2050"]);
        assert_eq!(hosts_of("forebay://a:1,b:2,c/x"), ["a:1", "b:2", "c:2049"]);
        assert_eq!(hosts_of("forebay://[fd00::1],[fd00::2]:3/x"), ["[fd00::1]:3", "[fd00::2]:3"]);
        assert_eq!(hosts_of("forebay://a,b,a/"), ["a:2049", "b:2049"], "named twice");
    }

    #[test]
    fn what_is_shown_of_an_url_names_the_same_nodes() {
        for url in
            ["forebay://a,b/x", "forebay://a:2050,b:2050/x", "forebay://a:1,b:2,c/", "forebay://[fd00::1]/x"]
        {
            let parsed = ClusterUrl::parse(url).expect(url);
            assert_eq!(ClusterUrl::parse(&parsed.url()).expect("its own"), parsed, "{}", parsed.url());
        }
    }

    #[test]
    fn each_mistake_in_an_url_is_told_with_what_would_be_right() {
        let many = format!("forebay://{}/x", (0..65).map(|n| format!("n{n}")).collect::<Vec<_>>().join(","));
        for (url, told) in [
            ("nfs://a/x", "expected forebay://"),
            ("forebay://a,b", "which path"),
            ("forebay:///x", "a node without a name"),
            ("forebay://a,,b/x", "a node without a name"),
            ("forebay://a:0/x", "from 1 to 65535"),
            ("forebay://a:nfs,b/x", "'nfs' should be a number"),
            ("forebay://fd00::1/x", "in brackets"),
            ("forebay://me@a/x", "uid="),
            ("forebay://a/x?nconnect=17", "from 1 to 16"),
            ("forebay://a/x?uid=-1", "uid '-1'"),
            ("forebay://a/x?mountport=1", "unknown option 'mountport'"),
            ("forebay://a/x%2", "hexadecimal"),
            (&many, "64 are the most"),
        ] {
            let error = ClusterUrl::parse(url).expect_err(url).to_string();
            assert!(error.contains(told), "{url}: {error}");
        }
    }
}
