//! Against a real server, which `testkit::ganesha` starts; where it cannot, the test says "not run".

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use origin::{DirCursor, Origin, Reference};
use origin_nfs::{Config, NfsOrigin};
use testkit::ganesha::{Ganesha, url, with_ganesha};
use types::{ByteRange, ErrorKind, FileKind, Name};

use crate::calls::names;

const TEST: &str = "with_ganesha::a_real_server_is_seen_as_it_is";

#[test]
fn a_real_server_is_seen_as_it_is() {
    with_ganesha(TEST, inside);
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("many")).expect("mkdir");
    fs::create_dir_all(root.join("deep/er")).expect("mkdir");
    fs::write(root.join("large"), pattern(5_000_001)).expect("write");
    fs::write(root.join("empty"), b"").expect("write");
    fs::hard_link(root.join("large"), root.join("deep/second-name")).expect("link");
    std::os::unix::fs::symlink("../large", root.join("deep/er/link")).expect("symlink");
    fs::write(root.join(std::ffi::OsStr::from_bytes(b"not-\xff\xfe-utf8")), b"x").expect("write");
    for i in 0..3000 {
        fs::write(root.join("many").join(format!("file-{i:05}")), b"m").expect("write");
    }
}

async fn walk(origin: &dyn Origin, path: &str) -> types::Result<origin::Object> {
    let mut object = origin.root().await?;
    for name in path.split('/') {
        object = origin.lookup(&object.reference, &Name::new(name.as_bytes().to_vec())?).await?;
    }
    Ok(object)
}

fn inside() {
    let dir = tempfile::tempdir().expect("directory");
    let export = dir.path().join("export");
    make_tree(&export);
    let nested = export.join("nested");
    fs::create_dir(&nested).expect("mkdir");
    mount_tmpfs(&nested, "size=50%");
    fs::write(nested.join("treasure"), b"gold").expect("write");
    let (small, frozen) = (dir.path().join("small"), dir.path().join("frozen"));
    fs::create_dir(&small).expect("mkdir");
    mount_tmpfs(&small, "size=1m");
    fs::create_dir_all(frozen.join("full")).expect("mkdir");
    let exports = [(&*export, "RW"), (&*nested, "RW"), (&*small, "RW"), (&*frozen, "RO")];
    let log = dir.path().join("ganesha.log");
    let mut server = Ganesha::start(dir.path(), &exports);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("runtime");
    runtime.block_on(async {
        // No ports given: the portmapper is asked.
        let url = format!("nfs://127.0.0.1{}", export.display());
        let settings =
            Config { call_timeout: Duration::from_secs(60), ..Config::from_url(&url).expect("URL") };
        let settings = Config { outage_grace: Duration::from_secs(60), ..settings };
        let origin = connect(settings, &log).await;
        contents_are_equal(&*origin, &export).await;
        the_contract_is_kept(&export, &log).await;
        changes_are_made(&export, &log).await;
        crate::changes::a_full_disk_is_told(&*connect(of(&small), &log).await).await;
        crate::changes::a_read_only_export_is_told(&*connect(of(&frozen), &log).await).await;
        changes_are_noticed(&*origin, &export).await;
        reused_inodes_are_other_objects(&*origin, &export).await;
        nested_exports_are_entered(&*origin).await;
        missing_exports_are_told(&export).await;
        a_restart_is_bridged(&origin, &mut server).await;
    });
}

fn mount_tmpfs(at: &Path, options: &str) {
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", options, "none"]).arg(at).status();
    assert!(mounted.expect("mount").success());
}

/// An export, or a directory below one.
fn of(path: &Path) -> Config {
    Config::from_url(&url(path)).expect("URL")
}

