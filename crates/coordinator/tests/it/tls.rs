//! Certificates on both sides.

use std::path::{Path, PathBuf};
use std::process::Command;

use coordinator::etcd::Etcd;
use coordinator::{Coordinator, EtcdTls};
use testkit::etcd::{EtcdServers, EtcdTlsFiles};
use testkit::lab::{NotRun, not_run};
use types::ErrorKind;

use crate::stage::{ATTEMPT, config, put};

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_asked_for_and_shown() {
    let etcd = match EtcdServers::start_with(1, |dir| make(dir).map(Some)) {
        Ok(etcd) => etcd,
        Err(NotRun(reason)) => return not_run("certificates_are_asked_for_and_shown", &reason),
    };
    let files = etcd.tls().expect("it has some").clone();
    let tls =
        EtcdTls { ca: files.ca.clone(), identity: Some((files.certificate.clone(), files.key.clone())) };
    let with = |tls: EtcdTls| {
        let config = coordinator::EtcdConfig { tls: Some(tls), attempt: 2 * ATTEMPT, ..config(&etcd.url()) };
        Etcd::new(config)
    };
    let client = with(tls.clone()).await.expect("good files");
    put(&client, "a", "v").await;
    let nameless = with(EtcdTls { identity: None, ..tls.clone() }).await.expect("good files");
    let refused = nameless.read("a").await.expect_err("it shows no certificate");
    assert_eq!(refused.kind(), ErrorKind::Unavailable, "{refused}");
    let others = make(&subdirectory(etcd.dir(), "others")).expect("other files");
    let stranger = with(EtcdTls { ca: others.ca, ..tls.clone() }).await.expect("good files");
    let refused = stranger.read("a").await.expect_err("the server is a stranger");
    assert!(refused.to_string().contains("certificate"), "it says why: {refused}");
    let plain = Etcd::new(config(&etcd.url())).await.expect("no files");
    assert!(plain.read("a").await.is_err());
}

#[tokio::test]
async fn files_that_are_no_certificates_are_refused_at_once() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = |name: &str, content: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, content).expect("written");
        path
    };
    for ca in [dir.path().join("missing"), file("text", "certificate"), file("empty", "")] {
        let tls = Some(EtcdTls { ca: ca.clone(), identity: None });
        let config = coordinator::EtcdConfig { tls, ..config("etcd://127.0.0.1:1/show") };
        let error = Etcd::new(config).await.err().expect("no certificate");
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains(&*ca.to_string_lossy()), "{error}");
    }
}

fn subdirectory(dir: &Path, name: &str) -> PathBuf {
    let path = dir.join(name);
    std::fs::create_dir(&path).expect("made");
    path
}

/// An authority, and what it signed for 127.0.0.1, good for both ends.
fn make(dir: &Path) -> Result<EtcdTlsFiles, NotRun> {
    let path = |name: &str| dir.join(name);
    let openssl = |arguments: &[&str]| {
        let made = Command::new("openssl").current_dir(dir).args(arguments).output();
        let made = made.map_err(|e| NotRun(format!("openssl: {e}")))?;
        let said = String::from_utf8_lossy(&made.stderr);
        if made.status.success() { Ok(()) } else { Err(NotRun(format!("openssl: {said}"))) }
    };
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
    let ca = ["req", "-x509", "-subj", "/CN=authority", "-keyout", "ca.key", "-out", "ca.pem"];
    openssl(&[&ca[..], &key].concat())?;
    let signed = ["req", "-x509", "-subj", "/CN=etcd", "-CA", "ca.pem", "-CAkey", "ca.key"];
    let names = ["-addext", "subjectAltName=IP:127.0.0.1", "-addext", "basicConstraints=critical,CA:FALSE"];
    let uses =
        ["-addext", "extendedKeyUsage=serverAuth,clientAuth", "-keyout", "key.pem", "-out", "cert.pem"];
    openssl(&[&signed[..], &key, &names, &uses].concat())?;
    Ok(EtcdTlsFiles { ca: path("ca.pem"), certificate: path("cert.pem"), key: path("key.pem") })
}
