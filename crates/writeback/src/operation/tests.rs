//! Round trips, and bytes that nobody encoded.

use proptest::prelude::*;

use super::*;
use crate::HEAD_MAX;

fn id() -> impl Strategy<Value = FileId> {
    any::<[u8; 16]>().prop_map(FileId)
}

fn name() -> impl Strategy<Value = Name> {
    prop::collection::vec(b'0'..=b'z', 1..=255).prop_map(|bytes| Name::new(bytes).unwrap())
}

fn time() -> impl Strategy<Value = Timestamp> {
    (any::<i64>(), 0..1_000_000_000u32).prop_map(|(seconds, nanos)| Timestamp { seconds, nanos })
}

fn base() -> impl Strategy<Value = Option<Version>> {
    prop::option::of(any::<[u8; 16]>().prop_map(Version))
}

fn attributes() -> impl Strategy<Value = Attributes> {
    let number = || prop::option::of(any::<u32>());
    (number(), number(), number(), prop::option::of(time()), prop::option::of(time()))
        .prop_map(|(mode, uid, gid, atime, mtime)| Attributes { mode, uid, gid, atime, mtime })
}

fn new_object() -> impl Strategy<Value = NewObject> {
    prop_oneof![
        Just(NewObject::File),
        Just(NewObject::Directory),
        prop::collection::vec(any::<u8>(), 1..=TARGET_MAX).prop_map(|it| NewObject::Symlink(it.into())),
        Just(NewObject::Special(NewNode::Fifo)),
        Just(NewObject::Special(NewNode::Socket)),
        any::<(u32, u32)>().prop_map(|(a, b)| NewObject::Special(NewNode::CharDevice(a, b))),
        any::<(u32, u32)>().prop_map(|(a, b)| NewObject::Special(NewNode::BlockDevice(a, b))),
    ]
}

fn action() -> impl Strategy<Value = Action> {
    let replaced =
        (id(), any::<u32>(), base()).prop_map(|(object, links, base)| ReplacedObject { object, links, base });
    let replaced = prop::option::of(replaced);
    let rename = ((id(), id(), id()), (name(), name()), any::<bool>(), base(), replaced);
    let bytes = || (id(), any::<u64>(), any::<u64>(), base());
    let named = || (id(), id(), name(), any::<u32>(), base());
    prop_oneof![
        (id(), name(), id(), new_object(), attributes())
            .prop_map(|(dir, name, id, what, set)| Action::Make { dir, name, id, what, set }),
        bytes().prop_map(|(file, offset, size_before, base)| Action::Write {
            file,
            offset,
            size_before,
            base
        }),
        bytes().prop_map(|(file, size, size_before, base)| Action::Truncate {
            file,
            size,
            size_before,
            base
        }),
        (id(), attributes(), base()).prop_map(|(object, set, base)| Action::Set { object, set, base }),
        named().prop_map(|(file, dir, name, links, base)| Action::Link { file, dir, name, links, base }),
        named().prop_map(|(object, dir, name, links, base)| Action::Remove {
            dir,
            name,
            object,
            links,
            base
        }),
        (id(), id(), name()).prop_map(|(object, dir, name)| Action::Rmdir { dir, name, object }),
        rename.prop_map(|((from_dir, to_dir, object), (from, to), is_dir, base, replaced)| {
            Action::Rename(Rename { from_dir, from, to_dir, to, object, is_dir, base, replaced })
        }),
    ]
}

fn operation() -> impl Strategy<Value = JournalOperation> {
    (any::<u32>(), time(), time(), action()).prop_map(|(junction, acknowledged, since, action)| {
        JournalOperation { junction: JunctionId(junction), acknowledged, since, action }
    })
}

proptest! {
    #[test]
    fn an_operation_comes_back_from_its_head(operation in operation()) {
        let head = operation.encode();
        prop_assert!(head.len() <= HEAD_MAX as usize);
        prop_assert_eq!(JournalOperation::decode(&head).unwrap(), operation);
    }

    #[test]
    fn a_head_that_is_cut_or_too_long_is_corrupt(operation in operation(), cut in any::<prop::sample::Index>()) {
        let head = operation.encode();
        let short = &head[..cut.index(head.len())];
        prop_assert_eq!(JournalOperation::decode(short).unwrap_err().kind(), ErrorKind::Corrupt);
        let long = [&head[..], &[0]].concat();
        prop_assert_eq!(JournalOperation::decode(&long).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn what_is_decoded_encodes_to_the_same_bytes(
        operation in operation(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let mut head = operation.encode().to_vec();
        let at = at.index(head.len());
        head[at] = byte;
        if let Ok(other) = JournalOperation::decode(&head) {
            prop_assert_eq!(other.encode(), head);
        }
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), kind in 0u8..10) {
        let _ = JournalOperation::decode(&bytes);
        let head = [&[1, kind, 0, 0][..], &bytes].concat();
        let _ = JournalOperation::decode(&head);
    }
}

#[test]
fn a_later_format_is_refused_and_named() {
    let error = JournalOperation::decode(&[2, 1]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotSupported);
    assert!(error.to_string().contains("format 2"), "{error}");
}

#[test]
fn times_become_those_of_our_clock() {
    let now = Timestamp { seconds: 5, nanos: 6 };
    let given = Timestamp { seconds: 1, nanos: 2 };
    let set = SetAttr { mtime: TimeChange::Now, atime: TimeChange::To(given), ..SetAttr::default() };
    let resolved = Attributes::resolve(&set, now);
    assert_eq!((resolved.mtime, resolved.atime), (Some(now), Some(given)));
    assert_eq!(resolved.to_set(Some(7)).mtime, TimeChange::To(now));
}
