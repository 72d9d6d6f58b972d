//! Random histories with power cuts, kills, failed syncs, full disks and rot, against a model; and proof that the
//! same harness finds planted bugs.

mod history;
mod model;

use std::collections::BTreeMap;

use std::sync::Arc;

use history::{Outcome, play};

use super::{Append, Log, LogOptions};
use crate::crash_points::JournalStep;
use crate::disk::Disk;
use crate::disk::faulty::FaultyDisk;
use crate::sabotage::{Bug, Sabotage};

#[test]
fn what_was_acknowledged_survives_every_cut() {
    let mut total = Outcome::default();
    // WRITEBACK_SEEDS=FIRST..LAST plays others: more for the record, one to look at.
    let asked = std::env::var("WRITEBACK_SEEDS").ok();
    let asked = asked.as_deref().and_then(|text| text.split_once(".."));
    let seeds = asked.map(|(first, last)| first.parse().expect("a seed")..=last.parse().expect("a seed"));
    for seed in seeds.clone().unwrap_or(1..=2_500) {
        match play(seed, None) {
            Ok(outcome) => total.add(&outcome),
            Err(violation) => panic!("seed {seed}: {violation}"),
        }
    }
    println!("seeds {:?}: {total:#?}", seeds.as_ref().unwrap_or(&(1..=2_500)));
    if seeds.is_some() {
        return;
    }
    // The harness would find nothing if these did not happen.
    for step in JournalStep::ALL {
        assert!(total.cuts_at.contains_key(&format!("{step:?}")), "no cut at {step:?}");
    }
    for (what, count) in [
        ("cuts with acknowledged entries", total.cuts_with_acknowledged),
        ("cuts with unacknowledged entries", total.cuts_with_unacknowledged),
        ("entries lost that nobody was promised", total.lost_unacknowledged),
        ("cuts that took a part of what was not synced", total.lost_in_part),
        ("kills with entries that were not synced", total.kills_with_unsynced),
        ("failed syncs", total.failed_syncs),
        ("kills", total.kills),
        ("clean ends", total.clean_ends),
        ("appends refused for lack of room", total.refused_for_room),
        ("segments compacted", total.compacted),
        ("rotten bytes", total.rotten),
    ] {
        assert!(count >= 100, "{what}: {count}");
    }
}

#[test]
fn planted_bugs_are_found() {
    const BUGS: [Bug; 20] = [
        Bug::SkipSync,
        Bug::AcknowledgeBeforeSync,
        Bug::IgnoreFailedSync,
        Bug::SkipSyncDir,
        Bug::SkipSyncDirOnRemove,
        Bug::SkipSyncOnSeal,
        Bug::ReuseSequence,
        Bug::DoneBeforeMove,
        Bug::RemoveBeforeCopy,
        Bug::RemoveOutOfOrder,
        Bug::ShortCrc,
        Bug::UnboundFrame,
        Bug::KeepVerifier,
        Bug::CutSealed,
        Bug::TrustTail,
        Bug::KeepBeyondGap,
        Bug::KeepSyncedOnly,
        Bug::TrustCache,
        Bug::ForgetDone,
        Bug::StalePosition,
    ];
    let mut found = BTreeMap::new();
    for bug in BUGS {
        let first = (1..=2_500).find_map(|seed| play(seed, Some(bug)).err().map(|what| (seed, what)));
        println!(
            "{bug:?}: {}",
            first.as_ref().map_or("NOT FOUND".into(), |(seed, what)| format!("seed {seed}: {what}"))
        );
        found.insert(format!("{bug:?}"), first);
    }
    let missed: Vec<_> = found.iter().filter(|(_, first)| first.is_none()).map(|(bug, _)| bug).collect();
    println!("planted bugs found: {}/{}", found.len() - missed.len(), found.len());
    assert!(missed.is_empty(), "not found: {missed:?}");
}

/// The order is part of what is checked: where a start keeps what lies behind a gap, that is what is told.
#[test]
fn what_is_kept_beyond_a_gap_is_found_as_a_hole() {
    let found = (1..=2_500).filter_map(|seed| play(seed, Some(Bug::KeepBeyondGap)).err());
    let holes = found.filter(|told| told.contains("not a prefix")).take(3).count();
    assert_eq!(holes, 3);
}

