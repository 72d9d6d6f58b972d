//! A rename at an origin where it is a copy and a removal is interrupted by an outage: what is there afterwards is its own
//! work, and no foreign change.

use std::time::Duration;

use origin::memory::MemoryOrigin;
use types::{Caller, ErrorKind};
use vfs::AlarmKind;

use crate::back::{BackTier, NEVER, back_tier, bytes_of, find};
use crate::copies::{Copies, Interrupted};
use crate::harness::{AFTER_TTL, kind};
use crate::writable::{name, names};

const OLD: &[u8] = b"old contents";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    /// To a name that nobody has.
    Free,
    /// Over a file that is there.
    Over,
    /// Written first, and then over a file that is there.
    WrittenOver,
    /// A new one, as editors save files.
    NewOver,
}

async fn rename(t: &BackTier, from: &str, to: &str) {
    let root = t.vfs.root();
    t.vfs.rename(&Caller::root(), root, &name(from), root, &name(to)).await.expect("renamed");
}

async fn gets_home(shape: Shape, how: Interrupted, clients_look: bool) {
    let what = format!("{shape:?} {how:?} clients_look={clients_look}");
    let memory = MemoryOrigin::new();
    for path in [&b"file"[..], b"other", b"clean"] {
        memory.write_file(path, OLD).unwrap();
    }
    let copies = Copies::new(memory.clone(), Duration::ZERO);
    let t = back_tier(copies.clone(), NEVER);
    for path in ["/file", "/other", "/clean"] {
        assert_eq!(t.read(t.id(path).await).await, OLD);
    }
    let (from, to, bytes) = match shape {
        Shape::Free => ("file", "free", OLD),
        Shape::Over => ("file", "other", OLD),
        Shape::WrittenOver => ("file", "other", &b"new contents"[..]),
        Shape::NewOver => ("made", "other", &b"new contents"[..]),
    };
    let file = if shape == Shape::NewOver { t.create("/made").await } else { t.id("/file").await };
    if shape == Shape::WrittenOver || shape == Shape::NewOver {
        t.write(file, 0, bytes).await;
    }
    rename(&t, from, to).await;
    copies.interrupt_the_next_rename(how);
    let flushing = t.vfs.flush_home(None).await.unwrap();
    while !copies.is_down() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let sees = async || {
        assert_eq!(t.id(&format!("/{to}")).await, file, "{what}: the same file");
        assert_eq!(t.read(file).await, bytes, "{what}");
        assert_eq!(
            kind(t.vfs.resolve(format!("/{from}").as_bytes()).await),
            Some(ErrorKind::NotFound),
            "{what}"
        );
    };
    sees().await;
    tokio::time::sleep(Duration::from_millis(700)).await; // it was looked for in vain
    copies.end_outage();
    if clients_look {
        t.clock.advance(AFTER_TTL);
        sees().await;
    }
    assert!(flushing.wait().await.is_empty(), "{what}: nothing is refused");
    assert_eq!(bytes_of(&*memory, &format!("/{to}")).await, bytes, "{what}");
    assert_eq!(kind(find(&*memory, &format!("/{from}")).await), Some(ErrorKind::NotFound), "{what}");
    t.clock.advance(AFTER_TTL);
    sees().await;
    let mut all = vec!["clean", to];
    all.extend(["file", "other"].into_iter().filter(|it| *it != from && *it != to));
    all.sort_unstable();
    assert_eq!(names(&t.vfs, t.vfs.root()).await, all, "{what}: and nothing else");
    let told = t.vfs.unflushed();
    assert!(told.alarms.iter().all(|alarm| alarm.kind == AlarmKind::Resumed), "{what}: {:?}", told.alarms);
    assert_eq!(told.conflicts, 0, "{what}");
    // It goes on.
    t.write(file, 0, b"NEW").await;
    t.flush().await;
    assert_eq!(&bytes_of(&*memory, &format!("/{to}")).await[..3], b"NEW", "{what}");
    assert_eq!(t.vfs.unflushed().conflicts, 0, "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rename_that_an_outage_interrupted_is_no_conflict_wherever_it_was() {
    let mut all = tokio::task::JoinSet::new();
    for shape in [Shape::Free, Shape::Over, Shape::WrittenOver, Shape::NewOver] {
        for how in [Interrupted::InTheMiddle, Interrupted::AtTheEnd] {
            for clients_look in [false, true] {
                all.spawn(gets_home(shape, how, clients_look));
            }
        }
    }
    while let Some(one) = all.join_next().await {
        one.expect("gets home");
    }
}

/// What its owner did in the outage: what the interrupted rename left is neither forgotten nor taken away with its object.
async fn goes_on(how: Interrupted, is_removed: bool) {
    let what = format!("{how:?} is_removed={is_removed}");
    let memory = MemoryOrigin::new();
    memory.write_file(b"file", OLD).unwrap();
    memory.write_file(b"clean", OLD).unwrap();
    let copies = Copies::new(memory.clone(), Duration::ZERO);
    let t = back_tier(copies.clone(), NEVER);
    let (file, root) = (t.id("/file").await, t.vfs.root());
    assert_eq!(t.read(file).await, OLD);
    rename(&t, "file", "moved").await;
    copies.interrupt_the_next_rename(how);
    t.vfs.flush_home(None).await.unwrap();
    while !copies.is_down() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    match is_removed {
        true => drop(t.vfs.remove(&Caller::root(), root, &name("moved")).await.expect("removed")),
        false => rename(&t, "moved", "again").await,
    };
    copies.end_outage();
    t.flush().await;
    t.clock.advance(AFTER_TTL);
    let left: &[&str] = if is_removed { &["clean"] } else { &["again", "clean"] };
    assert_eq!(names(&t.vfs, root).await, left, "{what}");
    assert_eq!(kind(find(&*memory, "/moved").await), Some(ErrorKind::NotFound), "{what}");
    if !is_removed {
        assert_eq!(bytes_of(&*memory, "/again").await, OLD, "{what}");
    }
    assert_eq!(t.vfs.unflushed().conflicts, 0, "{what}");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_renamed_again_or_removed_after_an_interrupted_rename_is_where_it_belongs() {
    for how in [Interrupted::InTheMiddle, Interrupted::AtTheEnd] {
        for is_removed in [false, true] {
            goes_on(how, is_removed).await;
        }
    }
}

/// What others put under the new name meanwhile is theirs all the same.
#[tokio::test(flavor = "multi_thread")]
async fn what_others_make_of_the_copy_of_an_interrupted_rename_stays_beside_ours() {
    let memory = MemoryOrigin::new();
    memory.write_file(b"file", OLD).unwrap();
    let copies = Copies::new(memory.clone(), Duration::ZERO);
    let t = back_tier(copies.clone(), NEVER);
    let file = t.id("/file").await;
    assert_eq!(t.read(file).await, OLD);
    rename(&t, "file", "moved").await;
    copies.interrupt_the_next_rename(Interrupted::InTheMiddle);
    let flushing = t.vfs.flush_home(None).await.unwrap();
    while !copies.is_down() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    memory.write_file(b"moved", b"somebody else").unwrap();
    copies.end_outage();
    assert!(flushing.wait().await.is_empty());
    assert_eq!(bytes_of(&*memory, "/moved").await, b"somebody else");
    t.clock.advance(AFTER_TTL);
    let all = names(&t.vfs, t.vfs.root()).await;
    let beside = all.iter().find(|name| name.starts_with("moved.conflict-")).expect("ours is beside");
    assert_eq!(bytes_of(&*memory, &format!("/{beside}")).await, OLD);
    assert_eq!((all.len(), t.vfs.unflushed().conflicts), (2, 1));
}

/// All of the rename may have been done before that came: the new name has all that is left of ours then.
#[tokio::test(flavor = "multi_thread")]
async fn what_others_put_under_the_old_name_goes_over_nothing() {
    for how in [Interrupted::InTheMiddle, Interrupted::AtTheEnd] {
        for forgets in [false, true] {
            let what = format!("{how:?} forgets={forgets}");
            let memory = MemoryOrigin::new();
            memory.write_file(b"file", OLD).unwrap();
            let copies = Copies::new(memory.clone(), Duration::ZERO);
            let t = back_tier(copies.clone(), NEVER);
            let file = t.id("/file").await;
            assert_eq!(t.read(file).await, OLD);
            rename(&t, "file", "moved").await;
            copies.interrupt_the_next_rename(how);
            let flushing = t.vfs.flush_home(None).await.unwrap();
            while !copies.is_down() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            memory.write_file(b"file", b"somebody else").unwrap();
            if forgets {
                copies.forget_renames();
            }
            copies.end_outage();
            assert!(flushing.wait().await.is_empty(), "{what}");
            t.clock.advance(AFTER_TTL);
            let mut left = Vec::new();
            for name in names(&t.vfs, t.vfs.root()).await {
                left.push(bytes_of(&*memory, &format!("/{name}")).await);
            }
            left.sort_unstable();
            assert_eq!(left, [OLD, b"somebody else"], "{what}: nothing is lost");
        }
    }
}

/// What merely has the same bytes may be another's: it is taken for our copy where the same bytes go over it, and nowhere
/// removed.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_known_to_be_our_copy_is_replaced_by_the_same_bytes_and_never_removed() {
    for is_removed in [false, true] {
        let memory = MemoryOrigin::new();
        memory.write_file(b"file", OLD).unwrap();
        memory.write_file(b"clean", OLD).unwrap();
        let copies = Copies::new(memory.clone(), Duration::ZERO);
        let t = back_tier(copies.clone(), NEVER);
        let (file, root) = (t.id("/file").await, t.vfs.root());
        assert_eq!(t.read(file).await, OLD);
        rename(&t, "file", "moved").await;
        copies.interrupt_the_next_rename(Interrupted::InTheMiddle);
        t.vfs.flush_home(None).await.unwrap();
        while !copies.is_down() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if is_removed {
            t.vfs.remove(&Caller::root(), root, &name("moved")).await.expect("removed");
        }
        copies.forget_renames();
        copies.end_outage();
        t.flush().await;
        t.clock.advance(AFTER_TTL);
        assert_eq!(names(&t.vfs, root).await, ["clean", "moved"], "is_removed={is_removed}");
        assert_eq!(bytes_of(&*memory, "/moved").await, OLD, "is_removed={is_removed}");
        assert_eq!(t.vfs.unflushed().conflicts, 0, "is_removed={is_removed}");
    }
}
