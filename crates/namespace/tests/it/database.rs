//! The metadata database on a disk that is full, and with bytes that are not what was written: a listing, a size or a
//! handle is right, or asked for again, or refused for a while; nothing panics.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use namespace::{Found, Junction, Namespace};
use testkit::far_origin::Far;
use types::{ErrorKind, Result, Timeline};

use crate::harness::{AFTER_TTL, Tier, names_in_pieces, open, tier};

const DIRECTORIES: usize = 6;
const FILES: usize = 30;

fn content(dir: usize, file: usize) -> Vec<u8> {
    format!("{dir}-{file}|").into_bytes().repeat(1 + (dir * FILES + file) % 40)
}

fn fill(far: &Far) {
    for dir in 0..DIRECTORIES {
        far.memory.mkdir(format!("d{dir}").as_bytes()).unwrap();
        for file in 0..FILES {
            far.memory.write_file(format!("d{dir}/file{file}").as_bytes(), &content(dir, file)).unwrap();
        }
    }
}

/// Asked again while the answer is that it passes, as clients do.
async fn patient<T, F: Future<Output = Result<T>>>(ask: impl Fn() -> F) -> Result<T> {
    let begun = Instant::now();
    loop {
        match ask().await {
            Err(e) if e.is_retryable() && begun.elapsed() < Duration::from_secs(20) => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            done => return done,
        }
    }
}

/// Everything, as a client sees it; who sees something that is not so fails.
async fn check(ns: &Arc<Namespace>) -> Result<()> {
    for dir in 0..DIRECTORIES {
        let path = format!("/d{dir}");
        let found = patient(|| ns.resolve(path.as_bytes())).await?;
        let names = patient(|| names_in_pieces(ns, found.id(), 7)).await?;
        let mut expected: Vec<_> = (0..FILES).map(|file| format!("file{file}").into_bytes()).collect();
        expected.sort();
        assert!(names == expected, "/d{dir} has {} names", names.len());
        for file in 0..FILES {
            let path = format!("/d{dir}/file{file}");
            let found = patient(|| ns.resolve(path.as_bytes())).await?;
            assert_eq!(found.attr().size, content(dir, file).len() as u64, "{path}");
        }
    }
    Ok(())
}

/// Handles of before: right, or refused.
async fn check_handles(ns: &Arc<Namespace>, handles: &[Found]) {
    for handle in handles {
        match patient(|| ns.getattr(handle.id(), namespace::Ask::Open)).await {
            Ok(now) => assert_eq!(now.attr().size, handle.attr().size),
            Err(e) => assert_eq!(e.kind(), ErrorKind::Stale, "{e}"),
        }
    }
}

