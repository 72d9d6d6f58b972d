//! What a user of the crate sees on a real directory: one owner, one format, ends that are told apart.

use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::Instant;
use types::{ByteRange, ErrorKind};
use writeback::{DATA_MAX, HEAD_MAX, Journal, Recovered};

use crate::content::{check_all, config, data, head};

/// Another test may be between fork and exec: its child has the lock of a journal that was dropped a moment ago.
fn opened(dir: &Path, segments: u64) -> (Journal, Recovered) {
    for _ in 0..500 {
        match Journal::open(config(dir, segments)) {
            Err(e) if e.to_string().contains("in use") => std::thread::sleep(Duration::from_millis(10)),
            opened => return opened.expect("opens"),
        }
    }
    panic!("somebody else has it")
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

async fn append(journal: &Journal, numbers: std::ops::Range<u64>) -> u64 {
    let mut last = 0;
    for number in numbers {
        last = journal.append(head(number), data(number), soon()).await.unwrap().sequence;
    }
    journal.synced(last).await.unwrap();
    last
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let names = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    let mut names: Vec<PathBuf> =
        names.filter(|path| path.extension().is_some_and(|end| end == "journal")).collect();
    names.sort();
    names
}

#[tokio::test]
async fn entries_come_back_in_order_after_each_kind_of_end() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = opened(dir.path(), 16);
    let first = journal.verifier();
    append(&journal, 0..100).await;
    journal.close().await.unwrap();
    assert!(journal.append(head(0), data(0), soon()).await.is_err(), "it is closed");
    drop(journal);

    let (journal, recovered) = opened(dir.path(), 16);
    assert_eq!(journal.verifier(), first, "a clean end keeps the verifier");
    let found = check_all(&journal, recovered).await;
    assert_eq!(found.iter().map(|(_, number)| *number).collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
    append(&journal, 100..110).await;
    drop(journal);

    let (journal, recovered) = opened(dir.path(), 16);
    assert_ne!(journal.verifier(), first, "an unclean end changes it");
    assert_eq!(check_all(&journal, recovered).await.len(), 110);
}

#[tokio::test]
async fn what_is_done_leaves_and_its_segments_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = opened(dir.path(), 16);
    let last = append(&journal, 0..200).await;
    let before = segments(dir.path());
    assert!(before.len() > 3);
    journal.done(&(1..last).collect::<Vec<_>>()).await.unwrap();
    let patience = Instant::now() + Duration::from_secs(60);
    while segments(dir.path()).len() > 1 && Instant::now() < patience {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let left = segments(dir.path());
    assert_eq!(left, before[before.len() - 1..]);
    journal.close().await.unwrap();
    drop(journal);
    let (journal, recovered) = opened(dir.path(), 16);
    assert_eq!(check_all(&journal, recovered).await, [(last, 199)]);
    let position = journal.append(head(1), data(1), soon()).await.unwrap().position;
    journal.done(&[position.sequence]).await.unwrap();
    let gone = journal.read(position, ByteRange::new(0, 1)).await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::Stale);
}

#[tokio::test]
async fn the_largest_entry_fits_and_a_larger_one_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = opened(dir.path(), 4);
    let (head, data) = (vec![1; HEAD_MAX as usize], vec![2; DATA_MAX as usize]);
    let ticket = journal.append(head.clone().into(), data.clone().into(), soon()).await.unwrap();
    let piece = journal.read(ticket.position, ByteRange::new(DATA_MAX.into(), 5)).await.unwrap();
    assert!(piece.is_empty(), "beyond the data there is nothing");
    assert_eq!(journal.read(ticket.position, ByteRange::new(7, 5)).await.unwrap(), data[7..12]);
    assert_eq!(journal.head(ticket.sequence).await.unwrap(), head);
    let too_long = [(HEAD_MAX as usize + 1, 0), (0, DATA_MAX as usize + 1)];
    for (head, data) in too_long {
        let refused = journal.append(vec![0; head].into(), vec![0; data].into(), soon()).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidArgument);
    }
}

#[tokio::test]
async fn a_second_owner_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, recovered) = opened(dir.path(), 4);
    let refused = Journal::open(config(dir.path(), 4)).err().expect("refused");
    assert_eq!(refused.kind(), ErrorKind::Config);
    assert!(refused.to_string().contains("in use"), "{refused}");
    drop((journal, recovered));
    drop(opened(dir.path(), 4));
}

