//! Changes of names and attributes as a front end sees them: who may, what is known at once, and what it costs.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use namespace::Junction;
use origin::posix::PosixOrigin;
use testkit::far_origin::Far;
use types::Timeline;
use types::{Caller, CreateHow, ErrorKind, NewNode, Result, SetAttr};
use vfs::{Access, Lend, WritePolicy};

use crate::harness::{AFTER_TTL, kind};
use crate::writable::{Writable, name, over, user, with_mode, without_list_ahead, writable};

fn far() -> (Writable, Arc<Far>, Timeline) {
    let (far, clock) = (Far::new("far:one"), Timeline::default());
    (writable(far.clone(), &clock), far, clock)
}

const GUARDED: CreateHow = CreateHow::Guarded;

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_creates_cost_a_thousand_calls_and_no_listing() {
    let (t, far, _) = far();
    far.memory.write_file(b"before", b"").unwrap();
    let root = t.vfs.root();
    let caller = Caller::root();
    let made = t.vfs.mkdir(&caller, root, &name("made"), with_mode(0o755)).await.unwrap().node.id;
    for dir in [root, made] {
        let before = t.names(dir).await;
        far.forget_calls();
        for i in 0..1000 {
            let new = name(&format!("f{i}"));
            // As clients do: is it there?
            assert_eq!(kind(t.vfs.lookup(&caller, dir, &new).await), Some(ErrorKind::NotFound));
            let made = t.vfs.create(&caller, dir, &new, GUARDED, with_mode(0o644)).await.unwrap();
            assert_eq!(t.vfs.lookup(&caller, dir, &new).await.unwrap().id, made.node.id);
        }
        assert_eq!(t.names(dir).await.len(), 1000 + before.len());
        assert_eq!((far.calls("create"), far.calls_of_all_kinds()), (1000, 1000));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn creates_side_by_side_cost_a_call_each_and_no_listing() {
    let (t, far, _) = far();
    let root = t.vfs.root();
    assert!(t.names(root).await.is_empty());
    far.forget_calls();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..16 {
        let vfs = t.vfs.clone();
        tasks.spawn(async move {
            for i in 0..30 {
                let new = name(&format!("{task}-{i}"));
                vfs.create(&Caller::root(), root, &new, GUARDED, with_mode(0o644)).await.expect("created");
            }
        });
    }
    tasks.join_all().await;
    assert_eq!(t.names(root).await.len(), 480);
    assert_eq!((far.calls("create"), far.calls_of_all_kinds()), (480, 480));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_change_among_our_own_is_seen_after_the_ttl() {
    let (t, far, clock) = far();
    let root = t.vfs.root();
    let caller = Caller::root();
    assert!(t.names(root).await.is_empty());
    t.vfs.create(&caller, root, &name("ours"), GUARDED, with_mode(0o644)).await.unwrap();
    far.memory.write_file(b"theirs", b"").unwrap();
    t.vfs.create(&caller, root, &name("ours too"), GUARDED, with_mode(0o644)).await.unwrap();
    // What the second create told does not follow from the first: the directory is listed again.
    assert_eq!(t.names(root).await, ["ours", "ours too", "theirs"]);
    far.memory.remove(b"ours").unwrap();
    clock.advance(AFTER_TTL);
    assert_eq!(t.names(root).await, ["ours too", "theirs"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_removed_or_replaced_is_gone_and_what_is_renamed_is_the_same() {
    let (t, far, _) = far();
    let (root, caller) = (t.vfs.root(), Caller::root());
    let make = async |new: &str| {
        t.vfs.create(&caller, root, &name(new), GUARDED, with_mode(0o644)).await.unwrap().node.id
    };
    let (one, two, three) = (make("one").await, make("two").await, make("three").await);
    t.vfs.remove(&caller, root, &name("one")).await.unwrap();
    assert_eq!(kind(t.vfs.getattr(one).await), Some(ErrorKind::Stale));
    let (from, to) = t.vfs.rename(&caller, root, &name("two"), root, &name("three")).await.unwrap();
    assert_eq!(from, to);
    assert!(from.before.is_some() && from.after.is_some_and(|attr| attr.fileid == root.fileid64()));
    assert_eq!(kind(t.vfs.getattr(three).await), Some(ErrorKind::Stale));
    assert_eq!(t.vfs.lookup(&caller, root, &name("three")).await.unwrap().id, two);
    assert_eq!(t.vfs.getattr(two).await.unwrap().attr.nlink, 1);
    assert_eq!(t.names(root).await, ["three"]);
    assert_eq!(far.calls("readdir"), 1, "the listing was kept");
    let four = make("one").await;
    assert_ne!(four, one, "the name again is another file");
}

/// Each of them moves the file's ctime, which is all that tells one version of it from another.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_cached_of_a_file_stays_so_when_its_names_change() {
    for tells in [true, false] {
        let (t, far, _) = far();
        if !tells {
            far.be_silent();
        }
        far.memory.write_file(b"one", &[7; 300_000]).unwrap();
        let (root, caller) = (t.vfs.root(), Caller::root());
        let file = t.id("/one").await;
        let opened = t.vfs.getattr(file).await.unwrap();
        let read = async || {
            let read = t.vfs.read(&caller, file, 0, 300_000, Lend::Nothing).await.unwrap();
            assert_eq!(read.data.iter().map(cache::Piece::length).sum::<u64>(), 300_000);
        };
        let is_kept = async |path: &str| {
            let mut tries = 0;
            while t.vfs.stat(path.as_bytes()).await.unwrap().cached_bytes != 300_000 {
                tries += 1;
                assert!(tries < 500, "{path} is not kept");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        read().await;
        is_kept("/one").await;
        far.forget_calls();
        t.vfs.rename(&caller, root, &name("one"), root, &name("two")).await.unwrap();
        is_kept("/two").await;
        t.vfs.link(&caller, file, root, &name("three")).await.unwrap();
        is_kept("/three").await;
        t.vfs.remove(&caller, root, &name("two")).await.unwrap();
        is_kept("/three").await;
        read().await;
        // Who opened it before goes on.
        let all = t.vfs.read_version(&opened, 0, 300_000, Lend::Nothing).await.unwrap();
        assert_eq!(all.iter().map(cache::Piece::length).sum::<u64>(), 300_000);
        assert_eq!(far.calls("read"), 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_others_wrote_before_a_rename_are_fetched() {
    let (t, far, clock) = far();
    far.memory.write_file(b"one", b"old").unwrap();
    let (root, caller) = (t.vfs.root(), Caller::root());
    let file = t.id("/one").await;
    let read = async || t.vfs.read(&caller, file, 0, 10, Lend::Nothing).await.unwrap().data;
    assert_eq!(&read().await[0].to_bytes().unwrap()[..], b"old");
    far.memory.write_file(b"one", b"new").unwrap();
    t.vfs.rename(&caller, root, &name("one"), root, &name("two")).await.unwrap();
    clock.advance(AFTER_TTL);
    assert_eq!(&read().await[0].to_bytes().unwrap()[..], b"new");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_lies_below_a_renamed_directory_keeps_its_handle_also_where_references_are_paths() {
    let home = tempfile::tempdir().unwrap();
    let origin = Arc::new(PosixOrigin::open(home.path()).unwrap());
    let t = writable(origin, &Timeline::default());
    let (root, caller) = (t.vfs.root(), Caller::root());
    let mkdir =
        async |dir, new: &str| t.vfs.mkdir(&caller, dir, &name(new), with_mode(0o755)).await.unwrap().node.id;
    let top = mkdir(root, "top").await;
    let sub = mkdir(top, "sub").await;
    let file = t.vfs.create(&caller, sub, &name("file"), GUARDED, with_mode(0o600)).await.unwrap().node.id;
    t.vfs.rename(&caller, root, &name("top"), root, &name("other")).await.unwrap();
    // Another one with the old name, so that the old path leads somewhere.
    let again = mkdir(root, "top").await;
    assert_ne!(again, top);
    let inside = t.vfs.create(&caller, sub, &name("new"), GUARDED, with_mode(0o600)).await.unwrap();
    t.vfs.setattr(&caller, file, with_mode(0o640), None).await.unwrap();
    assert_eq!(t.id("/other/sub/new").await, inside.node.id);
    assert_eq!(t.id("/other/sub/file").await, file);
    assert_eq!(t.vfs.getattr(file).await.unwrap().attr.mode, 0o640);
    assert!(home.path().join("other/sub/new").exists());
}

/// As an NFS client does that is told to try again.
async fn later_if_busy<T>(ask: impl AsyncFn() -> Result<T>) -> T {
    loop {
        match ask().await {
            Err(e) if e.kind() == ErrorKind::Busy => tokio::task::yield_now().await,
            answer => return answer.unwrap(),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_lies_below_a_directory_that_is_renamed_again_and_again_is_never_taken_for_gone() {
    let home = tempfile::tempdir().unwrap();
    let t = writable(Arc::new(PosixOrigin::open(home.path()).unwrap()), &Timeline::default());
    let (root, caller) = (t.vfs.root(), Caller::root());
    let mut dir = root;
    for part in ["top0", "a", "b", "c"] {
        dir = t.vfs.mkdir(&caller, dir, &name(part), with_mode(0o755)).await.unwrap().node.id;
    }
    let file = t.vfs.create(&caller, dir, &name("file"), GUARDED, with_mode(0o600)).await.unwrap().node.id;
    let target = Bytes::from_static(b"nowhere");
    let link = t.vfs.symlink(&caller, dir, &name("link"), target.clone(), with_mode(0o777)).await.unwrap();
    let moved = std::sync::atomic::AtomicBool::new(false);
    let moving = async {
        for n in 0..400 {
            let (from, to) = (name(&format!("top{n}")), name(&format!("top{}", n + 1)));
            t.vfs.rename(&caller, root, &from, root, &to).await.unwrap();
        }
        moved.store(true, std::sync::atomic::Ordering::SeqCst);
    };
    let asking = async {
        while !moved.load(std::sync::atomic::Ordering::SeqCst) {
            for mode in [0o640, 0o600] {
                later_if_busy(async || t.vfs.setattr(&caller, file, with_mode(mode), None).await).await;
            }
            let read = later_if_busy(async || t.vfs.readlink(&caller, link.node.id).await).await;
            assert_eq!(read.0, target);
        }
    };
    tokio::join!(moving, asking);
    assert_eq!(t.id("/top400/a/b/c/file").await, file);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_with_two_names_keeps_its_handle_when_it_loses_either() {
    let home = tempfile::tempdir().unwrap();
    let t = writable(Arc::new(PosixOrigin::open(home.path()).unwrap()), &Timeline::default());
    let (root, caller) = (t.vfs.root(), Caller::root());
    for removed in ["one", "two"] {
        let file =
            t.vfs.create(&caller, root, &name("one"), GUARDED, with_mode(0o600)).await.unwrap().node.id;
        let linked = t.vfs.link(&caller, file, root, &name("two")).await.unwrap();
        assert_eq!((linked.node.id, linked.node.attr.nlink), (file, 2));
        t.vfs.remove(&caller, root, &name(removed)).await.unwrap();
        assert_eq!(t.vfs.getattr(file).await.unwrap().attr.nlink, 1, "without {removed}");
        let left = if removed == "one" { "two" } else { "one" };
        assert_eq!(t.names(root).await, [left]);
        t.vfs.remove(&caller, root, &name(left)).await.unwrap();
        assert_eq!(kind(t.vfs.getattr(file).await), Some(ErrorKind::Stale));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn permission_is_decided_before_the_origin_is_asked() {
    let (t, far, _) = far();
    let (root, admin, alice, bob) = (t.vfs.root(), Caller::root(), user(10), user(11));
    let open = t.vfs.mkdir(&admin, root, &name("open"), with_mode(0o1777)).await.unwrap().node.id;
    let file = t.vfs.create(&alice, open, &name("file"), GUARDED, with_mode(0o644)).await.unwrap().node;
    assert_eq!((file.attr.uid, file.attr.gid), (10, 10), "it is the caller's");
    far.forget_calls();
    let denied = Some(ErrorKind::AccessDenied);
    let not_permitted = Some(ErrorKind::NotPermitted);
    let (x, set) = (name("x"), with_mode(0o600));
    assert_eq!(kind(t.vfs.create(&bob, root, &x, GUARDED, set).await), denied);
    assert_eq!(kind(t.vfs.mkdir(&bob, root, &x, set).await), denied);
    assert_eq!(kind(t.vfs.symlink(&bob, root, &x, "y".into(), set).await), denied);
    assert_eq!(kind(t.vfs.mknod(&bob, root, &x, NewNode::Fifo, set).await), denied);
    assert_eq!(kind(t.vfs.mknod(&bob, open, &x, NewNode::CharDevice(1, 3), set).await), not_permitted);
    assert_eq!(kind(t.vfs.link(&bob, file.id, root, &x).await), denied);
    assert_eq!(kind(t.vfs.rmdir(&bob, root, &name("open")).await), denied);
    assert_eq!(kind(t.vfs.rename(&bob, open, &name("file"), root, &x).await), denied);
    assert_eq!(kind(t.vfs.remove(&bob, open, &name("file")).await), not_permitted, "the directory is sticky");
    assert_eq!(kind(t.vfs.rename(&bob, open, &name("file"), open, &x).await), not_permitted);
    assert_eq!(kind(t.vfs.setattr(&bob, file.id, set, None).await), not_permitted);
    let cut = SetAttr { size: Some(0), ..SetAttr::default() };
    assert_eq!(kind(t.vfs.setattr(&bob, file.id, cut, None).await), denied);
    let unchecked = CreateHow::Unchecked;
    assert_eq!(kind(t.vfs.create(&bob, open, &name("file"), unchecked, cut).await), denied);
    assert_eq!(far.calls_of_all_kinds(), 0, "nothing of it came to the origin");
    let all = Access::READ | Access::LOOKUP | Access::MODIFY | Access::EXTEND | Access::DELETE;
    assert_eq!(t.vfs.access(&bob, open, all).await.unwrap().0, all);
    assert_eq!(t.vfs.access(&bob, root, all).await.unwrap().0, Access::READ | Access::LOOKUP);
    let trusted = Caller { trusted: true, ..bob };
    let made = t.vfs.create(&trusted, root, &x, GUARDED, set).await.unwrap().node.attr;
    assert_eq!((made.uid, made.gid), (11, 11));
    t.vfs.remove(&alice, open, &name("file")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unchecked_create_takes_what_is_there_and_an_exclusive_one_knows_itself() {
    let (t, far, _) = far();
    let (root, caller) = (t.vfs.root(), user(10));
    far.memory.chmod(b"", 0o777).unwrap();
    far.memory.write_file(b"theirs", b"bytes").unwrap();
    far.memory.chmod(b"theirs", 0o666).unwrap();
    let set = SetAttr { size: Some(0), ..with_mode(0o600) };
    // Not known here yet: the origin is asked for a new file, and says that there is one.
    let taken = t.vfs.create(&caller, root, &name("theirs"), CreateHow::Unchecked, set).await.unwrap();
    assert_eq!((taken.node.attr.size, taken.node.attr.mode, taken.node.attr.uid), (0, 0o666, 0));
    let mine = CreateHow::Exclusive(*b"verifier");
    let none = SetAttr::default();
    let first = t.vfs.create(&caller, root, &name("mine"), mine, none).await.unwrap().node;
    let again = t.vfs.create(&caller, root, &name("mine"), mine, none).await.unwrap().node;
    assert_eq!((first.id, first.attr.uid, first.attr.gid), (again.id, 10, 10));
    let other = CreateHow::Exclusive(*b"another1");
    assert_eq!(kind(t.vfs.create(&caller, root, &name("mine"), other, none).await), Some(ErrorKind::Exists));
}

#[tokio::test(flavor = "multi_thread")]
async fn junctions_their_borders_and_what_is_above_them_stay_as_they_are() {
    let (one, two, fixed) = (Far::new("far:one"), Far::new("far:two"), Far::new("far:fixed"));
    for far in [&one, &two, &fixed] {
        far.memory.write_file(b"file", b"").unwrap();
    }
    let junctions =
        vec![Junction::new("/a/one", one), Junction::new("/a/two", two), Junction::new("/fixed", fixed)];
    let policies = [("/a/one", WritePolicy::Through), ("/a/two", WritePolicy::Through)];
    let t = over(junctions, &Timeline::default(), &policies);
    let caller = Caller::root();
    let (a, one, two) = (t.id("/a").await, t.id("/a/one").await, t.id("/a/two").await);
    let (fixed, file, x) = (t.id("/fixed").await, name("file"), name("x"));
    let read_only = Some(ErrorKind::ReadOnly);
    assert_eq!(kind(t.vfs.create(&caller, a, &x, GUARDED, with_mode(0o600)).await), read_only);
    assert_eq!(kind(t.vfs.rmdir(&caller, a, &name("one")).await), read_only);
    assert_eq!(kind(t.vfs.rename(&caller, a, &name("one"), a, &x).await), read_only);
    assert_eq!(kind(t.vfs.rename(&caller, one, &file, a, &x).await), read_only);
    assert_eq!(kind(t.vfs.create(&caller, fixed, &x, GUARDED, with_mode(0o600)).await), read_only);
    assert_eq!(kind(t.vfs.remove(&caller, fixed, &file).await), read_only);
    let there = t.id("/fixed/file").await;
    assert_eq!(kind(t.vfs.setattr(&caller, there, with_mode(0), None).await), read_only);
    assert_eq!(kind(t.vfs.setattr(&caller, a, with_mode(0), None).await), read_only);
    let crossing = Some(ErrorKind::CrossDevice);
    assert_eq!(kind(t.vfs.rename(&caller, one, &file, two, &x).await), crossing);
    assert_eq!(kind(t.vfs.link(&caller, t.id("/a/one/file").await, two, &x).await), crossing);
    t.vfs.setattr(&caller, one, with_mode(0o700), None).await.unwrap();
    assert_eq!(t.vfs.getattr(one).await.unwrap().attr.mode, 0o700, "a junction's root has attributes");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_whose_answer_is_lost_is_looked_at_before_anything_is_said_of_it() {
    let (t, far, _) = far();
    let (root, caller) = (t.vfs.root(), Caller::root());
    let old = t.vfs.create(&caller, root, &name("old"), GUARDED, with_mode(0o644)).await.unwrap().node.id;
    assert_eq!(t.names(root).await, ["old"]);
    far.lose_an_answer();
    let unknown = t.vfs.create(&caller, root, &name("new"), GUARDED, with_mode(0o644)).await;
    assert_eq!(kind(unknown), Some(ErrorKind::OutcomeUnknown));
    t.vfs.lookup(&caller, root, &name("new")).await.expect("it was made, and that is known");
    assert_eq!(t.names(root).await, ["new", "old"]);
    far.lose_an_answer();
    t.vfs
        .rename(&caller, root, &name("old"), root, &name("moved"))
        .await
        .expect("both names say that it was made");
    assert_eq!(t.id("/moved").await, old);
    assert_eq!(t.names(root).await, ["moved", "new"]);
    far.lose_an_answer();
    let unknown = t.vfs.remove(&caller, root, &name("new")).await;
    assert_eq!(kind(unknown), Some(ErrorKind::OutcomeUnknown));
    assert_eq!(t.names(root).await, ["moved"]);
    far.lose_an_answer();
    let unknown = t.vfs.setattr(&caller, old, with_mode(0o600), None).await;
    assert_eq!(kind(unknown), Some(ErrorKind::OutcomeUnknown));
    assert_eq!(t.vfs.getattr(old).await.unwrap().attr.mode, 0o600);
}

/// Its client would be told of an error that no client of the origin itself is told of.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_that_was_lost_on_its_way_is_asked_for_again() {
    let (t, far, _) = far();
    let (root, caller) = (t.vfs.root(), Caller::root());
    let lose = |kind| far.fail(kind, ErrorKind::OutcomeUnknown, 1);
    lose("create");
    let file =
        t.vfs.create(&caller, root, &name("file"), GUARDED, with_mode(0o644)).await.expect("made").node;
    lose("mkdir");
    let dir = t.vfs.mkdir(&caller, root, &name("dir"), with_mode(0o755)).await.expect("made").node;
    lose("rename");
    t.vfs.rename(&caller, root, &name("file"), dir.id, &name("moved")).await.expect("moved");
    assert_eq!(t.id("/dir/moved").await, file.id);
    lose("remove");
    t.vfs.remove(&caller, dir.id, &name("moved")).await.expect("removed");
    lose("rmdir");
    t.vfs.rmdir(&caller, root, &name("dir")).await.expect("removed");
    assert!(t.names(root).await.is_empty());
    // What another has put there meanwhile is not taken for ours, nor away.
    far.memory.write_file(b"new", b"theirs").unwrap();
    lose("create");
    let unknown = t.vfs.create(&caller, root, &name("new"), GUARDED, with_mode(0o644)).await;
    assert_eq!(kind(unknown), Some(ErrorKind::OutcomeUnknown));
    assert_eq!(t.names(root).await, ["new"]);
    far.memory.remove(b"new").unwrap();
    far.memory.write_file(b"new", b"another").unwrap();
    lose("remove");
    let unknown = t.vfs.remove(&caller, root, &name("new")).await;
    assert_eq!(kind(unknown), Some(ErrorKind::OutcomeUnknown));
    assert_eq!(t.names(root).await, ["new"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_that_contradicts_what_was_known_ends_that_knowledge() {
    let (t, far, _) = far();
    let (root, caller) = (t.vfs.root(), Caller::root());
    far.memory.write_file(b"gone", b"").unwrap();
    assert_eq!(t.names(root).await, ["gone"]);
    far.memory.remove(b"gone").unwrap();
    far.memory.write_file(b"theirs", b"").unwrap();
    assert_eq!(kind(t.vfs.remove(&caller, root, &name("gone")).await), Some(ErrorKind::NotFound));
    assert_eq!(t.names(root).await, ["theirs"]);
    far.memory.write_file(b"more", b"").unwrap();
    let refused = t.vfs.create(&caller, root, &name("more"), GUARDED, with_mode(0o644)).await;
    assert_eq!(kind(refused), Some(ErrorKind::Exists));
    assert_eq!(t.names(root).await, ["more", "theirs"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guarded_set_needs_the_time_it_names() {
    let (t, far, _) = far();
    far.memory.write_file(b"file", b"abc").unwrap();
    let file = t.vfs.resolve(b"/file").await.unwrap();
    let set = t.vfs.setattr(&Caller::root(), file.id, with_mode(0o600), Some(file.attr.ctime)).await.unwrap();
    assert_eq!((set.before, set.node.attr.mode), (Some(file.attr.weak()), 0o600));
    let refused = t.vfs.setattr(&Caller::root(), file.id, with_mode(0o644), Some(file.attr.ctime)).await;
    assert_eq!(kind(refused), Some(ErrorKind::VersionChanged));
}

/// Each task has names of its own in one directory, and sees exactly what it did to them, whatever else is asked.
#[tokio::test(flavor = "multi_thread")]
async fn nobody_who_asks_meanwhile_undoes_what_was_done() {
    let (t, far, clock) = far();
    what_was_done_stays(t, far, clock).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_who_looks_names_up_one_by_one_undoes_what_was_done() {
    let (far, clock) = (Far::new("far:one"), Timeline::default());
    what_was_done_stays(without_list_ahead(far.clone(), &clock), far, clock).await;
}

async fn what_was_done_stays(t: Writable, far: Arc<Far>, clock: Timeline) {
    for i in 0..200 {
        far.memory.write_file(format!("old{i}").as_bytes(), b"").unwrap();
    }
    far.answer_late(std::time::Duration::from_millis(10));
    let root = t.vfs.root();
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..6 {
        let vfs = t.vfs.clone();
        tasks.spawn(async move {
            let caller = Caller::root();
            let (one, two) = (name(&format!("{task}-one")), name(&format!("{task}-two")));
            for round in 0..25 {
                let id =
                    vfs.create(&caller, root, &one, GUARDED, with_mode(0o600)).await.expect("new").node.id;
                assert_eq!(vfs.lookup(&caller, root, &one).await.expect("there").id, id, "{round}");
                vfs.rename(&caller, root, &one, root, &two).await.expect("renamed");
                let gone = vfs.lookup(&caller, root, &one).await;
                assert_eq!(kind(gone), Some(ErrorKind::NotFound), "{round}");
                assert_eq!(vfs.lookup(&caller, root, &two).await.expect("there").id, id, "{round}");
                vfs.remove(&caller, root, &two).await.expect("removed");
                let gone = vfs.lookup(&caller, root, &two).await;
                assert_eq!(kind(gone), Some(ErrorKind::NotFound), "{round}");
            }
        });
    }
    let (vfs, walker_clock) = (t.vfs.clone(), clock.clone());
    let walker = tokio::spawn(async move {
        loop {
            walker_clock.advance(AFTER_TTL);
            let listed = vfs.readdir(&Caller::root(), root, 0, 1000).await.expect("listed");
            assert!(listed.items.len() >= 200);
        }
    });
    // Many names at the same time, so that one is being asked for whenever it changes.
    let (vfs, asked_clock) = (t.vfs.clone(), clock.clone());
    let asking = tokio::spawn(async move {
        loop {
            asked_clock.advance(AFTER_TTL);
            let mut lookups = tokio::task::JoinSet::new();
            for name in (0..6).flat_map(|task| [format!("{task}-one"), format!("{task}-two")]) {
                let vfs = vfs.clone();
                lookups.spawn(async move {
                    let _ = vfs.lookup(&Caller::root(), root, &crate::writable::name(&name)).await;
                });
            }
            lookups.join_all().await;
        }
    });
    while let Some(done) = tasks.join_next().await {
        done.expect("no task failed");
    }
    walker.abort();
    asking.abort();
    assert_eq!(t.names(root).await.len(), 200);
}
