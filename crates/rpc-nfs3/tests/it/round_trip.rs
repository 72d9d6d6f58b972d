//! What one side encodes, the other decodes to the same value, to the last byte.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use rpc_nfs3::mount::{self, ExportEntry, MountListEntry, MountOk, MountStatus};
use rpc_nfs3::nfs3::attr::Nfstime3;
use rpc_nfs3::nfs3::file::{self, AccessArgs, AccessOk, LookupOk, ReadArgs, ReadOk, ReadlinkOk};
use rpc_nfs3::nfs3::fs::{self, FsinfoOk, FsstatOk, PathconfOk};
use rpc_nfs3::nfs3::readdir::{self, ReaddirArgs};
use rpc_nfs3::nfs3::{self, DirOp, NfsStatus, procedure};
use rpc_nfs3::portmap::Mapping;
use rpc_nfs3::rpc::{AuthSys, CallHeader, Credentials, ReplyHeader, ReplyStatus};
use rpc_nfs3::xdr::WireResult;
use rpc_nfs3::{XdrDecoder, XdrEncoder};

use crate::values::{bytes, failure, fattr, handle, listing, post_op};

/// Encodes, decodes, and checks that nothing is left over and that every shorter message is refused.
pub fn round<T: PartialEq + std::fmt::Debug>(
    value: &T,
    encode: impl Fn(&mut XdrEncoder),
    decode: impl Fn(&mut XdrDecoder) -> WireResult<T>,
) {
    let mut e = XdrEncoder::default();
    encode(&mut e);
    let message = e.finish();
    assert_eq!(message.len() % 4, 0);
    let mut d = XdrDecoder::new(message.clone());
    assert_eq!(decode(&mut d).as_ref(), Ok(value));
    assert_eq!(d.remaining(), 0);
    // Every cut, or 64 of them where there are many.
    for cut in (0..message.len()).step_by(message.len() / 64 + 1) {
        assert!(decode(&mut XdrDecoder::new(message.slice(..cut))).is_err(), "{cut} of {}", message.len());
    }
}

fn auth_sys() -> impl Strategy<Value = AuthSys> {
    (any::<[u32; 3]>(), bytes(255), vec(any::<u32>(), 0..=16)).prop_map(
        |([stamp, uid, gid], machine_name, groups)| AuthSys { stamp, machine_name, uid, gid, groups },
    )
}

