//! A `FileId` is a client's handle: it means one object for as long as that exists, whatever happens around it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use namespace::{Ask, Found, New, Old};
use origin::Origin;
use types::{ErrorKind, FileId, JunctionId, SetAttr};

use crate::harness::{AFTER_TTL, Tier, kind, name, tier, tier_with};

fn a_small_tree() -> Tier {
    let t = tier();
    t.far.memory.mkdir(b"a").unwrap();
    t.far.memory.mkdir(b"a/b").unwrap();
    t.far.memory.write_file(b"a/b/file", b"abc").unwrap();
    t.far.memory.symlink(b"a/link", b"b/file").unwrap();
    t
}

const PATHS: [&[u8]; 4] = [b"/a", b"/a/b", b"/a/b/file", b"/a/link"];

async fn ids(t: &Tier) -> Vec<types::FileId> {
    let mut ids = Vec::new();
    for path in PATHS {
        ids.push(t.id(path).await);
    }
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn handles_mean_the_same_after_a_restart() {
    let t = a_small_tree();
    let before = ids(&t).await;
    let t = t.after_a_restart().await;
    t.far.set_down(true); // what is known is known from the database
    for id in &before {
        assert_eq!(t.getattr(*id).await.unwrap().id(), *id);
    }
    assert_eq!(ids(&t).await, before);
}

#[tokio::test(flavor = "multi_thread")]
async fn handles_mean_the_same_after_a_crash() {
    let t = a_small_tree();
    let before = ids(&t).await;
    let t = t.after_a_crash();
    t.far.set_down(true);
    for id in &before {
        assert_eq!(t.getattr(*id).await.unwrap().id(), *id);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handle_from_a_listing_is_durable_too() {
    let t = tier();
    for i in 0..500 {
        t.far.memory.write_file(format!("f{i}").as_bytes(), b"").unwrap();
    }
    let listed = t.ns.readdir(t.ns.root(), 0, 1000).await.unwrap();
    let t = t.after_a_crash();
    for entry in listed.entries {
        let id = entry.child.expect("listed with its object").id();
        t.getattr(id).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recreated_name_is_another_object() {
    let t = tier();
    t.far.memory.write_file(b"file", b"abc").unwrap();
    let old = t.id(b"/file").await;
    t.far.memory.remove(b"file").unwrap();
    t.far.memory.write_file(b"file", b"abc").unwrap();
    t.pass(AFTER_TTL);
    let new = t.id(b"/file").await;
    assert_ne!(old, new);
    assert_eq!(kind(t.getattr(old).await), Some(ErrorKind::Stale));
    assert_eq!(kind(t.getattr(old).await), Some(ErrorKind::Stale), "for good");
    assert_eq!(t.getattr(new).await.unwrap().id(), new);
    let t = t.after_a_restart().await;
    assert_eq!(kind(t.getattr(old).await), Some(ErrorKind::Stale), "after a restart too");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_recreated_name_is_another_object_to_whoever_asks_by_handle_first() {
    let t = tier();
    t.far.memory.write_file(b"file", b"abc").unwrap();
    let old = t.id(b"/file").await;
    t.far.memory.remove(b"file").unwrap();
    t.far.memory.write_file(b"file", b"abc").unwrap();
    t.pass(AFTER_TTL);
    assert_eq!(kind(t.getattr(old).await), Some(ErrorKind::Stale));
    assert_ne!(t.id(b"/file").await, old);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renamed_object_keeps_its_handle_and_gets_its_new_parent() {
    let t = a_small_tree();
    t.far.memory.mkdir(b"c").unwrap();
    let (b, c) = (t.id(b"/a/b").await, t.id(b"/c").await);
    t.far.memory.rename(b"a/b", b"c/d").unwrap();
    t.pass(AFTER_TTL);
    assert_eq!(t.getattr(b).await.unwrap().id(), b);
    assert_eq!(t.id(b"/c/d").await, b);
    assert_eq!(kind(t.lookup(b"/a/b").await), Some(ErrorKind::NotFound));
    assert_eq!(t.ns.parent(b).await.unwrap().id(), c);
}

#[tokio::test(flavor = "multi_thread")]
async fn hard_links_share_one_id() {
    let t = tier();
    t.far.memory.mkdir(b"dir").unwrap();
    t.far.memory.write_file(b"one", b"abc").unwrap();
    t.far.memory.link(b"one", b"dir/two").unwrap();
    let id = t.id(b"/one").await;
    assert_eq!(t.id(b"/dir/two").await, id);
    t.far.memory.remove(b"one").unwrap();
    t.pass(AFTER_TTL);
    assert_eq!(kind(t.lookup(b"/one").await), Some(ErrorKind::NotFound));
    assert_eq!(t.getattr(id).await.unwrap().attr().nlink, 1);
    assert_eq!(t.id(b"/dir/two").await, id);
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_references_are_found_again_by_name() {
    let t = a_small_tree();
    let before = ids(&t).await;
    t.far.change_references();
    t.pass(AFTER_TTL);
    for id in before.iter().rev() {
        assert_eq!(t.getattr(*id).await.unwrap().id(), *id);
    }
    assert_eq!(ids(&t).await, before);
    assert_eq!(t.names(before[1]).await.unwrap(), [b"file".to_vec()]);
    let known = t.getattr(before[3]).await.unwrap();
    let namespace::Found::Node(link) = known else { panic!("not of an origin") };
    t.far.change_references();
    assert_eq!(t.ns.link_target(&link).await.unwrap(), b"b/file"[..]);
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_that_come_back_with_other_identities_keep_their_handles() {
    let t = a_small_tree();
    let before = ids(&t).await;
    t.far.change_identities();
    t.pass(AFTER_TTL);
    for id in before.iter().rev() {
        assert_eq!(t.getattr(*id).await.unwrap().id(), *id);
    }
    let t = t.after_a_restart().await;
    t.pass(AFTER_TTL);
    for id in &before {
        assert_eq!(t.getattr(*id).await.unwrap().id(), *id);
    }
}

/// As above, but names are asked for before handles are.
#[tokio::test(flavor = "multi_thread")]
async fn handles_from_before_an_identity_change_work_beside_those_from_after() {
    let t = a_small_tree();
    let before = ids(&t).await;
    t.far.change_identities();
    t.pass(AFTER_TTL);
    let after = ids(&t).await;
    t.pass(AFTER_TTL);
    for id in before.iter().chain(&after) {
        t.getattr(*id).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_object_is_not_taken_for_a_stale_reference() {
    let t = a_small_tree();
    let before = ids(&t).await;
    t.far.memory.remove(b"a/b/file").unwrap();
    t.far.memory.write_file(b"a/b/file", b"xyz").unwrap();
    t.far.change_references();
    t.pass(AFTER_TTL);
    assert_eq!(kind(t.getattr(before[2]).await), Some(ErrorKind::Stale));
    assert_ne!(t.id(b"/a/b/file").await, before[2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_new_directory_with_a_reused_inode_number_does_not_take_over_a_handle() {
    let t = tier();
    t.far.memory.mkdir(b"dir").unwrap();
    t.far.memory.write_file(b"dir/file", b"abc").unwrap();
    let (dir, file) = (t.id(b"/dir").await, t.id(b"/dir/file").await);
    let root = t.far.memory.root().await.unwrap().reference;
    let name = types::Name::new(bytes::Bytes::from_static(b"dir")).unwrap();
    let before = t.far.memory.lookup(&root, &name).await.unwrap().attr.fileid;
    t.far.memory.remove(b"dir/file").unwrap();
    t.far.memory.remove(b"dir").unwrap();
    t.far.memory.mkdir(b"dir").unwrap();
    let now = t.far.memory.lookup(&root, &name).await.unwrap().attr.fileid;
    t.far.reuse_inode_number(now, before);
    t.far.change_references();
    t.pass(AFTER_TTL);
    assert_eq!(kind(t.getattr(dir).await), Some(ErrorKind::Stale));
    assert_eq!(kind(t.getattr(file).await), Some(ErrorKind::Stale));
    assert_ne!(t.id(b"/dir").await, dir);
}

/// A change of ours that was made at the origin, and not kept here when the tier was killed.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_crash_nothing_is_told_that_a_change_of_ours_may_have_outdated() {
    let t = tier_with(|junction| junction.changes = true);
    for name in [&b"changed"[..], b"removed"] {
        t.far.memory.write_file(name, b"before").unwrap();
    }
    assert_eq!(t.names(t.ns.root()).await.unwrap().len(), 2);
    t.far.memory.write_file(b"changed", b"afterwards").unwrap();
    t.far.memory.remove(b"removed").unwrap();
    t.far.memory.write_file(b"made", b"").unwrap();
    assert_eq!(t.lookup(b"/changed").await.unwrap().attr().size, 6, "within the ttl");

    let t = t.after_a_crash_with(|junction| junction.changes = true);
    t.far.set_down(true);
    assert_eq!(t.lookup(b"/changed").await.unwrap().attr().size, 6, "in an outage it still serves");
    t.far.set_down(false);
    // Somebody has to find out that the outage is over; the ttl is not, by then.
    for _ in 0..10 {
        t.pass(Duration::from_secs(2));
        t.lookup(b"/changed").await.unwrap();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(t.lookup(b"/changed").await.unwrap().attr().size, 10);
    assert_eq!(kind(t.lookup(b"/removed").await), Some(ErrorKind::NotFound));
    t.lookup(b"/made").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_clean_end_what_was_known_counts() {
    let t = tier_with(|junction| junction.changes = true);
    t.far.memory.write_file(b"file", b"before").unwrap();
    t.lookup(b"/file").await.unwrap();
    t.ns.shutdown().await;
    t.far.forget_calls();
    let t = t.after_a_crash_with(|junction| junction.changes = true);
    t.lookup(b"/file").await.unwrap();
    assert_eq!(t.far.calls_of_all_kinds(), 0);
}

/// The removal is in memory before it is in the database.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_removed_does_not_come_back_for_those_who_ask_meanwhile() {
    let t = tier();
    let root = t.id(b"/").await;
    for round in 0..20 {
        let name = name(format!("dir{round}").as_bytes());
        let new = New::Directory { set: SetAttr::default() };
        let dir = t.ns.make(root, &name, &new).await.unwrap().found.id();
        let ns = t.ns.clone();
        let (end, asking) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let asker = tokio::spawn({
            let (end, asking) = (end.clone(), asking.clone());
            async move {
                while !end.load(Ordering::SeqCst) {
                    asking.store(true, Ordering::SeqCst);
                    let _ = ns.getattr(dir, Ask::Use).await;
                    tokio::task::yield_now().await;
                }
            }
        });
        while !asking.load(Ordering::SeqCst) {
            tokio::task::yield_now().await;
        }
        t.ns.remove(root, &name, Old::Directory).await.unwrap();
        end.store(true, Ordering::SeqCst);
        asker.await.unwrap();
        assert_eq!(kind(t.ns.getattr(dir, Ask::Use).await), Some(ErrorKind::Stale), "round {round}");
    }
}

/// The listing is from before the removal, and arrives after it.
#[tokio::test(flavor = "multi_thread")]
async fn a_removed_directory_does_not_come_back_with_a_listing_that_was_under_way() {
    let t = tier();
    t.far.memory.mkdir(b"dir").unwrap();
    let (root, dir) = (t.id(b"/").await, t.id(b"/dir").await);
    t.pass(AFTER_TTL);
    t.far.answer_late(Duration::from_millis(500));
    let ns = t.ns.clone();
    let listing = tokio::spawn(async move { ns.readdir(root, 0, 100).await });
    while t.far.late_answers() == 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    t.far.answer_late(Duration::ZERO);
    t.ns.remove(root, &name(b"dir"), Old::Directory).await.unwrap();
    assert_eq!(kind(t.ns.getattr(dir, Ask::Use).await), Some(ErrorKind::Stale));
    assert!(listing.await.unwrap().unwrap().entries.is_empty());
    assert_eq!(kind(t.ns.getattr(dir, Ask::Use).await), Some(ErrorKind::Stale));
    let t = t.after_a_crash();
    assert_eq!(kind(t.ns.getattr(dir, Ask::Use).await), Some(ErrorKind::Stale), "nor in the database");
}

/// Its name led to the other id until its directory was asked again: what was then done to it was not seen, and done to
/// the wrong one.
/// Who has a handle with the id that it was known by first goes on with that; all others go by the other one.
#[tokio::test(flavor = "multi_thread")]
async fn an_adopted_object_that_is_found_again_by_its_first_id_keeps_the_one_it_was_adopted_as() {
    let t = a_small_tree();
    let known = t.id(b"/a/b/file").await;
    let id = FileId::made_here(JunctionId(1), b"7");
    t.ns.adopt(id, known).await.unwrap();
    assert_eq!(t.id(b"/a/b/file").await, id);
    t.far.change_references();
    t.pass(AFTER_TTL);
    assert_eq!(t.getattr(known).await.unwrap().attr().size, 3);
    assert_eq!(t.getattr(id).await.unwrap().id(), id);
    assert_eq!(t.id(b"/a/b/file").await, id);
    let Found::Node(node) = t.getattr(id).await.unwrap() else { panic!("not of an origin") };
    let object = t.far.getattr(&t.ns.origin_of(&node).unwrap().1).await.unwrap();
    t.ns.wrote(id, t.ns.asking(), None, &object).await.expect("it is known as that");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_name_of_an_adopted_object_leads_to_the_id_it_was_adopted_as() {
    let t = tier();
    t.far.memory.mkdir(b"dir").unwrap();
    let (known, id) = (t.id(b"/dir").await, FileId([7; 16]));
    t.ns.adopt(id, known).await.unwrap();
    assert_eq!(t.id(b"/dir").await, id);
    t.ns.set(id, SetAttr { mode: Some(0o711), ..SetAttr::default() }, None).await.unwrap();
    assert_eq!(t.lookup(b"/dir").await.unwrap().attr().mode, 0o711);
    let listed = t.ns.readdir(t.id(b"/").await, 0, 100).await.unwrap().entries;
    assert_eq!(listed[0].child.as_ref().map(namespace::Found::id), Some(id));
    let root = t.id(b"/").await;
    t.ns.rename(root, &name(b"dir"), root, &name(b"moved")).await.unwrap();
    assert_eq!(t.id(b"/moved").await, id);
    let t = t.after_a_restart().await;
    assert_eq!(t.id(b"/moved").await, id);
    assert_eq!(t.getattr(known).await.unwrap().attr().mode, 0o711, "the other id is good still");
}
