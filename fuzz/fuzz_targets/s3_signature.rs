//! The verifier of S3's signatures.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| front_s3::fuzz::signature(bytes));
