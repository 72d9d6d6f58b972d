//! The files by which the servers and this node know each other.

use std::path::{Path, PathBuf};

use etcd_client::{Certificate, Identity, TlsOptions};
use types::{Error, ErrorKind, Result};

/// A chain of certificates has some kilobytes.
const MAX_FILE: u64 = 1024 * 1024;

/// PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EtcdTls {
    /// Who signed the servers' certificates.
    pub ca: PathBuf,
    /// By which this node shows who it is: a certificate and its key, or none.
    pub identity: Option<(PathBuf, PathBuf)>,
}

impl EtcdTls {
    pub(super) fn options(&self) -> Result<TlsOptions> {
        let mut options = TlsOptions::new().ca_certificate(Certificate::from_pem(file(&self.ca)?));
        if let Some((certificate, key)) = &self.identity {
            options = options.identity(Identity::from_pem(file(certificate)?, file(key)?));
        }
        Ok(options)
    }
}

fn file(path: &Path) -> Result<Vec<u8>> {
    let failed = |e: std::io::Error| {
        Error::new(ErrorKind::Config, "read the TLS file of etcd", path.display()).with_source(e)
    };
    if std::fs::metadata(path).map_err(failed)?.len() > MAX_FILE {
        let context = format!("{}: it is too large to be one", path.display());
        return Err(Error::new(ErrorKind::Config, "read the TLS file of etcd", context));
    }
    let bytes = std::fs::read(path).map_err(failed)?;
    // What is no PEM would be taken for no certificate at all, and the first call would fail without saying why.
    if !bytes.starts_with(b"-----BEGIN ") && !bytes.windows(12).any(|line| line == b"\n-----BEGIN ") {
        let context = format!("{}: nothing in it is PEM", path.display());
        return Err(Error::new(ErrorKind::Config, "read the TLS file of etcd", context));
    }
    Ok(bytes)
}
