//! A request in the form that is signed. Paths and queries are decoded and encoded again, so that every way to write
//! the same request has the same form, and requests that mean something else have not.

use http::HeaderMap;

use super::Head;
use super::request::{Claim, is_signature_parameter};

/// The parameters of a query, decoded, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query(pub Vec<(Vec<u8>, Vec<u8>)>);

impl Query {
    /// A plus sign is a space here, as everywhere below.
    pub fn parse(text: &str) -> Query {
        let decoded = |part: &str| decode(&part.replace('+', " "));
        let parameters = text.split('&').filter(|part| !part.is_empty()).map(|part| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            (decoded(name), decoded(value))
        });
        Query(parameters.collect())
    }

    /// `None` if it is not there; `Some(None)` if it is there twice, or is no text.
    pub fn get(&self, name: &str) -> Option<Option<&str>> {
        let mut values = self.0.iter().filter(|(known, _)| known == name.as_bytes()).map(|(_, value)| value);
        let first = values.next()?;
        let only = values.next().is_none();
        Some(std::str::from_utf8(first).ok().filter(|_| only))
    }

    pub fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Encoded again, without some.
    pub fn without(&self, left_out: impl Fn(&[u8]) -> bool) -> String {
        let kept = self.0.iter().filter(|(name, _)| !left_out(name)).map(|(name, value)| {
            let mut text = encode(name, false);
            // A parameter without a value means the same with an empty one.
            text.push('=');
            text.push_str(&encode(value, false));
            text
        });
        kept.collect::<Vec<_>>().join("&")
    }
}

/// `%41` is `A`; what is no such escape is left as it is.
pub fn decode(text: &str) -> Vec<u8> {
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
            decoded.push(*byte);
            at += 1;
        }
    }
    decoded
}

/// As AWS's UriEncode.
pub fn encode(bytes: &[u8], keep_slashes: bool) -> String {
    let mut text = String::with_capacity(bytes.len() + 16);
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
    text
}

/// `None` if a signed header is not there.
pub fn request(head: &Head<'_>, query: &Query, claim: &Claim) -> Option<String> {
    let mut text = String::with_capacity(1024);
    text.push_str(head.method.as_str());
    text.push('\n');
    text.push_str(&encode(&decode(head.path), true));
    text.push('\n');
    text.push_str(&canonical_query(query));
    text.push('\n');
    for name in &claim.signed_headers {
        text.push_str(name);
        text.push(':');
        text.push_str(&canonical_values(head.headers, name)?);
        text.push('\n');
    }
    text.push('\n');
    text.push_str(&claim.signed_headers.join(";"));
    text.push('\n');
    text.push_str(&claim.content_sha256);
    Some(text)
}

fn canonical_query(query: &Query) -> String {
    let signed = query.0.iter().filter(|(name, _)| !is_signature_parameter(name));
    let mut pairs: Vec<_> = signed.map(|(name, value)| (encode(name, false), encode(value, false))).collect();
    pairs.sort();
    let pairs: Vec<_> = pairs.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
    pairs.join("&")
}

/// Of a header that comes more than once: in their order, with commas. Runs of spaces are one.
fn canonical_values(headers: &HeaderMap, name: &str) -> Option<String> {
    let mut text = String::new();
    for (count, value) in headers.get_all(name).iter().enumerate() {
        let value = std::str::from_utf8(value.as_bytes()).ok()?;
        if count > 0 {
            text.push(',');
        }
        let words: Vec<_> = value.split(' ').filter(|word| !word.is_empty()).collect();
        text.push_str(&words.join(" "));
    }
    headers.contains_key(name).then_some(text)
}
