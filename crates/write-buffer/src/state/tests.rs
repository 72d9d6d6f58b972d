use std::sync::Arc;

use types::{FileId, FileKind, JunctionId};

use super::*;
use crate::{BufferedFile, ReadSegment};

fn at(seconds: i64) -> Timestamp {
    Timestamp { seconds, nanos: 0 }
}

fn attr(seconds: i64) -> Attr {
    let (atime, mtime, ctime) = (at(seconds), at(seconds), at(seconds));
    let (kind, rdev) = (FileKind::Regular, (0, 0));
    Attr {
        kind,
        mode: 0o600,
        nlink: 1,
        uid: 0,
        gid: 0,
        size: 0,
        used: 0,
        rdev,
        fsid: 1,
        fileid: 1,
        atime,
        mtime,
        ctime,
    }
}

fn empty_file() -> (Arc<BufferedFile>, CacheKey) {
    let clean = CacheKey { file: FileId([1; 16]), version: Version([1; 16]), size: 0 };
    (BufferedFile::new(clean.file, JunctionId(1), clean, 1 << 20, false), clean)
}

fn permit() -> BudgetPermit {
    Arc::new(Arc::new(tokio::sync::Semaphore::new(1)).try_acquire_owned().expect("free"))
}

const LIMITS: SendLimits =
    SendLimits { now_ms: 1, parts_max: 9, pressed: false, stopping: false, unstable_max: u64::MAX };

fn write_and_ask(state: &mut State, offset: u64, permit: &BudgetPermit) {
    let bytes = Bytes::from_static(b"bytes");
    state.take(&attr(1), (offset, &bytes), Stability::Unstable, (0, None), permit);
    state.ask_commit();
}

fn send(state: &mut State) {
    match state.next_step(&LIMITS) {
        SendStep::Send(part) => state.extents.arrived(part.number, Stability::Unstable, [0; 8]),
        other => panic!("{other:?}"),
    }
}

fn write_look_and_send(state: &mut State, clean: CacheKey, permit: &BudgetPermit) {
    write_and_ask(state, 0, permit);
    assert!(matches!(state.next_step(&LIMITS), SendStep::Look));
    state.looked(clean.version, clean, true);
    send(state);
}

/// A time that was set just after a write was told as that of the write, until the file was let go.
#[test]
fn a_time_that_was_set_after_the_last_write_is_told() {
    let (file, clean) = empty_file();
    let permit = permit();
    let mut state = file.lock();
    state.take(
        &attr(1),
        (0, &Bytes::from_static(b"bytes")),
        Stability::Unstable,
        (0, Some(at(100))),
        &permit,
    );
    assert_eq!(state.view(&attr(2)).mtime, at(100));
    state.found(clean);
    assert_eq!(state.view(&attr(2)).mtime, at(100), "its bytes are still to be sent");
    let part = state.extents.next_part(Due { sequence: 1, written_ms: 0 }).expect("asked for");
    state.extents.failed(part.number);
    assert_eq!(state.view(&attr(2)).mtime, at(100));
    state.found(clean);
    assert_eq!(state.view(&attr(50)).mtime, at(50));
}

/// A file that was made with a verifier in its times, or whose mtime was set ahead, was told to have changed at that
/// time, and seemed to become older when the origin was asked.
#[test]
fn a_write_to_a_file_with_an_mtime_in_the_future_is_told_as_of_now() {
    let (file, _) = empty_file();
    let permit = permit();
    let mut state = file.lock();
    let ahead = Attr { mtime: at(1_000_000), ..attr(1) };
    let bytes = Bytes::from_static(b"bytes");
    state.take(&ahead, (0, &bytes), Stability::Unstable, (0, None), &permit);
    assert_eq!(state.view(&ahead).ctime, at(1).next(), "the origin's clock is not known");
    state.take(&ahead, (0, &bytes), Stability::Unstable, (0, Some(at(100))), &permit);
    let view = state.view(&ahead);
    assert_eq!((view.mtime, view.ctime), (at(100), at(100)));
}

