//! Objects that others overwrite while they are read for the first time, far from their store.

use std::fs::{self, File};
use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use relay::{Config as Line, Relay};
use testkit::aws;
use testkit::minio::{ACCESS_KEY, SECRET_KEY, with_minio};
use testkit::ports::free_port;

use crate::http;
use crate::tier::Tier;

/// Where awscli signs by version 4.
const REGION: &str = "eu-central-1";
const SIZE: usize = 16 << 20;
/// Each has one byte in all places of one version, so that a mix is seen wherever it is.
const VERSIONS: u8 = 12;
/// So many reads at least must have had a new version put in their midst, or the test has shown nothing.
const STRADDLED_MIN: usize = 3;

/// A put's process is over so long after its bytes are there; who is refused because of these has ended by then.
const PUT_ENDS: Duration = Duration::from_secs(1);

/// For a read that nobody disturbs.
const PATIENCE: Duration = Duration::from_secs(20);

type Read<'a> = &'a (dyn Fn() -> std::io::Result<Vec<u8>> + Sync);

/// The version that all bytes are of.
fn version_of(bytes: &[u8]) -> u8 {
    assert_eq!(bytes.len(), SIZE);
    let first = bytes[0];
    let other = bytes.iter().position(|byte| *byte != first);
    assert_eq!(other, None, "version {first} up to there, then another");
    first
}

/// By many calls; it is one open.
fn by_file(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; SIZE];
    let mut file = File::open(path)?;
    for part in bytes.chunks_mut(1 << 20) {
        file.read_exact(part)?;
    }
    Ok(bytes)
}

fn by_s3(url: &str) -> std::io::Result<Vec<u8>> {
    http::get(url).map(Vec::from)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_overwritten_in_a_cold_read_is_never_a_mix() {
    let name = "an_object_overwritten_in_a_cold_read_is_never_a_mix";
    if !Path::new("/dev/fuse").exists() {
        return testkit::lab::not_run(name, "there is no /dev/fuse");
    }
    if !aws::is_installed(name) {
        return;
    }
    with_minio(name, |minio| async move {
        minio.make_bucket("bucket");
        let dir = tempfile::tempdir().expect("temporary directory");
        let body = dir.path().join("body");
        let put = |version: u8| {
            fs::write(&body, vec![version; SIZE]).expect("written");
            aws::put(&minio, "bucket", "show/object", &body);
            Instant::now()
        };
        put(1);
        // An object takes a third of a second.
        let line = Line {
            rtt: Duration::from_millis(20),
            rate: Some("400Mbit".parse().expect("a rate")),
            ..Line::default()
        };
        let here = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let relay = Relay::bind(here, minio.address(), line).expect("a relay");
        let far = relay.local_addr();
        let (mount, s3_port) = (dir.path().join("mnt"), free_port());
        fs::create_dir(&mount).expect("made");
        let credentials = minio.credentials();
        let config = format!(
            "[[junction]]\npath = \"/\"\norigin = \"s3://bucket?endpoint=http://{far}&credentials={}\"\n\
             files = \"always\"\ndirectories = \"always\"\n\
             [s3]\nlisten = \"127.0.0.1:{s3_port}\"\nregion = \"{REGION}\"\n\
             [[s3.key]]\nid = \"{ACCESS_KEY}\"\nsecret = \"{SECRET_KEY}\"\nread = [\"*\"]\n",
            credentials.display()
        );
        let mut tier = Tier::start_mounted(dir.path(), &config, Some(&mount));
        let front = format!("http://127.0.0.1:{s3_port}");
        let url = aws::aws(&front, &["--region", REGION, "s3", "presign", "s3://show/object"]);
        let path = mount.join("show/object");
        let fronts: [(&str, Read<'_>); 2] = [("S3", &|| by_s3(&url)), ("FUSE", &|| by_file(&path))];
        let mut version = 1;
        for (front, read) in fronts {
            let (writing, whole) = (AtomicBool::new(true), AtomicUsize::new(0));
            let (puts, reads) = std::thread::scope(|scope| {
                let reader = scope.spawn(|| {
                    let mut reads = Vec::new();
                    while writing.load(Ordering::Relaxed) {
                        tier.json(&["evict", "/"]);
                        let begun = Instant::now();
                        let seen = read().map(|bytes| version_of(&bytes));
                        whole.fetch_add(usize::from(seen.is_ok()), Ordering::Relaxed);
                        reads.push((begun, Instant::now(), seen));
                    }
                    reads
                });
                let mut puts = Vec::new();
                for _ in 0..VERSIONS {
                    version += 1;
                    puts.push(put(version));
                    // A fast writer would leave no reader the time for a whole object.
                    let (so_far, since) = (whole.load(Ordering::Relaxed), Instant::now());
                    while version % 3 == 0
                        && whole.load(Ordering::Relaxed) == so_far
                        && since.elapsed() < PATIENCE
                    {
                        std::thread::sleep(Duration::from_millis(20));
                    }
                }
                writing.store(false, Ordering::Relaxed);
                (puts, reader.join().expect("no mix"))
            });
            let straddles = |(begun, ended, seen): &&(Instant, Instant, std::io::Result<u8>)| {
                let until = *ended + if seen.is_err() { PUT_ENDS } else { Duration::ZERO };
                puts.iter().any(|put| begun < put && *put < until)
            };
            let straddled = reads.iter().filter(straddles).count();
            let failed = reads.iter().filter(|(_, _, seen)| seen.is_err()).count();
            eprintln!(
                "{front}: {} reads, {straddled} with a new version in their midst, {failed} failed",
                reads.len()
            );
            assert!(straddled >= STRADDLED_MIN, "{straddled} reads saw a change by {front}");
            assert!(reads.iter().any(|(_, _, seen)| seen.is_ok()), "no read by {front} was whole");
            assert_eq!(
                read().map(|bytes| version_of(&bytes)).expect("read"),
                version,
                "the newest by {front}"
            );
        }
        assert_eq!(tier.stop(), Some(0));
    })
    .await;
}
