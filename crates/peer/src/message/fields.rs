//! Headers of calls and answers: their names, and how their values are written and read.

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::HeaderMap;
use http::HeaderName;
use types::{Error, ErrorKind, FileId, Result, Version};

/// Who calls and who answers, where there are no certificates.
pub const CLAIMED_NODE: HeaderName = HeaderName::from_static("forebay-node");
pub const CLAIMED_CLUSTER: HeaderName = HeaderName::from_static("forebay-cluster");
/// Which node is meant, where there are no certificates.
pub const CALLED_NODE: HeaderName = HeaderName::from_static("forebay-called");

pub const CHECKSUMS: HeaderName = HeaderName::from_static("forebay-crc32c");
pub const COPIES: HeaderName = HeaderName::from_static("forebay-copies");
pub const DEADLINE: HeaderName = HeaderName::from_static("forebay-deadline-ms");
pub const DISTANCE: HeaderName = HeaderName::from_static("forebay-distance");
pub const ERROR: HeaderName = HeaderName::from_static("forebay-error");
pub const HOPS: HeaderName = HeaderName::from_static("forebay-hops");
pub const HOT: HeaderName = HeaderName::from_static("forebay-hot");
pub const JUNCTION: HeaderName = HeaderName::from_static("forebay-junction");
pub const MAP: HeaderName = HeaderName::from_static("forebay-map");
pub const OUTAGE: HeaderName = HeaderName::from_static("forebay-outage");
pub const REFERENCE: HeaderName = HeaderName::from_static("forebay-reference");
pub const ROLE: HeaderName = HeaderName::from_static("forebay-role");
pub const SERVED_FROM: HeaderName = HeaderName::from_static("forebay-source");
pub const SIZE: HeaderName = HeaderName::from_static("forebay-size");
pub const STRIPES: HeaderName = HeaderName::from_static("forebay-stripes");
pub const URGENCY: HeaderName = HeaderName::from_static("forebay-urgency");

/// What a peer sent, or is to be sent, is not what the protocol allows.
pub fn wrong(why: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::InvalidArgument, "a message between nodes:", why)
}

pub fn text(headers: &HeaderMap, name: HeaderName) -> Result<&str> {
    let value = headers.get(&name).ok_or_else(|| wrong(format!("{name} is missing")))?;
    value.to_str().map_err(|_| wrong(format!("{name} is no text")))
}

pub fn number(headers: &HeaderMap, name: HeaderName) -> Result<u64> {
    let text = text(headers, name.clone())?;
    digits(text).ok_or_else(|| wrong(format!("{name} is no number")))
}

/// A number of digits alone: no sign, no spaces.
pub fn digits(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok()).flatten()
}

/// `a-b`, both with it.
pub fn first_to_last(text: &str) -> Option<(u64, u64)> {
    let (first, last) = text.split_once('-')?;
    let (first, last) = (digits(first)?, digits(last)?);
    (first <= last).then_some((first, last))
}

/// `/v1/<call>/<file>/<version>`
pub fn file_and_version(path: &str, call: &str) -> Result<(FileId, Version)> {
    let found = || {
        let path = path.strip_prefix("/v1/")?.strip_prefix(call)?.strip_prefix('/')?;
        let (file, version) = path.split_once('/')?;
        Some((FileId(sixteen(file)?), Version(sixteen(version)?)))
    };
    found().ok_or_else(|| wrong("the path is not /v1/<call>/<file>/<version>, each of 32 hexadecimal digits"))
}

/// 16 bytes in 32 hexadecimal digits.
pub fn sixteen(text: &str) -> Option<[u8; 16]> {
    let is_hex = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let number = is_hex.then(|| u128::from_str_radix(text, 16).ok()).flatten()?;
    Some(number.to_be_bytes())
}

pub fn base64(bytes: &[u8]) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(bytes)
}

/// At most `most` bytes.
pub fn from_base64(text: &str, most: usize) -> Option<Bytes> {
    if text.len() > most.div_ceil(3) * 4 {
        return None;
    }
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(text).ok()?;
    (bytes.len() <= most).then(|| Bytes::from(bytes))
}
