//! Every decoder of NFSv3, MOUNT, the portmapper and RPC over the same bytes: an error or a value, within the caps, and byte
//! strings are slices of the message.
#![no_main]

#[path = "../../crates/rpc-nfs3/tests/it/every_decoder.rs"]
mod every_decoder;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| every_decoder::decode_all(&bytes::Bytes::copy_from_slice(bytes)));
