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
    assert_eq!(refused.kind(), ErrorKind::Busy);
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

/// A journal on a disk of its own, and the bond that the cache keeps of it.
fn bonded(place: &Path) -> writeback::Config {
    writeback::Config { bond: Some(place.join("JOURNAL")), ..config(&place.join("journal"), 16) }
}

fn accepting(place: &Path) -> writeback::Config {
    writeback::Config { accept_other: true, ..bonded(place) }
}

async fn bonded_with_entries(place: &Path, close: bool) {
    let (journal, _) = Journal::open(bonded(place)).unwrap();
    append(&journal, 0..40).await;
    if close {
        journal.close().await.unwrap();
    }
}

fn refused(place: &Path) -> String {
    let refused = Journal::open(bonded(place)).err().expect("refused");
    assert_eq!(refused.kind(), ErrorKind::Config);
    refused.to_string()
}

#[tokio::test]
async fn a_missing_journal_is_never_an_empty_one() {
    for close in [true, false] {
        let place = tempfile::tempdir().unwrap();
        bonded_with_entries(place.path(), close).await;
        fs::rename(place.path().join("journal"), place.path().join("elsewhere")).unwrap();
        for _ in 0..2 {
            let told = refused(place.path());
            assert!(told.contains("--accept-journal-damage") && told.contains("mount its disk"), "{told}");
            assert_eq!(told.contains("40 acknowledged operations"), close, "{told}");
        }
        fs::remove_dir_all(place.path().join("journal")).unwrap();
        fs::rename(place.path().join("elsewhere"), place.path().join("journal")).unwrap();
        let (journal, recovered) = Journal::open(bonded(place.path())).unwrap();
        assert_eq!(journal.damage(), []);
        assert_eq!(
            check_all(&journal, recovered).await.len(),
            40,
            "the disk is back, and so is all that was acknowledged"
        );
    }
}

#[tokio::test]
async fn an_old_journal_that_comes_back_is_not_replayed_over_newer_data() {
    let place = tempfile::tempdir().unwrap();
    bonded_with_entries(place.path(), true).await;
    let (dir, elsewhere) = (place.path().join("journal"), place.path().join("elsewhere"));
    fs::rename(&dir, &elsewhere).unwrap();
    let (journal, recovered) = Journal::open(accepting(place.path())).unwrap();
    assert_eq!(recovered.count(), 0);
    let sequence = append(&journal, 100..101).await;
    assert!(sequence > 40, "no sequence is given out again");
    drop(journal);
    fs::rename(&dir, place.path().join("newer")).unwrap();
    fs::rename(&elsewhere, &dir).unwrap();
    let told = refused(place.path());
    assert!(told.contains("not the one of this cache"), "{told}");
    let (journal, recovered) = Journal::open(accepting(place.path())).unwrap();
    assert_eq!(recovered.count(), 0, "accepted, it is set aside and not replayed");
    drop(journal);
    let aside = fs::read_dir(&dir).unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    let aside: Vec<_> = aside.filter(|name| name.starts_with("set-aside-")).collect();
    assert_eq!(aside.len(), 1);
    assert!(dir.join(&aside[0]).join("00000001.journal").exists(), "an operator finds it");
}

#[tokio::test]
async fn a_segment_that_is_missing_emptied_or_cut_after_a_crash_is_damage() {
    for what in ["removed", "emptied", "cut"] {
        let place = tempfile::tempdir().unwrap();
        bonded_with_entries(place.path(), false).await;
        let last = segments(&place.path().join("journal")).pop().unwrap();
        match what {
            "removed" => fs::remove_file(&last).unwrap(),
            "emptied" => fs::write(&last, "").unwrap(),
            _ => fs::OpenOptions::new().write(true).open(&last).unwrap().set_len(64 + 1000).unwrap(),
        }
        for _ in 0..2 {
            let (journal, _) = Journal::open(bonded(place.path())).unwrap();
            let name = last.file_name().unwrap().to_str().unwrap();
            assert!(
                journal.damage().iter().any(|damage| damage.file == name),
                "{what}: {:?}",
                journal.damage()
            );
            assert!(
                journal.append(head(0), data(0), soon()).await.is_err(),
                "{what}: taken for nothing to do"
            );
        }
        let (journal, _) = Journal::open(accepting(place.path())).unwrap();
        journal.accept_damage().unwrap();
        assert!(append(&journal, 50..51).await > 40, "no sequence is given out again");
        drop(journal);
        let (journal, recovered) = Journal::open(bonded(place.path())).unwrap();
        let damage = journal.damage().to_vec();
        assert!(what != "removed" || damage.is_empty(), "accepted once, {damage:?} is not told again");
        assert!(recovered.count() >= 1);
    }
}

#[tokio::test]
async fn a_journal_of_before_bonds_and_a_lost_bond_go_on() {
    let place = tempfile::tempdir().unwrap();
    let (journal, _) = Journal::open(config(&place.path().join("journal"), 16)).unwrap();
    append(&journal, 0..3).await;
    drop(journal);
    for damaged in [false, true] {
        if damaged {
            fs::write(place.path().join("JOURNAL"), "x").unwrap();
        }
        let (journal, recovered) = Journal::open(bonded(place.path())).unwrap();
        assert_eq!((journal.damage(), recovered.count()), (&[][..], 3));
    }
    fs::write(place.path().join("JOURNAL"), "x").unwrap();
    fs::remove_dir_all(place.path().join("journal")).unwrap();
    assert!(refused(place.path()).contains("cannot be read"));
}
