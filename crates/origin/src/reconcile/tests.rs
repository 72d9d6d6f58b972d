use types::Version;

use super::*;

const HEARD: Timestamp = Timestamp { seconds: 1000, nanos: 500 };

fn name() -> Name {
    Name::new("name").expect("a valid name")
}

fn dir() -> Reference {
    Reference("dir".into())
}

fn attr(kind: FileKind) -> Attr {
    let later = Timestamp { seconds: 1000, nanos: 501 };
    let (mode, nlink, uid, gid, size, used) = (0o640, 1, 7, 8, 0, 0);
    let (atime, mtime, ctime) = (later, later, later);
    Attr { kind, mode, nlink, uid, gid, size, used, rdev: (1, 3), fsid: 1, fileid: 2, atime, mtime, ctime }
}

fn seen(attr: Attr) -> TraceSeen {
    let object = Object {
        reference: Reference("found".into()),
        identity: Identity("it".into()),
        attr,
        version: Version::from_attr(&attr),
    };
    TraceSeen::Found { object: Box::new(object), empty: true, target: Some("there".into()), linked: None }
}

fn wanted() -> SetAttr {
    SetAttr { mode: Some(0o640), uid: Some(7), gid: Some(8), ..SetAttr::default() }
}

fn is_done(verdict: &Reconciled) -> bool {
    matches!(verdict, Reconciled::Done(_))
}

fn judged(change: &Change, seen: TraceSeen) -> Reconciled {
    judge(change, Some(HEARD), seen)
}

#[test]
fn what_is_gone_was_removed_and_what_is_there_may_still_go() {
    for change in [Change::Remove { dir: dir(), name: name() }, Change::Rmdir { dir: dir(), name: name() }] {
        assert_eq!(judged(&change, TraceSeen::Absent), Reconciled::Done(None));
        assert_eq!(judged(&change, seen(attr(FileKind::Regular))), Reconciled::Unknown);
        assert_eq!(judged(&change, TraceSeen::Nowhere), Reconciled::Unknown);
    }
}

#[test]
fn a_guarded_create_is_known_by_an_empty_file_that_is_not_older() {
    let create = Change::Create { dir: dir(), name: name(), how: CreateHow::Guarded, set: wanted() };
    let file = attr(FileKind::Regular);
    assert!(is_done(&judged(&create, seen(file))));
    assert!(is_done(&judged(&create, seen(Attr { ctime: HEARD, ..file }))));
    let older = Timestamp { seconds: 1000, nanos: 499 };
    for other in [
        Attr { ctime: older, ..file },
        Attr { size: 1, ..file },
        Attr { nlink: 2, ..file },
        Attr { mode: 0o600, ..file },
        Attr { uid: 0, ..file },
        Attr { gid: 0, ..file },
        attr(FileKind::Fifo),
    ] {
        assert_eq!(judged(&create, seen(other)), Reconciled::Unknown, "{other:?}");
    }
    assert_eq!(
        judge(&create, None, seen(file)),
        Reconciled::Unknown,
        "nothing was heard of the origin's clock"
    );
    assert_eq!(judged(&create, TraceSeen::Absent), Reconciled::Unknown);
}

#[test]
fn what_may_be_done_twice_is_done_again_and_a_guard_forbids_it() {
    let create = |how, set| Change::Create { dir: dir(), name: name(), how, set };
    let set = |guard| Change::Set { object: dir(), set: wanted(), guard };
    for change in [
        create(CreateHow::Unchecked, wanted()),
        create(CreateHow::Exclusive([1; 8]), SetAttr::default()),
        set(None),
    ] {
        assert_eq!(judged(&change, TraceSeen::Nowhere), Reconciled::Again);
    }
    assert_eq!(judged(&set(Some(HEARD)), TraceSeen::Nowhere), Reconciled::Unknown);
    let dressed = create(CreateHow::Exclusive([1; 8]), wanted());
    assert_eq!(judged(&dressed, TraceSeen::Absent), Reconciled::Again);
    assert!(is_done(&judged(&dressed, seen(attr(FileKind::Regular)))));
    let old = Attr { ctime: Timestamp::default(), ..attr(FileKind::Regular) };
    assert_eq!(judged(&dressed, seen(old)), Reconciled::Unknown);
}

#[test]
fn a_rename_is_known_by_the_identity_that_the_caller_gave() {
    let rename = |identity: Option<&'static str>| Change::Rename {
        from_dir: dir(),
        from: name(),
        to_dir: dir(),
        to: name(),
        identity: identity.map(|bytes| Identity(bytes.into())),
    };
    let there = || seen(attr(FileKind::Regular));
    assert!(is_done(&judged(&rename(Some("it")), there())));
    assert_eq!(judged(&rename(Some("other")), there()), Reconciled::Unknown);
    assert_eq!(judged(&rename(None), there()), Reconciled::Unknown);
    assert_eq!(judged(&rename(Some("it")), TraceSeen::Absent), Reconciled::Unknown);
}

#[test]
fn directories_links_and_special_files_are_known_by_what_they_are() {
    let mkdir = Change::Mkdir { dir: dir(), name: name(), set: wanted() };
    let found = attr(FileKind::Directory);
    assert!(is_done(&judged(&mkdir, seen(found))));
    assert!(is_done(&judged(&mkdir, seen(Attr { mode: 0o2640, ..found }))), "setgid from above");
    assert_eq!(judged(&mkdir, seen(Attr { mode: 0o700, ..found })), Reconciled::Unknown);
    assert_eq!(judged(&mkdir, seen(attr(FileKind::Regular))), Reconciled::Unknown);
    let TraceSeen::Found { object, target, linked, .. } = seen(found) else { unreachable!() };
    let full = TraceSeen::Found { object, empty: false, target, linked };
    assert_eq!(judged(&mkdir, full), Reconciled::Unknown, "somebody lives there");

    let symlink = |target: &'static str| Change::Symlink {
        dir: dir(),
        name: name(),
        target: target.into(),
        set: SetAttr::default(),
    };
    assert!(is_done(&judged(&symlink("there"), seen(attr(FileKind::Symlink)))));
    assert_eq!(judged(&symlink("elsewhere"), seen(attr(FileKind::Symlink))), Reconciled::Unknown);

    let node = |node| Change::Mknod { dir: dir(), name: name(), node, set: wanted() };
    assert!(is_done(&judged(&node(NewNode::CharDevice(1, 3)), seen(attr(FileKind::CharDevice)))));
    assert_eq!(
        judged(&node(NewNode::CharDevice(1, 5)), seen(attr(FileKind::CharDevice))),
        Reconciled::Unknown
    );
    assert_eq!(judged(&node(NewNode::Socket), seen(attr(FileKind::Fifo))), Reconciled::Unknown);

    let link = Change::Link { file: Reference("file".into()), dir: dir(), name: name() };
    let linked_to = |identity: Option<&'static str>| {
        let TraceSeen::Found { object, empty, target, .. } = seen(attr(FileKind::Regular)) else {
            unreachable!()
        };
        TraceSeen::Found { object, empty, target, linked: identity.map(|bytes| Identity(bytes.into())) }
    };
    assert!(is_done(&judged(&link, linked_to(Some("it")))));
    assert_eq!(judged(&link, linked_to(Some("other"))), Reconciled::Unknown);
    assert_eq!(judged(&link, linked_to(None)), Reconciled::Unknown);
}