fn log_on(disk: &Arc<FaultyDisk>) -> Log {
    log_of(disk, 8 * 4096)
}

fn log_of(disk: &Arc<FaultyDisk>, size_max: u64) -> Log {
    let sabotage = Sabotage::default();
    let (segment_size, fresh) = (4096, [1; 16]);
    let hook: crate::crash_points::Hook = Arc::new(|_| {});
    let timeline = types::Timeline::default();
    Log::open(
        disk.clone(),
        LogOptions { size_max, segment_size, fresh, hook, sabotage, timeline, bond: None },
    )
    .unwrap()
}

fn append(log: &Log, length: usize) -> crate::Position {
    let Append::Written(position) = log.append(b"op", &vec![7; length]).unwrap() else { panic!("full") };
    position
}

/// Entries of a quarter segment each, done as soon as they are written.
fn append_done(log: &Log, count: u64, fill: u8) {
    for _ in 0..count {
        let Append::Written(position) = log.append(b"op", &[fill; 900]).unwrap() else { panic!("full") };
        log.done(position.sequence).unwrap();
        log.reclaim().unwrap();
    }
}

fn spares(disk: &FaultyDisk) -> usize {
    disk.list().unwrap().iter().filter(|name| name.starts_with("SPARE")).count()
}

#[test]
fn segments_that_leave_are_written_again_as_the_next_ones() {
    let disk = Arc::new(FaultyDisk::default());
    let log = log_on(&disk);
    append_done(&log, 5, 1);
    assert_eq!(spares(&disk), 1);
    append_done(&log, 20, 1);
    assert_eq!(spares(&disk), 1, "one leaves, one is begun");
    let held: Vec<_> = (0..16).map(|_| append(&log, 900)).collect();
    for position in held {
        log.done(position.sequence).unwrap();
    }
    log.reclaim().unwrap();
    assert_eq!(spares(&disk), 2, "a quarter of eight segments");
    for _ in 0..8 {
        append(&log, 900);
    }
    assert_eq!(spares(&disk), 0, "they are the next two");
    drop(log);
    assert_eq!(log_on(&disk).damage(), []);
}

#[test]
fn spares_stay_over_an_open_as_far_as_the_quota_goes() {
    let disk = Arc::new(FaultyDisk::default());
    let log = log_on(&disk);
    let held: Vec<_> = (0..16).map(|_| append(&log, 900)).collect();
    held.iter().for_each(|position| log.done(position.sequence).unwrap());
    log.reclaim().unwrap();
    drop(log);
    drop(log_on(&disk));
    assert_eq!(spares(&disk), 2);
    drop(log_of(&disk, 4 * 4096));
    assert_eq!(spares(&disk), 1);
}

