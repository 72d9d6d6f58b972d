//! The operation in the head of a journal's record.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| writeback::fuzz::operation(bytes));
