//! A bucket as the origin of a tier, by a mount: files as programs know them. Over a store of each dialect.

use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;

use relay::{Config as LineConfig, Relay};
use testkit::stores::{RealStore, on_each_store};

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

fn mounted(store: &RealStore, dir: &Path, more: &str) -> Tier {
    mounted_by(&store.endpoint(), store, dir, more)
}

/// By another way to the store.
fn mounted_by(endpoint: &str, store: &RealStore, dir: &Path, more: &str) -> Tier {
    let credentials = format!("&credentials={}", store.credentials().display());
    let url = store.url_by(endpoint, "bucket", "", &credentials);
    let junction = format!("[[junction]]\npath = \"/\"\norigin = \"{url}\"\n{more}\n");
    let mount = dir.join("mnt");
    fs::create_dir_all(&mount).expect("made");
    Tier::start_mounted(dir, &junction, Some(&mount))
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
    on_each_store(name, |store| async move {
        store.make_bucket("bucket");
        let dir = tempfile::tempdir().expect("temporary directory");
        let mut tier = mounted(&store, dir.path(), policy);
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
        let mut second = mounted(&store, other.path(), "");
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
    on_each_store(name, |store| async move {
        store.make_bucket("bucket");
        let (ours, theirs) = (tempfile::tempdir().expect("made"), tempfile::tempdir().expect("made"));
        let rules = "files = \"1s\"\ndirectories = \"1s\"\nnegative = \"1s\"\nwrite = \"through\"";
        let mut tiers = [mounted(&store, ours.path(), rules), mounted(&store, theirs.path(), rules)];
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
    on_each_store(name, |store| async move {
        store.make_bucket("bucket");
        let dir = tempfile::tempdir().expect("temporary directory");
        let mut tier = mounted(&store, dir.path(), policy);
        let root = dir.path().join("mnt");
        let home = |tier: &Tier| {
            if policy.contains("back") {
                tier.json(&["flush", "--wait"]);
            }
        };
        rename_while_open(&root, &|| home(&tier));
        if policy.contains("back") {
            assert_eq!(tier.json(&["status"])["journal"]["conflicts"], 0);
        }
        assert_eq!(tier.stop(), Some(0));
        let other = tempfile::tempdir().expect("temporary directory");
        let mut second = mounted(&store, other.path(), "");
        let root = other.path().join("mnt");
        check_renamed(&root);
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

/// A copy has another ETag at some stores, and at S3 where the original came in parts.
async fn renamed_and_read(name: &str, policy: &str) {
    on_each_store(name, |store| async move {
        store.make_bucket("bucket");
        let near = tempfile::tempdir().expect("temporary directory");
        let mut writer = mounted(&store, near.path(), "write = \"through\"");
        let bytes = |seed| pattern(20 << 20, seed);
        for dir in ["part", "cold"] {
            fs::create_dir_all(near.path().join("mnt/set").join(dir)).expect("made");
        }
        fs::write(near.path().join("mnt/set/part/one"), bytes(1)).expect("written");
        fs::write(near.path().join("mnt/set/cold/two"), bytes(2)).expect("written");
        assert_eq!(writer.stop(), Some(0));

        let line = LineConfig { rtt: std::time::Duration::from_millis(1), ..LineConfig::default() };
        let here = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let relay = Relay::bind(here, store.address(), line).expect("a relay");
        let dir = tempfile::tempdir().expect("temporary directory");
        let mut tier = mounted_by(&format!("http://{}", relay.local_addr()), &store, dir.path(), policy);
        let root = dir.path().join("mnt");
        let home = || {
            if policy.contains("back") {
                tier.json(&["flush", "--wait"]);
            }
        };
        assert!(fs::read(root.join("set/part/one")).expect("read") == bytes(1));
        // Cold, and open.
        let two = fs::File::open(root.join("set/cold/two")).expect("opened");
        let before = relay.counts().bytes_down;
        fs::rename(root.join("set"), root.join("renamed")).expect("renamed");
        home();
        fs::rename(root.join("renamed/part/one"), root.join("renamed/alone")).expect("renamed");
        home();
        assert!(fs::read(root.join("renamed/alone")).expect("read") == bytes(1));
        let came = relay.counts().bytes_down - before;
        assert!(came < 1 << 20, "{came} bytes came for what is cached");
        let mut seen = vec![0; 20 << 20];
        two.read_exact_at(&mut seen, 0).expect("read");
        assert!(seen == bytes(2));
        drop(two);
        assert_eq!(tier.stop(), Some(0));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_cached_of_a_directory_stays_so_when_it_is_renamed_through() {
    let name = "what_is_cached_of_a_directory_stays_so_when_it_is_renamed_through";
    renamed_and_read(name, "write = \"through\"").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_cached_of_a_directory_stays_so_when_it_is_renamed_and_flushed() {
    let name = "what_is_cached_of_a_directory_stays_so_when_it_is_renamed_and_flushed";
    renamed_and_read(name, "write = \"back\"\nflush_delay = \"1h\"").await;
}

/// A store at the other end of the world: 60 ms there and back.
#[tokio::test(flavor = "multi_thread")]
async fn a_cold_read_over_a_long_line_fetches_each_byte_once() {
    on_each_store("a_cold_read_over_a_long_line_fetches_each_byte_once", |store| async move {
        store.make_bucket("bucket");
        let near = tempfile::tempdir().expect("temporary directory");
        let mut writer = mounted(&store, near.path(), "write = \"through\"");
        let bytes = pattern((24 << 20) + 77, 5);
        fs::write(near.path().join("mnt/large"), &bytes).expect("written");
        assert_eq!(writer.stop(), Some(0));

        let line = LineConfig { rtt: std::time::Duration::from_millis(60), ..LineConfig::default() };
        let here = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
        let relay = Relay::bind(here, store.address(), line).expect("a relay");
        let far = tempfile::tempdir().expect("temporary directory");
        let endpoint = format!("http://{}", relay.local_addr());
        let mut reader = mounted_by(&endpoint, &store, far.path(), "");
        let file = far.path().join("mnt/large");
        let before = relay.counts().bytes_down;
        assert!(fs::read(&file).expect("read") == bytes);
        let came = relay.counts().bytes_down - before;
        let (least, most) = (bytes.len() as u64, bytes.len() as u64 + (1 << 20));
        assert!((least..most).contains(&came), "{came} bytes came for {least}");
        // Again, by another open: from the cache.
        let before = relay.counts().bytes_down;
        assert!(fs::read(&file).expect("read") == bytes);
        let came = relay.counts().bytes_down - before;
        assert!(came < 1 << 20, "{came} bytes came for what is cached");
        reader.stop();
    })
    .await;
}

/// Two writers of one file, of which one brings home later.
#[tokio::test(flavor = "multi_thread")]
async fn what_others_stored_before_a_flush_stays_and_ours_is_beside_it() {
    on_each_store("what_others_stored_before_a_flush_stays_and_ours_is_beside_it", |store| async move {
        store.make_bucket("bucket");
        let (ours, theirs) = (tempfile::tempdir().expect("made"), tempfile::tempdir().expect("made"));
        let mut back = mounted(&store, ours.path(), "write = \"back\"\nflush_delay = \"1h\"");
        let mut through = mounted(&store, theirs.path(), "write = \"through\"");
        let (ours, theirs) = (ours.path().join("mnt"), theirs.path().join("mnt"));
        fs::write(ours.join("plan"), b"ours").expect("written");
        fs::write(theirs.join("plan"), b"theirs").expect("written");
        back.json(&["flush", "--wait"]);
        assert_eq!(back.json(&["status"])["journal"]["conflicts"], 1);
        assert_eq!((back.stop(), through.stop()), (Some(0), Some(0)));

        let other = tempfile::tempdir().expect("temporary directory");
        let mut fresh = mounted(&store, other.path(), "");
        let root = other.path().join("mnt");
        assert_eq!(fs::read(root.join("plan")).expect("read"), b"theirs");
        let names = fs::read_dir(&root).expect("listed").map(|entry| entry.expect("listed").file_name());
        let copies: Vec<_> =
            names.filter(|name| name.to_string_lossy().starts_with("plan.conflict-")).collect();
        assert_eq!(copies.len(), 1, "{copies:?}");
        assert_eq!(fs::read(root.join(&copies[0])).expect("read"), b"ours");
        fresh.stop();
    })
    .await;
}
