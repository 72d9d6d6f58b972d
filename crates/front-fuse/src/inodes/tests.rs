use types::{Attr, FileKind, JunctionId, Timestamp};

use super::*;

type Table = Inodes<&'static str>;

fn node(file: u8, version: u8) -> Node {
    let time = Timestamp::default();
    let id = FileId([file; 16]);
    let attr = Attr {
        kind: FileKind::Regular,
        mode: 0o644,
        nlink: 1,
        uid: 0,
        gid: 0,
        size: u64::from(version),
        used: 0,
        rdev: (0, 0),
        fsid: 1,
        fileid: id.fileid64(),
        atime: time,
        mtime: time,
        ctime: time,
    };
    Node { id, junction: JunctionId(1), attr, version: Version([version; 16]) }
}

fn table() -> Table {
    Inodes::new(FileId([0; 16]))
}

fn remember(table: &mut Table, node: &Node) -> u64 {
    table.remember(node, ROOT, &Bytes::from_static(b"name"))
}

#[test]
fn a_number_lives_as_long_as_the_kernel_knows_it() {
    let mut table = table();
    let number = remember(&mut table, &node(2, 1));
    assert_eq!(number, node(2, 1).id.fileid64());
    assert_eq!(remember(&mut table, &node(2, 1)), number);
    table.forget(number, 1);
    assert_eq!(table.file(number), Some(node(2, 1).id));
    table.forget(number, 1);
    assert_eq!((table.file(number), table.len()), (None, 1));
    table.forget(ROOT, 1_000_000);
    assert_eq!(table.file(ROOT), Some(FileId([0; 16])), "the root is never forgotten");
    table.forget(12345, 1);
}

#[test]
fn a_file_that_is_open_outlasts_its_forgetting() {
    let mut table = table();
    let number = remember(&mut table, &node(2, 1));
    table.open(number, &node(2, 1), || How::Snapshot).expect("known");
    table.forget(number, 1);
    assert!(matches!(table.serving(number), Some(Serving::Pinned(_, None))));
    assert_eq!(table.release(number), Some(How::Snapshot));
    assert_eq!(table.len(), 1);
}

#[test]
fn pages_are_kept_only_if_they_are_of_the_version_that_is_opened() {
    let mut table = table();
    let number = remember(&mut table, &node(2, 1));
    let mut open = |version| {
        let opening = table.open(number, &node(2, version), || How::Snapshot).expect("known");
        table.release(number);
        opening
    };
    assert_eq!(open(1), Opening::Served { keep: false });
    assert_eq!(open(1), Opening::Served { keep: true });
    assert_eq!(open(2), Opening::Served { keep: false });
    assert_eq!(open(2), Opening::Served { keep: true });
}

#[test]
fn while_a_version_is_held_the_next_one_is_another_inode() {
    for how in [How::Snapshot, How::Whole("bytes"), How::Passed("backing")] {
        let mut table = table();
        let old = remember(&mut table, &node(2, 1));
        table.open(old, &node(2, 1), || how.clone()).expect("known");
        assert_eq!(table.open(old, &node(2, 2), || how.clone()), Some(Opening::Superseded));
        let told = table.told(old, node(2, 2));
        assert!(told.superseded && told.node.version == node(2, 1).version, "fstat shows what is held");
        let new = remember(&mut table, &node(2, 2));
        assert_ne!(new, old);
        assert_eq!(remember(&mut table, &node(2, 2)), new);
        assert!(!matches!(table.open(new, &node(2, 2), || how.clone()), Some(Opening::Superseded)));
        table.release(old);
        table.forget(old, 1);
        assert_eq!(table.file(old), None);
        assert_eq!(table.number_of(node(2, 2).id), new);
        table.release(new);
        table.forget(new, 2);
        assert_eq!((table.len(), remember(&mut table, &node(2, 3))), (1, old), "the file's own number again");
    }
}

#[test]
fn all_opens_of_a_version_are_served_alike() {
    let mut table = table();
    let number = remember(&mut table, &node(2, 1));
    table.open(number, &node(2, 1), || How::Snapshot).expect("known");
    let second = table.open(number, &node(2, 1), || panic!("decided at the first open"));
    assert_eq!(second, Some(Opening::Served { keep: true }));
    table.release(number);
    assert_eq!(table.release(number), Some(How::Snapshot));
    let third = table.open(number, &node(2, 1), || How::Passed("complete now"));
    assert_eq!(third, Some(Opening::Passed("complete now")));
    assert_eq!(table.open(number, &node(2, 1), || unreachable!()), Some(Opening::Passed("complete now")));
}

#[test]
fn a_file_being_written_moves_on_and_its_old_pages_go() {
    let mut table = table();
    let number = remember(&mut table, &node(2, 1));
    table.open(number, &node(2, 1), || How::Following).expect("known");
    assert!(!table.told(number, node(2, 1)).moved);
    assert_eq!(remember(&mut table, &node(2, 2)), number, "the same inode");
    let told = table.told(number, node(2, 2));
    assert!(told.moved && !told.superseded && told.node.version == node(2, 2).version);
    assert!(!table.told(number, node(2, 2)).moved, "once");
    assert!(table.paged(number, node(2, 3).version));
    assert!(!table.paged(number, node(2, 3).version));
    assert_eq!(table.following().len(), 1);
    assert_eq!(table.open(number, &node(2, 4), || unreachable!()), Some(Opening::Served { keep: false }));
}

#[test]
fn two_files_with_the_same_64_bits_have_two_numbers() {
    let mut table = table();
    let (one, mut other) = (node(2, 1), node(2, 1));
    other.id.0[15] = 9; // beyond the bits that are shown
    assert_eq!(one.id.fileid64(), other.id.fileid64());
    assert_ne!(remember(&mut table, &one), remember(&mut table, &other));
    let mut first = node(3, 1);
    first.id = FileId([0; 16]);
    first.id.0[0] = 1;
    first.id.0[15] = 7;
    assert!(remember(&mut table, &first) > ROOT, "the root's number is the root's");
}
