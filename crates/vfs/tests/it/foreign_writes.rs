//! Written `back`: what others change at the origin before or while the flush is at a file.

use std::sync::Arc;

use origin::memory::MemoryOrigin;
use testkit::far_origin::Far;
use types::{Caller, ErrorKind};
use vfs::AlarmKind;

use crate::back::{NEVER, back_tier, bytes_of};
use crate::harness::AFTER_TTL;
use crate::writable::{name, names, with_mode};

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_change_before_the_flush_leaves_both_versions_and_an_alarm() {
    let origin = MemoryOrigin::new();
    origin.write_file(b"file", b"in the beginning").unwrap();
    let t = back_tier(origin.clone(), NEVER);
    let file = t.id("/file").await;
    assert_eq!(t.read(file).await, b"in the beginning");
    t.write(file, 0, b"IN").await;
    origin.write_file(b"file", b"somebody else").unwrap();
    t.flush().await;
    t.clock.advance(AFTER_TTL);
    assert_eq!(bytes_of(&*origin, "/file").await, b"somebody else");
    let all = names(&t.vfs, t.vfs.root()).await;
    let copy = all.iter().find(|name| name.starts_with("file.conflict-here-")).expect("ours is beside");
    assert_eq!(all.len(), 2);
    assert_eq!(bytes_of(&*origin, &format!("/{copy}")).await, b"IN the beginning");
    let told = t.vfs.unflushed();
    assert_eq!((told.conflicts, told.alarms.len()), (1, 1));
    assert_eq!(told.alarms[0].kind, AlarmKind::KeptBoth);
    assert!(told.alarms[0].text.contains("/file") && told.alarms[0].text.contains(copy), "{:?}", told.alarms);
    // Who holds the file sees theirs.
    assert_eq!(t.read(file).await, b"somebody else");
}

