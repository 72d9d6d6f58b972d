//! What a database gets through the file is what it wrote, or an error; never a panic that gets out.

use redb::{Database, ReadableDatabase, StorageBackend, TableDefinition};

use super::*;

const TABLE: TableDefinition<u64, &[u8]> = TableDefinition::new("table");

fn opened(path: &Path) -> (io::Result<PageFile>, Arc<PageFileHealth>) {
    let health = Arc::new(PageFileHealth::default());
    (PageFile::open(path, "test", WritePatience::Fail, health.clone()), health)
}

fn database(path: &Path) -> Result<Database, redb::Error> {
    let file = opened(path).0.map_err(redb::Error::Io)?;
    Ok(Database::builder().set_cache_size(0).create_with_backend(file)?)
}

fn value(n: u64) -> Vec<u8> {
    n.to_le_bytes().repeat(1 + n as usize % 50)
}

fn fill(database: &Database, numbers: std::ops::Range<u64>) {
    let txn = database.begin_write().unwrap();
    numbers.for_each(|n| drop(txn.open_table(TABLE).unwrap().insert(n, value(n).as_slice()).unwrap()));
    txn.commit().unwrap();
}

/// All values, if they can be read; who reads a wrong one fails.
fn check(database: &Database, count: u64) -> Result<(), redb::Error> {
    let txn = database.begin_read()?;
    let table = txn.open_table(TABLE)?;
    let mut found = 0;
    for item in table.range(0..)? {
        let (key, read) = item?;
        assert_eq!(read.value(), value(key.value()), "another value");
        found += 1;
    }
    assert_eq!(found, count, "entries are missing");
    for n in 0..count {
        assert_eq!(table.get(n)?.map(|read| read.value().to_vec()), Some(value(n)));
    }
    Ok(())
}

#[test]
fn places_and_lengths_are_inverse() {
    let mut last = 0;
    for page in 0..5 * GROUP {
        let at = layout::page_at(page);
        assert!(at > last && at.is_multiple_of(PAGE));
        assert!((0..6).all(|group| layout::sums_at(group) != at));
        last = at;
    }
    for length in [0, 1, PAGE, PAGE + 1, GROUP * PAGE, GROUP * PAGE + 1, 3 * GROUP * PAGE + 5 * PAGE] {
        assert_eq!(layout::logical(layout::physical(length)), length);
    }
}

#[test]
fn bytes_are_read_back_across_pages_groups_and_lengths() {
    let dir = tempfile::tempdir().unwrap();
    let file = opened(&dir.path().join("db")).0.unwrap();
    let length = (GROUP + 10) * PAGE;
    file.set_len(length).unwrap();
    let mut model = vec![0; length as usize];
    let mut seed = 7_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) % below
    };
    for n in 0..300 {
        let at =
            if n % 3 == 0 { (GROUP - 2) * PAGE + random(4 * PAGE) } else { PAGE + random(length - PAGE) };
        let bytes = vec![n as u8; random(3 * PAGE).min(length - at) as usize];
        file.write(at, &bytes).unwrap();
        model[at as usize..at as usize + bytes.len()].copy_from_slice(&bytes);
        let from = PAGE + random(length - PAGE);
        let mut read = vec![0; random(5 * PAGE).min(length - from) as usize];
        file.read(from, &mut read).unwrap();
        assert!(read == model[from as usize..from as usize + read.len()]);
    }
    let (cut, again) = ((GROUP / 2) * PAGE, GROUP * PAGE);
    file.set_len(cut).unwrap();
    file.set_len(again).unwrap();
    let mut read = vec![1; (again - cut) as usize];
    file.read(cut, &mut read).unwrap();
    assert!(read.iter().all(|byte| *byte == 0), "what is added is zeros");
    assert!(file.read(again - 1, &mut [0; 2]).is_err());
}

#[test]
fn a_database_of_an_older_version_gets_its_checksums_and_keeps_all() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let plain = Database::create(&path).unwrap();
    fill(&plain, 0..2000);
    drop(plain);
    for _ in 0..2 {
        check(&database(&path).unwrap(), 2000).unwrap();
    }
    let mut head = [0; 8];
    File::open(&path).unwrap().read_exact_at(&mut head, 0).unwrap();
    assert_eq!(&head, b"FBAYPAGE");
}

/// FOREBAY_FLIPS=2000 tries so many; a few always.
#[test]
fn a_flipped_bit_anywhere_is_an_error_and_never_another_value_or_a_panic() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let whole = database(&path).unwrap();
    (0..40).for_each(|n| fill(&whole, n * 50..n * 50 + 50));
    drop(whole);
    let bytes = std::fs::read(&path).unwrap();
    let used: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
    let flips = std::env::var("FOREBAY_FLIPS").ok().and_then(|count| count.parse().ok()).unwrap_or(40);
    let (mut seed, mut held, mut found) = (3_u64, 0, 0);
    for flip in 0..flips {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let at = used[(seed >> 24) as usize % used.len()];
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (flip % 8);
        std::fs::write(&path, &damaged).unwrap();
        let outcome = contained(|| database(&path).and_then(|database| check(&database, 2000)));
        match outcome {
            Ok(Ok(())) => held += 1,
            Ok(Err(e)) => {
                assert!(is_damage(&e), "byte {at}: {e}");
                found += 1;
            }
            Err(panic) => panic!("byte {at}, bit {}: {panic}", flip % 8),
        }
    }
    println!("{flips} flips in {} bytes: {found} found, {held} in bytes that nobody reads", bytes.len());
    assert!(found > flips / 2, "{found} of {flips}");
}