/// What lies behind it in its page would have to be read from the disk to be kept.
#[test]
fn a_record_is_written_to_the_end_of_its_page() {
    let disk = Arc::new(FaultyDisk::default());
    let log = log_on(&disk);
    append_done(&log, 5, 0xaa);
    assert_eq!(spares(&disk), 1);
    let position = (0..4).map(|_| append(&log, 900)).find(|position| position.segment == 3).unwrap();
    let mut page = vec![0; 4096];
    disk.open(&crate::segment::name(3)).unwrap().read_at(0, &mut page).unwrap();
    let end = position.offset as usize + crate::segment::span(2, 900) as usize;
    assert!(page[..end].contains(&7) && page[end..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_compaction_goes_on_where_an_entry_is_done_under_it() {
    let disk = Arc::new(FaultyDisk::default());
    let log = Arc::new(log_on(&disk));
    let (done, left) = (append(&log, 900), append(&log, 900));
    let [.., last] = [(); 4].map(|()| append(&log, 900));
    assert!(last.segment > left.segment, "compaction is of what is behind the tail");
    let in_the_midst = log.clone();
    let call: Box<dyn FnOnce() + Send> = Box::new(move || in_the_midst.done(done.sequence).unwrap());
    *disk.faults.at_read.lock().unwrap() = Some(call);
    log.compact().expect("compacted");
    assert!(disk.faults.at_read.lock().unwrap().is_none());
    assert_eq!(log.live_sequences(), (left.sequence..=last.sequence).collect::<Vec<_>>());
}

#[test]
fn a_reader_of_a_segment_that_leaves_keeps_its_bytes() {
    let disk = Arc::new(FaultyDisk::default());
    let log = log_on(&disk);
    let Append::Written(position) = log.append(b"op", &[7; 900]).unwrap() else { panic!("full") };
    // A read is under way: it has looked up its place, and not read yet.
    let (_, file) = log.find(position.sequence).unwrap();
    log.done(position.sequence).unwrap();
    append_done(&log, 40, 1);
    assert!(log.find(position.sequence).is_err());
    let mut bytes = [0; 900];
    let at = u64::from(position.offset) + crate::segment::FRAME_BYTES + 2;
    assert_eq!(file.read_at(at, &mut bytes).unwrap(), 900);
    assert_eq!(bytes, [7; 900]);
}

#[test]
fn what_is_done_and_synced_does_not_come_back_after_a_power_cut() {
    for seed in 0..50 {
        let disk = Arc::new(FaultyDisk::default());
        let log = log_on(&disk);
        let (done, left) = (append(&log, 300), append(&log, 300));
        log.commit().unwrap();
        log.done(done.sequence).unwrap();
        log.sync_done().unwrap();
        let log = log_on(&disk.after_power_cut(&mut crate::random::TestRandom(seed)));
        assert_eq!(log.live_sequences(), [left.sequence], "seed {seed}");
    }
}

/// Killed, with a byte gone bad before the next open.
fn killed_and_rotten(disk: &Arc<FaultyDisk>, log: Log, position: crate::Position, at: u64) -> Log {
    drop(log);
    disk.rot(&crate::segment::name(position.segment.into()), u64::from(position.offset) + at);
    log_on(disk)
}

#[test]
fn a_bad_entry_below_a_later_entrys_sync_is_damage() {
    for (at, readable) in [(0, vec![2]), (20, vec![2]), (48, vec![2]), (60, vec![1, 2])] {
        let disk = Arc::new(FaultyDisk::default());
        let log = log_on(&disk);
        let first = append(&log, 300);
        log.commit().unwrap();
        append(&log, 300);
        let log = killed_and_rotten(&disk, log, first, at);
        assert_eq!(log.live_sequences(), readable, "byte {at}");
        if at < 50 {
            assert_eq!(log.damage()[0].offset, u64::from(first.offset), "byte {at}");
            assert!(log.append(b"", b"").is_err());
        } else {
            // Data is checked when it is read.
            let read = log.read(first, types::ByteRange::new(0, 300));
            assert!(read.is_err_and(|e| e.kind() == types::ErrorKind::Corrupt));
        }
    }
}

/// No later record tells of the sync; COVERED does.
#[test]
fn what_rots_at_the_very_end_after_it_was_acknowledged_is_damage() {
    for at in [0, 20, 48, 60] {
        let disk = Arc::new(FaultyDisk::default());
        let log = log_on(&disk);
        append(&log, 300);
        let last = append(&log, 300);
        log.commit().unwrap();
        let log = killed_and_rotten(&disk, log, last, at);
        let told = match at {
            60 => log
                .read(last, types::ByteRange::new(0, 300))
                .is_err_and(|e| e.kind() == types::ErrorKind::Corrupt),
            _ => log.damage().iter().any(|damage| damage.offset == u64::from(last.offset)),
        };
        assert!(told, "byte {at}: {:?}", log.damage());
    }
}

#[test]
fn a_bad_entry_that_no_sync_covered_is_cut_with_all_behind_it() {
    for at in [0, 20, 48, 60] {
        let disk = Arc::new(FaultyDisk::default());
        let log = log_on(&disk);
        append(&log, 300);
        log.commit().unwrap();
        let second = append(&log, 300);
        let last = append(&log, 300);
        let log = killed_and_rotten(&disk, log, second, at);
        assert_eq!((log.damage(), log.live_sequences()), (&[][..], vec![1]), "byte {at}");
        assert!(append(&log, 300).sequence > last.sequence, "the sequences of what was cut are used up");
    }
}