#[tokio::test]
async fn a_journal_of_another_format_says_who_wrote_it() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = opened(dir.path(), 4);
    append(&journal, 0..1).await;
    drop(journal);
    let path = &segments(dir.path())[0];
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut header = [0; 64];
    file.read_exact_at(&mut header, 0).unwrap();
    header[8] = 77;
    header[12..24].copy_from_slice(b"9.1.0\0\0\0\0\0\0\0");
    let crc = crc32c::crc32c(&header[..60]);
    header[60..].copy_from_slice(&crc.to_le_bytes());
    file.write_all_at(&header, 0).unwrap();
    let refused = Journal::open(config(dir.path(), 4)).err().expect("refused");
    assert_eq!(refused.kind(), ErrorKind::Config);
    assert!(refused.to_string().contains("format 77, written by Forebay 9.1.0"), "{refused}");
}

#[tokio::test]
async fn what_a_crash_left_half_made_is_no_damage() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = opened(dir.path(), 4);
    append(&journal, 0..3).await;
    drop(journal);
    for (name, length) in [("00000002.new", 0), ("00000003.new", 17), ("STATE.new", 3), ("RESERVE", 100)] {
        fs::write(dir.path().join(name), vec![0; length]).unwrap();
    }
    let (journal, recovered) = opened(dir.path(), 4);
    assert_eq!(journal.damage(), []);
    assert_eq!(check_all(&journal, recovered).await.len(), 3);
    append(&journal, 3..60).await;
}

#[tokio::test]
async fn damage_is_named_and_the_rest_stays_readable_and_nothing_goes_on_unasked() {
    let dir = tempfile::tempdir().unwrap();
    let (journal, _) = opened(dir.path(), 16);
    append(&journal, 0..100).await;
    journal.close().await.unwrap();
    drop(journal);
    let path = &segments(dir.path())[0];
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    // The first entry's frame: its sequence.
    file.write_all_at(&[0xff], 64 + 8).unwrap();
    let (journal, recovered) = opened(dir.path(), 16);
    let [damage] = journal.damage() else { panic!("{:?}", journal.damage()) };
    assert_eq!((damage.file.as_str(), damage.offset), ("00000001.journal", 64));
    assert_eq!(check_all(&journal, recovered).await.len(), 99);
    let refused = journal.append(head(0), data(0), soon()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Corrupt);
    assert!(refused.to_string().contains("00000001.journal at 64"), "{refused}");
    drop(journal);
    let (journal, _) = opened(dir.path(), 16);
    assert_eq!(journal.damage().len(), 1, "it stays known while nobody accepts it");
    journal.accept_damage().unwrap();
    append(&journal, 100..101).await;
    drop(journal);
    let (journal, _) = opened(dir.path(), 16);
    assert_eq!(journal.damage().len(), 1, "it stays known until its segment leaves");
}

#[tokio::test]
async fn a_lost_state_and_a_lost_last_segment_are_damage_until_accepted() {
    for lost in ["STATE", "00000003.journal"] {
        let dir = tempfile::tempdir().unwrap();
        let (journal, _) = opened(dir.path(), 16);
        let verifier = journal.verifier();
        append(&journal, 0..100).await;
        journal.close().await.unwrap();
        drop(journal);
        assert_eq!(segments(dir.path()).len(), 3, "the one that is lost is the last");
        fs::remove_file(dir.path().join(lost)).unwrap();
        for _ in 0..2 {
            let (journal, _) = opened(dir.path(), 16);
            assert_eq!(journal.damage()[0].file, lost);
            assert_ne!(journal.verifier(), verifier);
        }
        let (journal, recovered) = opened(dir.path(), 16);
        journal.accept_damage().unwrap();
        let found = check_all(&journal, recovered).await;
        let next = append(&journal, 100..101).await;
        assert!(next > 100 && found.len() <= 100, "no sequence is given out again");
        drop(journal);
        let (journal, recovered) = opened(dir.path(), 16);
        assert_eq!(journal.damage().iter().filter(|damage| damage.file == "STATE").count(), 0);
        assert_eq!(check_all(&journal, recovered).await.len(), found.len() + 1);
    }
}
