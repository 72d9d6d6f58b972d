//! S3's bodies of XML.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| front_s3::fuzz::xml(bytes));
