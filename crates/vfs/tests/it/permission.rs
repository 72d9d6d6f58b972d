//! Who may do what, and what listings look like to a client.

use types::{Caller, ErrorKind, Name};
use vfs::{Access, Lend};

use crate::harness::{AFTER_TTL, Mode, joined, kind, tier};

fn user(uid: u32) -> Caller {
    Caller { uid, gid: uid, ..Caller::root() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_directory_is_neither_searched_nor_listed() {
    let t = tier(Mode::Cached);
    t.far.memory.mkdir(b"dir").unwrap();
    t.far.memory.write_file(b"dir/file", b"abc").unwrap();
    t.far.memory.chown(b"dir", 10, 10).unwrap();
    let file = Name::new("file").unwrap();
    for (mode, search, list) in [(0o700, false, false), (0o701, true, false), (0o704, false, true)] {
        t.far.memory.chmod(b"dir", mode).unwrap();
        t.pass(AFTER_TTL);
        let dir = t.id(b"/dir").await;
        for (caller, owner) in [(user(10), true), (user(11), false)] {
            let denied = |allowed: bool| (!owner && !allowed).then_some(ErrorKind::AccessDenied);
            assert_eq!(kind(t.vfs.lookup(&caller, dir, &file).await), denied(search), "{mode:o}");
            assert_eq!(kind(t.vfs.parent(&caller, dir).await), denied(search), "{mode:o}");
            assert_eq!(kind(t.vfs.readdir(&caller, dir, 0, 10).await), denied(list), "{mode:o}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_read_by_those_whom_its_mode_allows() {
    let t = tier(Mode::Cached);
    t.far.memory.write_file(b"file", b"abc").unwrap();
    t.far.memory.chown(b"file", 10, 20).unwrap();
    t.far.memory.chmod(b"file", 0o640).unwrap();
    let id = t.id(b"/file").await;
    let in_group = Caller { uid: 11, gid: 1, groups: vec![20], ..Caller::root() };
    assert_eq!(joined(&t.vfs.read(&user(10), id, 0, 3, Lend::Nothing).await.unwrap()), b"abc");
    assert_eq!(joined(&t.vfs.read(&in_group, id, 0, 3, Lend::From(1)).await.unwrap()), b"abc");
    assert_eq!(kind(t.vfs.read(&user(11), id, 0, 3, Lend::Nothing).await), Some(ErrorKind::AccessDenied));
    let wanted = Access::READ | Access::MODIFY;
    assert_eq!(t.vfs.access(&user(10), id, wanted).await.unwrap().0, Access::READ);
    assert_eq!(t.vfs.access(&user(11), id, wanted).await.unwrap().0, Access(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listing_begins_with_the_dots_and_goes_on_from_any_cookie() {
    let t = tier(Mode::Cached);
    t.far.memory.mkdir(b"dir").unwrap();
    for i in 0..20 {
        t.far.memory.write_file(format!("dir/f{i}").as_bytes(), b"").unwrap();
    }
    let dir = t.id(b"/dir").await;
    let caller = Caller::root();
    let whole = t.vfs.readdir(&caller, dir, 0, 1000).await.unwrap();
    assert!(whole.eof);
    assert_eq!(whole.items.len(), 22);
    assert_eq!((whole.items[0].name.as_ref(), whole.items[1].name.as_ref()), (&b"."[..], &b".."[..]));
    assert_eq!(whole.items[0].fileid, dir.fileid64());
    assert_eq!(whole.items[1].fileid, t.vfs.root().fileid64());
    for items_max in [1, 2, 3, 7, 22, 23] {
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let piece = t.vfs.readdir(&caller, dir, cookie, items_max).await.unwrap();
            assert!(piece.items.len() <= items_max);
            names.extend(piece.items.iter().map(|i| i.name.clone()));
            cookie = piece.items.last().map_or(cookie, |i| i.cookie);
            if piece.eof {
                break;
            }
        }
        let expected: Vec<_> = whole.items.iter().map(|i| i.name.clone()).collect();
        assert_eq!(names, expected, "{items_max} at a time");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn inode_numbers_are_ours_and_agree_everywhere() {
    let t = tier(Mode::Cached);
    t.far.memory.write_file(b"one", b"abc").unwrap();
    t.far.memory.link(b"one", b"two").unwrap();
    let listed = t.vfs.readdir(&Caller::root(), t.vfs.root(), 0, 10).await.unwrap();
    let (one, two) = (t.vfs.resolve(b"/one").await.unwrap(), t.vfs.resolve(b"/two").await.unwrap());
    assert_eq!((one.id, one.attr.fileid, one.attr.fsid), (two.id, two.attr.fileid, two.attr.fsid));
    for item in listed.items.iter().skip(2) {
        let node = item.node.as_ref().unwrap();
        assert_eq!((item.fileid, node.attr.fileid, node.id), (one.attr.fileid, one.attr.fileid, one.id));
    }
}
