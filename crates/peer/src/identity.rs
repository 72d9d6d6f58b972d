//! Who a node is, and how it tells who another one is: by the certificate that its cluster's authority issued.
//!
//! Invariant: a peer is known by what its certificate says, never by what it claims. Without certificates
//! ([`PeerIdentity::insecure`], for a lab) the ids are claimed in headers, and the network is trusted.

use std::sync::Arc;

use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{
    self, AlertDescription, CertificateError, ClientConfig, RootCertStore, ServerConfig,
};
use tokio_rustls::{TlsAcceptor, TlsConnector};
use types::{Error, ErrorKind, NodeId, Result};

use crate::authority::NodeCertificate;
use crate::peer_name::PeerName;

/// This node, with what it needs to prove it.
#[derive(Clone)]
pub struct PeerIdentity {
    name: Arc<PeerName>,
    tls: Option<Arc<TlsConfigs>>,
}

struct TlsConfigs {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

impl PeerIdentity {
    /// TLS 1.3 with certificates on both sides. Sessions are not resumed: each connection is verified as the first
    /// one was, by certificates that are good now.
    ///
    /// Errors: `Config` for a malformed certificate or a key that is not the certificate's; `AccessDenied` for a certificate that does
    /// not name exactly one node.
    pub fn new(certificate: &NodeCertificate) -> Result<PeerIdentity> {
        let wrong = |what: &str, why: &dyn std::fmt::Display| config_error(format!("{what}: {why}"));
        let pem = |what: &str, text: &str| {
            CertificateDer::from_pem_slice(text.as_bytes()).map_err(|e| wrong(what, &e))
        };
        let authority = pem("the authority's certificate", &certificate.authority_pem)?;
        let chain = vec![pem("the node's certificate", &certificate.certificate_pem)?];
        let name = PeerName::of_certificates(Some(&chain))?;
        let key = || {
            PrivateKeyDer::from_pem_slice(certificate.key_pem.as_bytes())
                .map_err(|e| wrong("the node's key", &e))
        };
        let mut roots = RootCertStore::empty();
        roots.add(authority).map_err(|e| wrong("the authority's certificate", &e))?;
        let (roots, provider, server_key) = (Arc::new(roots), provider(), key()?);
        let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone());
        let verifier = verifier.build().map_err(|e| wrong("the authority's certificate", &e))?;
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])
            .and_then(|b| b.with_client_cert_verifier(verifier).with_single_cert(chain.clone(), server_key))
            .map_err(|e| wrong("the node's certificate", &e))?;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map(|b| b.with_root_certificates(roots))
            .map_err(|e| wrong("the node's certificate", &e))?
            .with_client_auth_cert(chain, key()?)
            .map_err(|e| wrong("the node's certificate", &e))?;
        client.resumption = Resumption::disabled();
        for protocols in [&mut server.alpn_protocols, &mut client.alpn_protocols] {
            *protocols = vec![b"http/1.1".to_vec()];
        }
        let tls = TlsConfigs { server: Arc::new(server), client: Arc::new(client) };
        Ok(PeerIdentity { name: Arc::new(name), tls: Some(Arc::new(tls)) })
    }

    /// For a lab: plain TCP, and every peer is believed what it claims.
    pub fn insecure(cluster: &str, node: NodeId) -> Result<PeerIdentity> {
        PeerName::check_cluster(cluster)?;
        Ok(PeerIdentity { name: Arc::new(PeerName { cluster: cluster.to_owned(), node }), tls: None })
    }

    pub fn cluster(&self) -> &str {
        &self.name.cluster
    }

    pub fn node(&self) -> NodeId {
        self.name.node
    }

    pub fn is_secure(&self) -> bool {
        self.tls.is_some()
    }

    pub(crate) fn acceptor(&self) -> Option<TlsAcceptor> {
        self.tls.as_ref().map(|tls| TlsAcceptor::from(tls.server.clone()))
    }

    pub(crate) fn connector(&self) -> Option<TlsConnector> {
        self.tls.as_ref().map(|tls| TlsConnector::from(tls.client.clone()))
    }

    /// The name under which the certificate of `node` is verified.
    pub(crate) fn server_name(&self, node: NodeId) -> Result<ServerName<'static>> {
        let name = PeerName { cluster: self.name.cluster.clone(), node };
        ServerName::try_from(name.dns_name()).map_err(config_error)
    }

    /// Refuses a node of another cluster.
    pub fn demand_cluster(&self, peer: &PeerName) -> Result<()> {
        if peer.cluster == self.name.cluster {
            return Ok(());
        }
        let why =
            format!("it is of cluster {}, and this node of cluster {}", peer.cluster, self.name.cluster);
        Err(Error::new(ErrorKind::AccessDenied, "know a peer:", why))
    }

    /// Refuses another node than `node`.
    pub(crate) fn demand_node(&self, peer: &PeerName, node: NodeId) -> Result<()> {
        self.demand_cluster(peer)?;
        if peer.node == node {
            return Ok(());
        }
        let why = format!("node {} answers at an address of node {node}", peer.node);
        Err(Error::new(ErrorKind::AccessDenied, "know a peer:", why))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

fn config_error(why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Config, "identity of the node:", why)
}

/// What a failed handshake or a TLS alert means, as a sentence. `None`: it says nothing of certificates.
pub(crate) fn explain(failed: &std::io::Error) -> Option<String> {
    let error = failed.get_ref()?.downcast_ref::<rustls::Error>()?;
    let told = match error {
        rustls::Error::InvalidCertificate(why) => match why {
            CertificateError::UnknownIssuer | CertificateError::BadSignature => {
                "its certificate is not one of this cluster's authority".to_owned()
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                "its certificate has expired".to_owned()
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                "its certificate is not valid yet; compare the clocks".to_owned()
            }
            CertificateError::NotValidForNameContext { expected, presented } => {
                // As rustls writes the names of a certificate.
                let dns = |name: &str| Some(name.strip_prefix("DnsName(\"")?.strip_suffix("\")")?.to_owned());
                let presented = presented.iter().find_map(|name| dns(name)).unwrap_or(presented.join(", "));
                let expected = expected.to_str();
                format!("its certificate is for {presented}, not for {expected}")
            }
            why => format!("its certificate is not good: {why}"),
        },
        rustls::Error::NoCertificatesPresented => "it shows no certificate".to_owned(),
        rustls::Error::AlertReceived(alert) => match alert {
            AlertDescription::UnknownCA | AlertDescription::DecryptError => {
                "it does not know the authority of this node's certificate".to_owned()
            }
            AlertDescription::CertificateExpired => "to it this node's certificate has expired".to_owned(),
            AlertDescription::CertificateRequired => "it demands a certificate".to_owned(),
            AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::AccessDenied
            | AlertDescription::UnsupportedCertificate => {
                format!("it refuses this node's certificate ({alert:?})")
            }
            _ => return None,
        },
        _ => return None,
    };
    Some(told)
}