fn reply_status() -> impl Strategy<Value = ReplyStatus> {
    prop_oneof![
        Just(ReplyStatus::Success),
        Just(ReplyStatus::ProgramUnavailable),
        any::<(u32, u32)>().prop_map(|(low, high)| ReplyStatus::ProgramMismatch { low, high }),
        Just(ReplyStatus::ProcedureUnavailable),
        Just(ReplyStatus::GarbageArguments),
        Just(ReplyStatus::SystemError),
        any::<(u32, u32)>().prop_map(|(low, high)| ReplyStatus::RpcMismatch { low, high }),
        any::<u32>().prop_map(ReplyStatus::AuthError),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn calls_and_replies_come_back_as_they_went(
        words in any::<[u32; 5]>(),
        sys in auth_sys(),
        flavor in 2u32..,
        status in reply_status(),
    ) {
        let [xid, rpc_version, program, version, procedure] = words;
        for credentials in [Credentials::None, Credentials::Sys(sys.clone()), Credentials::Other(flavor)] {
            let call = CallHeader { xid, rpc_version, program, version, procedure, credentials };
            round(&call, |e| call.encode(e), CallHeader::decode);
        }
        let reply = ReplyHeader { xid, status };
        round(&reply, |e| reply.encode(e), ReplyHeader::decode);
    }

    #[test]
    fn results_about_one_object_come_back_as_they_went(
        attr in fattr(),
        post in post_op(),
        dir_attr in post_op(),
        object in handle(),
        target in bytes(4096),
        granted in any::<u32>(),
        status in failure(),
    ) {
        for result in [Ok(attr), Err((status, ()))] {
            round(&result, |e| file::encode_getattr(e, &result), file::decode_getattr);
        }
        for result in [Ok(LookupOk { object, attr: post, dir_attr }), Err((status, dir_attr))] {
            round(&result, |e| file::encode_lookup(e, &result), file::decode_lookup);
        }
        for result in [Ok(AccessOk { attr: post, granted }), Err((status, post))] {
            round(&result, |e| file::encode_access(e, &result), file::decode_access);
        }
        for result in [Ok(ReadlinkOk { attr: post, target }), Err((status, post))] {
            round(&result, |e| file::encode_readlink(e, &result), file::decode_readlink);
        }
    }

    #[test]
    fn read_results_come_back_as_they_went(
        attr in post_op(), data in bytes(3000), eof in any::<bool>(), status in failure(),
    ) {
        let count = data.len();
        for result in [Ok(ReadOk { attr, eof, data }), Err((status, attr))] {
            round(&result, |e| file::encode_read(e, &result), |d| file::decode_read(d, count));
        }
    }

    #[test]
    fn listings_come_back_as_they_went(plain in listing(false), plus in listing(true), status in failure()) {
        for (result, is_plus) in [(Ok(plain), false), (Ok(plus), true), (Err((status, None)), true)] {
            round(
                &result,
                |e| readdir::encode_readdir(e, &result, is_plus),
                |d| readdir::decode_readdir(d, is_plus),
            );
        }
    }

    #[test]
    fn file_system_results_come_back_as_they_went(
        attr in post_op(), w in any::<[u32; 10]>(), l in any::<[u64; 7]>(), b in any::<[bool; 4]>(),
    ) {
        let stat = Ok(FsstatOk {
            attr,
            bytes_total: l[0],
            bytes_free: l[1],
            bytes_available: l[2],
            files_total: l[3],
            files_free: l[4],
            files_available: l[5],
            invariant_seconds: w[0],
        });
        round(&stat, |e| fs::encode_fsstat(e, &stat), fs::decode_fsstat);
        let info = Ok(FsinfoOk {
            attr,
            read_max: w[0],
            read_preferred: w[1],
            read_multiple: w[2],
            write_max: w[3],
            write_preferred: w[4],
            write_multiple: w[5],
            readdir_preferred: w[6],
            file_size_max: l[6],
            time_delta: Nfstime3 { seconds: w[7], nanos: w[8] },
            properties: w[9],
        });
        round(&info, |e| fs::encode_fsinfo(e, &info), fs::decode_fsinfo);
        let conf = Ok(PathconfOk {
            attr,
            link_max: w[0],
            name_max: w[1],
            no_truncate: b[0],
            chown_restricted: b[1],
            case_insensitive: b[2],
            case_preserving: b[3],
        });
        round(&conf, |e| fs::encode_pathconf(e, &conf), fs::decode_pathconf);
    }

    #[test]
    fn arguments_come_back_as_they_went(
        object in handle(), name in bytes(1024), n in any::<(u64, u32, u32)>(), verifier in any::<[u8; 8]>(),
    ) {
        let op = DirOp { dir: object.clone(), name };
        round(&op, |e| op.encode(e), DirOp::decode);
        let access = AccessArgs { object: object.clone(), wanted: n.1 };
        round(&access, |e| access.encode(e), AccessArgs::decode);
        let read = ReadArgs { file: object.clone(), offset: n.0, count: n.1 };
        round(&read, |e| read.encode(e), ReadArgs::decode);
        let plus = ReaddirArgs { dir: object, cookie: n.0, verifier, dir_count: n.1, max_count: n.2 };
        round(&plus, |e| plus.encode(e, true), |d| ReaddirArgs::decode(d, true));
        let plain = ReaddirArgs { dir_count: n.2, ..plus };
        round(&plain, |e| plain.encode(e, false), |d| ReaddirArgs::decode(d, false));
        let mapping = Mapping { program: n.1, version: n.2, port: 7 };
        round(&mapping, |e| mapping.encode(e), Mapping::decode);
    }

    #[test]
    fn mount_results_come_back_as_they_went(
        root in handle(),
        flavors in vec(any::<u32>(), 0..8),
        exports in vec((bytes(1024), vec(bytes(255), 0..4)), 0..4),
        mounts in vec((bytes(255), bytes(1024)), 0..4),
        status in 1u32..,
    ) {
        for result in [Ok(MountOk { handle: root, flavors }), Err(MountStatus(status))] {
            round(&result, |e| mount::encode_mount_result(e, &result), mount::decode_mount_result);
        }
        let exports: Vec<ExportEntry> =
            exports.into_iter().map(|(path, groups)| ExportEntry { path, groups }).collect();
        round(&exports, |e| mount::encode_exports(e, &exports), mount::decode_exports);
        let mounts: Vec<MountListEntry> = mounts.into_iter().map(|(host, path)| MountListEntry { host, path }).collect();
        round(&mounts, |e| mount::encode_mounts(e, &mounts), mount::decode_mounts);
    }
}

#[test]
fn a_head_with_payload_behind_it_is_the_whole_read_result() {
    for data in [&b""[..], b"a", b"ab", b"abc", b"abcd", b"abcde"] {
        let result = Ok(ReadOk { attr: None, eof: true, data: Bytes::copy_from_slice(data) });
        let mut whole = XdrEncoder::default();
        file::encode_read(&mut whole, &result);
        let mut parts = XdrEncoder::default();
        file::encode_read_head(&mut parts, &None, data.len(), true);
        parts.fixed(data);
        assert_eq!(whole.finish(), parts.finish());
    }
}

#[test]
fn read_data_is_a_slice_of_the_record() {
    let result = Ok(ReadOk { attr: None, eof: false, data: Bytes::from(vec![7; 1000]) });
    let mut e = XdrEncoder::default();
    file::encode_read(&mut e, &result);
    let record = e.finish();
    let decoded =
        file::decode_read(&mut XdrDecoder::new(record.clone()), 1000).expect("valid").expect("a success");
    let within = record.as_ptr_range();
    assert!(within.contains(&decoded.data.as_ptr()));
}

/// RFC 1813 section 3.3: the result unions of the procedures that change something.
#[test]
fn every_mutation_fails_in_the_shape_of_its_result() {
    let words = [
        (procedure::SETATTR, 2),
        (procedure::WRITE, 2),
        (procedure::CREATE, 2),
        (procedure::MKDIR, 2),
        (procedure::SYMLINK, 2),
        (procedure::MKNOD, 2),
        (procedure::REMOVE, 2),
        (procedure::RMDIR, 2),
        (procedure::RENAME, 4),
        (procedure::LINK, 3),
        (procedure::COMMIT, 2),
    ];
    for (procedure, absent) in words {
        let mut e = XdrEncoder::default();
        nfs3::encode_mutation_failure(&mut e, procedure, NfsStatus::ROFS, [None, None]).expect("a mutation");
        let mut d = XdrDecoder::new(e.finish());
        assert_eq!(d.u32(), Ok(30));
        for _ in 0..absent {
            assert_eq!(d.u32(), Ok(0));
        }
        assert_eq!(d.remaining(), 0, "procedure {procedure}");
    }
    let mut e = XdrEncoder::default();
    assert!(nfs3::encode_mutation_failure(&mut e, procedure::READ, NfsStatus::ROFS, [None, None]).is_err());
}
