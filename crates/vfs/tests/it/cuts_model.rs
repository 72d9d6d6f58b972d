//! A file that is cut and made longer while others write to it: whatever came first, all see the same at the end, and
//! whoever had written before a cut began, or began after it, knows what is there.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use types::{ByteRange, Caller, FileId, SetAttr, Stability};

use crate::harness::writable_tier;
use crate::harness::{AFTER_TTL, DEADLINE, Mode, Random, Tier, in_every_mode, joined, tier_over_whole_files};

in_every_mode!(
    writers_beside_cuts_see_what_a_silent_origin_has,
    writers_beside_cuts_see_what_an_origin_that_tells_has,
    writers_beside_cuts_see_what_an_origin_of_whole_files_has,
);

const LONGEST: u64 = 300_000;

async fn writers_beside_cuts_see_what_a_silent_origin_has(mode: Mode) {
    let t = writable_tier(mode, 2 << 20, |_| {});
    t.far.be_silent();
    run(t).await;
}

async fn writers_beside_cuts_see_what_an_origin_that_tells_has(mode: Mode) {
    run(writable_tier(mode, 2 << 20, |_| {})).await;
}

async fn writers_beside_cuts_see_what_an_origin_of_whole_files_has(mode: Mode) {
    run(tier_over_whole_files(mode, 2 << 20)).await;
}

async fn run(t: Tier) {
    let mut random = Random::seeded();
    let t = Arc::new(t);
    t.far.memory.write_file(b"file", &vec![255; LONGEST as usize]).unwrap();
    let id = t.id(b"/file").await;
    for round in 0..30 {
        t.far.answer_late(Duration::from_millis(random.below(4)));
        // Cached, as far as it may be.
        drop(t.read(id, random.below(LONGEST), 200_000).await.expect("read"));
        let mut all: Vec<_> =
            (0..3).map(|_| tokio::spawn(write(t.clone(), id, Random::of(random.next())))).collect();
        all.push(tokio::spawn(cut(t.clone(), id, Random::of(random.next()))));
        for one in all {
            tokio::time::timeout(DEADLINE, one).await.expect("nobody waits for ever").expect("as expected");
        }
        t.commit(id).await.unwrap();
        if random.below(2) == 0 {
            t.far.memory.lose_unsynced();
        }
        let there = t.at_the_origin("file").await;
        same(&t.read_path(b"/file").await.unwrap(), &there, round);
        if random.below(2) == 0 {
            t.pass(AFTER_TTL);
        }
    }
}

fn same(seen: &[u8], there: &[u8], round: u64) {
    let first = seen.iter().zip(there).position(|(one, other)| one != other);
    let sizes = (seen.len(), there.len());
    assert!(seen == there, "round {round}: {sizes:?} long, first difference at {first:?}");
}

async fn write(t: Arc<Tier>, id: FileId, mut random: Random) {
    for _ in 0..1 + random.below(8) {
        let data = Bytes::from(vec![1 + random.below(254) as u8; 1 + random.below(40_000) as usize]);
        let stability = [Stability::Unstable, Stability::FileSync][usize::from(random.below(4) == 0)];
        let at = random.below(LONGEST);
        match random.below(6) {
            0 => drop(t.commit(id).await.expect("committed")),
            1 => drop(t.read(id, at, 50_000).await.expect("read")),
            2 => tokio::time::sleep(Duration::from_millis(random.below(8))).await,
            _ => drop(t.vfs.write(&Caller::root(), id, at, data, stability).await.expect("written")),
        }
    }
}

/// The only one who cuts: right after it nothing is there but what others wrote since it began.
async fn cut(t: Arc<Tier>, id: FileId, mut random: Random) {
    for _ in 0..1 + random.below(4) {
        let size = random.below(LONGEST);
        let set = SetAttr { size: Some(size), ..SetAttr::default() };
        t.vfs.setattr(&Caller::root(), id, set, None).await.expect("set");
        let behind = ByteRange::new(size, 100_000);
        let read = joined(&t.read(id, behind.offset, behind.length as u32).await.expect("read"));
        assert!(!read.contains(&255), "what was there at first is cut");
        tokio::time::sleep(Duration::from_millis(random.below(10))).await;
    }
}
