//! The canonical request. Paths and queries are decoded and encoded again, so that all spellings of a request have
//! one form, and requests with another meaning have another.

use std::ops::Range;

use http::HeaderMap;

use super::RequestHead;
use super::request::{SignatureClaim, is_signature_parameter};

/// The parameters of a query, decoded, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(pub Vec<(Vec<u8>, Vec<u8>)>);

impl Query {
    /// A plus sign is a space, as everywhere below.
    pub fn parse(text: &str) -> Query {
        let decoded = |part: &str| decoded(part, true);
        let parameters = text.split('&').filter(|part| !part.is_empty()).map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            (decoded(name), decoded(value))
        });
        Query(parameters.collect())
    }

    /// `None` if the parameter is absent; `Some(None)` if it is there twice, or is no text.
    pub fn get(&self, name: &str) -> Option<Option<&str>> {
        let mut values = self.0.iter().filter(|(known, _)| known == name.as_bytes()).map(|(_, value)| value);
        let first = values.next()?;
        let only = values.next().is_none();
        Some(std::str::from_utf8(first).ok().filter(|_| only))
    }

    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Encodes the query again, without the parameters that `left_out` names.
    pub fn without(&self, left_out: impl Fn(&[u8]) -> bool) -> String {
        let kept = self.0.iter().filter(|(name, _)| !left_out(name)).map(|(name, value)| {
            let mut text = encode(name, false);
            // A parameter without a value means the same with an empty one.
            text.push('=');
            encode_onto(&mut text, value, false);
            text
        });
        kept.collect::<Vec<_>>().join("&")
    }
}

/// Percent-decodes; what is no valid escape stays as it is.
pub fn decode(text: &str) -> Vec<u8> {
    decoded(text, false)
}

fn decoded(text: &str, plus_is_space: bool) -> Vec<u8> {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(byte) = bytes.get(at) {
        if *byte == b'%'
            && let (Some(high), Some(low)) = (digit(bytes.get(at + 1)), digit(bytes.get(at + 2)))
        {
            decoded.push((high << 4 | low) as u8); // two digits: at most 255
            at += 3;
        } else {
            decoded.push(if plus_is_space && *byte == b'+' { b' ' } else { *byte });
            at += 1;
        }
    }
    decoded
}

/// Percent-encodes like AWS's UriEncode.
pub fn encode(bytes: &[u8], keep_slashes: bool) -> String {
    let mut text = String::with_capacity(bytes.len() + 16);
    encode_onto(&mut text, bytes, keep_slashes);
    text
}

fn encode_onto(text: &mut String, bytes: &[u8], keep_slashes: bool) {
    for byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(*byte))
            }
            b'/' if keep_slashes => text.push('/'),
            _ => {
                let digit = |nibble: u8| char::from(b"0123456789ABCDEF"[usize::from(nibble & 15)]);
                text.extend(['%', digit(byte >> 4), digit(*byte)]);
            }
        }
    }
}

/// Which blanks of a header's value are folded into one space. Signers differ in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blanks {
    /// Spaces only: the specification, and Amazon's SDK for Go.
    Spaces,
    /// Tabs too: botocore and MinIO's SDKs.
    All,
}

/// The canonical request; `None` if a signed header is absent.
pub fn request(
    head: &RequestHead<'_>,
    query: &Query,
    claim: &SignatureClaim,
    blanks: Blanks,
) -> Option<String> {
    let mut text = String::with_capacity(1024);
    text.push_str(head.method.as_str());
    text.push('\n');
    encode_onto(&mut text, &decode(head.path), true);
    text.push('\n');
    put_query(&mut text, query);
    text.push('\n');
    for name in &claim.signed_headers {
        text.push_str(name);
        text.push(':');
        put_values(&mut text, head.headers, name, blanks)?;
        text.push('\n');
    }
    text.push('\n');
    text.push_str(&claim.signed_headers.join(";"));
    text.push('\n');
    text.push_str(&claim.content_sha256);
    Some(text)
}

/// Parameters in the order of their encoded names and values.
fn put_query(text: &mut String, query: &Query) {
    let mut encoded = String::with_capacity(512);
    let mut put = |bytes: &[u8]| {
        let start = encoded.len();
        encode_onto(&mut encoded, bytes, false);
        start..encoded.len()
    };
    let signed = query.0.iter().filter(|(name, _)| !is_signature_parameter(name));
    let mut pairs: Vec<_> = signed.map(|(name, value)| (put(name), put(value))).collect();
    let texts =
        |(name, value): &(Range<usize>, Range<usize>)| (&encoded[name.clone()], &encoded[value.clone()]);
    pairs.sort_unstable_by(|one, other| texts(one).cmp(&texts(other)));
    for (count, pair) in pairs.iter().enumerate() {
        let (name, value) = texts(pair);
        text.extend([if count > 0 { "&" } else { "" }, name, "=", value]);
    }
}

/// Writes all values of a header in order, with commas, and folds blanks. `None` if there is none, or one is no
/// text.
fn put_values(text: &mut String, headers: &HeaderMap, name: &str, blanks: Blanks) -> Option<()> {
    let is_blank = |c: char| c == ' ' || c == '\t' && blanks == Blanks::All;
    let mut is_there = false;
    for value in headers.get_all(name) {
        let value = std::str::from_utf8(value.as_bytes()).ok()?;
        if std::mem::replace(&mut is_there, true) {
            text.push(',');
        }
        for (count, word) in value.split(is_blank).filter(|word| !word.is_empty()).enumerate() {
            text.extend([if count > 0 { " " } else { "" }, word]);
        }
    }
    is_there.then_some(())
}
