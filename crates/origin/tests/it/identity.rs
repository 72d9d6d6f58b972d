//! Which storage a directory is.

use std::path::Path;
use std::process::Command;

use origin::posix::PosixOrigin;
use origin::{DirCursor, Origin};
use types::{ErrorKind, OutageReason};

fn run(program: &str, arguments: &[&str]) {
    let status = Command::new(program).args(arguments).status().expect("started");
    assert!(status.success(), "{program} {arguments:?}");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("plain")
}

#[tokio::test]
async fn a_directory_is_itself_whatever_comes_into_it_and_not_the_one_made_after_it() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let path = dir.path().join("served");
    std::fs::create_dir(&path).unwrap();
    let origin = PosixOrigin::open(&path).unwrap();
    let first = origin.identity().await.unwrap();
    assert!(origin.is_empty().await.unwrap());
    std::fs::write(path.join("file"), b"abc").unwrap();
    assert!(!origin.is_empty().await.unwrap());
    assert_eq!(origin.identity().await.unwrap(), first);
    assert_eq!(PosixOrigin::open(&path).unwrap().identity().await.unwrap(), first, "after a restart");

    let root = origin.root().await.unwrap();
    std::fs::rename(&path, dir.path().join("moved away")).unwrap();
    let gone = origin.identity().await.expect_err("nothing is there");
    assert_eq!(gone.outage_reason(), Some(OutageReason::Replaced), "{gone}");
    std::fs::create_dir(&path).unwrap();
    assert_ne!(origin.identity().await.unwrap().bytes, first.bytes);
    let stale =
        origin.readdir(&root.reference, DirCursor::default()).await.expect_err("of another directory");
    assert_eq!(stale.kind(), ErrorKind::Stale);

    std::fs::remove_dir(&path).unwrap();
    std::fs::rename(dir.path().join("moved away"), &path).unwrap();
    assert_eq!(origin.identity().await.unwrap(), first);
    assert_eq!(origin.readdir(&root.reference, DirCursor::default()).await.unwrap().entries.len(), 1);
}

/// As root only, in a mount namespace where that does not disturb anybody.
#[tokio::test]
async fn a_mount_that_is_missing_shows_and_one_that_is_back_is_the_same() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let dir = tempfile::tempdir().expect("temporary directory");
    let (disk, path) = (dir.path().join("disk"), dir.path().join("served"));
    for made in [&disk, &path] {
        std::fs::create_dir(made).unwrap();
    }
    if !Command::new("mount").args(["-t", "tmpfs", "none", text(&disk)]).status().unwrap().success() {
        return; // root in name only
    }
    std::fs::write(disk.join("file"), b"abc").unwrap();
    run("mount", &["--bind", text(&disk), text(&path)]);
    let origin = PosixOrigin::open(&path).unwrap();
    let (first, root) = (origin.identity().await.unwrap(), origin.root().await.unwrap());
    assert!(first.shown.contains("a mount point"), "{}", first.shown);
    run("umount", &["-l", text(&path)]);
    let bare = origin.identity().await.unwrap();
    assert_ne!(bare.bytes, first.bytes);
    assert!(origin.is_empty().await.unwrap());
    assert_eq!(origin.getattr(&root.reference).await.expect_err("of the mount").kind(), ErrorKind::Stale);
    run("mount", &["--bind", text(&disk), text(&path)]);
    assert_eq!(origin.identity().await.unwrap(), first);
    assert_eq!(origin.getattr(&root.reference).await.unwrap().identity, root.identity);
    assert!(!origin.is_empty().await.unwrap());
    // Another file system of the same kind.
    run("umount", &["-l", text(&path)]);
    run("mount", &["-t", "tmpfs", "none", text(&path)]);
    assert_ne!(origin.identity().await.unwrap().bytes, first.bytes);
    run("umount", &["-l", text(&path)]);
    drop(origin);
    run("umount", &["-l", text(&disk)]);
}
