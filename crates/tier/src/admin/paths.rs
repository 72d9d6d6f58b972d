//! Paths are bytes; in URLs and JSON they are written percent-encoded.

/// Letters, digits and `-._~/` as they are, everything else as `%41`.
pub fn encode(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for &byte in path {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                text.push(char::from(byte))
            }
            _ => text.push_str(&format!("%{byte:02X}")),
        }
    }
    text
}

/// `None` for a `%` without two digits.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (digits, tail) = rest.split_first_chunk::<2>()?;
        let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|d| u8::try_from(d).ok());
        bytes.push(digit(digits[0])? * 16 + digit(digits[1])?);
        rest = tail;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_survives_and_a_broken_escape_does_not_pass() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)), Some(all));
        assert_eq!(decode("/plain/path-1.txt"), Some(b"/plain/path-1.txt".to_vec()));
        for broken in ["%", "%4", "%zz", "/a%+1"] {
            assert_eq!(decode(broken), None, "{broken}");
        }
    }
}
