//! TLS from certificate and key files that are read at the start.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use types::{Error, ErrorKind, Result};

/// Files in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The server's certificate and its chain.
    pub chain: PathBuf,
    pub key: PathBuf,
}

pub fn acceptor(certificate: &Certificate) -> Result<TlsAcceptor> {
    let chain: std::result::Result<Vec<_>, _> =
        CertificateDer::pem_file_iter(&certificate.chain).and_then(Iterator::collect);
    let chain = chain.map_err(|e| refuse("certificate", &certificate.chain, e))?;
    if chain.is_empty() {
        return Err(refuse("certificate", &certificate.chain, "there is no certificate in it"));
    }
    let key = PrivateKeyDer::from_pem_file(&certificate.key)
        .map_err(|e| refuse("private key", &certificate.key, e))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
        .map_err(|e| refuse("certificate", &certificate.chain, e))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn refuse(what: &'static str, path: &Path, why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Config, "S3 over TLS:", format!("{what} {}: {why}; it must be PEM", path.display()))
}
