//! A cluster's certificate authority and what it issues: a certificate for each node, with the cluster's id and the
//! node's id in it. Written as PEM files of mode 0600 in a directory of mode 0700.

use std::fmt::Display;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, PublicKeyData, SanType,
};
use tokio_rustls::rustls::pki_types::CertificateDer;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use types::{Error, ErrorKind, NodeId, Result};

use crate::peer_name::PeerName;

/// The authority's certificate, which each node has beside its own.
const AUTHORITY_CERTIFICATE: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";
const NODE_CERTIFICATE: &str = "node.crt";
const NODE_KEY: &str = "node.key";
/// A PEM file of these is some hundred bytes.
const PEM_MAX: u64 = 64 << 10;
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
    Ok(ClusterAuthority { cluster: cluster.to_owned(), certificate_pem, key })
}

impl ClusterAuthority {
    pub fn cluster(&self) -> &str {
        &self.cluster
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

    /// Writes the certificate and the key. An authority that is there already is never replaced: all nodes would be
    /// strangers to each other.
    pub fn write(&self, dir: &Path) -> Result<()> {
        private_dir(dir)?;
        let key_path = dir.join(AUTHORITY_KEY);
        if key_path.exists() {
            let why = "there is an authority already; the nodes that have its certificates need it";
            return Err(Error::new(ErrorKind::Exists, "write", format!("{}: {why}", key_path.display())));
        }
        write_private(dir, AUTHORITY_CERTIFICATE, &self.certificate_pem)?;
        write_private(dir, AUTHORITY_KEY, &self.key.serialize_pem())
    }

    /// Reads what [`ClusterAuthority::write`] wrote.
    ///
    /// Errors: `Config` for files that are malformed, do not belong together, or whose key is open to other users; `NotFound` for a
    /// file that is missing; otherwise what the system says of one.
    pub fn read(dir: &Path) -> Result<ClusterAuthority> {
        let (certificate_path, key_path) = (dir.join(AUTHORITY_CERTIFICATE), dir.join(AUTHORITY_KEY));
        let (certificate_pem, key_pem) = (read_pem(&certificate_path)?, read_private(&key_path)?);
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
        Ok(ClusterAuthority { cluster: cluster.to_owned(), certificate_pem, key })
    }
}

impl NodeCertificate {
    /// Writes the three files. Those of an earlier certificate are replaced.
    pub fn write(&self, dir: &Path) -> Result<()> {
        private_dir(dir)?;
        write_private(dir, AUTHORITY_CERTIFICATE, &self.authority_pem)?;
        write_private(dir, NODE_CERTIFICATE, &self.certificate_pem)?;
        write_private(dir, NODE_KEY, &self.key_pem)
    }

    /// Reads the three files. What is in them is looked at by [`crate::PeerIdentity::new`].
    ///
    /// Errors: `Config` for a key that is open to other users, and for a file that is too long; `NotFound` for one that is missing;
    /// otherwise what the system says of one.
    pub fn read(dir: &Path) -> Result<NodeCertificate> {
        Ok(NodeCertificate {
            authority_pem: read_pem(&dir.join(AUTHORITY_CERTIFICATE))?,
            certificate_pem: read_pem(&dir.join(NODE_CERTIFICATE))?,
            key_pem: read_private(&dir.join(NODE_KEY))?,
        })
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

fn refuse(why: impl Display) -> Error {
    Error::new(ErrorKind::Config, "certificates of the cluster:", why)
}

/// Makes the directory, or demands that no other user can look into the one that is there.
fn private_dir(dir: &Path) -> Result<()> {
    let shown = dir.display();
    match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => return Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
        Err(e) => return Err(Error::io("make the directory", &shown, e)),
    }
    let about = std::fs::metadata(dir).map_err(|e| Error::io("look at", &shown, e))?;
    if about.is_dir() { only_ours(dir, &about) } else { Err(refuse(format!("{shown} is no directory"))) }
}

fn only_ours(path: &Path, about: &std::fs::Metadata) -> Result<()> {
    let mode = about.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let shown = path.display();
        return Err(refuse(format!("{shown} is open to other users (mode {mode:03o}); chmod go= {shown}")));
    }
    Ok(())
}

/// Writes a file of mode 0600 under its name only when it is whole.
fn write_private(dir: &Path, name: &str, text: &str) -> Result<()> {
    let (path, unfinished) = (dir.join(name), dir.join(format!("{name}.new")));
    let failed = |e| Error::io("write", unfinished.display(), e);
    match std::fs::remove_file(&unfinished) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(failed(e)),
        _ => {}
    }
    let mut file =
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(&unfinished).map_err(failed)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    std::fs::rename(&unfinished, &path).map_err(|e| Error::io("write", path.display(), e))?;
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(|e| Error::io("sync", dir.display(), e))
}

fn read_private(path: &PathBuf) -> Result<String> {
    let about = std::fs::metadata(path).map_err(|e| Error::io("read", path.display(), e))?;
    only_ours(path, &about)?;
    read_pem(path)
}

fn read_pem(path: &PathBuf) -> Result<String> {
    let failed = |e| Error::io("read", path.display(), e);
    if std::fs::metadata(path).map_err(failed)?.len() > PEM_MAX {
        return Err(refuse(format!("{} is too long for a PEM file of a cluster", path.display())));
    }
    std::fs::read_to_string(path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).expect("it is there").permissions().mode() & 0o777
    }

    #[test]
    fn files_are_read_back_and_nobody_else_can() {
        let scratch = tempfile::tempdir().expect("a directory");
        let (authority_dir, node_dir) = (scratch.path().join("authority"), scratch.path().join("node"));
        let made = make_authority("prod-7").expect("an authority");
        made.write(&authority_dir).expect("written");
        let authority = ClusterAuthority::read(&authority_dir).expect("read back");
        assert_eq!(authority.cluster(), "prod-7");
        let issued = authority.issue("gpu1", NodeId(7)).expect("issued");
        issued.write(&node_dir).expect("written");
        issued.write(&node_dir).expect("a renewed one replaces it");
        assert!(NodeCertificate::read(&node_dir).expect("read back") == issued);
        for dir in [&authority_dir, &node_dir] {
            assert_eq!(mode(dir), 0o700);
            for file in std::fs::read_dir(dir).expect("listed") {
                assert_eq!(mode(&file.expect("listed").path()), 0o600);
            }
        }
        assert_eq!(made.write(&authority_dir).expect_err("never replaced").kind(), ErrorKind::Exists);
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
        let open = ours.issue("x", NodeId(1)).expect("issued").write(&dir).expect_err("refused").to_string();
        assert!(open.contains("is open to other users (mode 755)"), "{open}");
        for wrong in ["", "Prod", "a/b", "a.b", "-a", &"a".repeat(64)] {
            assert!(make_authority(wrong).is_err(), "{wrong:?}");
        }
    }
}
