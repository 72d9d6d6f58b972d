//! Bytes from nowhere into every decoder: an error or a value, never a panic, never more memory than
//! the message warrants.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use rpc_nfs3::nfs3::create::{CreateArgs, MknodArgs, SymlinkArgs};
use rpc_nfs3::nfs3::file::{self, ReadArgs};
use rpc_nfs3::nfs3::names::RenameArgs;
use rpc_nfs3::nfs3::setattr::SetattrArgs;
use rpc_nfs3::nfs3::write::{self, WriteArgs};
use rpc_nfs3::nfs3::{FileHandle, readdir};
use rpc_nfs3::rpc::{CallHeader, Credentials};
use rpc_nfs3::{WireError, XdrDecoder, XdrEncoder, mount};

use crate::every_decoder::decode_all;

/// Words that lengths, enums and booleans are likely to stumble over.
fn nasty_word() -> impl Strategy<Value = u32> {
    prop_oneof![
        4 => 0u32..4,
        1 => Just(u32::MAX),
        1 => Just(i32::MAX as u32),
        1 => Just(1 << 31),
        1 => 0u32..2048,
        1 => any::<u32>(),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_decoder_panics_on_arbitrary_bytes(message in vec(any::<u8>(), 0..600)) {
        decode_all(&Bytes::from(message));
    }

    #[test]
    fn no_decoder_panics_on_plausible_words(words in vec(nasty_word(), 0..200)) {
        decode_all(&words.iter().flat_map(|w| w.to_be_bytes()).collect::<Vec<u8>>().into());
    }
}

fn words(words: &[u32]) -> XdrDecoder {
    let mut e = XdrEncoder::default();
    words.iter().for_each(|w| e.u32(*w));
    XdrDecoder::new(e.finish())
}

#[test]
fn a_handle_of_65_bytes_is_refused_by_its_length_alone() {
    assert_eq!(FileHandle::decode(&mut words(&[65])), Err(WireError::TooLong));
    assert_eq!(FileHandle::decode(&mut words(&[64])), Err(WireError::Truncated));
    assert_eq!(FileHandle::decode(&mut words(&[u32::MAX])), Err(WireError::TooLong));
}

#[test]
fn more_than_sixteen_groups_are_bad_credentials_of_a_call_that_can_be_answered() {
    // xid, call, rpc 2, program, version, procedure, AUTH_SYS with body of 92: stamp, no name, uid, gid, 17
    // groups
    let mut call = vec![1, 0, 2, 100_003, 3, 0, 1, 88, 0, 0, 0, 0, 17];
    call.extend([5; 17]);
    call.extend([0, 0]);
    let header = CallHeader::decode(&mut words(&call)).expect("a call");
    assert_eq!((header.xid, header.credentials), (1, Credentials::Malformed));
}

#[test]
fn credentials_longer_than_400_bytes_are_bad_and_longer_than_4096_no_call() {
    let mut call = vec![1, 0, 2, 100_003, 3, 0, 1, 404];
    call.extend([0; 101 + 2]);
    let header = CallHeader::decode(&mut words(&call)).expect("a call");
    assert_eq!((header.xid, header.credentials), (1, Credentials::Malformed));
    let call = [1, 0, 2, 100_003, 3, 0, 1, 4097];
    assert_eq!(CallHeader::decode(&mut words(&call)), Err(WireError::TooLong));
}

#[test]
fn offsets_above_two_to_the_63_pass_the_decoder_unchanged() {
    let args = ReadArgs::decode(&mut words(&[0, u32::MAX, u32::MAX, 0])).expect("well-formed");
    assert_eq!((args.offset, args.count), (u64::MAX, 0));
}

#[test]
fn a_list_that_announces_entries_it_does_not_have_is_refused() {
    // status, no attributes, verifier, "one follows", fileid, name of 2^31 bytes
    let lie = [0, 0, 0, 0, 1, 0, 9, 1 << 31];
    assert_eq!(readdir::decode_readdir(&mut words(&lie), false), Err(WireError::TooLong));
    let endless = [0, 0, 0, 0, 1];
    assert_eq!(readdir::decode_readdir(&mut words(&endless), true), Err(WireError::Truncated));
}

#[test]
fn read_data_that_differs_from_its_count_is_refused() {
    // status, no attributes, count, eof, length, data
    assert!(file::decode_read(&mut words(&[0, 0, 8, 1, 4, 7]), 100).is_err());
    assert!(file::decode_read(&mut words(&[0, 0, 8, 1, 8, 7]), 100).is_err());
    assert!(file::decode_read(&mut words(&[0, 0, 8, 1, 8, 7, 7]), 4).is_err(), "more than was asked for");
    assert!(file::decode_read(&mut words(&[0, 0, 8, 1, 8, 7, 7]), 8).is_ok());
}

#[test]
fn lists_of_many_empty_items_stop_at_their_cap() {
    let ones: Vec<u32> = std::iter::repeat_n([1, 0, 0], 70_000).flatten().collect();
    assert_eq!(mount::decode_mounts(&mut words(&ones)), Err(WireError::TooLong));
}

#[test]
fn write_data_that_differs_from_its_count_or_is_too_much_is_refused() {
    // handle, offset, count, stable_how, length, data
    let call = |count, stable, length| [0, 0, 0, count, stable, length, 7, 7];
    let decode =
        |count, stable, length, max| WriteArgs::decode(&mut words(&call(count, stable, length)), max);
    assert!(decode(8, 0, 8, 8).is_ok());
    assert_eq!(decode(8, 0, 8, 7), Err(WireError::TooLong));
    assert_eq!(decode(4, 0, 8, 8), Err(WireError::BadValue));
    assert_eq!(decode(u32::MAX, 0, u32::MAX, 1 << 20), Err(WireError::TooLong));
    assert_eq!(decode(12, 0, 12, 1 << 20), Err(WireError::Truncated));
    assert_eq!(decode(8, 3, 8, 8), Err(WireError::BadValue), "there is no stable_how 3");
}

#[test]
fn a_server_that_wrote_more_than_was_sent_is_not_believed() {
    // status, nothing before, nothing after, count, committed, verifier
    let reply = |count, committed| words(&[0, 0, 0, count, committed, 1, 2]);
    assert!(write::decode_write(&mut reply(100, 2), 100).is_ok());
    assert_eq!(write::decode_write(&mut reply(101, 2), 100), Err(WireError::BadValue));
    assert_eq!(write::decode_write(&mut reply(100, 3), 100), Err(WireError::BadValue));
}

#[test]
fn numbers_that_name_no_way_to_create_or_to_set_a_time_are_refused() {
    // handle, name, createmode3
    assert_eq!(CreateArgs::decode(&mut words(&[0, 0, 3])), Err(WireError::BadValue));
    // handle, no mode, no uid, no gid, no size, time_how
    assert_eq!(SetattrArgs::decode(&mut words(&[0, 0, 0, 0, 0, 3])), Err(WireError::BadValue));
    // handle, name, ftype3
    for kind in [0, 8, u32::MAX] {
        assert_eq!(MknodArgs::decode(&mut words(&[0, 0, kind])), Err(WireError::BadValue));
    }
}

#[test]
fn link_targets_and_names_end_at_their_caps() {
    // handle, name, six attributes that stay, length of the target
    let symlink = |length| words(&[0, 0, 0, 0, 0, 0, 0, 0, length]);
    assert_eq!(SymlinkArgs::decode(&mut symlink(4097)), Err(WireError::TooLong));
    assert_eq!(SymlinkArgs::decode(&mut symlink(4096)), Err(WireError::Truncated));
    // handle, name, handle, length of the second name
    let rename = |length| words(&[0, 0, 0, length]);
    assert_eq!(RenameArgs::decode(&mut rename(1025)), Err(WireError::TooLong));
    assert_eq!(RenameArgs::decode(&mut rename(1024)), Err(WireError::Truncated));
}
