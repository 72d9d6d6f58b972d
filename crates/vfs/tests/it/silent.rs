//! Writing to an origin that does not tell what a file was before a write, as Linux's NFS server does not: the tier looks
//! at the file itself, and nothing that others wrote passes for something else.

use std::sync::Arc;
use std::time::Duration;

use types::{Caller, ErrorKind, FileId, SetAttr, Stability};

use crate::harness::{DEADLINE, Mode, Tier, joined, kind, writable_tier};
use crate::writing::{MIB, eventually, file, pattern, tier_to_write};

/// By its answer to a write: that it is silent.
async fn is_known(t: &Tier, id: FileId) {
    t.unstable(id, 0, b"so that it is known to be silent").await;
    t.commit(id).await.unwrap();
}

/// Of an origin that does not tell what was before, nobody can see in the next answer that something was.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_without_an_answer_is_not_covered_by_what_was_cached() {
    // Which of two writes loses its answer is chance: only the one that is carried out first is hidden by the other's.
    for _ in 0..8 {
        let t = tier_to_write(Mode::NoReadahead);
        t.far.be_silent();
        let id = file(&t, &pattern(1, 50_000)).await;
        is_known(&t, id).await;
        let mut model = t.read_path(b"/file").await.unwrap();
        t.far.forget_calls();
        let hung = t.far.gate.write().await;
        for (at, byte) in [(10_000, 7), (20_000, 8)] {
            t.unstable(id, at as u64, &[byte; 1000]).await;
            model[at..at + 1000].fill(byte);
        }
        eventually("both are sent", || t.far.calls("write") == 2).await;
        t.far.lose_an_answer();
        drop(hung);
        let there = async {
            while t.at_the_origin("file").await != model {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(DEADLINE, there).await.expect("both are there");
        t.far.fail("write", ErrorKind::NoSpace, 9);
        // What the origin has is looked at before anything is sent again, and that is refused.
        let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
        t.vfs.setattr(&Caller::root(), id, set, None).await.unwrap();
        assert_eq!(kind(t.commit(id).await), Some(ErrorKind::NoSpace));
        assert!(t.read_path(b"/file").await.unwrap() == model);
    }
}

/// It went on with what the file had been before it waited: the bytes that were stored meanwhile were shown as zeros, and at
/// an origin that does not tell what was before they were cached as that, for good.
#[tokio::test(flavor = "multi_thread")]
async fn who_waited_for_room_writes_on_what_was_stored_meanwhile() {
    for silent in [true, false] {
        let t = Arc::new(writable_tier(Mode::Cached, MIB, |_| {}));
        if silent {
            t.far.be_silent();
        }
        t.far.memory.write_file(b"other", b"").unwrap();
        let id = file(&t, b"").await;
        let other = t.id(b"/other").await;
        t.unstable(id, 0, b"first").await;
        let hung = t.far.gate.write().await;
        t.unstable(other, 0, &pattern(0, MIB - (8 << 10))).await;
        let last = {
            let t = t.clone();
            // Needs all of the room.
            tokio::spawn(async move { t.unstable(id, MIB, &pattern(1, MIB)).await })
        };
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(!last.is_finished(), "there is no room");
        drop(hung);
        tokio::time::timeout(DEADLINE, last).await.expect("goes on").unwrap();
        let seen = t.read(id, 0, 5).await.unwrap();
        assert_eq!(joined(&seen), b"first", "while the last is pending");
        t.commit(id).await.unwrap();
        let all = t.read_path(b"/file").await.unwrap();
        assert_eq!((&all[..5], all.len() as u64), (&b"first"[..], 2 * MIB));
        assert_eq!(t.at_the_origin("file").await, all);
    }
}

/// The look was asked for again for ever, and the bytes kept their room.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_to_a_file_that_is_gone_is_let_go() {
    for stability in [Stability::Unstable, Stability::FileSync] {
        let t = tier_to_write(Mode::Cached);
        t.far.be_silent();
        let id = file(&t, b"known").await;
        t.pass(Duration::from_secs(10));
        t.far.memory.remove(b"file").unwrap();
        let written = tokio::time::timeout(DEADLINE, t.write(id, 0, b"bytes", stability)).await;
        // Who does not wait may hear of it too, if the look was quick.
        assert!(kind(written.unwrap()).is_some() || stability == Stability::Unstable);
        assert_eq!(t.vfs.flush(DEADLINE).await, []);
    }
}

/// What others had written behind the end that we knew was taken for zeros, and cached as that, where the origin does not
/// tell what was before.
#[tokio::test(flavor = "multi_thread")]
async fn a_write_behind_what_others_added_does_not_cover_it_with_zeros() {
    let t = tier_to_write(Mode::Cached);
    t.far.be_silent();
    t.far.memory.write_file(b"new", b"").unwrap();
    let id = file(&t, b"").await;
    is_known(&t, id).await;
    let new = t.id(b"/new").await;
    t.pass(Duration::from_secs(10));
    t.far.memory.write_file(b"new", b"by others").unwrap();
    t.unstable(new, 1000, b"ours").await;
    t.commit(new).await.unwrap();
    let all = t.read_path(b"/new").await.unwrap();
    assert_eq!((&all[..9], &all[1000..]), (&b"by others"[..], &b"ours"[..]));
}

