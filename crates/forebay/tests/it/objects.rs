//! A bucket as the origin of a tier, by a mount: files as programs know them.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

use testkit::minio::{Minio, with_minio};

use crate::tier::Tier;

fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    });
    words.take(length.div_ceil(8)).flat_map(u64::to_le_bytes).take(length).collect()
}

fn junction(minio: &Minio, more: &str) -> String {
    let (endpoint, credentials) = (minio.endpoint(), minio.credentials());
    let url = format!("s3://bucket?endpoint={endpoint}&credentials={}", credentials.display());
    format!("[[junction]]\npath = \"/\"\norigin = \"{url}\"\n{more}\n")
}

fn mounted(minio: &Minio, dir: &Path, more: &str) -> Tier {
    let mount = dir.join("mnt");
    fs::create_dir_all(&mount).expect("made");
    Tier::start_mounted(dir, &junction(minio, more), Some(&mount))
}

/// What a program leaves: made, written here and there, cut, renamed, removed.
pub fn work(root: &Path) {
    let show = root.join("show/shot 1");
    fs::create_dir_all(&show).expect("made");
    fs::write(show.join("small"), b"small").expect("written");
    fs::write(show.join("empty"), b"").expect("written");
    fs::write(show.join("large"), pattern(21 << 20, 1)).expect("written");
    let large = fs::OpenOptions::new().write(true).open(show.join("large")).expect("there");
    large.write_all_at(b"in the middle", 10 << 20).expect("written");
    large.sync_all().expect("stored");
    large.set_len((20 << 20) + 5).expect("cut");
    drop(large);
    fs::write(show.join("draft"), b"to be renamed").expect("written");
    fs::rename(show.join("draft"), show.join("final")).expect("renamed");
    fs::write(show.join("gone"), b"x").expect("written");
    fs::remove_file(show.join("gone")).expect("removed");
    fs::create_dir(root.join("empty dir")).expect("made");
    fs::set_permissions(show.join("small"), fs::Permissions::from_mode(0o640)).expect("set");
}

pub fn check(root: &Path) {
    let show = root.join("show/shot 1");
    let names = |dir: &Path| {
        let listed = fs::read_dir(dir).expect("listed");
        let mut names: Vec<_> =
            listed.map(|entry| entry.expect("listed").file_name().into_string().expect("text")).collect();
        names.sort();
        names
    };
    assert_eq!(names(root), ["empty dir", "show"]);
    assert_eq!(names(&show), ["empty", "final", "large", "small"]);
    assert_eq!(fs::read(show.join("small")).expect("read"), b"small");
    assert_eq!(fs::read(show.join("empty")).expect("read"), b"");
    assert_eq!(fs::read(show.join("final")).expect("read"), b"to be renamed");
    let mut large = pattern(21 << 20, 1);
    large[10 << 20..(10 << 20) + 13].copy_from_slice(b"in the middle");
    large.truncate((20 << 20) + 5);
    assert!(fs::read(show.join("large")).expect("read") == large);
    assert_eq!(fs::metadata(show.join("large")).expect("there").size(), (20 << 20) + 5);
    assert_eq!(fs::read(root.join("nothing")).expect_err("absent").kind(), std::io::ErrorKind::NotFound);
}

