//! Where the servers are and what the cluster is called, as people write it: `etcd://e1:2379,e2:2379,e3:2379/show`.

use std::fmt;
use std::str::FromStr;

use types::{Error, ErrorKind};

const SCHEME: &str = "etcd://";
/// An etcd cluster has three to seven members.
const MAX_SERVERS: usize = 16;
const MAX_NAME: usize = 63;

/// Where a cluster's keys are: the servers of one etcd, and the name of the cluster in it. The name is the operators' choice; it is not
/// the cluster's id, which is made with the cluster and is in certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdUrl {
    /// `host:port` each; IPv6 addresses are in brackets.
    servers: Vec<String>,
    cluster: String,
}

impl EtcdUrl {
    pub fn servers(&self) -> &[String] {
        &self.servers
    }

    /// The name of Forebay's cluster.
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// In front of all keys of the cluster.
    pub(crate) fn root(&self) -> String {
        format!("/forebay/{}/", self.cluster)
    }
}

impl FromStr for EtcdUrl {
    type Err = Error;

    fn from_str(url: &str) -> Result<EtcdUrl, Error> {
        let wrong = |what: String| {
            // Whoever writes a password there must not find it in a log.
            let shown = if url.contains('@') { SCHEME } else { url };
            let context = format!("{shown}: {what}, as in etcd://e1:2379,e2:2379,e3:2379/show");
            Error::new(ErrorKind::Config, "read the URL of etcd", context)
        };
        if url.contains('@') {
            return Err(wrong("a user and a password cannot be in it".to_owned()));
        }
        let rest = url.strip_prefix(SCHEME).ok_or_else(|| wrong(format!("it has to begin with {SCHEME}")))?;
        let (servers, cluster) = rest.split_once('/').ok_or_else(|| {
            wrong("the cluster's name has to follow the servers, behind a slash".to_owned())
        })?;
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        if cluster.is_empty() || cluster.len() > MAX_NAME || !cluster.chars().all(plain) {
            let rule = "letters, digits, dots, hyphens and underscores";
            return Err(wrong(format!("the cluster's name has 1 to {MAX_NAME} {rule}")));
        }
        let servers: Vec<String> = servers.split(',').map(str::to_owned).collect();
        if servers.len() > MAX_SERVERS {
            return Err(wrong(format!("it names more than {MAX_SERVERS} servers")));
        }
        for (index, server) in servers.iter().enumerate() {
            check_server(server).map_err(|what| wrong(format!("{server:?}: {what}")))?;
            if servers.iter().take(index).any(|other| other == server) {
                return Err(wrong(format!("it names {server} twice")));
            }
        }
        Ok(EtcdUrl { servers, cluster: cluster.to_owned() })
    }
}

fn check_server(server: &str) -> Result<(), &'static str> {
    let (host, port) = server.rsplit_once(':').ok_or("a server is written with its port")?;
    if !port.parse::<u16>().is_ok_and(|port| port != 0) {
        return Err("a port is a number from 1 to 65535");
    }
    let inside = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let good = match inside {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            !host.is_empty()
                && host.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_'))
        }
    };
    if good { Ok(()) } else { Err("a host is a name, an IPv4 address, or an IPv6 address in brackets") }
}

impl fmt::Display for EtcdUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.servers.join(","), self.cluster)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_servers_and_the_cluster() {
        let text = "etcd://e1:2379,10.0.0.2:2379,[::1]:2379/show";
        let url: EtcdUrl = text.parse().expect("a good one");
        assert_eq!(url.servers(), ["e1:2379", "10.0.0.2:2379", "[::1]:2379"]);
        assert_eq!((url.cluster(), url.root().as_str()), ("show", "/forebay/show/"));
        assert_eq!(url.to_string(), text);
    }

    #[test]
    fn a_wrong_url_is_refused_with_what_is_wrong() {
        let wrong = [
            ("http://e1:2379/show", "begin with etcd://"),
            ("etcd://e1:2379", "cluster's name has to follow"),
            ("etcd://e1:2379/", "1 to 63"),
            ("etcd://e1:2379/a/b", "1 to 63"),
            ("etcd://e1:2379/sh ow", "1 to 63"),
            ("etcd:///show", "written with its port"),
            ("etcd://e1/show", "written with its port"),
            ("etcd://e1:0/show", "1 to 65535"),
            ("etcd://e1:99999/show", "1 to 65535"),
            ("etcd://e1:2379,/show", "written with its port"),
            ("etcd://e1:2379,e1:2379/show", "twice"),
            ("etcd://root:secret@e1:2379/show", "cannot be in it"),
            ("etcd://::1:2379/show", "in brackets"),
            ("etcd://:2379/show", "a host is"),
        ];
        for (url, what) in wrong {
            let error = url.parse::<EtcdUrl>().expect_err(url);
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(what), "{url}: {error}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