/// A listing told what others had written after the write was taken in and before the sender looked at the file: it had
/// been looked at lately then, and what was cached of the version before passed for what was there.
#[tokio::test(flavor = "multi_thread")]
async fn what_others_wrote_and_a_listing_told_is_not_covered_by_what_was_cached() {
    let t = tier_to_write(Mode::Cached);
    t.far.be_silent();
    let id = file(&t, &pattern(1, 100_000)).await;
    is_known(&t, id).await;
    t.read_path(b"/file").await.unwrap();
    let mut model = pattern(2, 100_000);
    t.pass(Duration::from_secs(10));
    t.far.memory.write_file(b"file", &model).unwrap();
    t.far.forget_calls();
    t.far.fail("getattr", ErrorKind::Unavailable, 1);
    t.unstable(id, 5000, b"ours").await;
    model[5000..5004].copy_from_slice(b"ours");
    eventually("a look that fails, and is tried again later", || t.far.calls("getattr") > 0).await;
    t.is_asked_about(id).await;
    t.commit(id).await.unwrap();
    assert!(t.read_path(b"/file").await.unwrap() == model);
    assert!(t.at_the_origin("file").await == model);
}

/// As Azure Files, which tells it of a write that is alone: nobody had looked at the file, and what was cached before passed
/// for what others had written since.
#[tokio::test(flavor = "multi_thread")]
async fn what_others_wrote_is_not_covered_by_what_was_cached_if_the_origin_stops_telling() {
    let t = tier_to_write(Mode::Cached);
    t.far.memory.write_file(b"other", b"").unwrap();
    let id = file(&t, &pattern(1, 100_000)).await;
    t.read_path(b"/file").await.unwrap();
    let other = t.id(b"/other").await;
    t.unstable(other, 0, b"so that it is known to tell").await;
    t.commit(other).await.unwrap();
    t.pass(Duration::from_secs(10));
    let mut model = pattern(2, 100_000);
    t.far.memory.write_file(b"file", &model).unwrap();
    t.far.be_silent();
    t.unstable(id, 5000, b"ours").await;
    model[5000..5004].copy_from_slice(b"ours");
    t.commit(id).await.unwrap();
    assert!(t.read_path(b"/file").await.unwrap() == model);
}

/// A write was taken while the origin cut the file: what was cached of before the cut passed for what lies below it, where
/// the origin does not tell what was before.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_while_a_file_is_cut_does_not_lie_on_what_was_before_the_cut() {
    let t = Arc::new(tier_to_write(Mode::Cached));
    t.far.be_silent();
    let id = file(&t, &pattern(1, 100_000)).await;
    is_known(&t, id).await;
    t.read_path(b"/file").await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    t.far.forget_calls();
    t.far.answer_late(Duration::from_millis(300));
    let cut = {
        let t = t.clone();
        let set = SetAttr { size: Some(10), ..SetAttr::default() };
        tokio::spawn(async move { t.vfs.setattr(&Caller::root(), id, set, None).await })
    };
    eventually("it is being cut", || t.far.calls("set") == 1).await;
    t.unstable(id, 50_000, b"ours").await;
    tokio::time::timeout(DEADLINE, cut).await.expect("answered").unwrap().unwrap();
    t.commit(id).await.unwrap();
    let there = t.at_the_origin("file").await;
    assert!(
        there.len() == 50_004 && there[10..50_000].iter().all(|byte| *byte == 0),
        "cut, and then written"
    );
    assert!(t.read_path(b"/file").await.unwrap() == there);
}

/// A cut whose answer is lost was taken for not made: what was cached of before it lay below what was written after it.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_cached_before_a_cut_without_an_answer_does_not_lie_below_what_is_written_after_it() {
    for answer in [ErrorKind::Unavailable, ErrorKind::OutcomeUnknown, ErrorKind::Io] {
        let t = Arc::new(tier_to_write(Mode::Cached));
        t.far.be_silent();
        let id = file(&t, &pattern(1, 100_000)).await;
        is_known(&t, id).await;
        t.read_path(b"/file").await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
        // It is made, and not answered.
        t.far.fail("set", answer, 1);
        let (tier, memory) = (t.clone(), t.far.memory.clone());
        t.far.before("set", move || memory.write_file(b"file", b"").unwrap());
        let cut = SetAttr { size: Some(0), ..SetAttr::default() };
        let cut = tokio::spawn(async move { tier.vfs.setattr(&Caller::root(), id, cut, None).await });
        assert_eq!(kind(cut.await.unwrap()), Some(answer));
        t.unstable(id, 50_000, b"ours").await;
        t.commit(id).await.unwrap();
        let there = t.at_the_origin("file").await;
        assert_eq!(there.len(), 50_004);
        assert!(t.read_path(b"/file").await.unwrap() == there, "{answer:?}");
    }
}