/// As another file: who had the one before may be closing it, and write its end, at this moment.
fn put(path: &Path, bytes: &[u8]) {
    let beside = path.with_extension("beside");
    std::fs::write(&beside, bytes).unwrap_or_else(|e| panic!("{}: {e}", beside.display()));
    std::fs::rename(&beside, path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
}

/// FOREBAY_FLIPS=2000 tries so many; a few always.
#[tokio::test(flavor = "multi_thread")]
async fn a_flipped_bit_of_the_database_never_shortens_a_listing_nor_changes_a_size() {
    let t = tier();
    fill(&t.far);
    check(&t.ns).await.unwrap();
    let mut handles = Vec::new();
    for dir in 0..DIRECTORIES {
        handles.push(t.lookup(format!("/d{dir}/file{dir}").as_bytes()).await.unwrap());
    }
    let Tier { ns, far, clock, dir } = t;
    ns.shutdown().await;
    drop(ns);
    let path = dir.path().join("namespace.redb");
    let whole = std::fs::read(&path).unwrap();
    let used: Vec<usize> = (0..whole.len()).filter(|at| whole[*at] != 0).collect();
    let flips = std::env::var("FOREBAY_FLIPS").ok().and_then(|count| count.parse().ok()).unwrap_or(12);
    let (mut seed, mut lost) = (5_u64, 0);
    for flip in 0..flips {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let at = used[(seed >> 24) as usize % used.len()];
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (flip % 8);
        put(&path, &bytes);
        let ns = reopened(dir.path(), &far, &clock).await;
        check(&ns).await.unwrap_or_else(|e| panic!("byte {at}: {e}"));
        check_handles(&ns, &handles).await;
        let (trouble, told) = ns.database_trouble();
        assert_eq!(trouble, None, "it is open again");
        lost += usize::from(told.is_some_and(|told| told.contains("handles") && told.contains("damaged")));
        ns.shutdown().await;
    }
    println!("{flips} flips: {lost} found and told, {} in bytes that nobody reads", flips - lost);
    assert!(lost > 0, "none was found");
}

async fn reopened(dir: &Path, far: &Arc<Far>, clock: &Timeline) -> Arc<Namespace> {
    crate::harness::reopen(dir, || vec![Junction::new("/", far.clone())], clock).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_rots_while_running_is_begun_anew_without_a_restart() {
    let t = tier();
    fill(&t.far);
    check(&t.ns).await.unwrap();
    let Tier { ns, far, clock, dir } = t;
    ns.shutdown().await;
    drop(ns);
    // Pages that redb keeps in memory do not rot.
    let config =
        namespace::Config { dir: dir.path().to_owned(), database_cache_bytes: 0, ..Default::default() };
    let ns =
        Namespace::open_with_clock(config, vec![Junction::new("/", far.clone())], clock.clone()).unwrap();
    let path = dir.path().join("namespace.redb");
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[16 << 10..].iter_mut().for_each(|byte| *byte ^= 8);
    std::fs::write(&path, bytes).unwrap();
    check(&ns).await.unwrap();
    assert!(ns.database_trouble().1.is_some(), "it is told");
    check(&ns).await.unwrap();
    let known = ns.resolve(b"/d1/file1").await.unwrap();
    ns.shutdown().await;
    drop(ns);
    let ns = reopened(dir.path(), &far, &clock).await;
    far.set_down(true);
    assert_eq!(
        ns.getattr_known(known.id()).unwrap().id(),
        known.id(),
        "the new database keeps what is learnt"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn files_that_are_cut_emptied_removed_or_swapped_are_never_half_believed() {
    let t = tier();
    fill(&t.far);
    check(&t.ns).await.unwrap();
    let Tier { ns, far, clock, dir } = t;
    ns.shutdown().await;
    drop(ns);
    let (database, junctions) = (dir.path().join("namespace.redb"), dir.path().join("JUNCTIONS"));
    let whole = [&database, &junctions].map(|path| std::fs::read(path).unwrap());
    type Spoil = fn(&Path);
    let ways: [(&str, Spoil); 4] = [
        ("cut", |path| {
            let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
            file.set_len(file.metadata().unwrap().len() / 2).unwrap();
        }),
        ("emptied", |path| std::fs::write(path, "").unwrap()),
        ("removed", |path| std::fs::remove_file(path).unwrap()),
        ("swapped", |path| std::fs::write(path, b"another file's bytes".repeat(1000)).unwrap()),
    ];
    for path in [&database, &junctions] {
        for (how, spoil) in ways {
            put(&database, &whole[0]);
            put(&junctions, &whole[1]);
            spoil(path);
            let ns = reopened(dir.path(), &far, &clock).await;
            check(&ns).await.unwrap_or_else(|e| panic!("{} {how}: {e}", path.display()));
            ns.shutdown().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_of_another_cache_is_set_aside_and_one_that_is_gone_is_told() {
    let (t, other) = (tier(), tier());
    fill(&t.far);
    check(&t.ns).await.unwrap();
    // It knows other things under the same ids.
    other.far.memory.mkdir(b"d0").unwrap();
    other.far.memory.write_file(b"d0/file0", b"of another").unwrap();
    let dir = other.ns.resolve(b"/d0").await.unwrap();
    assert_eq!(names_in_pieces(&other.ns, dir.id(), 7).await.unwrap().len(), 1);
    other.ns.shutdown().await;
    let handle = t.lookup(b"/d1/file1").await.unwrap();
    let Tier { ns, far, clock, dir } = t;
    ns.shutdown().await;
    drop(ns);
    let path = dir.path().join("namespace.redb");
    std::fs::copy(other.dir.path().join("namespace.redb"), &path).unwrap();
    let ns = reopened(dir.path(), &far, &clock).await;
    check(&ns).await.unwrap();
    check_handles(&ns, &[handle]).await;
    let told = ns.database_trouble().1.expect("told");
    assert!(told.contains("of another cache") && told.contains("Lost: handles"), "{told}");
    ns.shutdown().await;
    drop(ns);
    std::fs::remove_file(&path).unwrap();
    let ns = reopened(dir.path(), &far, &clock).await;
    check(&ns).await.unwrap();
    let told = ns.database_trouble().1.expect("told");
    assert!(told.contains("was not there") && told.contains("Lost: handles"), "{told}");
    ns.shutdown().await;
    drop(ns);
    let ns = reopened(dir.path(), &far, &clock).await;
    assert_eq!(ns.database_trouble(), (None, None), "told once");
    ns.shutdown().await;
}

/// A tmpfs of 8 MiB, unmounted at the end.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<SmallDisk> {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=8m", "tmpfs"]).arg(dir.path()).stderr(Stdio::null());
        if mount.status().is_ok_and(|status| status.success()) {
            return Some(SmallDisk(dir));
        }
        println!("not run: mounting a tmpfs needs root");
        None
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_metadata_disk_is_told_and_waited_for_and_what_is_known_goes_on() {
    let Some(disk) = SmallDisk::mount() else { return };
    let (far, clock) = (Far::new("far:one"), Timeline::default());
    fill(&far);
    let ns = open(&disk.0.path().join("metadata"), vec![Junction::new("/", far.clone())], &clock).unwrap();
    check(&ns).await.unwrap();
    let hog = disk.0.path().join("hog");
    let mut full = std::fs::File::create(&hog).unwrap();
    while std::io::Write::write_all(&mut full, &[0; 4096]).is_ok() {}
    drop(full);
    let mut new = 0;
    let refused = loop {
        far.memory.mkdir(format!("new{new}").as_bytes()).unwrap();
        (0..40).for_each(|n| far.memory.write_file(format!("new{new}/{n:0>200}").as_bytes(), b"x").unwrap());
        clock.advance(AFTER_TTL);
        let found =
            async { names_in_pieces(&ns, ns.resolve(format!("/new{new}").as_bytes()).await?.id(), 50).await };
        match found.await {
            Ok(_) => new += 1,
            Err(e) => break e,
        }
        assert!(new < 500, "the disk is not full");
    };
    assert!(refused.is_retryable(), "{refused}");
    assert!(ns.database_trouble().0.is_some(), "it is told");
    let begun = Instant::now();
    check(&ns).await.unwrap();
    assert!(begun.elapsed() < Duration::from_secs(20), "what is known is answered meanwhile");
    std::fs::remove_file(&hog).unwrap();
    let path = format!("/new{new}");
    let found = patient(|| ns.resolve(path.as_bytes())).await.unwrap();
    assert_eq!(patient(|| names_in_pieces(&ns, found.id(), 50)).await.unwrap().len(), 40);
    assert_eq!(ns.database_trouble(), (None, None), "it goes on by itself, and nothing is lost");
    check(&ns).await.unwrap();
    ns.shutdown().await;
}
