//! The head of an S3 request, as the zero-copy path reads it.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| front_s3::fuzz::head(bytes));