/// Written through one tier and read by another, which has never seen any of it.
async fn written_and_read(name: &str, policy: &str) {
    with_minio(name, |minio| async move {
        minio.make_bucket("bucket");
        let dir = tempfile::tempdir().expect("temporary directory");
        let mut tier = mounted(&minio, dir.path(), policy);
        let root = dir.path().join("mnt");
        work(&root);
        check(&root);
        if policy.contains("back") {
            tier.json(&["flush", "--wait"]);
            check(&root);
        }
        let mode = fs::metadata(root.join("show/shot 1/small")).expect("there").mode();
        assert_eq!(mode & 0o777, 0o640);
        assert_eq!(tier.stop(), Some(0));
        let other = tempfile::tempdir().expect("temporary directory");
        let mut second = mounted(&minio, other.path(), "");
        check(&other.path().join("mnt"));
        second.stop();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_through_is_in_the_bucket() {
    written_and_read("what_is_written_through_is_in_the_bucket", "write = \"through\"").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_back_is_in_the_bucket_when_it_is_flushed() {
    let policy = "write = \"back\"\nflush_delay = \"1h\"";
    written_and_read("what_is_written_back_is_in_the_bucket_when_it_is_flushed", policy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_put_into_the_bucket_shows_after_the_time_that_is_promised() {
    let name = "what_others_put_into_the_bucket_shows_after_the_time_that_is_promised";
    with_minio(name, |minio| async move {
        minio.make_bucket("bucket");
        let (ours, theirs) = (tempfile::tempdir().expect("made"), tempfile::tempdir().expect("made"));
        let rules = "files = \"1s\"\ndirectories = \"1s\"\nnegative = \"1s\"\nwrite = \"through\"";
        let mut tiers = [mounted(&minio, ours.path(), rules), mounted(&minio, theirs.path(), rules)];
        let (ours, theirs) = (ours.path().join("mnt"), theirs.path().join("mnt"));
        fs::create_dir(theirs.join("dir")).expect("made");
        assert!(fs::read(ours.join("dir/file")).is_err());
        let promised = std::time::Duration::from_millis(1_500);
        for text in ["one", "two, longer", "3"] {
            fs::write(theirs.join("dir/file"), text).expect("written");
            std::thread::sleep(promised);
            assert_eq!(fs::read_to_string(ours.join("dir/file")).expect("read"), text);
            let listed = fs::read_dir(ours.join("dir")).expect("listed").count();
            assert_eq!(listed, 1);
        }
        fs::remove_file(theirs.join("dir/file")).expect("removed");
        std::thread::sleep(promised);
        assert_eq!(fs::read(ours.join("dir/file")).expect_err("gone").kind(), std::io::ErrorKind::NotFound);
        assert_eq!(fs::read_dir(ours.join("dir")).expect("listed").count(), 0);
        tiers.iter_mut().for_each(|tier| assert_eq!(tier.stop(), Some(0)));
    })
    .await;
}

/// What programs that rotate their logs, or save by renaming, do. `home` has all of it brought to the origin.
pub fn rename_while_open(root: &Path, home: &dyn Fn()) {
    fs::create_dir_all(root.join("logs/old")).expect("made");
    let log = fs::File::create(root.join("logs/log")).expect("made");
    log.write_all_at(b"one ", 0).expect("written");
    log.sync_all().expect("stored");
    home();
    fs::rename(root.join("logs/log"), root.join("logs/old/log.1")).expect("renamed");
    home();
    log.write_all_at(b"two ", 4).expect("written");
    fs::write(root.join("logs/log"), b"another").expect("written");
    log.write_all_at(b"three", 8).expect("written");
    log.sync_all().expect("stored");
    home();
    fs::rename(root.join("logs"), root.join("moved")).expect("renamed");
    home();
    fs::create_dir_all(root.join("logs/old")).expect("made again");
    fs::write(root.join("logs/old/log.1"), b"a third one").expect("written");
    log.write_all_at(b"!", 13).expect("written");
    log.sync_all().expect("stored");
    drop(log);
    home();
}

pub fn check_renamed(root: &Path) {
    let seen = |path: &str| fs::read_to_string(root.join(path)).expect("read");
    assert_eq!(seen("moved/old/log.1"), "one two three!");
    assert_eq!(seen("moved/log"), "another");
    assert_eq!(seen("logs/old/log.1"), "a third one");
}

async fn renamed_while_open(name: &str, policy: &str) {
    with_minio(name, |minio| async move {
        minio.make_bucket("bucket");
        let dir = tempfile::tempdir().expect("temporary directory");
        let mut tier = mounted(&minio, dir.path(), policy);
        let root = dir.path().join("mnt");
        let home = |tier: &Tier| {
            if policy.contains("back") {
                tier.json(&["flush", "--wait"]);
            }
        };
        rename_while_open(&root, &|| home(&tier));
        assert_eq!(tier.stop(), Some(0));
        let other = tempfile::tempdir().expect("temporary directory");
        let mut second = mounted(&minio, other.path(), "");
        check_renamed(&other.path().join("mnt"));
        second.stop();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_renamed_while_it_is_open_is_the_same_file() {
    let name = "a_file_that_is_renamed_while_it_is_open_is_the_same_file";
    renamed_while_open(name, "write = \"through\"").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_renamed_between_flushes_is_the_same_file() {
    let name = "a_file_that_is_renamed_between_flushes_is_the_same_file";
    renamed_while_open(name, "write = \"back\"\nflush_delay = \"1h\"").await;
}
