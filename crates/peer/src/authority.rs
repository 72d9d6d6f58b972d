//! A cluster's certificate authority and what it issues: a certificate for each node, with the cluster's id and the
//! node's id in it. Its own certificate and key, and the secret that all nodes share, are files of one directory that no other
//! user can look into.

use std::fmt::Display;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData, SanType,
};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use types::{Error, ErrorKind, NodeId, Result};

use crate::cluster_secret::ClusterSecret;
use crate::node_token::NodeToken;
use crate::peer_name::PeerName;
use crate::private_file::{private_dir, read_private, read_small, refuse, write_private};

/// The authority's certificate, which each node has beside its own.
const AUTHORITY_CERTIFICATE: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";
/// What all nodes share, in hexadecimal digits.
const SECRET: &str = "cluster.key";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const AUTHORITY_LIFETIME: Duration = Duration::from_secs(20 * 365 * DAY.as_secs());
const NODE_LIFETIME: Duration = Duration::from_secs(10 * 365 * DAY.as_secs());

/// From when to when a certificate is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    pub from: SystemTime,
    pub until: SystemTime,
}

impl Validity {
    /// From a day ago, so that nodes whose clocks are behind take it, for `lifetime` from now.
    pub fn starting_now(lifetime: Duration) -> Validity {
        let now = SystemTime::now();
        Validity { from: now - DAY, until: now + lifetime }
    }
}

/// What signs the certificates of one cluster's nodes. Its key stays in the directory that
/// [`ClusterAuthority::write`] put it into.
pub struct ClusterAuthority {
    cluster: String,
    secret: ClusterSecret,
    certificate_pem: String,
    key: KeyPair,
}

/// What a node needs to prove who it is, and to tell who others are: PEM texts.
#[derive(Clone, PartialEq, Eq)]
pub struct NodeCertificate {
    pub authority_pem: String,
    pub certificate_pem: String,
    pub key_pem: String,
}

/// Makes the authority of a new cluster.
pub fn make_authority(cluster: &str) -> Result<ClusterAuthority> {
    let params = authority_params(cluster, Validity::starting_now(AUTHORITY_LIFETIME))?;
    let key = KeyPair::generate().map_err(refuse)?;
    let certificate_pem = params.self_signed(&key).map_err(refuse)?.pem();
    let secret = ClusterSecret::draw()?;
    Ok(ClusterAuthority { cluster: cluster.to_owned(), secret, certificate_pem, key })
}

impl ClusterAuthority {
    pub fn cluster(&self) -> &str {
        &self.cluster
    }

    /// What the node `node` needs to be in the cluster; `name` is what people call it.
    pub fn token(&self, name: &str, node: NodeId) -> Result<NodeToken> {
        let (certificate, secret) = (self.issue(name, node)?, self.secret.clone());
        Ok(NodeToken { name: name.to_owned(), certificate, secret })
    }

    /// Issues a certificate for the node `node`; `name` is what people call it, and proves nothing.
    pub fn issue(&self, name: &str, node: NodeId) -> Result<NodeCertificate> {
        self.issue_for(name, node, Validity::starting_now(NODE_LIFETIME))
    }

    pub fn issue_for(&self, name: &str, node: NodeId, validity: Validity) -> Result<NodeCertificate> {
        let who = PeerName { cluster: self.cluster.clone(), node };
        let mut params = params(name, &who.uri(), validity)?;
        params.subject_alt_names.push(SanType::DnsName(who.dns_name().try_into().map_err(refuse)?));
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages =
            vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        params.use_authority_key_identifier_extension = true;
        // The issuer's name and key id follow from the cluster's id and the key alone.
        let authority = authority_params(&self.cluster, validity)?;
        let key = KeyPair::generate().map_err(refuse)?;
        let certificate = params.signed_by(&key, &Issuer::from_params(&authority, &self.key));
        Ok(NodeCertificate {
            authority_pem: self.certificate_pem.clone(),
            certificate_pem: certificate.map_err(refuse)?.pem(),
            key_pem: key.serialize_pem(),
        })
    }

    /// Writes the certificate, the key and the shared secret. An authority that is there already is never replaced: all nodes would be
    /// strangers to each other.
    pub fn write(&self, dir: &Path) -> Result<()> {
        private_dir(dir)?;
        let key_path = dir.join(AUTHORITY_KEY);
        if ClusterAuthority::is_in(dir) {
            let why = "there is an authority already; the nodes that have its certificates need it";
            return Err(Error::new(ErrorKind::Exists, "write", format!("{}: {why}", key_path.display())));
        }
        write_private(dir, AUTHORITY_CERTIFICATE, &self.certificate_pem)?;
        write_private(dir, SECRET, &self.secret.to_text())?;
        // Last: with it the authority is there.
        write_private(dir, AUTHORITY_KEY, &self.key.serialize_pem())
    }

