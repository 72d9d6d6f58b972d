//! A segment of the journal after a crash.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| writeback::fuzz::segment(bytes));