/// Bytes of the same length, by others: between what the flush looks at and what it hears of its own change.
fn meanwhile(far: &Arc<Far>, kind: &'static str, path: &'static [u8]) {
    let memory = far.memory.clone();
    let theirs = move || memory.write_file(path, b"somebody's bytes").unwrap();
    match kind {
        "rename, then asked" => {
            far.be_silent();
            let far_too = far.clone();
            far.before("rename", move || far_too.before("getattr", theirs));
        }
        kind => far.before(kind, theirs),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_write_while_the_flush_is_at_a_file_is_read_afterwards() {
    for (kind, path) in [("rename", &b"file"[..]), ("rename, then asked", b"moved"), ("set", b"file")] {
        let far = Far::new("far:one");
        far.memory.write_file(b"file", b"in the beginning").unwrap();
        let t = back_tier(far.clone(), NEVER);
        let (caller, root, file) = (Caller::root(), t.vfs.root(), t.id("/file").await);
        assert_eq!(t.read(file).await, b"in the beginning");
        match kind {
            "set" => drop(t.vfs.setattr(&caller, file, with_mode(0o600), None).await.unwrap()),
            _ => drop(t.vfs.rename(&caller, root, &name("file"), root, &name("moved")).await.unwrap()),
        }
        meanwhile(&far, kind, path);
        let shown = t.vfs.getattr(file).await.unwrap();
        t.flush().await;
        t.clock.advance(AFTER_TTL);
        assert_eq!(t.read(file).await, b"somebody's bytes", "{kind}");
        let now = t.vfs.getattr(file).await.unwrap();
        assert!(
            !t.vfs.has_bytes_of(&now, shown.version),
            "{kind}: a client's kernel must not keep what it has"
        );
    }
}

const PART: usize = 1 << 20;

/// Others do this at the origin just before the second part of a flushed file gets there.
fn before_the_second_part(far: &Arc<Far>, theirs: impl FnOnce() + Send + 'static) {
    let later = far.clone();
    far.before("write", move || later.before("write", theirs));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_write_between_two_parts_of_a_flushed_file_is_found_and_ours_is_kept_beside() {
    for is_new in [false, true] {
        let far = Far::new("far:one");
        if !is_new {
            far.memory.write_file(b"file", &vec![b'.'; 4 * PART]).unwrap();
        }
        let t = back_tier(far.clone(), NEVER);
        let file = if is_new { t.create("/file").await } else { t.id("/file").await };
        let mut ours = if is_new { Vec::new() } else { t.read(file).await };
        ours.resize(4 * PART, 0);
        for part in 0..4 {
            let range = part * PART..(part + 1) * PART;
            ours[range.clone()].fill(b'a' + part as u8);
            t.write(file, range.start as u64, &ours[range]).await;
        }
        let memory = far.memory.clone();
        before_the_second_part(&far, move || memory.write_file(b"file", b"somebody's bytes").unwrap());
        let shown = t.vfs.getattr(file).await.unwrap();
        t.flush().await;
        t.clock.advance(AFTER_TTL);
        let now = t.vfs.getattr(file).await.unwrap();
        assert!(!t.vfs.has_bytes_of(&now, shown.version), "new: {is_new}");
        let there = bytes_of(&*far.memory, "/file").await;
        assert!(there.starts_with(b"somebody's bytes"), "ours was sent before");
        assert!(t.read(file).await == there, "what is at the origin is read, and not what was cached");
        let all = names(&t.vfs, t.vfs.root()).await;
        let copy = all.iter().find(|name| name.starts_with("file.conflict-here-")).expect("ours is beside");
        assert!(bytes_of(&*far.memory, &format!("/{copy}")).await == ours, "as a whole");
        let told = t.vfs.unflushed();
        let kinds: Vec<_> = told.alarms.iter().map(|alarm| alarm.kind).collect();
        assert_eq!((told.conflicts, kinds), (1, vec![AlarmKind::KeptBoth]), "new: {is_new}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_wrote_between_two_parts_stays_also_if_ours_could_not_be_kept_beside_at_once() {
    for is_new in [false, true] {
        let far = Far::new("far:one");
        if !is_new {
            far.memory.write_file(b"file", &vec![b'.'; 3 * PART]).unwrap();
        }
        let t = back_tier(far.clone(), NEVER);
        let file = if is_new { t.create("/file").await } else { t.id("/file").await };
        for part in 0..3 {
            t.write(file, (part * PART) as u64, &vec![b'a' + part as u8; PART]).await;
        }
        let full = far.clone();
        before_the_second_part(&far, move || {
            full.memory.write_file(b"file", b"somebody's bytes").unwrap();
            full.fail("create", ErrorKind::NoSpace, 1);
        });
        for _ in 0..3 {
            let _ = t.vfs.flush_home(None).await.expect("begun").wait().await;
        }
        t.flush().await;
        t.clock.advance(AFTER_TTL);
        assert!(bytes_of(&*far.memory, "/file").await.starts_with(b"somebody's bytes"), "new: {is_new}");
        let all = names(&t.vfs, t.vfs.root()).await;
        let copy = all.iter().find(|name| name.starts_with("file.conflict-here-")).expect("ours is beside");
        assert_eq!(bytes_of(&*far.memory, &format!("/{copy}")).await.len(), 3 * PART, "new: {is_new}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_write_between_two_parts_beside_what_is_flushed_is_no_conflict_and_is_read_afterwards() {
    let far = Far::new("far:one");
    far.memory.write_file(b"file", &vec![b'.'; 4 * PART]).unwrap();
    let t = back_tier(far.clone(), NEVER);
    let file = t.id("/file").await;
    let mut wanted = t.read(file).await;
    for part in 0..3 {
        let range = part * PART..(part + 1) * PART;
        wanted[range.clone()].fill(b'a' + part as u8);
        t.write(file, range.start as u64, &wanted[range]).await;
    }
    // In the third part, which is sent later and goes over theirs unseen, and in the fourth, which nobody wrote here.
    let (memory, mut theirs) = (far.memory.clone(), vec![b'.'; 4 * PART]);
    theirs[..PART].copy_from_slice(&wanted[..PART]);
    theirs[2 * PART..].fill(b'!');
    before_the_second_part(&far, move || memory.write_file(b"file", &theirs).unwrap());
    let shown = t.vfs.getattr(file).await.unwrap();
    t.flush().await;
    let flushed = t.vfs.getattr(file).await.unwrap();
    assert!(!t.vfs.has_bytes_of(&flushed, shown.version), "a client's kernel must not keep what it has");
    wanted[3 * PART..].fill(b'!');
    assert!(bytes_of(&*far.memory, "/file").await == wanted);
    assert!(t.read(file).await == wanted, "what is at the origin is read, and not what was cached");
    assert_eq!(names(&t.vfs, t.vfs.root()).await, ["file"]);
    assert!(t.vfs.unflushed().alarms.is_empty());
    // The file as the flush left it is known: what is written to it next is no conflict either.
    t.write(file, 0, b"and on").await;
    let shown = t.vfs.getattr(file).await.unwrap();
    t.flush().await;
    let flushed = t.vfs.getattr(file).await.unwrap();
    assert!(
        flushed.version != shown.version && t.vfs.has_bytes_of(&flushed, shown.version),
        "nobody else wrote"
    );
    assert!(bytes_of(&*far.memory, "/file").await.starts_with(b"and on"));
    assert!(t.vfs.unflushed().alarms.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_others_write_while_the_flush_is_at_a_file_and_what_was_written_here_both_stay() {
    let moments = [
        ("set", &b"file"[..]),
        ("rename", b"file"),
        ("rename, then asked", b"moved"),
        ("link", b"moved"),
        ("remove", b"moved"),
    ];
    for (kind, path) in moments {
        let far = Far::new("far:one");
        far.memory.write_file(b"file", b"in the beginning").unwrap();
        let t = back_tier(far.clone(), NEVER);
        let (caller, root, file) = (Caller::root(), t.vfs.root(), t.id("/file").await);
        assert_eq!(t.read(file).await, b"in the beginning");
        t.vfs.setattr(&caller, file, with_mode(0o600), None).await.unwrap();
        t.vfs.rename(&caller, root, &name("file"), root, &name("moved")).await.unwrap();
        t.vfs.link(&caller, file, root, &name("other")).await.unwrap();
        t.vfs.remove(&caller, root, &name("other")).await.unwrap();
        t.write(file, 0, b"IN").await;
        meanwhile(&far, kind, path);
        t.flush().await;
        t.clock.advance(AFTER_TTL);
        assert_eq!(bytes_of(&*far.memory, "/moved").await, b"somebody's bytes", "{kind}");
        assert_eq!(t.read(file).await, b"somebody's bytes", "{kind}");
        let all = names(&t.vfs, root).await;
        let copy = all.iter().find(|name| name.starts_with("moved.conflict-here-")).expect("ours is beside");
        assert_eq!(bytes_of(&*far.memory, &format!("/{copy}")).await, b"IN the beginning", "{kind}");
        let told = t.vfs.unflushed();
        assert!(
            told.alarms.iter().any(|alarm| alarm.kind == AlarmKind::KeptBoth),
            "{kind}: {:?}",
            told.alarms
        );
    }
}
