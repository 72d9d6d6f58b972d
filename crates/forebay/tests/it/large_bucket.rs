//! Listings of buckets with very many keys, by real clients.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use testkit::aws;
use testkit::minio::{Minio, with_minio};

use crate::serve::libnfs;
use crate::tier::Tier;

const KEYS: usize = 100_000;
/// Of 1,000 keys, as S3 has them; and one for the directory above.
const PAGES: std::ops::RangeInclusive<f64> = (KEYS / 1_000) as f64..=(KEYS / 1_000 + 1) as f64;
/// What memory holds of names is bounded, however many there are: objects in memory (100,000, some 40 MiB), pages of the
/// database (64 MiB), ETags (100,000). Measured for this many keys: 96 MiB.
const GROWTH_MIB_MAX: u64 = 128;
/// A listing that takes longer than a call may is answered with "try again", as the kernel's client does.
const PATIENCE: Duration = Duration::from_secs(120);

fn name_of(at: usize) -> String {
    format!("frame.{at:06}.exr")
}

fn tier(minio: &Minio, dir: &Path, mount: Option<&Path>) -> Tier {
    let (endpoint, credentials) = (minio.endpoint(), minio.credentials());
    let url = format!("s3://bucket?endpoint={endpoint}&credentials={}", credentials.display());
    Tier::start_mounted(dir, &format!("[[junction]]\npath = \"/\"\norigin = \"{url}\"\n"), mount)
}

fn list_calls(tier: &Tier) -> f64 {
    tier.metric("forebay_origin_calls_total{junction=\"/\",kind=\"readdir\"}")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_keys_are_listed_page_by_page() {
    let name = "a_hundred_thousand_keys_are_listed_page_by_page";
    if !aws::is_installed(name) {
        return;
    }
    with_minio(name, |minio| async move {
        minio.make_bucket("bucket");
        let frame = tempfile::NamedTempFile::new().expect("made");
        fs::write(frame.path(), b"a frame").expect("written");
        let key = |at| format!("show/{}", name_of(at));
        aws::put(&minio, "bucket", &key(0), frame.path());
        minio.copy("bucket", &key(0), (1..KEYS).map(key));
        let expected: HashSet<String> = (0..KEYS).map(name_of).collect();

        let dir = tempfile::tempdir().expect("temporary directory");
        let mount = dir.path().join("mnt");
        fs::create_dir(&mount).expect("made");
        let mut by_fuse = tier(&minio, dir.path(), Some(&mount));
        let before = by_fuse.resident_mib();
        let (mut listed, calls) = (HashSet::new(), list_calls(&by_fuse));
        let mut at_first = None;
        for entry in fs::read_dir(mount.join("show")).expect("opened") {
            let entry = entry.expect("listed").file_name().into_string().expect("text");
            at_first.get_or_insert_with(|| list_calls(&by_fuse));
            assert!(listed.insert(entry), "a name came twice");
        }
        assert!(listed == expected, "{} names by FUSE", listed.len());
        let (calls, at_first) = (list_calls(&by_fuse) - calls, at_first.expect("there are names") - calls);
        assert!(PAGES.contains(&calls), "{calls} list calls by FUSE");
        assert_eq!(fs::read(mount.join("show").join(name_of(77_777))).expect("read"), b"a frame");
        let grown = by_fuse.resident_mib() - before;
        eprintln!("100,000 keys by FUSE: {grown} MiB more, {at_first} pages before the first name");
        assert!(grown < GROWTH_MIB_MAX, "{grown} MiB");
        assert_eq!(by_fuse.stop(), Some(0));

        let dir = tempfile::tempdir().expect("temporary directory");
        let mut by_nfs = tier(&minio, dir.path(), None);
        let before = by_nfs.resident_mib();
        let start = Instant::now();
        let text = loop {
            let Some(output) = libnfs("nfs-ls", &by_nfs, "/show") else { return };
            let text = String::from_utf8(output.stdout).expect("text");
            if !text.contains("NFS3ERR_JUKEBOX") {
                break text;
            }
            assert!(start.elapsed() < PATIENCE, "{text}");
        };
        let names = text.lines().filter_map(|line| line.rsplit(' ').next());
        let listed: HashSet<String> =
            names.filter(|name| name.ends_with(".exr")).map(str::to_owned).collect();
        assert!(listed == expected, "{} names by NFS", listed.len());
        let calls = list_calls(&by_nfs);
        assert!(PAGES.contains(&calls), "{calls} list calls by NFS");
        let grown = by_nfs.resident_mib() - before;
        eprintln!("100,000 keys by NFS: {grown} MiB more");
        assert!(grown < GROWTH_MIB_MAX, "{grown} MiB");
        assert_eq!(by_nfs.stop(), Some(0));
    })
    .await;
}
