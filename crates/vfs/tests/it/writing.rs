//! Bytes that are written: on their way to the origin, at it, and read back.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use origin::Origin;
use types::{ByteRange, Caller, ErrorKind, FileId, Name, Result, SetAttr, Stability};
use vfs::{CommitOut, WarmMode, WarmProgress, WriteOut};

use crate::harness::{
    AFTER_TTL, DEADLINE, Mode, Tier, in_every_mode, joined, kind, tier, tier_over_whole_files, writable_tier,
};

pub const MIB: u64 = 1 << 20;

in_every_mode!(
    what_is_written_is_read_at_once_and_is_at_the_origin_after_the_commit,
    an_origin_that_lost_what_it_had_not_stored_is_sent_it_again,
    a_foreign_change_is_not_covered_by_what_was_cached_before_it,
    a_hole_reads_as_zeros_before_and_after_the_commit,
);

impl Tier {
    pub async fn write(&self, id: FileId, at: u64, data: &[u8], stability: Stability) -> Result<WriteOut> {
        let data = Bytes::copy_from_slice(data);
        self.vfs.write(&Caller::root(), id, at, data, stability).await
    }

    pub async fn unstable(&self, id: FileId, at: u64, data: &[u8]) -> WriteOut {
        self.write(id, at, data, Stability::Unstable).await.expect("taken")
    }

    pub async fn commit(&self, id: FileId) -> Result<CommitOut> {
        self.vfs.commit(&Caller::root(), id, ByteRange::new(0, 0)).await
    }

    /// All bytes that the origin has.
    pub async fn at_the_origin(&self, name: &str) -> Vec<u8> {
        let memory = &self.far.memory;
        let (root, name) = (memory.root().await.unwrap(), Name::new(name.to_owned()).unwrap());
        loop {
            let file = memory.lookup(&root.reference, &name).await.unwrap();
            let range = ByteRange::new(0, file.attr.size);
            match memory.read(&file.reference, file.version, range).await {
                // It was being written.
                Err(e) if e.kind() == ErrorKind::VersionChanged => {}
                read => return read.unwrap().to_vec(),
            }
        }
    }
}

pub fn tier_to_write(mode: Mode) -> Tier {
    writable_tier(mode, 64 * MIB, |_| {})
}

pub async fn file(t: &Tier, bytes: &[u8]) -> FileId {
    t.far.memory.write_file(b"file", bytes).unwrap();
    t.id(b"/file").await
}

