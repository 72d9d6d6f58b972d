//! What is left of writes when the server restarts, and what a change of a directory cannot reach.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use origin::memory::MemoryOrigin;
use origin::posix::PosixOrigin;
use origin::{Change, Object, Origin, Reference};
use types::{ByteRange, CreateHow, ErrorKind, Name, SetAttr, Stability, TimeChange, Timestamp};

fn name(text: &'static str) -> Name {
    Name::new(text).expect("a valid name")
}

async fn contents(origin: &dyn Origin, file: &Reference) -> Bytes {
    let now = origin.getattr(file).await.expect("there");
    origin.read(file, now.version, ByteRange::new(0, now.attr.size)).await.expect("read")
}

async fn put(
    origin: &dyn Origin,
    file: &Reference,
    offset: u64,
    data: &'static str,
    how: Stability,
) -> [u8; 8] {
    origin.write(file, offset, data.into(), how).await.expect("written").verifier
}

/// A file with 10 bytes that are stored.
async fn file_in(memory: &MemoryOrigin) -> Object {
    memory.write_file(b"file", b"0123456789").expect("written");
    let root = memory.root().await.expect("there").reference;
    memory.lookup(&root, &name("file")).await.expect("there")
}

#[tokio::test]
async fn what_nobody_committed_is_lost_with_the_server_and_its_verifier_says_so() {
    let memory = MemoryOrigin::new();
    let before = file_in(&memory).await;
    let file = &before.reference;
    let first = put(&*memory, file, 8, "unstable", Stability::Unstable).await;
    assert_eq!(contents(&*memory, file).await, "01234567unstable", "until then it is shown");
    memory.lose_unsynced();
    assert_eq!(contents(&*memory, file).await, "0123456789");
    assert_eq!(memory.getattr(file).await.expect("there").version, before.version, "the same bytes again");
    let second = put(&*memory, file, 8, "unstable", Stability::Unstable).await;
    assert_ne!(first, second);
    let committed = memory.commit(file, ByteRange::new(0, 0)).await.expect("committed");
    assert_eq!(committed.verifier, second);
    memory.lose_unsynced();
    assert_eq!(contents(&*memory, file).await, "01234567unstable");
    let third = memory.commit(file, ByteRange::new(0, 0)).await.expect("committed");
    assert_ne!(third.verifier, second, "it cannot know that there was nothing to lose");
}

#[tokio::test]
async fn what_is_stored_at_once_outlives_what_was_not() {
    let memory = MemoryOrigin::new();
    let file = file_in(&memory).await.reference;
    put(&*memory, &file, 0, "xx", Stability::Unstable).await;
    put(&*memory, &file, 12, "yy", Stability::FileSync).await;
    put(&*memory, &file, 13, "zz", Stability::Unstable).await;
    let set = SetAttr { mode: Some(0o600), size: Some(14), ..SetAttr::default() };
    memory.change(&Change::Set { object: file.clone(), set, guard: None }).await.expect("set");
    assert_eq!(contents(&*memory, &file).await, "xx23456789\0\0yz");
    memory.lose_unsynced();
    assert_eq!(contents(&*memory, &file).await, "0123456789\0\0yy");
    assert_eq!(memory.getattr(&file).await.expect("there").attr.mode, 0o600);
}

