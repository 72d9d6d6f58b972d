//! What every target does alike.

use std::sync::Arc;

use bench_load::target::posix::{DirectoryOptions, PosixTarget};
use bench_load::target::{Client, EntryKind, Target, from_url};
use bytes::Bytes;
use types::ErrorKind;

use crate::memory::MemoryTarget;

/// Pieces of a file that is not a multiple of anything.
const SIZE: usize = 300_001;

fn pattern() -> Bytes {
    (0..SIZE as u64).map(|i| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect::<Vec<_>>().into()
}

/// The behaviour that the engine relies on. `target` may hold other things; all happens in `tried`.
pub async fn behaves(target: &Arc<dyn Target>) {
    let one = target.client(0).await.expect("a client");
    let two = target.client(1).await.expect("another client");
    one.mkdir("tried").await.expect("made");
    one.mkdir("tried").await.expect("made again: no error");
    one.mkdir("tried/deeper").await.expect("made");
    writes_and_reads(&*one, &*two).await;
    names_are_found_and_missed(&*one, &*two).await;
    tree_goes_again(&*one).await;
    assert!(target.about().await.expect("told").available.is_none_or(|available| available > 0));
}

async fn writes_and_reads(one: &dyn Client, two: &dyn Client) {
    let whole = pattern();
    let file = one.create("tried/deeper/file").await.expect("created");
    // Backwards, so that nothing can rely on the order.
    for start in (0..SIZE).step_by(70_000).collect::<Vec<_>>().into_iter().rev() {
        let piece = whole.slice(start..SIZE.min(start + 70_000));
        file.write(start as u64, piece).await.expect("written");
    }
    file.close().await.expect("closed");
    let read = two.open("tried/deeper/file").await.expect("opened by another client");
    assert_eq!(read.size(), SIZE as u64);
    let sequential = async |step: usize| {
        let mut all = Vec::new();
        while all.len() < SIZE {
            let piece = read.read(all.len() as u64, step).await.expect("read");
            assert_eq!(piece.len(), step.min(SIZE - all.len()), "exactly what is there");
            all.extend_from_slice(&piece);
        }
        assert!(all == whole, "in steps of {step}");
    };
    for step in [SIZE, 131_072, 65_536, 9_999] {
        sequential(step).await;
    }
    for (offset, length) in
        [(123_456, 100_000), (7, 1), (299_999, 10), (65_535, 2), (4096, 8192), (200_000, 1)]
    {
        let wanted = whole.slice(offset..SIZE.min(offset + length));
        assert_eq!(read.read(offset as u64, length).await.expect("read"), wanted, "{length} at {offset}");
    }
    assert_eq!(read.read(SIZE as u64, 10).await.expect("read").len(), 0, "nothing behind the end");
    assert_eq!(read.read(u64::MAX - 5, 10).await.map_or(0, |data| data.len()), 0);
    read.close().await.expect("closed");

    let again = one.create("tried/deeper/file").await.expect("opened to write, as it is");
    again.write(100, Bytes::from_static(b"over")).await.expect("written");
    assert_eq!(again.read(98, 8).await.expect("read"), [&whole[98..100], b"over", &whole[104..106]].concat());
    again.close().await.expect("closed");
    let after = two.open("tried/deeper/file").await.expect("opened");
    assert_eq!(after.size(), SIZE as u64, "what was there stays");
    assert_eq!(after.read(98, 8).await.expect("read"), [&whole[98..100], b"over", &whole[104..106]].concat());
}

fn refused<T>(done: types::Result<T>) -> ErrorKind {
    done.map(drop).expect_err("refused").kind()
}

async fn names_are_found_and_missed(one: &dyn Client, two: &dyn Client) {
    let status = two.stat("tried/deeper/file").await.expect("there");
    assert_eq!((status.kind, status.size), (EntryKind::File, SIZE as u64));
    assert_eq!(two.stat("tried").await.expect("there").kind, EntryKind::Directory);
    let mut listed: Vec<String> =
        one.list("tried").await.expect("listed").into_iter().map(|e| e.name).collect();
    listed.sort();
    assert_eq!(listed, ["deeper"]);
    assert!(one.list("").await.expect("listed").iter().any(|entry| entry.name == "tried"));
    for path in ["tried/missing", "missing/file"] {
        assert_eq!(refused(one.open(path).await), ErrorKind::NotFound);
        assert_eq!(refused(one.stat(path).await), ErrorKind::NotFound);
    }
    assert_eq!(refused(one.create("tried/none/file").await), ErrorKind::NotFound);
    assert_eq!(refused(one.open("tried").await), ErrorKind::IsADirectory);
    for path in ["../escape", "/etc/passwd", "tried/../../x"] {
        assert_eq!(refused(one.open(path).await), ErrorKind::Config, "{path}");
        assert_eq!(refused(one.remove(path).await), ErrorKind::Config, "{path}");
    }
    two.forget();
    assert_eq!(two.open("tried/deeper/file").await.expect("found again").size(), SIZE as u64);
}

async fn tree_goes_again(one: &dyn Client) {
    assert!(one.rmdir("tried/deeper").await.is_err(), "it is not empty");
    one.remove("tried/deeper/file").await.expect("removed");
    assert_eq!(refused(one.open("tried/deeper/file").await), ErrorKind::NotFound);
    assert_eq!(refused(one.remove("tried/deeper/file").await), ErrorKind::NotFound);
    one.rmdir("tried/deeper").await.expect("removed");
    one.rmdir("tried").await.expect("removed");
    assert_eq!(refused(one.stat("tried").await), ErrorKind::NotFound);
}

#[tokio::test]
async fn memory_behaves_and_has_an_end() {
    let memory: Arc<dyn Target> = MemoryTarget::new(1 << 20);
    behaves(&memory).await;
    assert_eq!(
        memory.about().await.expect("told").available,
        Some(1 << 20),
        "removed files give their room back"
    );
    let client = memory.client(0).await.expect("a client");
    let file = client.create("large").await.expect("created");
    file.write(0, vec![1; 900_000].into()).await.expect("fits");
    file.write(0, vec![2; 100_000].into()).await.expect("overwriting takes no room");
    let error = file.write(900_000, vec![3; 200_000].into()).await.expect_err("full");
    assert_eq!(error.kind(), ErrorKind::NoSpace);
}

#[tokio::test]
async fn a_directory_behaves_with_and_without_its_page_cache() {
    let dir = tempfile::tempdir().expect("directory");
    let open = |options| -> Arc<dyn Target> { PosixTarget::open(dir.path(), options).expect("opened") };
    let plain = open(DirectoryOptions { drop_pages: false, ..DirectoryOptions::default() });
    let dropping = open(DirectoryOptions { threads: 1, ..DirectoryOptions::default() });
    for target in [plain, dropping] {
        behaves(&target).await;
    }
    let direct = open(DirectoryOptions { direct: true, ..DirectoryOptions::default() });
    let client = direct.client(0).await.expect("a client");
    match client.create("probe").await {
        Ok(_) => {
            client.remove("probe").await.expect("removed");
            behaves(&direct).await;
        }
        // tmpfs had none for long.
        Err(error) => {
            assert!(error.to_string().contains("no O_DIRECT"), "{error}");
            client.remove("probe").await.expect("removed");
            eprintln!("not run: O_DIRECT, {error}");
        }
    }
    assert_eq!(std::fs::read_dir(dir.path()).expect("listed").count(), 0);
}

#[tokio::test]
async fn a_url_leads_to_a_target_that_works() {
    let dir = tempfile::tempdir().expect("directory");
    let path = dir.path().to_str().expect("a plain path");
    for url in [path.to_owned(), format!("file://{path}"), format!("file://{path}?drop=0")] {
        behaves(&from_url(&url).expect(&url)).await;
    }
}
