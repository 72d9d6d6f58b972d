//! What is percent-encoded in the URLs of requests.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};

/// The characters that are not encoded in a URL's path.
pub const PATH: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');
/// The characters that are not encoded in a query's values.
pub const QUERY: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