#[tokio::test]
async fn generated_files_are_written_to_as_others_are() {
    let memory = MemoryOrigin::new();
    memory.generate_file(b"file", 5, 1000).expect("made");
    memory.generate_file(b"giant", 5, 1 << 40).expect("made");
    let root = memory.root().await.expect("there").reference;
    let file = memory.lookup(&root, &name("file")).await.expect("there").reference;
    let mut wanted = origin::memory::generated(5, ByteRange::new(0, 1000)).to_vec();
    wanted[500..503].copy_from_slice(b"new");
    put(&*memory, &file, 500, "new", Stability::FileSync).await;
    assert_eq!(contents(&*memory, &file).await, wanted);
    let giant = memory.lookup(&root, &name("giant")).await.expect("there").reference;
    let refused = memory.write(&giant, 0, "x".into(), Stability::FileSync).await;
    assert_eq!(refused.expect_err("it is not in memory").kind(), ErrorKind::NoSpace);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_in_the_way_is_not_followed_by_any_change() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (inside, outside) = (dir.path().join("inside"), dir.path().join("outside"));
    std::fs::create_dir_all(inside.join("sub")).expect("made");
    std::fs::create_dir(&outside).expect("made");
    for place in [inside.join("sub"), outside.clone()] {
        std::fs::write(place.join("file"), b"as it was").expect("written");
    }
    let origin = PosixOrigin::open(&inside).expect("opened");
    let root = origin.root().await.expect("there").reference;
    let sub = origin.lookup(&root, &name("sub")).await.expect("there").reference;
    let file = origin.lookup(&sub, &name("file")).await.expect("there").reference;
    std::fs::rename(inside.join("sub"), inside.join("moved")).expect("moved");
    std::os::unix::fs::symlink(&outside, inside.join("sub")).expect("linked");
    let link = origin.lookup(&root, &name("sub")).await.expect("there").reference;
    let (set, how) = (SetAttr { mode: Some(0o600), ..SetAttr::default() }, CreateHow::Unchecked);
    for dir in [&sub, &link] {
        for change in [
            Change::Create { dir: dir.clone(), name: name("file"), how, set },
            Change::Mkdir { dir: dir.clone(), name: name("new"), set },
            Change::Remove { dir: dir.clone(), name: name("file") },
            Change::Rename {
                from_dir: dir.clone(),
                from: name("file"),
                to_dir: root.clone(),
                to: name("stolen"),
                identity: None,
            },
        ] {
            let kind = origin.change(&change).await.expect_err("the way is another one now").kind();
            let fitting = [ErrorKind::Stale, ErrorKind::NotADirectory];
            assert!(fitting.contains(&kind), "{}: {kind:?}", change.kind());
        }
    }
    // The link itself as a file: what it leads to is not reached.
    let create = Change::Create { dir: root.clone(), name: name("sub"), how, set };
    assert_eq!(origin.change(&create).await.expect_err("it is a link").kind(), ErrorKind::Exists);
    let written = origin.write(&file, 0, "changed".into(), Stability::FileSync).await;
    assert_eq!(written.expect_err("the way is another one now").kind(), ErrorKind::Stale);
    let meta = std::fs::metadata(outside.join("file")).expect("there");
    assert_ne!(meta.permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read(outside.join("file")).expect("read"), b"as it was");
    assert_eq!(std::fs::read_dir(&outside).expect("listed").count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_link_gets_an_owner_and_times_of_its_own() {
    let dir = tempfile::tempdir().expect("temporary directory");
    std::fs::write(dir.path().join("target"), b"").expect("written");
    let origin: Arc<dyn Origin> = Arc::new(PosixOrigin::open(dir.path()).expect("opened"));
    let root = origin.root().await.expect("there").reference;
    let mtime = Timestamp { seconds: 1_000_000_000, nanos: 7 };
    let set = SetAttr { mode: Some(0o600), mtime: TimeChange::To(mtime), ..SetAttr::default() };
    let change = Change::Symlink { dir: root, name: name("link"), target: "target".into(), set };
    let link = origin.change(&change).await.expect("made").made().expect("told");
    assert_eq!(link.attr.mtime, mtime);
    let target = std::fs::metadata(dir.path().join("target")).expect("there");
    assert_ne!((target.mtime(), target.permissions().mode() & 0o777), (mtime.seconds, 0o600));
}

/// Attributes that cannot be set leave no file behind.
#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_made_as_asked_is_not_made() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let posix: Arc<dyn Origin> = Arc::new(PosixOrigin::open(dir.path()).expect("opened"));
    let memory: Arc<dyn Origin> = MemoryOrigin::new();
    for origin in [posix, memory] {
        let root = origin.root().await.expect("there").reference;
        let nonsense = TimeChange::To(Timestamp { seconds: 1, nanos: 2_000_000_000 });
        let set = SetAttr { mtime: nonsense, ..SetAttr::default() };
        let (dir, how) = (root.clone(), CreateHow::Guarded);
        for change in [
            Change::Create { dir: dir.clone(), name: name("new"), how, set },
            Change::Mkdir { dir, name: name("new"), set },
        ] {
            let refused = origin.change(&change).await.expect_err("no such time");
            assert_eq!(refused.kind(), ErrorKind::InvalidArgument, "{}", change.kind());
            let there = origin.lookup(&root, &name("new")).await;
            assert_eq!(there.expect_err("not made").kind(), ErrorKind::NotFound, "{}", change.kind());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_keeps_what_it_has_from_the_one_it_is_in() {
    let dir = tempfile::tempdir().expect("temporary directory");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o2775)).expect("set");
    let origin = PosixOrigin::open(dir.path()).expect("opened");
    let root = origin.root().await.expect("there").reference;
    let set = SetAttr { mode: Some(0o750), ..SetAttr::default() };
    let (how, dir) = (CreateHow::Guarded, root.clone());
    let made = origin.change(&Change::Mkdir { dir: dir.clone(), name: name("dir"), set }).await;
    assert_eq!(made.expect("made").made().expect("told").attr.mode, 0o2750);
    let made = origin.change(&Change::Create { dir, name: name("file"), how, set }).await;
    assert_eq!(made.expect("made").made().expect("told").attr.mode, 0o750);
}

/// What a look at `path` shows first, while something is made there.
async fn first_look<T: Send + 'static>(
    path: PathBuf,
    shown: impl Fn(&std::fs::Metadata) -> T + Send + 'static,
    make: impl Future<Output = ()>,
) -> Option<T> {
    let stop = Arc::new(AtomicBool::new(false));
    let looking = tokio::task::spawn_blocking({
        let stop = stop.clone();
        move || {
            while !stop.load(Ordering::SeqCst) {
                if let Ok(found) = path.metadata() {
                    return Some(shown(&found));
                }
            }
            None
        }
    });
    make.await;
    stop.store(true, Ordering::SeqCst);
    looking.await.expect("no panic")
}

/// Whoever ends this process between two system calls must not leave a file that no repetition knows again.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_has_its_name_when_it_has_its_verifier_and_not_before() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let origin = PosixOrigin::open(dir.path()).expect("opened");
    let root = origin.root().await.expect("there").reference;
    for number in 0..100 {
        let name = Name::new(format!("f{number}")).expect("a valid name");
        let (how, set) = (CreateHow::Exclusive([0, 0, 0, 1, 0, 0, 0, 2]), SetAttr::default());
        let change = Change::Create { dir: root.clone(), name, how, set };
        let make = async { drop(origin.change(&change).await.expect("created")) };
        let mtime = first_look(dir.path().join(format!("f{number}")), |found| found.mtime(), make).await;
        assert!(mtime.is_none_or(|mtime| mtime == 2), "f{number}");
    }
}

