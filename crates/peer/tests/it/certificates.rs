//! Who is let in, and what the others are told.

use std::time::{Duration, SystemTime};

use peer::{ClusterAuthority, NodeCertificate, PeerClientConfig, PeerIdentity, Validity, make_authority};
use rcgen::{CertificateParams, DistinguishedName, DnType, Issuer, KeyPair, SanType};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};
use types::{ErrorKind, NodeId};

use crate::nodes::*;

/// What a client of this identity is told by a node of that one.
async fn refusal(client: &PeerIdentity, server: &PeerIdentity, expected: NodeId) -> types::Error {
    let node = TestNode::start(server.clone(), one()).await;
    let client = client_to(expected, &node.addresses, client, PeerClientConfig::default());
    let error = client.ping(SOON).await.expect_err("refused");
    assert!(node.service.callers.lock().expect("not poisoned").is_empty(), "it was heard");
    error
}

fn demand(error: &types::Error, sentence: &str) {
    assert!(error.to_string().contains(sentence), "{error}");
    assert_eq!(error.kind(), ErrorKind::AccessDenied, "{error}");
}

fn expired(authority: &ClusterAuthority, node: u64) -> PeerIdentity {
    let day = Duration::from_secs(24 * 60 * 60);
    let validity = Validity { from: SystemTime::now() - 3 * day, until: SystemTime::now() - day };
    let issued = authority.issue_for("node", NodeId(node), validity).expect("issued");
    PeerIdentity::new(&issued).expect("it can be read")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_has_no_good_certificate_is_refused_with_a_sentence() {
    let (ours, other) = (authority(), authority());
    let (good, them) = (identity(&ours, 1), identity(&ours, 2));
    let stranger = identity(&other, 2);
    demand(&refusal(&good, &stranger, NodeId(2)).await, "is not one of this cluster's authority");
    // The client sees through the server first; here it trusts both.
    let trusting = |own: &NodeCertificate| {
        let authority_pem = ours.issue("x", NodeId(9)).expect("issued").authority_pem;
        PeerIdentity::new(&NodeCertificate { authority_pem, ..own.clone() }).expect("an identity")
    };
    let intruder = trusting(&other.issue("x", NodeId(1)).expect("issued"));
    demand(&refusal(&intruder, &them, NodeId(2)).await, "does not know the authority of this node's");
    demand(&refusal(&good, &expired(&ours, 2), NodeId(2)).await, "its certificate has expired");
    demand(&refusal(&expired(&ours, 1), &them, NodeId(2)).await, "this node's certificate has expired");
    let mistaken = refusal(&good, &them, NodeId(3)).await;
    demand(&mistaken, "for 0000000000000002.test.forebay, not for 0000000000000003.test.forebay");
    let early = Validity {
        from: SystemTime::now() + Duration::from_secs(3600),
        until: SystemTime::now() + Duration::from_secs(7200),
    };
    let early = PeerIdentity::new(&ours.issue_for("x", NodeId(2), early).expect("issued")).expect("read");
    demand(&refusal(&good, &early, NodeId(2)).await, "is not valid yet; compare the clocks");
}

/// A certificate that the authority `CLUSTER` signed and would never issue.
fn forged(authority: &ClusterAuthority, names: &[&str], dns: &str) -> NodeCertificate {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path().join("authority");
    authority.write(&dir).expect("written");
    let authority_key = std::fs::read_to_string(dir.join("ca.key")).expect("written");
    let authority_key = KeyPair::from_pem(&authority_key).expect("a key");
    let mut issuer = CertificateParams::default();
    issuer.distinguished_name = DistinguishedName::new();
    issuer.distinguished_name.push(DnType::CommonName, format!("Forebay cluster {CLUSTER}"));
    let mut params = CertificateParams::new(vec![dns.to_owned()]).expect("good");
    let uri = |name: &&str| SanType::URI((*name).try_into().expect("ASCII"));
    params.subject_alt_names.extend(names.iter().map(uri));
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, &Issuer::new(issuer, authority_key)).expect("signed");
    NodeCertificate {
        authority_pem: std::fs::read_to_string(dir.join("ca.crt")).expect("written"),
        certificate_pem: certificate.pem(),
        key_pem: key.serialize_pem(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_another_cluster_is_refused_though_the_same_authority_signed_it() {
    let ours = authority();
    let (good, them) = (identity(&ours, 1), identity(&ours, 2));
    let other = |node: u64| {
        forged(&ours, &[&format!("forebay://other/{node:016x}")], &format!("{node:016x}.test.forebay"))
    };
    let identity_of = |certificate: &NodeCertificate| PeerIdentity::new(certificate).expect("an identity");
    let sentence = "it is of cluster other, and this node of cluster test";
    demand(&refusal(&identity_of(&other(1)), &identity(&ours, 2), NodeId(2)).await, "its certificate is for");
    demand(&refusal(&good, &identity_of(&other(2)), NodeId(2)).await, sentence);
    // A client of another cluster that looks for the right name.
    let node = TestNode::start(them, one()).await;
    let error = raw_tls_answer(&other(1), &node).await;
    assert!(error.contains("403 Forbidden") && error.contains(sentence), "{error}");
}

/// What the node answers to a heartbeat with this certificate.
async fn raw_tls_answer(us: &NodeCertificate, node: &TestNode) -> String {
    let certificate = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM");
    let mut roots = RootCertStore::empty();
    roots.add(certificate(&us.authority_pem)).expect("an authority");
    let key = PrivateKeyDer::from_pem_slice(us.key_pem.as_bytes()).expect("PEM");
    let provider = std::sync::Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("good")
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![certificate(&us.certificate_pem)], key)
        .expect("good");
    let stream = tokio::net::TcpStream::connect(node.addresses[0]).await.expect("connected");
    let name = ServerName::try_from(format!("{}.{CLUSTER}.forebay", node.id())).expect("a name");
    let stream = TlsConnector::from(std::sync::Arc::new(config)).connect(name, stream).await;
    let mut stream = stream.expect("TLS");
    let body = r#"{"node":"0000000000000001","incarnation":"0000000000000001","map":1,"build":""}"#;
    let head = format!(
        "POST /v1/ping HTTP/1.1\r\nhost: x\r\nforebay-deadline-ms: 1000\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("the connection ends");
    answer
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_shows_no_certificate_or_speaks_no_tls_is_not_heard() {
    let ours = authority();
    let node = TestNode::start(identity(&ours, 2), one()).await;
    let lab = client_to(node.id(), &node.addresses, &insecure(1), PeerClientConfig::default());
    lab.ping(SOON).await.expect_err("plain text at a port with TLS");
    let plain = TestNode::start(insecure(3), one()).await;
    let client = client_to(plain.id(), &plain.addresses, &identity(&ours, 1), PeerClientConfig::default());
    client.ping(SOON).await.expect_err("TLS at a port with plain text");
    for node in [&node, &plain] {
        assert!(node.service.callers.lock().expect("not poisoned").is_empty());
    }
    client_to(node.id(), &node.addresses, &identity(&ours, 1), PeerClientConfig::default())
        .ping(SOON)
        .await
        .expect("who has a certificate is heard");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn in_a_lab_without_certificates_ids_are_claimed_and_compared() {
    let node = TestNode::start(insecure(2), one()).await;
    let other = PeerIdentity::insecure("other", NodeId(1)).expect("an identity");
    let error = node.client(&other).ping(SOON).await.expect_err("another cluster");
    demand(&error, "it is of cluster test, and this node of cluster other");
    demand(
        &refusal(&insecure(1), &insecure(2), NodeId(3)).await,
        "node 0000000000000002 answers at an address of",
    );
    node.client(&insecure(1)).ping(SOON).await.expect("of the same cluster");
    assert_eq!(*node.service.callers.lock().expect("not poisoned"), [NodeId(1)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_heartbeat_speaks_of_nobody_but_its_sender() {
    let ours = authority();
    let node = TestNode::start(identity(&ours, 2), one()).await;
    let source = std::sync::Arc::new(|| heartbeat_of(NodeId(7)));
    let client = peer::PeerClient::new(identity(&ours, 1), node.id(), PeerClientConfig::default(), source);
    client.set_addresses(&node.addresses, &[]);
    let error = client.ping(SOON).await.expect_err("refused");
    demand(&error, "node 0000000000000001 sends a heartbeat of node 0000000000000007");
}

#[test]
fn keys_and_certificates_that_do_not_belong_together_are_refused() {
    let ours = make_authority("a").expect("made");
    let mut mixed = ours.issue("x", NodeId(1)).expect("issued");
    mixed.key_pem = ours.issue("y", NodeId(2)).expect("issued").key_pem;
    assert!(PeerIdentity::new(&mixed).is_err(), "the key of another certificate");
    let mut whole = ours.issue("x", NodeId(7)).expect("issued");
    let us = PeerIdentity::new(&whole).expect("it is whole");
    assert_eq!((us.cluster(), us.node(), us.is_secure()), ("a", NodeId(7), true));
    whole.certificate_pem = "nothing".to_owned();
    assert!(PeerIdentity::new(&whole).is_err());
}
