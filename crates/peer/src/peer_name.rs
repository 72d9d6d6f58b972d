//! What a certificate says of a node: its cluster and its id, in a URI.

use tokio_rustls::rustls::pki_types::CertificateDer;
use types::{Error, ErrorKind, NodeId, Result};

const SCHEME: &str = "forebay://";
/// A cluster's id is one label of a DNS name.
const CLUSTER_MAX: usize = 63;

/// A node of a cluster, as a certificate names it: `forebay://<cluster>/<node>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerName {
    pub cluster: String,
    pub node: NodeId,
}

impl PeerName {
    pub fn check_cluster(cluster: &str) -> Result<()> {
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let is_good = (1..=CLUSTER_MAX).contains(&cluster.len())
            && cluster.bytes().all(is_plain)
            && !cluster.starts_with('-')
            && !cluster.ends_with('-');
        let why = "a cluster's id is 1 to 63 lower-case letters, digits and inner hyphens";
        if is_good {
            Ok(())
        } else {
            Err(Error::new(ErrorKind::Config, "identity of the node:", format!("{cluster:?}: {why}")))
        }
    }

    pub fn uri(&self) -> String {
        format!("{SCHEME}{}/{}", self.cluster, self.node)
    }

    pub fn from_uri(uri: &str) -> Option<PeerName> {
        let (cluster, node) = uri.strip_prefix(SCHEME)?.split_once('/')?;
        PeerName::check_cluster(cluster).ok()?;
        Some(PeerName { cluster: cluster.to_owned(), node: node.parse().ok()? })
    }

    /// The name of the cluster's authority.
    pub fn cluster_uri(cluster: &str) -> String {
        format!("{SCHEME}{cluster}")
    }

    /// The cluster of an authority's name.
    pub fn cluster_of(uri: &str) -> Option<&str> {
        let cluster = uri.strip_prefix(SCHEME)?;
        PeerName::check_cluster(cluster).is_ok().then_some(cluster)
    }

    /// The name that a TLS client verifies; no resolver knows it.
    pub fn dns_name(&self) -> String {
        format!("{}.{}.forebay", self.node, self.cluster)
    }

    /// Who the other end of a TLS connection is, by the certificate that was verified.
    pub fn of_certificates(chain: Option<&[CertificateDer<'_>]>) -> Result<PeerName> {
        let refuse = |why: &str| Error::new(ErrorKind::AccessDenied, "know a peer:", why);
        let first = chain.and_then(<[_]>::first).ok_or_else(|| refuse("it shows no certificate"))?;
        let certificate =
            webpki::EndEntityCert::try_from(first).map_err(|_| refuse("its certificate cannot be read"))?;
        let mut names = certificate.valid_uri_names().filter_map(PeerName::from_uri);
        match (names.next(), names.next()) {
            (Some(name), None) => Ok(name),
            (None, _) => Err(refuse("its certificate names no node of a cluster")),
            (Some(_), Some(_)) => Err(refuse("its certificate names more than one node")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_back_and_nothing_else_is_one() {
        let name = PeerName { cluster: "prod-7".to_owned(), node: NodeId(0xab) };
        assert_eq!(name.uri(), "forebay://prod-7/00000000000000ab");
        assert_eq!(PeerName::from_uri(&name.uri()), Some(name.clone()));
        for cut in 0..name.uri().len() {
            assert_eq!(PeerName::from_uri(&name.uri()[..cut]), None);
        }
        let wrong = ["forebay://a/1", "http://a/00000000000000ab", "forebay://A/00000000000000ab"];
        wrong.iter().for_each(|uri| assert_eq!(PeerName::from_uri(uri), None, "{uri}"));
        assert_eq!(PeerName::from_uri("forebay://a/00000000000000ab/"), None);
        assert_eq!(PeerName::cluster_of("forebay://prod-7"), Some("prod-7"));
        assert_eq!(PeerName::cluster_of(&name.uri()), None);
    }
}
