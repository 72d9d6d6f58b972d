//! The canonical request. Paths and queries are decoded and encoded again, so that all spellings of a request have
//! one form, and requests with another meaning have another.

use std::ops::Range;

use http::HeaderMap;

use super::RequestHead;
use super::query::{Query, decode, encode_onto};
use super::request::{SignatureClaim, is_signature_parameter};

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