/// Until it is so.
pub async fn eventually(what: &str, mut so: impl FnMut() -> bool) {
    let wait = async {
        while !so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(DEADLINE, wait).await.unwrap_or_else(|_| panic!("never came about: {what}"));
}

pub fn pattern(seed: u64, length: u64) -> Vec<u8> {
    origin::memory::generated(seed, ByteRange::new(0, length)).to_vec()
}

async fn what_is_written_is_read_at_once_and_is_at_the_origin_after_the_commit(mode: Mode) {
    let t = tier_to_write(mode);
    let mut model = pattern(1, 300_000);
    let id = file(&t, &model).await;
    let mut told = t.vfs.getattr(id).await.unwrap().attr;
    for (n, (at, length)) in
        [(100_u64, 70_000_u64), (299_990, 100), (0, 1), (400_000, 2 * MIB)].into_iter().enumerate()
    {
        let data = pattern(n as u64 + 10, length);
        let out = t.unstable(id, at, &data).await;
        model.resize(model.len().max((at + length) as usize), 0);
        model[at as usize..(at + length) as usize].copy_from_slice(&data);
        assert_eq!(out.before, Some(told.weak()));
        told = out.node.attr;
        assert_eq!(told.size, model.len() as u64);
        assert!(told.mtime > out.before.unwrap().mtime);
        assert_eq!(t.read_path(b"/file").await.unwrap(), model);
    }
    let listed = t.vfs.readdir(&Caller::root(), t.vfs.root(), 0, 10).await.unwrap();
    let shown = listed.items.last().unwrap().node.as_ref().unwrap().attr;
    assert_eq!((shown.size, shown.mtime), (model.len() as u64, told.mtime));
    let done = t.commit(id).await.unwrap();
    assert_eq!(t.at_the_origin("file").await, model);
    assert_eq!(done.node.attr.size, model.len() as u64);
    t.far.memory.lose_unsynced();
    assert_eq!(t.at_the_origin("file").await, model, "it was stored");
    assert_eq!(t.read_path(b"/file").await.unwrap(), model);
    let t = t.after_a_restart().await;
    t.pass(AFTER_TTL);
    assert_eq!(t.read_path(b"/file").await.unwrap(), model);
}

async fn a_hole_reads_as_zeros_before_and_after_the_commit(mode: Mode) {
    let t = tier_to_write(mode);
    let id = file(&t, b"begin").await;
    t.unstable(id, 3 * MIB, b"end").await;
    let mut model = b"begin".to_vec();
    model.resize(3 << 20, 0);
    model.extend(b"end");
    assert_eq!(t.read_path(b"/file").await.unwrap(), model);
    t.commit(id).await.unwrap();
    assert_eq!(t.read_path(b"/file").await.unwrap(), model);
    assert_eq!(t.at_the_origin("file").await, model);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_written_or_cached_before_is_read_back_without_the_origin() {
    let t = tier_to_write(Mode::NoReadahead);
    let mut model = pattern(1, 3 * MIB + 777);
    let id = file(&t, &model).await;
    assert_eq!(t.read_path(b"/file").await.unwrap(), model);
    let big = pattern(2, 2 * MIB + 5);
    let writes = [(60_000, &b"few"[..]), (1_300_000, &big), (7, b""), (3_400_000, &big[..70_000])];
    for (n, (at, data)) in writes.into_iter().enumerate() {
        t.unstable(id, at as u64, data).await;
        model.resize(model.len().max(at + data.len()), 0);
        model[at..at + data.len()].copy_from_slice(data);
        t.commit(id).await.unwrap();
        t.far.forget_calls();
        assert_eq!(t.read_path(b"/file").await.unwrap(), model);
        assert_eq!(t.far.calls("read"), 0, "after write {n}");
    }
    assert_eq!(t.vfs.stat(b"/file").await.unwrap().cached_bytes, model.len() as u64);
    let t = t.after_a_restart().await;
    assert_eq!(t.read_path(b"/file").await.unwrap(), model);
    assert_eq!(t.far.calls("read"), 0, "what is on the disk is good after a restart");
}

/// Found by the crash harness: later bytes hid that the origin had others than the cache.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_origin_was_sent_is_not_forgotten_for_later_bytes_that_never_reach_it() {
    let t = tier_to_write(Mode::NoReadahead);
    let mut model = pattern(1, 50_000);
    let id = file(&t, &model).await;
    assert_eq!(t.read_path(b"/file").await.unwrap(), model, "it is cached");
    let first = pattern(2, 30_000);
    t.far.forget_calls();
    t.unstable(id, 10_000, &first).await;
    model[10_000..40_000].copy_from_slice(&first);
    eventually("the origin has it in memory", || t.far.calls("write") == 1).await;
    t.far.fail("write", ErrorKind::NoSpace, 9);
    t.unstable(id, 20_000, &pattern(3, 5_000)).await;
    // What the origin has is looked at meanwhile.
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    t.vfs.setattr(&Caller::root(), id, set, None).await.unwrap();
    assert_eq!(kind(t.commit(id).await), Some(ErrorKind::NoSpace), "these are lost");
    assert_eq!(t.at_the_origin("file").await, model);
    assert_eq!(t.read_path(b"/file").await.unwrap(), model);
}

/// As an origin does that shows the version of a write before its bytes; here the clock stands still for it.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_fetched_while_a_write_was_under_way_is_not_kept_if_its_answer_is_lost() {
    let t = tier_to_write(Mode::Cached);
    let mut model = pattern(1, 50_000);
    let id = file(&t, &model).await;
    t.far.memory.stop_clock();
    t.far.fail("write", ErrorKind::Unavailable, 3);
    t.unstable(id, 20_000, &[7; 1000]).await;
    model[20_000..21_000].fill(7);
    eventually("it was tried", || t.far.calls("write") > 0).await;
    t.fetch(id, "file").await;
    t.commit(id).await.unwrap();
    assert_eq!(t.at_the_origin("file").await, model);
    assert!(t.read_path(b"/file").await.unwrap() == model);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_written_to_is_not_fetched_before_it_is_asked_for() {
    let t = tier_to_write(Mode::Cached);
    let id = file(&t, &pattern(1, 50_000)).await;
    let progress: Arc<WarmProgress> = Arc::default();
    t.far.set_down(true);
    t.unstable(id, 20_000, &[7; 1000]).await;
    t.vfs.warm(&[b"/file".to_vec()], WarmMode::Data, &progress).await;
    assert_eq!((t.far.calls("read"), progress.files_done.load(Ordering::Relaxed)), (0, 1));
    t.far.set_down(false);
    t.commit(id).await.unwrap();
    // A moment after the COMMIT is answered the file is let go.
    let fetched = async {
        while t.far.calls("read") == 0 {
            t.vfs.warm(&[b"/file".to_vec()], WarmMode::Data, &Arc::default()).await;
        }
    };
    tokio::time::timeout(DEADLINE, fetched).await.expect("it is fetched");
}

/// The clock of the origin stands still meanwhile, as it does for milliseconds at a time on most: a write leaves the
/// version that was there before.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_cached_does_not_pass_for_what_a_killed_tier_wrote_at_the_same_moment() {
    let t = tier_to_write(Mode::Cached);
    let id = file(&t, &pattern(1, 50_000)).await;
    let mut model = t.read_path(b"/file").await.unwrap();
    let version = || async {
        let root = t.far.memory.root().await.unwrap().reference;
        t.far.memory.lookup(&root, &Name::new("file").unwrap()).await.unwrap().version
    };
    let before = version().await;
    t.far.memory.stop_clock();
    t.far.lose_an_answer();
    t.unstable(id, 20_000, &[7; 1000]).await;
    model[20_000..21_000].fill(7);
    while t.at_the_origin("file").await != model {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    t.far.set_down(true); // the killed one does not send it again
    let killed = t.after_a_kill();
    t.far.set_down(false);
    assert_eq!(version().await, before, "or it shows nothing");
    assert!(killed.read_path(b"/file").await.unwrap() == model);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_grows_by_many_commits_is_never_read_from_the_origin() {
    let t = tier_to_write(Mode::Cached);
    let id = file(&t, b"").await;
    let data = pattern(3, 200 * 10_007);
    for piece in data.chunks(10_007) {
        let at = t.vfs.getattr(id).await.unwrap().attr.size;
        let stability = if at % 2 == 0 { Stability::FileSync } else { Stability::Unstable };
        t.write(id, at, piece, stability).await.unwrap();
        t.commit(id).await.unwrap();
    }
    assert_eq!(t.read_path(b"/file").await.unwrap(), data);
    assert_eq!(t.far.calls("read"), 0);
    assert_eq!(t.at_the_origin("file").await, data);
}

async fn an_origin_that_lost_what_it_had_not_stored_is_sent_it_again(mode: Mode) {
    let t = tier_to_write(mode);
    let id = file(&t, &pattern(1, 100_000)).await;
    let data = pattern(2, 3 * MIB);
    let verifier = t.unstable(id, 0, &data).await.verifier;
    eventually("all is at the origin", || t.far.calls("write") >= 3).await;
    t.far.memory.lose_unsynced();
    assert_eq!(t.commit(id).await.unwrap().verifier, verifier, "nothing is lost to the client");
    t.far.memory.lose_unsynced();
    assert_eq!(t.at_the_origin("file").await, data);
    assert_eq!(t.read_path(b"/file").await.unwrap(), data);
}

async fn a_foreign_change_is_not_covered_by_what_was_cached_before_it(mode: Mode) {
    let t = tier_to_write(mode);
    let id = file(&t, &pattern(1, 500_000)).await;
    t.read_path(b"/file").await.unwrap();
    let mut model = pattern(2, 600_000);
    t.far.memory.write_file(b"file", &model).unwrap();
    t.unstable(id, 250_000, b"ours").await;
    model[250_000..250_004].copy_from_slice(b"ours");
    t.commit(id).await.unwrap();
    assert_eq!(t.at_the_origin("file").await, model);
    assert_eq!(t.read_path(b"/file").await.unwrap(), model);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_in_the_middle_of_a_commit_is_waited_out() {
    let t = Arc::new(tier_to_write(Mode::Cached));
    let id = file(&t, b"").await;
    let data = pattern(2, 2 * MIB);
    let verifier = t.unstable(id, 0, &data).await.verifier;
    let hung = t.far.gate.write().await;
    let committing = tokio::spawn({
        let t = t.clone();
        async move { t.commit(id).await }
    });
    eventually("the writes are under way", || t.far.calls("write") >= 2).await;
    t.far.set_down(true);
    let identified = t.far.identified();
    drop(hung);
    // Before a call it is asked which storage it is.
    eventually("it is tried again", || t.far.identified() >= identified + 2).await;
    assert_eq!(t.read_path(b"/file").await.unwrap(), data, "read from what is pending");
    assert!(!committing.is_finished());
    t.far.set_down(false);
    let committed = tokio::time::timeout(DEADLINE, committing).await.unwrap().unwrap().unwrap();
    assert_eq!(committed.verifier, verifier);
    assert_eq!(t.at_the_origin("file").await, data);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_origin_refuses_for_good_is_told_once_and_by_another_verifier() {
    for call in ["write", "commit"] {
        let t = tier_to_write(Mode::Cached);
        let id = file(&t, &pattern(1, 200_000)).await;
        t.far.fail(call, ErrorKind::NoSpace, 1);
        let before = t.unstable(id, 0, &[7; 1000]).await.verifier;
        assert_eq!(kind(t.commit(id).await), Some(ErrorKind::NoSpace), "{call}");
        let committed = t.commit(id).await.unwrap();
        assert_ne!(committed.verifier, before, "{call}");
        let again = t.unstable(id, 0, &[8; 1000]).await;
        assert_eq!(again.verifier, committed.verifier, "{call}: no other than that of the loss");
        assert_eq!(t.commit(id).await.unwrap().verifier, committed.verifier);
        let mut model = pattern(1, 200_000);
        model[..1000].fill(8);
        assert_eq!(t.at_the_origin("file").await, model);
        assert_eq!(t.read_path(b"/file").await.unwrap(), model, "{call}");
        // A writer that waits is told itself: nothing that was acknowledged is lost.
        t.far.fail("write", ErrorKind::QuotaExceeded, 1);
        let refused = t.write(id, 0, &[9; 10], Stability::FileSync).await;
        assert_eq!(kind(refused), Some(ErrorKind::QuotaExceeded));
        assert_eq!(t.commit(id).await.unwrap().verifier, committed.verifier);
        assert_eq!(t.read_path(b"/file").await.unwrap(), model, "{call}");
    }
}

/// What was stored and could not be looked at was let go, and while more was pending readers saw what was before it.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_stored_and_cannot_be_looked_at_does_not_read_as_before() {
    let t = Arc::new(tier_to_write(Mode::NoReadahead));
    let mut model = pattern(1, 100_000);
    let id = file(&t, &model).await;
    assert_eq!(t.read_path(b"/file").await.unwrap(), model);
    t.far.lose_an_answer();
    t.far.fail("getattr", ErrorKind::AccessDenied, 1);
    let (go, wait) = std::sync::mpsc::sync_channel::<()>(1);
    t.far.before("getattr", move || wait.recv().unwrap());
    t.unstable(id, 10, b"stored").await;
    let committed = {
        let t = t.clone();
        tokio::spawn(async move { t.commit(id).await })
    };
    eventually("its state is asked for", || t.far.calls("getattr") == 1).await;
    t.far.fail("write", ErrorKind::Unavailable, 20);
    t.unstable(id, 1000, b"pending").await;
    go.send(()).unwrap();
    committed.await.unwrap().unwrap();
    eventually("it is tried", || t.far.calls("write") > 2).await;
    model[10..16].copy_from_slice(b"stored");
    model[1000..1007].copy_from_slice(b"pending");
    assert!(t.read_path(b"/file").await.unwrap() == model);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_reads_while_there_is_no_room_is_served() {
    let t = Arc::new(writable_tier(Mode::NoReadahead, MIB, |_| {}));
    t.far.set_distance(types::Distance { latency: Duration::from_millis(1), rate: 1_000_000_000 });
    let length = 64 * MIB;
    let id = file(&t, &pattern(1, length)).await;
    let writer = {
        let t = t.clone();
        tokio::spawn(async move {
            for at in (0..length / 2).step_by(64 << 10) {
                t.unstable(id, at, &pattern(at, 64 << 10)).await;
            }
        })
    };
    let mut at = length / 2;
    while !writer.is_finished() && at < length {
        let read = t.read(id, at, 64 << 10).await.unwrap();
        assert!(joined(&read) == origin::memory::generated(1, ByteRange::new(at, 64 << 10)));
        at += 64 << 10;
    }
    tokio::time::timeout(DEADLINE, writer).await.expect("goes on").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn writers_wait_while_too_much_is_pending_and_go_on_when_it_is_stored() {
    let t = Arc::new(writable_tier(Mode::Cached, 2 * MIB, |_| {}));
    let id = file(&t, b"").await;
    let hung = t.far.gate.write().await;
    t.unstable(id, 0, &pattern(0, MIB)).await;
    t.unstable(id, MIB, &pattern(1, MIB)).await;
    let third = t.write(id, 2 * MIB, b"more", Stability::Unstable);
    assert!(tokio::time::timeout(Duration::from_millis(100), third).await.is_err(), "there is no room");
    let writers: Vec<_> = (2..8)
        .map(|n| {
            let t = t.clone();
            tokio::spawn(async move { t.unstable(id, n * MIB, &pattern(n, MIB)).await })
        })
        .collect();
    drop(hung);
    for writer in writers {
        tokio::time::timeout(DEADLINE, writer).await.expect("goes on").unwrap();
    }
    t.commit(id).await.unwrap();
    let model: Vec<u8> = (0..8).flat_map(|n| pattern(n, MIB)).collect();
    assert_eq!(t.at_the_origin("file").await, model);
    assert_eq!(t.read_path(b"/file").await.unwrap(), model);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_durable_write_does_not_wait_for_what_others_write() {
    let t = tier_to_write(Mode::Cached);
    let id = file(&t, b"").await;
    // Never comes through, and is tried again for ever.
    t.far.fail("commit", ErrorKind::Unavailable, u64::MAX);
    t.unstable(id, 5 * MIB, &pattern(0, MIB)).await;
    t.write(id, 0, b"durable", Stability::FileSync).await.unwrap();
    t.far.memory.lose_unsynced();
    assert_eq!(&t.at_the_origin("file").await[..7], b"durable");
    t.far.fail("commit", ErrorKind::Unavailable, 0);
    t.commit(id).await.unwrap();
    assert_eq!(&t.at_the_origin("file").await[5 << 20..], pattern(0, MIB));
}

/// None is answered, and all are sent: the time that they take is that of one round trip, however far the origin is.
#[tokio::test(flavor = "multi_thread")]
async fn sixty_four_writes_are_sent_in_two_round_trips_at_most_and_committed_once() {
    let t = tier_to_write(Mode::Cached);
    let id = file(&t, b"").await;
    let hung = t.far.gate.write().await;
    for n in 0..60 {
        t.unstable(id, n * MIB, &pattern(n, MIB)).await; // answered while the origin says nothing
    }
    eventually("half of them are under way", || t.far.calls("write") >= 30).await;
    drop(hung);
    t.commit(id).await.unwrap();
    assert_eq!(t.far.calls("write"), 60);
    // One of ours when a quarter of the budget is waiting for it, one for the client.
    assert!(t.far.calls("commit") <= 5, "{} commits", t.far.calls("commit"));
    assert_eq!(t.far.overlapped_writes(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn writes_of_the_same_bytes_reach_the_origin_in_their_order() {
    let t = tier_to_write(Mode::Cached);
    let id = file(&t, b"").await;
    let mut model = vec![0; 400_000];
    for n in 0..300_usize {
        let (at, value) = (n * 7_919 % 300_000, n as u8);
        t.unstable(id, at as u64, &[value; 100_000]).await;
        model[at..at + 100_000].fill(value);
        if n % 20 == 0 {
            tokio::time::sleep(Duration::from_millis(25)).await; // some are sent, some are replaced before
        }
    }
    t.commit(id).await.unwrap();
    let end = t.vfs.getattr(id).await.unwrap().attr.size as usize;
    assert_eq!(t.at_the_origin("file").await, model[..end]);
    assert_eq!(t.read_path(b"/file").await.unwrap(), model[..end]);
    assert_eq!(t.far.overlapped_writes(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_commits_is_committed_all_the_same() {
    let t = tier_to_write(Mode::Cached);
    let id = file(&t, b"").await;
    t.unstable(id, 0, b"forgotten").await;
    eventually("the commit of what was forgotten", || t.far.calls("commit") > 0).await;
    t.far.memory.lose_unsynced();
    assert_eq!(t.at_the_origin("file").await, b"forgotten");
}

/// Who writes a file in parts compares what it was before a part with what the answer to the former one said.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_tier_stores_by_itself_between_two_writes_is_no_change_to_the_writer() {
    let t = tier_to_write(Mode::Cached);
    let id = file(&t, b"old").await;
    let at_origin = async || {
        let root = t.far.memory.root().await.unwrap().reference;
        t.far.memory.lookup(&root, &Name::new("file").unwrap()).await.unwrap()
    };
    let stored = async || {
        let wait = async {
            // The version that the origin has: nothing is pending, and the cache has what was written.
            while t.vfs.getattr(id).await.unwrap().version != at_origin().await.version {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        tokio::time::timeout(DEADLINE, wait).await.expect("stored without a commit");
    };
    let mut told = t.vfs.getattr(id).await.unwrap().attr;
    for part in 0..3 {
        let out = t.unstable(id, part * 100, &[7; 100]).await;
        assert_eq!(out.before, Some(told.weak()), "part {part}");
        told = out.node.attr;
        stored().await;
        assert_eq!(t.vfs.getattr(id).await.unwrap().attr.weak(), told.weak(), "part {part}");
        assert_ne!(at_origin().await.attr.ctime, told.ctime, "the origin has a time of its own");
    }
    // What the writer asks for is the origin's word.
    t.commit(id).await.unwrap();
    assert_eq!(t.vfs.getattr(id).await.unwrap().attr.weak(), at_origin().await.attr.weak());
    // Another writer is seen.
    told = t.unstable(id, 0, b"ours").await.node.attr;
    stored().await;
    t.far.memory.write_file(b"file", b"theirs, longer").unwrap();
    t.pass(AFTER_TTL);
    let out = t.unstable(id, 4, b"ours").await;
    assert_ne!(out.before, Some(told.weak()));
}

/// The times that a writer was told are not those of the origin, and are as good for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_is_guarded_by_the_time_of_the_last_write_is_made_after_the_tier_has_stored_it() {
    let t = tier_to_write(Mode::Cached);
    let id = file(&t, b"old").await;
    let set = |mode| SetAttr { mode: Some(mode), ..SetAttr::default() };
    t.unstable(id, 0, b"new").await;
    eventually("the commit by the tier itself", || t.far.calls("commit") > 0).await;
    let told = t.vfs.getattr(id).await.unwrap().attr.ctime;
    t.vfs.setattr(&Caller::root(), id, set(0o6777), Some(told)).await.expect("the time is right");
    let wrong = t.vfs.setattr(&Caller::root(), id, set(0o600), Some(told)).await;
    assert_eq!(kind(wrong), Some(ErrorKind::VersionChanged), "another change is behind it");
    // The tier guards a change of its own: another user's write ends setuid.
    let commits = t.far.calls("commit");
    t.unstable(id, 0, b"again").await;
    eventually("the next commit by the tier itself", || t.far.calls("commit") > commits).await;
    let user = Caller { uid: 1000, gid: 1000, ..Caller::root() };
    let data = Bytes::from_static(b"theirs");
    t.vfs.write(&user, id, 0, data, Stability::Unstable).await.expect("taken at once");
    assert_eq!(t.vfs.getattr(id).await.unwrap().attr.mode & 0o6000, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tier_that_stops_stores_what_is_pending_and_names_what_it_cannot() {
    let t = tier_to_write(Mode::Cached);
    let id = file(&t, b"").await;
    t.unstable(id, 0, b"kept").await;
    assert_eq!(t.vfs.flush(DEADLINE).await, []);
    t.far.memory.lose_unsynced();
    assert_eq!(t.at_the_origin("file").await, b"kept");
    t.far.set_down(true);
    t.unstable(id, 0, b"lost").await;
    assert_eq!(t.vfs.flush(Duration::from_millis(100)).await, [(id, 4)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_not_lent_as_a_whole_while_bytes_of_it_are_pending() {
    let t = tier_to_write(Mode::Cached);
    let id = file(&t, &pattern(1, 300_000)).await;
    t.read_path(b"/file").await.unwrap();
    let node = t.vfs.getattr(id).await.unwrap();
    let lent = t.vfs.whole(&node).await.expect("all of it is here");
    let hung = t.far.gate.write().await;
    t.unstable(id, 0, &[9; 1000]).await;
    let now = t.vfs.getattr(id).await.unwrap();
    assert!(t.vfs.whole(&node).await.is_none() && t.vfs.whole(&now).await.is_none());
    drop(hung);
    t.commit(id).await.unwrap();
    let before = lent.read(ByteRange::new(0, 300_000)).await.unwrap();
    assert_eq!(before, pattern(1, 300_000), "what was lent stays what it was");
    t.far.forget_calls();
    let after = t.read_path(b"/file").await.unwrap();
    assert_eq!((&after[..1000], &after[1000..]), (&[9; 1000][..], &before[1000..]));
    assert_eq!(t.far.calls("read"), 0, "copied from what was lent");
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_not_here_are_fetched_in_the_middle_of_writing() {
    let t = tier_to_write(Mode::NoReadahead);
    let mut model = pattern(1, 8 * MIB);
    let id = file(&t, &model).await;
    for n in 0..20_usize {
        let at = n * 400_000;
        t.unstable(id, at as u64, &[n as u8; 1000]).await;
        model[at..at + 1000].fill(n as u8);
        let read = t.read(id, at as u64 / 2, 300_000).await.unwrap();
        assert_eq!(joined(&read), model[at / 2..at / 2 + 300_000]);
        tokio::time::sleep(Duration::from_millis(10)).await; // parts are sent in between
    }
    t.commit(id).await.unwrap();
    assert_eq!(t.read_path(b"/file").await.unwrap(), model);
    assert_eq!(t.at_the_origin("file").await, model);
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_not_write_does_not() {
    let t = tier_to_write(Mode::Cached);
    let id = file(&t, b"old").await;
    t.far.memory.chown(b"file", 10, 10).unwrap();
    t.far.memory.chmod(b"file", 0o444).unwrap();
    t.pass(AFTER_TTL);
    let user = |uid| Caller { uid, gid: uid, ..Caller::root() };
    let write =
        async |uid| t.vfs.write(&user(uid), id, 0, Bytes::from_static(b"new"), Stability::FileSync).await;
    assert_eq!(kind(write(11).await), Some(ErrorKind::AccessDenied));
    assert_eq!(t.at_the_origin("file").await, b"old");
    assert_eq!(kind(write(10).await), None, "the owner has it open");
    assert_eq!(t.at_the_origin("file").await, b"new");
    let dir = t.vfs.root();
    assert_eq!(kind(t.write(dir, 0, b"x", Stability::Unstable).await), Some(ErrorKind::IsADirectory));
    assert_eq!(
        kind(t.write(id, u64::MAX - 1, b"xyz", Stability::Unstable).await),
        Some(ErrorKind::InvalidArgument)
    );
    let t = tier(Mode::Cached);
    let id = file(&t, b"old").await;
    assert_eq!(kind(t.write(id, 0, b"x", Stability::Unstable).await), Some(ErrorKind::ReadOnly));
    assert_eq!(kind(t.commit(id).await), Some(ErrorKind::ReadOnly));
}

fn tier_of_whole_files(bytes_max: u64) -> Tier {
    tier_over_whole_files(Mode::Cached, bytes_max)
}

/// Each commit of such an origin costs as much as the file is long: 16 of them made a file of 1 GiB cost 8.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_longer_than_memory_is_committed_as_a_whole_once() {
    let t = tier_of_whole_files(4 * MIB);
    let id = file(&t, b"old").await;
    let model = pattern(1, 40 * MIB);
    for (n, piece) in model.chunks(MIB as usize).enumerate() {
        t.unstable(id, n as u64 * MIB, piece).await;
    }
    assert_eq!((t.at_the_origin("file").await, t.far.calls("commit")), (b"old".to_vec(), 0));
    assert!(t.read_path(b"/file").await.unwrap() == model, "what its writer reads");
    assert_eq!(t.far.calls("commit"), 0, "what was written is in the cache");
    t.commit(id).await.unwrap();
    assert_eq!(t.far.calls("commit"), 1);
    assert!(t.at_the_origin("file").await == model);
    assert!(t.read_path(b"/file").await.unwrap() == model);
    assert_eq!(t.far.calls("read"), 0, "what was written is cached as what the origin has now");
}

/// It waited for the commit of what nobody asks for, which is the later the longer the file is.
#[tokio::test(flavor = "multi_thread")]
async fn a_durable_write_after_others_that_the_origin_keeps_is_committed_at_once() {
    let t = tier_of_whole_files(64 * MIB);
    let id = file(&t, b"old").await;
    t.unstable(id, 0, &pattern(1, 2 * MIB)).await;
    eventually("the origin keeps it", || t.far.calls("write") > 1).await;
    let durable = t.write(id, 2 * MIB, b"durable", Stability::FileSync);
    tokio::time::timeout(Duration::from_secs(4), durable).await.expect("not in the commit's time").unwrap();
    assert_eq!(&t.at_the_origin("file").await[2 << 20..], b"durable");
}

/// The bytes below are fetched when nothing is in between: what was written and not committed was put in the cache as part
/// of what the origin had, and was still there after a kill.
#[tokio::test(flavor = "multi_thread")]
async fn what_the_origin_does_not_show_yet_is_not_cached_as_what_it_has() {
    let t = tier_of_whole_files(64 * MIB);
    let old = pattern(1, 3 * MIB);
    let id = file(&t, &old).await;
    t.unstable(id, 0, &pattern(2, 2 * MIB)).await;
    eventually("the origin keeps it", || t.far.calls("write") > 1).await;
    // It is committed before what is below is fetched, or what is below is fetched without it.
    let read = t.read(id, 2 * MIB + 1000, 100).await.unwrap();
    assert_eq!(joined(&read), old[2 * MIB as usize + 1000..][..100]);
    t.far.set_down(true);
    let killed = t.after_a_kill();
    t.far.set_down(false);
    let there = killed.at_the_origin("file").await;
    assert!(killed.read_path(b"/file").await.unwrap() == there);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_origin_kept_and_lost_is_told_to_its_writer() {
    let t = tier_of_whole_files(4 * MIB);
    let id = file(&t, b"old").await;
    let verifier = t.unstable(id, 0, &pattern(1, 9 * MIB)).await.verifier;
    eventually("most of it is at the origin", || t.far.calls("write") >= 8).await;
    t.far.memory.write_file(b"file", b"theirs").unwrap();
    assert_eq!(kind(t.commit(id).await), Some(ErrorKind::VersionChanged));
    assert_eq!(t.at_the_origin("file").await, b"theirs");
    t.pass(AFTER_TTL);
    assert!(t.read_path(b"/file").await.unwrap() == b"theirs", "what was lost is not read");
    assert_ne!(t.commit(id).await.unwrap().verifier, verifier, "an NFS client writes it again");
}
