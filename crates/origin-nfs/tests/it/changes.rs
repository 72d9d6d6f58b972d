//! Changes over a real server, besides the contract's: what is larger than one call, and what a server refuses.

use std::sync::Arc;

use bytes::Bytes;
use origin::{Change, Changed, Object, Origin, Reference};
use origin_nfs::NfsOrigin;
use testkit::origin_contract::{run_changes, run_random_changes, seed};
use types::{ByteRange, CreateHow, ErrorKind, Name, Result, SetAttr, Stability};

use crate::calls::names;

/// The server's directory is empty at first, and empty again afterwards.
pub async fn all(origin: &Arc<NfsOrigin>) {
    let root = origin.root().await.expect("root").reference;
    eight_mebibytes_in_pieces_side_by_side(origin, &root).await;
    what_is_larger_than_one_call_is_written_whole(origin, &root).await;
    let origin: Arc<dyn Origin> = origin.clone();
    run_changes(&origin).await;
    assert!(names(&*origin, &root).await.expect("listing").is_empty(), "nothing is left");
}

/// The server's directory is empty at first.
pub async fn at_random(origin: &Arc<NfsOrigin>) {
    let seed = seed();
    println!("seed {seed}");
    let origin: Arc<dyn Origin> = origin.clone();
    run_random_changes(&origin, seed, 200).await;
}

fn name(text: &str) -> Name {
    Name::new(Bytes::copy_from_slice(text.as_bytes())).expect("a valid name")
}

fn with_mode(mode: u32) -> SetAttr {
    SetAttr { mode: Some(mode), ..SetAttr::default() }
}

fn kind_of<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    result.expect_err("must fail").kind()
}

fn pattern(length: usize) -> Bytes {
    (0..length as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

async fn create(origin: &NfsOrigin, dir: &Reference, file: &str, set: SetAttr) -> Result<Changed> {
    let how = CreateHow::Guarded;
    origin.change(&Change::Create { dir: dir.clone(), name: name(file), how, set }).await
}

async fn made(origin: &NfsOrigin, dir: &Reference, file: &str) -> Object {
    let done = create(origin, dir, file, with_mode(0o644)).await.expect("created");
    assert!(!done.resent);
    done.made().expect("it is told")
}

async fn gone(origin: &NfsOrigin, dir: &Reference, file: &str) {
    origin.change(&Change::Remove { dir: dir.clone(), name: name(file) }).await.expect("removed");
    assert_eq!(kind_of(origin.lookup(dir, &name(file)).await), ErrorKind::NotFound);
}

async fn contents(origin: &NfsOrigin, file: &Reference) -> Bytes {
    let now = origin.getattr(file).await.expect("there");
    origin.read(file, now.version, ByteRange::new(0, now.attr.size)).await.expect("read")
}

async fn eight_mebibytes_in_pieces_side_by_side(origin: &Arc<NfsOrigin>, root: &Reference) {
    let file = made(origin, root, "pieces").await.reference;
    let data = pattern(8 << 20);
    let piece = origin.traits().write_max as usize;
    let mut writes = tokio::task::JoinSet::new();
    // From the end, so that pieces arrive out of order.
    for at in (0..data.len()).step_by(piece).rev() {
        let (origin, file) = (Arc::clone(origin), file.clone());
        let bytes = data.slice(at..data.len().min(at + piece));
        writes.spawn(async move {
            origin.write(&file, at as u64, bytes, Stability::Unstable).await.expect("written")
        });
    }
    let mut verifiers = Vec::new();
    while let Some(written) = writes.join_next().await {
        verifiers.push(written.expect("no panic").verifier);
    }
    let committed = origin.commit(&file, ByteRange::new(0, 0)).await.expect("committed").verifier;
    assert!(verifiers.iter().all(|verifier| *verifier == committed), "the server did not restart");
    assert!(contents(origin, &file).await == data);
    gone(origin, root, "pieces").await;
}

async fn what_is_larger_than_one_call_is_written_whole(origin: &NfsOrigin, root: &Reference) {
    let file = made(origin, root, "large").await.reference;
    let data = pattern(2 * origin.traits().write_max as usize + 12_345);
    let written = origin.write(&file, 3, data.clone(), Stability::FileSync).await.expect("written");
    assert_eq!(written.stability, Stability::FileSync);
    let back = contents(origin, &file).await;
    assert!(back[..3] == [0, 0, 0] && back[3..] == data[..], "{} bytes", back.len());
    let nothing = origin.write(&file, 1, Bytes::new(), Stability::Unstable).await.expect("written");
    assert!(nothing.after.is_none_or(|after| after.attr.size == back.len() as u64), "nothing is nothing");
    for length in 0..=5 {
        let odd = data.slice(..length);
        origin.write(&file, 100, odd, Stability::DataSync).await.expect("written");
    }
    assert!(contents(origin, &file).await[100..105] == data[..5], "lengths that need padding");
    let beyond = origin.write(&file, u64::MAX, data.slice(..1), Stability::Unstable).await;
    assert_eq!(kind_of(beyond), ErrorKind::InvalidArgument);
    gone(origin, root, "large").await;
}

/// The server's file system holds about 1 MiB.
pub async fn a_full_disk_is_told(origin: &NfsOrigin) {
    let root = origin.root().await.expect("root").reference;
    let file = made(origin, &root, "file").await.reference;
    let full = origin.write(&file, 0, pattern(4 << 20), Stability::FileSync).await;
    assert_eq!(kind_of(full), ErrorKind::NoSpace);
}

/// The server's export forbids changes, and has the directory `full` in it.
pub async fn a_read_only_export_is_told(origin: &NfsOrigin) {
    let root = origin.root().await.expect("root").reference;
    let (full, x) = (name("full"), name("x"));
    let object = origin.lookup(&root, &full).await.expect("there").reference;
    assert_eq!(kind_of(create(origin, &root, "x", with_mode(0o600)).await), ErrorKind::ReadOnly);
    let (dir, set) = (root.clone(), with_mode(0o700));
    for change in [
        Change::Mkdir { dir: dir.clone(), name: x.clone(), set },
        Change::Rmdir { dir: dir.clone(), name: full.clone() },
        Change::Rename { from_dir: root, from: full, to_dir: dir.clone(), to: x.clone(), identity: None },
        Change::Set { object, set, guard: None },
        Change::Symlink { dir, name: x, target: "y".into(), set },
    ] {
        assert_eq!(kind_of(origin.change(&change).await), ErrorKind::ReadOnly, "{}", change.kind());
    }
}
