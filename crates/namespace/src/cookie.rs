//! Directory cookies: a 63-bit hash of the name. The same on every node and after every restart, and there is
//! no state to keep: a listing goes on after a cookie whatever was added or removed meanwhile.

use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;

/// Cookies 1 and 2 are `.` and `..`; names start here.
pub const FIRST: u64 = 16;

/// Names whose hashes collide move to the next free of this many slots. A name that finds none is left out
/// with a warning; with 63 bits that takes five names made to collide.
pub const SLOTS: u64 = 4;

/// The first slot that `name` may take: between [`FIRST`] and 2^63 - 1 - [`SLOTS`], so that cookies stay
/// positive in clients that keep them as signed numbers.
pub fn first_slot(name: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(0x636f_6f6b_6965, 1);
    hasher.write(name);
    FIRST + (hasher.finish() >> 1) % ((1 << 63) - 1 - FIRST - SLOTS)
}
