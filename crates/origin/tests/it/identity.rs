//! Which storage a directory is.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use origin::posix::PosixOrigin;
use origin::{DirCursor, Origin};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use types::{ErrorKind, Name, OutageReason};

/// While a name changes hands.
const LOOKS: usize = 3000;

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

#[tokio::test(flavor = "multi_thread")]
async fn a_look_up_tells_of_one_object_though_the_name_is_given_to_another_meanwhile() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (name, other) = (dir.path().join("name"), dir.path().join("other"));
    let origin = PosixOrigin::open(dir.path()).unwrap();
    let root = origin.root().await.unwrap().reference;
    let named = Name::new("name").unwrap();
    let look = || origin.lookup(&root, &named);
    let mut known = Vec::new();
    for _ in 0..2 {
        let _ = std::fs::rename(&name, &other); // the first one
        std::fs::write(&name, b"abc").unwrap();
        known.push(look().await.unwrap().identity);
    }
    let (ended, at) = (AtomicBool::new(false), CWD);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::SeqCst) {
                renameat_with(at, &name, at, &other, RenameFlags::EXCHANGE).expect("exchanged");
            }
        });
        let looks = tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                let mut seen = Vec::new();
                for _ in 0..LOOKS {
                    seen.push(look().await.map(|object| object.identity));
                }
                seen
            })
        });
        ended.store(true, Ordering::SeqCst);
        for seen in looks {
            let seen = seen.expect("one of them always has the name");
            assert!(known.contains(&seen), "neither of the two: {seen:?}");
        }
    });
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
