//! The procedures that change something: what one side encodes, the other decodes, to the last byte.

use bytes::Bytes;
use proptest::prelude::*;
use rpc_nfs3::nfs3::attr::{FileType, Nfstime3};
use rpc_nfs3::nfs3::create::{
    self, CreateArgs, CreateHow3, CreateOk, MkdirArgs, MknodArgs, NodeData, SymlinkArgs,
};
use rpc_nfs3::nfs3::names::{self, LinkArgs, LinkWcc, RenameArgs, RenameWcc};
use rpc_nfs3::nfs3::setattr::{Sattr3, SetTime, SetattrArgs};
use rpc_nfs3::nfs3::wcc::{self, WccData};
use rpc_nfs3::nfs3::write::{self, CommitArgs, CommitOk, StableHow, WriteArgs, WriteOk};
use rpc_nfs3::nfs3::{self, FileHandle, NfsStatus, procedure};
use rpc_nfs3::{XdrDecoder, XdrEncoder};

use crate::round_trip::round;
use crate::values::{bytes, dir_op, failure, handle, post_op, sattr, stable_how, time, wcc};

fn create_how() -> impl Strategy<Value = CreateHow3> {
    prop_oneof![
        sattr().prop_map(CreateHow3::Unchecked),
        sattr().prop_map(CreateHow3::Guarded),
        any::<[u8; 8]>().prop_map(CreateHow3::Exclusive),
    ]
}

