//! Queries and paths, decoded and encoded again.

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

pub fn encode_onto(text: &mut String, bytes: &[u8], keep_slashes: bool) {
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
