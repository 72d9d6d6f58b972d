use types::{Attr, FileKind, JunctionId, Timestamp};

use super::*;

type OrphanTable = InodeTable<&'static str>;

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

fn table() -> OrphanTable {
    InodeTable::new(FileId([0; 16]))
}

fn remember(table: &mut OrphanTable, node: &Node) -> u64 {
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
    table.open(number, &node(2, 1), || OpenMode::Snapshot).expect("known");
    table.forget(number, 1);
    assert!(matches!(table.serving(number), Some(ReadSource::Pinned(_, None))));
    assert_eq!(table.release(number), Some(OpenMode::Snapshot));
    assert_eq!(table.len(), 1);
}

#[test]
fn pages_are_kept_only_if_they_are_of_the_version_that_is_opened() {
    let mut table = table();
    let number = remember(&mut table, &node(2, 1));
    let mut open = |version| {
        let opening = table.open(number, &node(2, version), || OpenMode::Snapshot).expect("known");
        table.release(number);
        opening
    };
    assert_eq!(open(1), OpenReply::Served { keep: false });
    assert_eq!(open(1), OpenReply::Served { keep: true });
    assert_eq!(open(2), OpenReply::Served { keep: false });
    assert_eq!(open(2), OpenReply::Served { keep: true });
}

