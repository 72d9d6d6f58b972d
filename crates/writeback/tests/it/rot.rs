//! Files of a journal that are not what was written: what was acknowledged is read as it was, or it is told that something
//! is not; nothing panics.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;
use types::{ByteRange, ErrorKind};
use writeback::{Config, Journal};

use crate::content::{config, data, head};

/// More than one segment takes.
const ENTRIES: u64 = 60;
/// Every so many is done.
const DONE_EVERY: u64 = 7;
/// Frame, and a head of this test's.
const RECORD: usize = 48 + 8;
const MARK: &[u8] = b"FBjr";

fn bonded(place: &Path) -> Config {
    Config { bond: Some(place.join("JOURNAL")), ..config(&place.join("journal"), 16) }
}

/// A journal with entries that nobody has flushed, as a clean end or a kill leaves it.
async fn filled(place: &Path, close: bool) {
    fs::create_dir_all(place).unwrap();
    let (journal, _) = Journal::open(bonded(place)).unwrap();
    let mut last = 0;
    for number in 0..ENTRIES {
        let soon = Instant::now() + Duration::from_secs(60);
        last = journal.append(head(number), data(number), soon).await.unwrap().sequence;
        if number % DONE_EVERY == 0 {
            journal.done(&[last]).await.unwrap();
        }
    }
    journal.synced(last).await.unwrap();
    journal.done_synced().await.unwrap();
    if close {
        journal.close().await.unwrap();
    }
}

fn expected() -> BTreeSet<u64> {
    (0..ENTRIES).filter(|number| number % DONE_EVERY != 0).collect()
}

/// Files of the journal and its bond, below `place`.
fn files(place: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(place.join("journal")).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.filter(|name| name != "LOCK").map(|name| Path::new("journal").join(name));
    let mut files: Vec<PathBuf> = names.chain([PathBuf::from("JOURNAL")]).collect();
    files.sort();
    files
}

/// `place` is as `from` was.
fn restore(from: &Path, place: &Path) {
    let _ = fs::remove_dir_all(place);
    fs::create_dir_all(place.join("journal")).unwrap();
    for file in files(from) {
        fs::copy(from.join(&file), place.join(&file)).unwrap();
    }
}

/// What an open comes to. True: it is told that something is not what it was.
async fn opened(place: &Path) -> Result<bool, String> {
    let (journal, recovered) = match Journal::open(bonded(place)) {
        Ok(opened) => opened,
        Err(e) if e.kind() == ErrorKind::Config => return Ok(true),
        Err(e) => return Err(format!("refused by {e}")),
    };
    let mut told = !journal.damage().is_empty();
    let mut found = BTreeSet::new();
    for entry in recovered {
        let read = match entry {
            Ok(entry) => {
                let whole = ByteRange::new(0, entry.position.data_length.into());
                journal.read(entry.position, whole).await.map(|bytes| (entry, bytes))
            }
            Err(e) => Err(e),
        };
        match read {
            Ok((entry, bytes)) => {
                let number = entry.head.as_ref().try_into().map(u64::from_le_bytes);
                let number = number.map_err(|_| "a head of another length".to_owned())?;
                if bytes != data(number) || !found.insert(number) {
                    return Err(format!("entry {number} has other bytes, or is there twice"));
                }
            }
            Err(e) if e.kind() == ErrorKind::Corrupt => told = true,
            Err(e) => return Err(format!("read: {e}")),
        }
    }
    match found == expected() || told {
        true => Ok(told),
        false => Err(format!("nothing is told, and there are {found:?}")),
    }
}

struct TestRandom(u64);

impl TestRandom {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 24) as usize % end
    }
}

/// Places in a file that are worth a flip.
struct Places {
    length: usize,
    used: Vec<usize>,
    records: Vec<usize>,
}