fn node_data() -> impl Strategy<Value = NodeData> {
    let rdev = any::<(u32, u32)>();
    prop_oneof![
        (sattr(), rdev).prop_map(|(attributes, rdev)| NodeData::CharDevice { attributes, rdev }),
        (sattr(), rdev).prop_map(|(attributes, rdev)| NodeData::BlockDevice { attributes, rdev }),
        sattr().prop_map(NodeData::Socket),
        sattr().prop_map(NodeData::Fifo),
        prop_oneof![Just(FileType::Regular), Just(FileType::Directory), Just(FileType::Link)]
            .prop_map(NodeData::Other),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn arguments_about_names_come_back_as_they_went(
        place in dir_op(), to in dir_op(), object in handle(), attributes in sattr(), how in create_how(),
        node in node_data(), target in bytes(4096),
    ) {
        let create = CreateArgs { place: place.clone(), how };
        round(&create, |e| create.encode(e), CreateArgs::decode);
        let mkdir = MkdirArgs { place: place.clone(), attributes };
        round(&mkdir, |e| mkdir.encode(e), MkdirArgs::decode);
        let symlink = SymlinkArgs { place: place.clone(), attributes, target };
        round(&symlink, |e| symlink.encode(e), SymlinkArgs::decode);
        let mknod = MknodArgs { place: place.clone(), node };
        round(&mknod, |e| mknod.encode(e), MknodArgs::decode);
        let link = LinkArgs { object, place: place.clone() };
        round(&link, |e| link.encode(e), LinkArgs::decode);
        let rename = RenameArgs { from: place, to };
        round(&rename, |e| rename.encode(e), RenameArgs::decode);
    }

    #[test]
    fn arguments_about_contents_come_back_as_they_went(
        file in handle(), attributes in sattr(), guard in proptest::option::of(time()), offset in any::<u64>(),
        stable in stable_how(), data in bytes(3000), count in any::<u32>(),
    ) {
        let setattr = SetattrArgs { object: file.clone(), attributes, guard };
        round(&setattr, |e| setattr.encode(e), SetattrArgs::decode);
        let commit = CommitArgs { file: file.clone(), offset, count };
        round(&commit, |e| commit.encode(e), CommitArgs::decode);
        let length = data.len();
        let write = WriteArgs { file, offset, stable, data };
        round(&write, |e| write.encode(e), |d| WriteArgs::decode(d, length));
        let mut parts = XdrEncoder::default();
        write.encode_head(&mut parts);
        parts.fixed(&write.data);
        let mut whole = XdrEncoder::default();
        write.encode(&mut whole);
        assert_eq!(whole.finish(), parts.finish(), "head and data make the arguments");
    }

    #[test]
    fn results_come_back_as_they_went(
        object in proptest::option::of(handle()), attr in post_op(), one in wcc(), other in wcc(),
        status in failure(), count in any::<u32>(), committed in stable_how(), verifier in any::<[u8; 8]>(),
    ) {
        for result in [Ok(CreateOk { object, attr, dir_wcc: one }), Err((status, other))] {
            round(&result, |e| create::encode_create(e, &result), create::decode_create);
        }
        for result in [Ok(one), Err((status, other))] {
            round(&result, |e| wcc::encode_wcc_result(e, &result), wcc::decode_wcc_result);
        }
        for result in [Ok(WriteOk { wcc: one, count, committed, verifier }), Err((status, other))] {
            let sent = count as usize;
            round(&result, |e| write::encode_write(e, &result), |d| write::decode_write(d, sent));
        }
        for result in [Ok(CommitOk { wcc: one, verifier }), Err((status, other))] {
            round(&result, |e| write::encode_commit(e, &result), write::decode_commit);
        }
        let both = RenameWcc { from: one, to: other };
        for result in [Ok(both), Err((status, both))] {
            round(&result, |e| names::encode_rename(e, &result), names::decode_rename);
        }
        let linked = LinkWcc { attr, dir: one };
        for result in [Ok(linked), Err((status, linked))] {
            round(&result, |e| names::encode_link(e, &result), names::decode_link);
        }
    }
}

/// RFC 1813 sections 2.6 and 3.3.2, word for word.
#[test]
fn setattr_arguments_are_what_the_standard_says() {
    let time = Nfstime3 { seconds: 7, nanos: 8 };
    let args = SetattrArgs {
        object: FileHandle(Bytes::from_static(b"h")),
        attributes: Sattr3 {
            mode: Some(0o640),
            size: Some(1 << 32),
            atime: SetTime::ServerTime,
            mtime: SetTime::To(time),
            ..Sattr3::default()
        },
        guard: Some(time),
    };
    let mut e = XdrEncoder::default();
    args.encode(&mut e);
    let handle = [1, u32::from_be_bytes(*b"h\0\0\0")];
    let expected = [&handle[..], &[1, 0o640, 0, 0, 1, 1, 0, 1, 2, 7, 8, 1, 7, 8]].concat();
    assert_eq!(words(e), expected);
}

/// RFC 1813 section 3.3.7, word for word.
#[test]
fn write_arguments_and_results_are_what_the_standard_says() {
    let data = Bytes::from_static(b"abcde");
    let args = WriteArgs { file: FileHandle(Bytes::new()), offset: 9, stable: StableHow::FileSync, data };
    let mut e = XdrEncoder::default();
    args.encode(&mut e);
    let (abcd, padded) = (u32::from_be_bytes(*b"abcd"), u32::from_be_bytes(*b"e\0\0\0"));
    assert_eq!(words(e), [0, 0, 9, 5, 2, 5, abcd, padded]);
    let mut e = XdrEncoder::default();
    let (wcc, verifier) = (WccData::default(), [0, 0, 0, 3, 0, 0, 0, 4]);
    write::encode_write(&mut e, &Ok(WriteOk { wcc, count: 5, committed: StableHow::DataSync, verifier }));
    assert_eq!(words(e), [0, 0, 0, 5, 1, 3, 4]);
}

#[test]
fn write_data_is_a_slice_of_the_record() {
    let data = Bytes::from(vec![7; 1000]);
    let args = WriteArgs { file: FileHandle(Bytes::new()), offset: 0, stable: StableHow::Unstable, data };
    let mut e = XdrEncoder::default();
    args.encode(&mut e);
    let record = e.finish();
    let decoded = WriteArgs::decode(&mut XdrDecoder::new(record.clone()), 1000).expect("valid");
    assert!(record.as_ptr_range().contains(&decoded.data.as_ptr()));
}

/// What the server side answers to a mutation that it refuses is what the client side understands.
#[test]
fn a_refused_mutation_decodes_as_the_failure_of_its_procedure() {
    let refused = |number| {
        let mut e = XdrEncoder::default();
        nfs3::encode_mutation_failure(&mut e, number, NfsStatus::ROFS, [None, None]).expect("a mutation");
        XdrDecoder::new(e.finish())
    };
    let nothing = WccData::default();
    for number in [procedure::SETATTR, procedure::REMOVE, procedure::RMDIR] {
        let decoded = wcc::decode_wcc_result(&mut refused(number));
        assert_eq!(decoded, Ok(Err((NfsStatus::ROFS, nothing))));
    }
    for number in [procedure::CREATE, procedure::MKDIR, procedure::SYMLINK, procedure::MKNOD] {
        let decoded = create::decode_create(&mut refused(number));
        assert_eq!(decoded, Ok(Err((NfsStatus::ROFS, nothing))));
    }
    let write = write::decode_write(&mut refused(procedure::WRITE), 0);
    assert_eq!(write, Ok(Err((NfsStatus::ROFS, nothing))));
    let commit = write::decode_commit(&mut refused(procedure::COMMIT));
    assert_eq!(commit, Ok(Err((NfsStatus::ROFS, nothing))));
    let mut rename = refused(procedure::RENAME);
    assert_eq!(names::decode_rename(&mut rename), Ok(Err((NfsStatus::ROFS, RenameWcc::default()))));
    assert_eq!(rename.remaining(), 0);
    let mut link = refused(procedure::LINK);
    assert_eq!(names::decode_link(&mut link), Ok(Err((NfsStatus::ROFS, LinkWcc::default()))));
    assert_eq!(link.remaining(), 0);
}

fn words(e: XdrEncoder) -> Vec<u32> {
    let message = e.finish();
    assert_eq!(message.len() % 4, 0);
    let mut d = XdrDecoder::new(message);
    std::iter::from_fn(|| d.u32().ok()).collect()
}
