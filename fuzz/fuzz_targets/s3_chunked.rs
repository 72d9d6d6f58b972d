//! S3's chunked bodies.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| front_s3::fuzz::chunked(bytes));
