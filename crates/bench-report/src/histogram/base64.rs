//! Base64 with the usual alphabet and padding.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let word =
            group.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for i in 0..4 {
            let six = (word >> (18 - 6 * i) & 63) as usize;
            text.push(if i <= group.len() { char::from(ALPHABET[six]) } else { '=' });
        }
    }
    text
}

/// None if it is anything else.
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let groups = text.as_bytes().chunks_exact(4);
    if !groups.remainder().is_empty() {
        return None;
    }
    let last = groups.len().saturating_sub(1);
    let mut bytes = Vec::with_capacity(groups.len() * 3);
    for (i, group) in groups.enumerate() {
        let padding = group.iter().rev().take_while(|c| **c == b'=').count();
        if padding > 2 || (padding > 0 && i != last) {
            return None;
        }
        let mut word = 0u32;
        for c in group.iter().take(4 - padding) {
            word = word << 6 | u32::from(six_bits(*c)?);
        }
        let word = word << (6 * padding);
        bytes.extend(word.to_be_bytes().iter().skip(1).take(3 - padding));
    }
    Some(bytes)
}

fn six_bits(c: u8) -> Option<u8> {
    match c {
        b'A'..=b'Z' => Some(c - b'A'),
        b'a'..=b'z' => Some(c - b'a' + 26),
        b'0'..=b'9' => Some(c - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4648, section 10.
    #[test]
    fn the_vectors_of_the_standard() {
        let vectors = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
        ];
        for (plain, encoded) in vectors {
            assert_eq!(encode(plain.as_bytes()), encoded);
            assert_eq!(decode(encoded).as_deref(), Some(plain.as_bytes()));
        }
        for wrong in ["Z", "Zg=", "Zg==Zg==", "Z===", "====", "Zm9v\n", "Zm9-"] {
            assert_eq!(decode(wrong), None, "{wrong:?}");
        }
    }
}