async fn connect(config: Config, log: &Path) -> Arc<NfsOrigin> {
    let started = Instant::now();
    loop {
        match NfsOrigin::connect(config.clone()).await {
            Ok(origin) => return origin,
            Err(error) if started.elapsed() > Duration::from_secs(30) => {
                panic!("{error}\n{}", fs::read_to_string(log).unwrap_or_default());
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

async fn contents_are_equal(origin: &dyn Origin, export: &Path) {
    let large = walk(origin, "large").await.expect("large");
    let meta = fs::metadata(export.join("large")).expect("metadata");
    assert_eq!((large.attr.size, large.attr.fileid, large.attr.nlink), (meta.len(), meta.ino(), 2));
    assert_eq!(large.attr.mtime.seconds, meta.mtime());
    let bytes =
        origin.read(&large.reference, large.version, ByteRange::new(0, meta.len())).await.expect("read");
    assert!(bytes == pattern(5_000_001));
    let middle =
        origin.read(&large.reference, large.version, ByteRange::new(777_777, 3)).await.expect("read");
    assert_eq!(middle, pattern(5_000_001)[777_777..777_780]);
    let second = walk(origin, "deep/second-name").await.expect("hard link");
    assert_eq!(second.attr.fileid, large.attr.fileid);
    let link = walk(origin, "deep/er/link").await.expect("link");
    assert_eq!(link.attr.kind, FileKind::Symlink);
    assert_eq!(origin.readlink(&link.reference).await.expect("target"), "../large");
    let root = origin.root().await.expect("root").reference;
    let odd =
        origin.lookup(&root, &Name::new(&b"not-\xff\xfe-utf8"[..]).expect("name")).await.expect("odd name");
    assert_eq!(odd.attr.size, 1);
    let missing = walk(origin, "missing").await.expect_err("missing");
    assert_eq!(missing.kind(), ErrorKind::NotFound);
    let many = walk(origin, "many").await.expect("many").reference;
    let mut listed = names(origin, &many).await.expect("listing");
    listed.sort();
    assert_eq!(listed, (0..3000).map(|i| format!("file-{i:05}")).collect::<Vec<_>>());
    let page = origin.readdir(&many, DirCursor::default()).await.expect("page");
    let entry = page.entries.first().expect("an entry");
    let object = entry.object.as_ref().expect("READDIRPLUS gives attributes");
    assert_eq!(object, &origin.lookup(&many, &entry.name).await.expect("lookup"));
    assert!(origin.statfs(&root).await.expect("statfs").bytes_total > 0);
}

/// The suite that every origin passes, over an export of its own directory.
async fn the_contract_is_kept(export: &Path, log: &Path) {
    let dir = export.join("contract");
    fs::create_dir(&dir).expect("mkdir");
    let origin = connect(of(&dir), log).await;
    testkit::origin_contract::run(&testkit::origin_contract::OverDirectory { dir, origin }).await;
}

/// The calls that change something, in a directory of their own.
async fn changes_are_made(export: &Path, log: &Path) {
    let dir = export.join("changed");
    fs::create_dir(&dir).expect("mkdir");
    let origin = connect(of(&dir), log).await;
    crate::changes::all(&origin).await;
    crate::changes::at_random(&origin).await;
}

async fn changes_are_noticed(origin: &dyn Origin, export: &Path) {
    let path = export.join("changing");
    fs::write(&path, b"first").expect("write");
    let before = walk(origin, "changing").await.expect("lookup");
    std::thread::sleep(Duration::from_millis(20));
    fs::write(&path, b"other").expect("write");
    let error =
        origin.read(&before.reference, before.version, ByteRange::new(0, 5)).await.expect_err("changed");
    assert_eq!(error.kind(), ErrorKind::VersionChanged);
    let after = origin.getattr(&before.reference).await.expect("getattr");
    assert_eq!(after.identity, before.identity);
    let bytes = origin.read(&after.reference, after.version, ByteRange::new(0, 5)).await.expect("read");
    assert_eq!(bytes, "other");
}

async fn reused_inodes_are_other_objects(origin: &dyn Origin, export: &Path) {
    let path = export.join("reused");
    fs::write(&path, b"a").expect("write");
    let before = walk(origin, "reused").await.expect("lookup");
    fs::remove_file(&path).expect("remove");
    fs::write(&path, b"b").expect("write");
    let after = walk(origin, "reused").await.expect("lookup");
    assert_ne!(before.identity, after.identity, "same name, maybe the same inode number, another object");
    let error = origin.getattr(&before.reference).await.expect_err("deleted");
    assert_eq!(error.kind(), ErrorKind::Stale);
}

async fn nested_exports_are_entered(origin: &dyn Origin) {
    let nested = walk(origin, "nested").await.expect("nested");
    assert_eq!(names(origin, &nested.reference).await.expect("listing"), ["treasure"]);
    let treasure = walk(origin, "nested/treasure").await.expect("treasure");
    let range = ByteRange::new(0, 4);
    assert_eq!(origin.read(&treasure.reference, treasure.version, range).await.expect("read"), "gold");
}

async fn missing_exports_are_told(export: &Path) {
    let error =
        NfsOrigin::connect(of(Path::new("/no/such/export"))).await.map(|_| ()).expect_err("no such export");
    assert!(error.to_string().contains(export.to_str().expect("a path")), "{error}");
}

async fn a_restart_is_bridged(origin: &Arc<NfsOrigin>, server: &mut Ganesha) {
    let large = walk(&**origin, "large").await.expect("large");
    let reference = Reference(large.reference.0.clone());
    server.stop();
    let read = {
        let (origin, version) = (Arc::clone(origin), large.version);
        tokio::spawn(async move { origin.read(&reference, version, ByteRange::new(10, 100)).await })
    };
    server.start_again();
    let bytes = read.await.expect("task").expect("read after the restart");
    assert_eq!(bytes, pattern(5_000_001)[10..110]);
}