    /// Whether there is one in `dir`.
    pub fn is_in(dir: &Path) -> bool {
        dir.join(AUTHORITY_KEY).exists()
    }

    /// Reads what [`ClusterAuthority::write`] wrote.
    ///
    /// Errors: `Config` for files that are malformed, do not belong together, or whose key is open to other users; `NotFound` for a
    /// file that is missing; otherwise what the system says of one.
    pub fn read(dir: &Path) -> Result<ClusterAuthority> {
        let (certificate_path, key_path) = (dir.join(AUTHORITY_CERTIFICATE), dir.join(AUTHORITY_KEY));
        let (certificate_pem, key_pem) = (read_small(&certificate_path)?, read_private(&key_path)?);
        let wrong = |path: &Path, why: &dyn Display| refuse(format!("{}: {why}", path.display()));
        let der = CertificateDer::from_pem_slice(certificate_pem.as_bytes())
            .map_err(|e| wrong(&certificate_path, &e))?;
        let certificate = webpki::EndEntityCert::try_from(&der).map_err(|e| wrong(&certificate_path, &e))?;
        let cluster = certificate.valid_uri_names().find_map(PeerName::cluster_of);
        let cluster = cluster.ok_or_else(|| wrong(&certificate_path, &"it names no cluster of Forebay"))?;
        let key = KeyPair::from_pem(&key_pem).map_err(|e| wrong(&key_path, &e))?;
        if certificate.subject_public_key_info().as_ref() != key.subject_public_key_info() {
            return Err(wrong(&key_path, &"the key is not that of ca.crt beside it"));
        }
        let secret_path = dir.join(SECRET);
        let secret =
            ClusterSecret::from_text(&read_private(&secret_path)?).map_err(|e| wrong(&secret_path, &e))?;
        Ok(ClusterAuthority { cluster: cluster.to_owned(), secret, certificate_pem, key })
    }
}

fn authority_params(cluster: &str, validity: Validity) -> Result<CertificateParams> {
    PeerName::check_cluster(cluster)?;
    let name = format!("Forebay cluster {cluster}");
    let mut params = params(&name, &PeerName::cluster_uri(cluster), validity)?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn params(name: &str, uri: &str, validity: Validity) -> Result<CertificateParams> {
    let mut params = CertificateParams::default();
    let since_1970 = |time: SystemTime| time.duration_since(UNIX_EPOCH).map_err(refuse);
    let begin = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = begin + since_1970(validity.from)?;
    params.not_after = begin + since_1970(validity.until)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.subject_alt_names = vec![SanType::URI(uri.try_into().map_err(refuse)?)];
    Ok(params)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777
    }

    #[test]
    fn files_are_read_back_and_nobody_else_can() {
        let scratch = tempfile::tempdir().expect("a directory");
        let dir = scratch.path().join("authority");
        let made = make_authority("prod-7").expect("an authority");
        made.write(&dir).expect("written");
        let authority = ClusterAuthority::read(&dir).expect("read back");
        assert_eq!(authority.cluster(), "prod-7");
        assert!(authority.secret == made.secret);
        assert_eq!(mode(&dir), 0o700);
        for file in std::fs::read_dir(&dir).expect("listed") {
            assert_eq!(mode(&file.expect("listed").path()), 0o600);
        }
        assert_eq!(made.write(&dir).expect_err("never replaced").kind(), ErrorKind::Exists);
    }

    #[test]
    fn what_others_can_read_or_does_not_belong_together_is_refused_with_a_sentence() {
        let scratch = tempfile::tempdir().expect("a directory");
        let dir = scratch.path().join("authority");
        let (ours, other) = (make_authority("a").expect("made"), make_authority("a").expect("made"));
        ours.write(&dir).expect("written");
        let set_mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("set");
        };
        let told = |outcome: Result<ClusterAuthority>| outcome.err().expect("refused").to_string();
        set_mode(&dir.join("ca.key"), 0o640);
        assert!(told(ClusterAuthority::read(&dir)).contains("is open to other users (mode 640)"));
        set_mode(&dir.join("ca.key"), 0o600);
        std::fs::write(dir.join("ca.crt"), &other.certificate_pem).expect("written");
        assert!(told(ClusterAuthority::read(&dir)).contains("the key is not that of ca.crt"));
        std::fs::write(dir.join("ca.crt"), &ours.issue("x", NodeId(1)).expect("issued").certificate_pem)
            .expect("written");
        assert!(told(ClusterAuthority::read(&dir)).contains("it names no cluster"));
        set_mode(&dir, 0o755);
        let open = ours.write(&dir).expect_err("refused").to_string();
        assert!(open.contains("is open to other users (mode 755)"), "{open}");
        for wrong in ["", "Prod", "a/b", "a.b", "-a", &"a".repeat(64)] {
            assert!(make_authority(wrong).is_err(), "{wrong:?}");
        }
    }
}