/// Nor a directory that its owner's group may not write in, for a mask of this process.
#[tokio::test(flavor = "multi_thread")]
async fn a_directory_never_has_another_mode_than_was_asked_for() {
    let dir = tempfile::tempdir().expect("a directory for the test");
    let origin = PosixOrigin::open(dir.path()).expect("opened");
    let root = origin.root().await.expect("there").reference;
    for number in 0..100 {
        let name = Name::new(format!("d{number}")).expect("a valid name");
        let set = SetAttr { mode: Some(0o777), ..SetAttr::default() };
        let change = Change::Mkdir { dir: root.clone(), name, set };
        let make = async { drop(origin.change(&change).await.expect("made")) };
        let mode = first_look(dir.path().join(format!("d{number}")), |found| found.mode(), make).await;
        assert!(mode.is_none_or(|mode| mode & 0o777 == 0o777), "d{number}: {mode:?}");
    }
    // The mask is still there for who does without a mode of its own.
    std::fs::File::create(dir.path().join("file")).expect("made");
    assert_eq!(dir.path().join("file").metadata().expect("there").mode() & 0o022, 0o022 & !mask());
}

fn mask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux has it");
    let mask = status.lines().find_map(|line| line.strip_prefix("Umask:")).expect("told").trim();
    u32::from_str_radix(mask, 8).expect("octal digits")
}