#[test]
fn pages_that_change_places_or_come_from_another_file_do_not_pass() {
    let dir = tempfile::tempdir().unwrap();
    let [one, other] = ["one", "other"].map(|name| dir.path().join(name));
    for path in [&one, &other] {
        let file = opened(path).0.unwrap();
        file.set_len(10 * PAGE).unwrap();
        (1..10).for_each(|page| file.write(page * PAGE, &vec![page as u8; PAGE as usize]).unwrap());
    }
    let mut bytes = std::fs::read(&one).unwrap();
    let place = |page| layout::page_at(page) as usize..layout::page_at(page) as usize + PAGE as usize;
    let (three, sum_of_three) =
        (bytes[place(3)].to_vec(), bytes[layout::sums_at(0) as usize + 12..][..4].to_vec());
    bytes[place(4)].copy_from_slice(&three);
    bytes[layout::sums_at(0) as usize + 16..][..4].copy_from_slice(&sum_of_three);
    let others = std::fs::read(&other).unwrap();
    bytes[place(5)].copy_from_slice(&others[place(5)]);
    bytes[layout::sums_at(0) as usize + 20..][..4]
        .copy_from_slice(&others[layout::sums_at(0) as usize + 20..][..4]);
    std::fs::write(&one, bytes).unwrap();
    let (file, health) = opened(&one);
    let file = file.unwrap();
    let mut page = [0; PAGE as usize];
    file.read(3 * PAGE, &mut page).unwrap();
    for moved in [4, 5] {
        assert_eq!(file.read(moved * PAGE, &mut page).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
    assert!(health.damage().is_some_and(|damage| damage.contains("page 4")));
}

#[test]
fn what_a_failed_sync_may_have_lost_is_written_again_or_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let file = opened(&path).0.unwrap();
    file.set_len(10 * PAGE).unwrap();
    (1..10).for_each(|page| file.write(page * PAGE, &vec![1; PAGE as usize]).unwrap());
    file.write(0, &[1; 300]).unwrap();
    file.sync_data().unwrap();
    let before = std::fs::read(&path).unwrap();
    file.write(3 * PAGE, &vec![2; PAGE as usize]).unwrap();
    file.write(0, &[2; 300]).unwrap();
    // The header and the checksums as the disk has them when the kernel drops what it could not write.
    let disk = File::options().write(true).open(&path).unwrap();
    disk.write_all_at(&before[..layout::page_at(0) as usize], 0).unwrap();
    file.sync(true).unwrap();
    drop(file);
    let (file, mut page) = (opened(&path).0.unwrap(), vec![0; PAGE as usize]);
    file.read(3 * PAGE, &mut page).unwrap();
    assert!(page.iter().all(|byte| *byte == 2), "and it is what was written");
    file.read(0, &mut page[..300]).unwrap();
    assert!(page[..300].iter().all(|byte| *byte == 2), "the header too");
    // A page of which the kernel shows the disk's bytes again.
    file.write(4 * PAGE, &vec![3; PAGE as usize]).unwrap();
    disk.write_all_at(&[1; PAGE as usize], layout::page_at(4)).unwrap();
    assert_eq!(file.sync(true).unwrap_err().kind(), io::ErrorKind::InvalidData);
}

#[test]
fn a_file_that_is_cut_emptied_or_of_another_kind_is_damage_or_a_new_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let whole = database(&path).unwrap();
    fill(&whole, 0..3000);
    drop(whole);
    let bytes = std::fs::read(&path).unwrap();
    for cut in [1, 100, HEAD as usize, HEAD as usize + 5000, bytes.len() / 2, bytes.len() - 1] {
        std::fs::write(&path, &bytes[..cut]).unwrap();
        let outcome = contained(|| database(&path).and_then(|database| check(&database, 3000)));
        match outcome {
            Ok(outcome) => assert!(outcome.is_err(), "cut at {cut}: read as whole"),
            Err(panic) => {
                assert!(!panic.contains("entries are missing") && !panic.contains("another value"), "{panic}")
            }
        }
    }
    std::fs::write(&path, &bytes).unwrap();
    let health = Arc::new(PageFileHealth::default());
    let other = PageFile::open(&path, "other", WritePatience::Fail, health.clone());
    assert!(other.is_err() && health.damage().is_some());
    assert!(set_aside(&path).unwrap().exists() && !path.exists());
}
