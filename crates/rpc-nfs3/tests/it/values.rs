//! Strategies for wire values.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use rpc_nfs3::nfs3::attr::{Fattr3, FileType, Nfstime3, PostOpAttr};
use rpc_nfs3::nfs3::readdir::{DirEntry3, ReaddirOk};
use rpc_nfs3::nfs3::setattr::{Sattr3, SetTime};
use rpc_nfs3::nfs3::wcc::{WccAttr, WccData};
use rpc_nfs3::nfs3::write::StableHow;
use rpc_nfs3::nfs3::{DirOp, FileHandle, HANDLE_MAX, NAME_MAX, NfsStatus};

pub fn bytes(max: usize) -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..=max).prop_map(Bytes::from)
}

pub fn handle() -> impl Strategy<Value = FileHandle> {
    bytes(HANDLE_MAX).prop_map(FileHandle)
}

pub fn time() -> impl Strategy<Value = Nfstime3> {
    any::<(u32, u32)>().prop_map(|(seconds, nanos)| Nfstime3 { seconds, nanos })
}

pub fn kind() -> impl Strategy<Value = FileType> {
    prop_oneof![
        Just(FileType::Regular),
        Just(FileType::Directory),
        Just(FileType::BlockDevice),
        Just(FileType::CharDevice),
        Just(FileType::Link),
        Just(FileType::Socket),
        Just(FileType::Fifo),
    ]
}

pub fn fattr() -> impl Strategy<Value = Fattr3> {
    let words = any::<([u32; 6], [u64; 4])>();
    (kind(), words, time(), time(), time()).prop_map(|(kind, (w, l), atime, mtime, ctime)| Fattr3 {
        kind,
        mode: w[0],
        nlink: w[1],
        uid: w[2],
        gid: w[3],
        size: l[0],
        used: l[1],
        rdev: (w[4], w[5]),
        fsid: l[2],
        fileid: l[3],
        atime,
        mtime,
        ctime,
    })
}

pub fn post_op() -> impl Strategy<Value = PostOpAttr> {
    proptest::option::of(fattr())
}

/// Any failure, known or not.
pub fn failure() -> impl Strategy<Value = NfsStatus> {
    (1u32..).prop_map(NfsStatus)
}

fn entry(plus: bool) -> impl Strategy<Value = DirEntry3> {
    let rest = (post_op(), proptest::option::of(handle()));
    (any::<u64>(), bytes(300), any::<u64>(), rest).prop_map(move |(fileid, name, cookie, (attr, handle))| {
        let (attr, handle) = if plus { (attr, handle) } else { (None, None) };
        DirEntry3 { fileid, name, cookie, attr, handle }
    })
}

pub fn listing(plus: bool) -> impl Strategy<Value = ReaddirOk> {
    (post_op(), any::<[u8; 8]>(), vec(entry(plus), 0..20), any::<bool>())
        .prop_map(|(dir_attr, verifier, entries, eof)| ReaddirOk { dir_attr, verifier, entries, eof })
}

pub fn dir_op() -> impl Strategy<Value = DirOp> {
    (handle(), bytes(NAME_MAX)).prop_map(|(dir, name)| DirOp { dir, name })
}

fn set_time() -> impl Strategy<Value = SetTime> {
    prop_oneof![Just(SetTime::Keep), Just(SetTime::ServerTime), time().prop_map(SetTime::To)]
}

pub fn sattr() -> impl Strategy<Value = Sattr3> {
    let words = any::<([Option<u32>; 3], Option<u64>)>();
    (words, set_time(), set_time()).prop_map(|(([mode, uid, gid], size), atime, mtime)| Sattr3 {
        mode,
        uid,
        gid,
        size,
        atime,
        mtime,
    })
}

pub fn wcc() -> impl Strategy<Value = WccData> {
    let before =
        (any::<u64>(), time(), time()).prop_map(|(size, mtime, ctime)| WccAttr { size, mtime, ctime });
    (proptest::option::of(before), post_op()).prop_map(|(before, after)| WccData { before, after })
}

pub fn stable_how() -> impl Strategy<Value = StableHow> {
    prop_oneof![Just(StableHow::Unstable), Just(StableHow::DataSync), Just(StableHow::FileSync)]
}