/// Until the sender had let go of the file it was told with the time of before, and then with another one.
#[test]
fn what_is_stored_is_told_as_the_origin_has_it() {
    let (file, clean) = empty_file();
    let permit = permit();
    let mut state = file.lock();
    let bytes = Bytes::from_static(b"bytes");
    state.take(&attr(1), (0, &bytes), Stability::Unstable, (0, Some(at(100))), &permit);
    let part = state.extents.next_part(Due { sequence: 1, written_ms: 0 }).expect("asked for");
    state.extents.arrived(part.number, Stability::FileSync, [0; 8]);
    assert!(matches!(state.lay_exact(), SendStep::LayExact { .. }));
    assert_eq!(state.view(&attr(2)).mtime, at(100));
    state.laid(CacheKey { version: Version([2; 16]), size: 5, ..clean });
    assert_eq!(state.view(&attr(50)).mtime, at(50));
}

/// Who asked for more while a commit was under way was forgotten when that was over: nothing was waited for any more, and
/// the COMMIT was answered when somebody wrote to the file again. Found by random writers with little room.
#[test]
fn what_is_asked_for_while_a_commit_is_under_way_is_committed_after_it() {
    let (file, clean) = empty_file();
    let permit = permit();
    let mut state = file.lock();
    write_look_and_send(&mut state, clean, &permit);
    let SendStep::Commit { arrivals } = state.next_step(&LIMITS) else { panic!("all has arrived") };
    write_and_ask(&mut state, 100, &permit);
    send(&mut state);
    assert_eq!(state.extents.committed(arrivals, [0; 8]), (0, Vec::new()));
    state.commit_is_over();
    let next = state.next_step(&LIMITS);
    assert!(matches!(next, SendStep::Commit { .. }), "{next:?}");
}

/// Two that read what is not here, one beginning before the other ends, had the file for themselves without an end.
#[test]
fn who_asks_for_a_commit_is_not_kept_waiting_by_those_who_read() {
    let (file, clean) = empty_file();
    let permit = permit();
    let mut state = file.lock();
    write_look_and_send(&mut state, clean, &permit);
    for _ in 0..5 {
        // One more wants it, and the one before is done.
        state.requests += 1;
        state.grants = 0;
        match state.next_step(&LIMITS) {
            SendStep::Granted => {}
            SendStep::Commit { .. } => return,
            other => panic!("{other:?}"),
        }
    }
    panic!("never committed");
}

/// What the origin was sent between the question who writes and the cut was shown, and cached, behind the cut.
#[tokio::test]
async fn what_was_at_the_origin_when_it_was_cut_there_is_cut_here() {
    let (file, clean) = empty_file();
    let permit = permit();
    let wanted = {
        let mut state = file.lock();
        write_look_and_send(&mut state, clean, &permit);
        state.note(WriteAck { before: Some(clean.version), after: None });
        drop(state);
        file.request().expect("open")
    };
    {
        let mut state = file.lock();
        assert!(matches!(state.next_step(&LIMITS), SendStep::LayExact { .. }), "readers were let through");
    }
    file.lock().laid(CacheKey { size: 5, ..clean });
    assert!(matches!(file.lock().next_step(&LIMITS), SendStep::Granted));
    let held = wanted.granted().await.expect("granted");
    file.lock().take(&attr(1), (100, &Bytes::from_static(b"later")), Stability::Unstable, (0, None), &permit);
    // Somebody else made it longer just after that.
    held.is_cut(2, CacheKey { size: 50, ..clean });
    let state = file.lock();
    let segments = state.extents.segments(ByteRange::new(0, state.size()));
    let here = |bytes: &'static [u8]| ReadSegment::Dirty(Bytes::from_static(bytes));
    assert_eq!(segments, [here(b"by"), ReadSegment::Clean(ByteRange::new(2, 98)), here(b"later")]);
}

/// It was believed to be there still, and nobody would have sent or committed it again.
#[test]
fn what_the_origin_had_when_it_was_perhaps_cut_is_sent_again_and_committed() {
    let (file, clean) = empty_file();
    let permit = permit();
    let mut state = file.lock();
    write_look_and_send(&mut state, clean, &permit);
    state.send_again();
    assert_eq!(state.extents.unstable_bytes(), 0);
    let again = state.next_step(&LIMITS);
    assert!(
        matches!(&again, SendStep::Send(part) if (part.offset, &part.data[..]) == (0, b"bytes")),
        "{again:?}"
    );
    let SendStep::Send(part) = again else { return };
    state.extents.arrived(part.number, Stability::Unstable, [0; 8]);
    assert!(matches!(state.next_step(&LIMITS), SendStep::Commit { .. }));
}