impl Places {
    fn of(path: &Path) -> Places {
        let bytes = fs::read(path).unwrap();
        let used = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
        let places = (0..bytes.len()).step_by(8);
        Places {
            length: bytes.len(),
            used,
            records: places.filter(|at| bytes[*at..].starts_with(MARK)).collect(),
        }
    }

    /// Records are small beside what is written: half of the flips are in them.
    fn any(&self, random: &mut TestRandom) -> usize {
        if self.used.is_empty() {
            random.below(self.length)
        } else if self.records.is_empty() || random.below(2) == 0 {
            self.used[random.below(self.used.len())]
        } else {
            (self.records[random.below(self.records.len())] + random.below(RECORD)).min(self.length - 1)
        }
    }
}

/// FOREBAY_FLIPS=2000 tries so many; a few always.
#[tokio::test]
async fn a_flipped_bit_of_any_file_of_a_journal_is_told_and_no_entry_is_another() {
    let flips = std::env::var("FOREBAY_FLIPS").ok().and_then(|count| count.parse().ok()).unwrap_or(40);
    let dir = tempfile::tempdir().unwrap();
    let [closed, killed, place] = ["closed", "killed", "place"].map(|name| dir.path().join(name));
    filled(&closed, true).await;
    filled(&killed, false).await;
    let all = [&closed, &killed].map(|from| {
        let files = files(from).into_iter().map(|file| (Places::of(&from.join(&file)), file));
        files.collect::<Vec<_>>()
    });
    let (mut random, mut told) = (TestRandom(7), 0);
    for flip in 0..flips {
        let from = [&closed, &killed][flip % 2];
        let (places, file) = &all[flip % 2][flip / 2 % all[flip % 2].len()];
        restore(from, &place);
        let at = places.any(&mut random);
        let opened_file = fs::File::options().read(true).write(true).open(place.join(file)).unwrap();
        let mut byte = [0];
        opened_file.read_exact_at(&mut byte, at as u64).unwrap();
        opened_file.write_all_at(&[byte[0] ^ 1 << random.below(8)], at as u64).unwrap();
        let outcome = opened(&place).await;
        told += usize::from(
            outcome.unwrap_or_else(|e| panic!("byte {at} of {} in {}: {e}", file.display(), from.display())),
        );
    }
    println!("{flips} flips: {told} told, {} that change nothing", flips - told);
    assert!(told > flips / 3, "{told} of {flips}");
}

#[tokio::test]
async fn files_of_a_journal_that_are_cut_emptied_removed_or_swapped_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let [closed, killed, other, place] =
        ["closed", "killed", "other", "place"].map(|name| dir.path().join(name));
    filled(&closed, true).await;
    filled(&killed, false).await;
    filled(&other, true).await;
    for from in [&closed, &killed] {
        for file in files(from) {
            for how in ["cut", "emptied", "removed", "of another journal", "of another kind"] {
                restore(from, &place);
                let path = place.join(&file);
                let bytes = fs::read(&path).unwrap();
                let spoilt = match how {
                    "cut" => fs::write(&path, &bytes[..bytes.len() / 2]),
                    "emptied" => fs::write(&path, ""),
                    "removed" => fs::remove_file(&path),
                    "of another journal" if !other.join(&file).exists() => continue,
                    "of another journal" => fs::copy(other.join(&file), &path).map(drop),
                    _ => fs::write(&path, b"another file's bytes".repeat(1000)),
                };
                spoilt.unwrap();
                let outcome = opened(&place).await;
                outcome.unwrap_or_else(|e| panic!("{} {how} in {}: {e}", file.display(), from.display()));
            }
        }
        // Two segments that have changed places.
        restore(from, &place);
        let [one, two] =
            ["00000001.journal", "00000002.journal"].map(|name| place.join("journal").join(name));
        let between = place.join("between");
        fs::rename(&one, &between).unwrap();
        fs::rename(&two, &one).unwrap();
        fs::rename(&between, &two).unwrap();
        assert!(opened(&place).await.unwrap(), "segments that have changed places");
    }
}
