//! Byte ranges of requests. Pure.

use std::ops::Range;

use s3s::dto;

/// The largest position that the protocol crate can express.
const LAST_MAX: u64 = i64::MAX as u64;

/// `None`: not a single byte range, which is to be ignored (RFC 9110, 14.2). A number too large for us becomes the
/// largest, which lies behind the end of every object.
pub fn parse(header: &str) -> Option<dto::Range> {
    let (first, last) = header.strip_prefix("bytes=")?.split_once('-')?;
    match (first.is_empty(), last.is_empty()) {
        (true, _) => Some(dto::Range::Suffix { length: number(last)? }),
        (false, true) => Some(dto::Range::Int { first: number(first)?, last: None }),
        (false, false) => {
            let (first, last) = (number(first)?, number(last)?);
            (first <= last).then_some(dto::Range::Int { first, last: Some(last) })
        }
    }
}

fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(LAST_MAX).min(LAST_MAX))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyRangeFault {
    Form,
    BeyondTheEnd,
}

impl CopyRangeFault {
    pub fn why(self) -> &'static str {
        match self {
            CopyRangeFault::Form => {
                "The x-amz-copy-source-range value must be of the form bytes=first-last where first and last are the \
                 zero-based offsets of the first and last bytes to copy"
            }
            CopyRangeFault::BeyondTheEnd => "Range specified is not valid for source object",
        }
    }
}

/// The range of a copy must have both ends and lie in the object: a part that is shorter than requested would make
/// another object.
pub fn for_copy(header: &str, size: u64) -> Result<Range<u64>, CopyRangeFault> {
    match parse(header) {
        Some(dto::Range::Int { first, last: Some(last) }) if last < size => Ok(first..last + 1),
        Some(dto::Range::Int { last: Some(_), .. }) => Err(CopyRangeFault::BeyondTheEnd),
        _ => Err(CopyRangeFault::Form),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_with_a_huge_end_is_one_and_others_do_not_count() {
        let whole = dto::Range::Int { first: 5, last: Some(LAST_MAX) };
        for text in ["bytes=5-18446744073709551615", "bytes=5-99999999999999999999999"] {
            assert_eq!(parse(text), Some(whole));
        }
        assert_eq!(parse("bytes=-7"), Some(dto::Range::Suffix { length: 7 }));
        for text in ["bytes=-", "bytes=5-2", "bytes=+1-2", "bytes=1-2,4-5", "lines=1-2", "bytes=1", ""] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_copy_says_both_ends_and_they_are_in_the_object() {
        assert_eq!(for_copy("bytes=0-9", 10), Ok(0..10));
        assert_eq!(for_copy("bytes=3-3", 10), Ok(3..4));
        for text in ["bytes=0-10", "bytes=10-10", "bytes=0-18446744073709551615"] {
            assert_eq!(for_copy(text, 10), Err(CopyRangeFault::BeyondTheEnd), "{text}");
        }
        for text in ["bytes=-3", "bytes=2-", "bytes=4-2", "0-3", "bytes=a-b"] {
            assert_eq!(for_copy(text, 10), Err(CopyRangeFault::Form), "{text}");
        }
    }
}