#[test]
fn while_a_version_is_held_the_next_one_is_another_inode() {
    for how in [OpenMode::Snapshot, OpenMode::Whole("bytes"), OpenMode::Passthrough("backing")] {
        let mut table = table();
        let old = remember(&mut table, &node(2, 1));
        table.open(old, &node(2, 1), || how.clone()).expect("known");
        assert_eq!(table.open(old, &node(2, 2), || how.clone()), Some(OpenReply::Superseded));
        let told = table.attributes_of(old, node(2, 2));
        assert!(told.superseded && told.node.version == node(2, 1).version, "fstat shows what is held");
        let new = remember(&mut table, &node(2, 2));
        assert_ne!(new, old);
        assert_eq!(remember(&mut table, &node(2, 2)), new);
        assert!(!matches!(table.open(new, &node(2, 2), || how.clone()), Some(OpenReply::Superseded)));
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
    table.open(number, &node(2, 1), || OpenMode::Snapshot).expect("known");
    let second = table.open(number, &node(2, 1), || panic!("decided at the first open"));
    assert_eq!(second, Some(OpenReply::Served { keep: true }));
    table.release(number);
    assert_eq!(table.release(number), Some(OpenMode::Snapshot));
    let third = table.open(number, &node(2, 1), || OpenMode::Passthrough("complete now"));
    assert_eq!(third, Some(OpenReply::Passthrough("complete now")));
    assert_eq!(
        table.open(number, &node(2, 1), || unreachable!()),
        Some(OpenReply::Passthrough("complete now"))
    );
}

#[test]
fn a_file_being_written_moves_on_and_its_old_pages_go() {
    let mut table = table();
    let number = remember(&mut table, &node(2, 1));
    table.open(number, &node(2, 1), || OpenMode::Following).expect("known");
    assert!(!table.attributes_of(number, node(2, 1)).pages_stale);
    assert_eq!(remember(&mut table, &node(2, 2)), number, "the same inode");
    let told = table.attributes_of(number, node(2, 2));
    assert!(told.pages_stale && !told.superseded && told.node.version == node(2, 2).version);
    assert!(!table.attributes_of(number, node(2, 2)).pages_stale, "once");
    assert!(table.pages_sent(number, &node(2, 3)));
    assert!(!table.pages_sent(number, &node(2, 3)));
    assert_eq!(table.following().len(), 1);
    assert_eq!(table.open(number, &node(2, 4), || unreachable!()), Some(OpenReply::Served { keep: false }));
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

#[test]
fn who_wants_to_write_what_is_passed_through_gets_another_number() {
    let mut table = table();
    let old = remember(&mut table, &node(2, 1));
    table.open(old, &node(2, 1), || OpenMode::Passthrough("backing")).expect("known");
    assert_eq!(table.will_change(old), Err(Superseded));
    let new = remember(&mut table, &node(2, 1));
    assert_ne!(new, old, "though it is the same version");
    assert_eq!(table.will_change(new), Ok(None));
    assert_eq!(table.open(new, &node(2, 1), || OpenMode::Following), Some(OpenReply::Served { keep: false }));
    assert!(matches!(table.serving(old), Some(ReadSource::Pinned(_, Some("backing")))), "as it was");
    assert!(table.attributes_of(old, node(2, 2)).superseded);
    table.release(old);
    assert!(table.is_open(node(2, 1).id));
    table.release(new);
    assert!(!table.is_open(node(2, 1).id));
}

#[test]
fn who_reads_through_us_follows_what_is_changed_here() {
    for how in [OpenMode::Snapshot, OpenMode::Whole("bytes")] {
        let mut table = table();
        let number = remember(&mut table, &node(2, 1));
        table.open(number, &node(2, 1), || how.clone()).expect("known");
        assert_eq!(table.will_change(number), Ok(Some(how)));
        assert!(matches!(table.serving(number), Some(ReadSource::Current(_))));
        assert_eq!(remember(&mut table, &node(2, 2)), number, "the same inode");
    }
}

#[test]
fn own_changes_leave_the_pages_and_what_others_did_before_takes_them() {
    let mut table = table();
    let number = remember(&mut table, &node(2, 1));
    table.open(number, &node(2, 1), || OpenMode::Following).expect("known");
    let weak = |version| Some(node(2, version).attr.weak());
    let file = node(2, 1).id;
    assert!(!table.changed(file, weak(1), &node(2, 2)));
    assert!(!table.attributes_of(number, node(2, 2)).pages_stale);
    assert!(!table.changed(file, weak(2), &node(2, 3)));
    assert!(table.changed(file, weak(4), &node(2, 5)), "who made 4 of 3?");
    assert!(table.changed(file, None, &node(2, 6)), "nobody knows");
    assert!(!table.changed(file, None, &node(2, 6)));
    table.release(number);
    assert_eq!(
        table.open(number, &node(2, 6), || OpenMode::Snapshot),
        Some(OpenReply::Served { keep: true })
    );
}

#[test]
fn a_change_without_bytes_leaves_an_open_version_open() {
    for how in [OpenMode::Snapshot, OpenMode::Passthrough("backing")] {
        let mut table = table();
        let number = remember(&mut table, &node(2, 1));
        table.open(number, &node(2, 1), || how.clone()).expect("known");
        let mut linked = node(2, 1);
        (linked.version, linked.attr.nlink, linked.attr.ctime.seconds) = (Version([7; 16]), 2, 9);
        assert!(!table.attributes_changed(linked.id, &linked));
        assert_eq!(remember(&mut table, &linked), number, "the same inode");
        assert_eq!(table.attributes_of(number, linked).node.attr.nlink, 2);
    }
}

#[test]
fn open_files_are_found_by_the_directory_of_their_name() {
    let mut table = table();
    let number = remember(&mut table, &node(2, 1));
    assert!(!table.may_be_open_in(ROOT));
    table.open(number, &node(2, 1), || OpenMode::Snapshot).expect("known");
    assert!(table.may_be_open_in(ROOT) && !table.may_be_open_in(77));
    table.renamed(node(2, 1).id, 77, &Bytes::from_static(b"other"));
    assert!(!table.may_be_open_in(ROOT) && table.may_be_open_in(77));
    assert_eq!(table.orphaned(node(2, 1).id), Some(OpenMode::Snapshot));
    assert!(matches!(table.serving(number), Some(ReadSource::Current(_))));
}

#[test]
fn a_file_that_is_to_lose_a_name_is_not_known_by_it() {
    let mut table = table();
    let (file, name) = (node(2, 1), Bytes::from_static(b"name"));
    let number = remember(&mut table, &file);
    assert!(
        !table.forget_place(file.id, 77, &name)
            && !table.forget_place(file.id, ROOT, &Bytes::from_static(b"other"))
    );
    assert_eq!(table.place_of(file.id), Some((number, Some((ROOT, name.clone())))));
    assert!(table.forget_place(file.id, ROOT, &name) && !table.forget_place(file.id, ROOT, &name));
    assert_eq!(table.place_of(file.id), Some((number, None)));
    table.renamed(file.id, 77, &name);
    assert_eq!(table.place_of(file.id), Some((number, Some((77, name)))));
}

#[test]
fn what_was_written_after_it_was_last_stored_is_known() {
    let mut table = table();
    let number = remember(&mut table, &node(2, 1));
    assert!(!table.take_dirty(number));
    table.mark_dirty(number);
    assert!(table.take_dirty(number) && !table.take_dirty(number));
}

#[test]
fn names_told_to_be_absent_are_known_until_their_directory_changes() {
    let mut table = table();
    let name = |text: &'static str| Bytes::from_static(text.as_bytes());
    assert!(table.note_negative(ROOT, &name("a")).is_empty());
    assert!(table.note_negative(ROOT, &name("name")).is_empty());
    remember(&mut table, &node(2, 1));
    assert!(!table.is_negative(ROOT, &name("name")), "it is there");
    assert!(table.is_negative(ROOT, &name("a")));
    assert_eq!(table.negatives_in(ROOT), NegativeNames::Few(vec![name("a")]));
    table.clear_negative(ROOT, &name("a"));
    assert!(!table.is_negative(ROOT, &name("a")));
    assert_eq!(table.negatives_in(ROOT), NegativeNames::Few(vec![]));
    let mut left = 0;
    for i in 0..NEGATIVE_MAX + 10 {
        let forgotten = table.note_negative(i as u64 % 7, &Bytes::from(i.to_string()));
        left += forgotten.iter().map(|(_, names)| names.len()).sum::<usize>();
    }
    assert_eq!((left, table.negative_count), (NEGATIVE_MAX, 10));
}

#[test]
fn many_absent_names_of_a_directory_that_changes_are_looked_at_once_at_most() {
    let mut table = table();
    let names: HashSet<_> = (0..=NEGATIVE_FEW).map(|i| Bytes::from(i.to_string())).collect();
    for name in &names {
        table.note_negative(ROOT, name);
    }
    assert_eq!(table.negatives_in(ROOT), NegativeNames::Many(names));
    assert_eq!((table.negatives_in(ROOT), table.negative_count), (NegativeNames::Few(vec![]), 0));
}

#[test]
fn a_change_of_names_is_to_be_told_where_another_thread_was_told_of_the_directory() {
    let mut table = table();
    let (one, other) = (Thread(1), Thread(2));
    let dir = remember(&mut table, &node(2, 1));
    assert!(!table.names_changed(dir, one), "nobody was told");
    table.attributes_told(dir, one);
    assert!(!table.names_changed(dir, one), "who changes it has taken its answer");
    table.attributes_told(dir, one);
    assert!(table.names_changed(dir, other));
    assert!(!table.names_changed(dir, one), "it is told once");
    table.attributes_told(dir, one);
    table.attributes_told(dir, other);
    assert!(table.names_changed(dir, one));
}

#[test]
fn what_is_open_is_found_among_many_that_are_not() {
    let mut table = table();
    for file in 2..200 {
        remember(&mut table, &node(file, 1));
    }
    assert!(!table.may_be_open_in(ROOT) && table.following().is_empty());
    let number = node(7, 1).id.fileid64();
    table.open(number, &node(7, 1), || OpenMode::Following).expect("known");
    table.open(number, &node(7, 1), || OpenMode::Following).expect("known");
    assert!(table.may_be_open_in(ROOT) && !table.may_be_open_in(5));
    assert_eq!(table.following().len(), 1);
    table.release(number);
    assert!(table.may_be_open_in(ROOT), "once more");
    table.release(number);
    assert!(!table.may_be_open_in(ROOT) && table.following().is_empty());
}

#[test]
fn what_the_tier_flushed_keeps_its_pages_and_its_opens() {
    let mut table = table();
    let number = remember(&mut table, &node(2, 1));
    table.open(number, &node(2, 1), || OpenMode::Snapshot).expect("known");
    let flushed = |version| version == node(2, 1).version;
    table.renew(&node(2, 2), |_| false);
    assert!(!table.has_pages_of(number, &node(2, 2)), "bytes that others wrote");
    table.renew(&node(2, 2), flushed);
    assert!(table.has_pages_of(number, &node(2, 2)));
    assert_eq!(remember(&mut table, &node(2, 2)), number, "who has it open has this version");
    assert_eq!(table.open(number, &node(2, 2), || unreachable!()), Some(OpenReply::Served { keep: true }));
    table.renew(&node(3, 2), |_| true);
    assert_eq!(table.len(), 2, "what the kernel does not know is not noted");
}
