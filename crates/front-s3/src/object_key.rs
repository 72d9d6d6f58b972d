//! An object key as a path below its bucket's directory. A key that cannot be a path is refused; none is changed to
//! fit.

use bytes::Bytes;
use types::Name;

/// The prefix of our own names: staged objects and multipart uploads. Such names are neither listed nor served.
pub const HIDDEN: &[u8] = b".forebay-";

/// S3's own limit, in bytes.
pub const KEY_MAX: usize = 1024;

/// A key, split into names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectKey {
    pub dirs: Vec<Name>,
    pub name: Name,
    /// It ends with a slash and stands for a directory.
    pub is_dir: bool,
}

/// Why a key cannot be a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyError {
    TooLong,
    LongName,
    EmptyName,
    DotName,
    Nul,
    Hidden,
}

impl KeyError {
    pub fn why(self) -> &'static str {
        match self {
            KeyError::TooLong => "a key has at most 1024 bytes",
            KeyError::LongName => {
                "between two slashes of a key there may be 255 bytes at most: it is a path here"
            }
            KeyError::EmptyName => {
                "a key must not begin with a slash or have two in a row: it is a path here"
            }
            KeyError::DotName => "a key must not have \".\" or \"..\" between its slashes: it is a path here",
            KeyError::Nul => "a key must not have a NUL byte: it is a path here",
            KeyError::Hidden => "names that begin with \".forebay-\" are kept for the tier itself",
        }
    }
}

impl ObjectKey {
    pub fn parse(text: &[u8]) -> Result<ObjectKey, KeyError> {
        if text.len() > KEY_MAX {
            return Err(KeyError::TooLong);
        }
        let is_dir = text.last() == Some(&b'/');
        let path = if is_dir { &text[..text.len() - 1] } else { text };
        let mut dirs = path.split(|byte| *byte == b'/').map(name).collect::<Result<Vec<_>, _>>()?;
        let name = dirs.pop().ok_or(KeyError::EmptyName)?;
        Ok(ObjectKey { dirs, name, is_dir })
    }
}

pub fn is_hidden(name: &[u8]) -> bool {
    name.starts_with(HIDDEN)
}

fn name(part: &[u8]) -> Result<Name, KeyError> {
    match part {
        b"" => Err(KeyError::EmptyName),
        b"." | b".." => Err(KeyError::DotName),
        _ if part.contains(&0) => Err(KeyError::Nul),
        _ if is_hidden(part) => Err(KeyError::Hidden),
        _ => Name::new(Bytes::copy_from_slice(part)).map_err(|_| KeyError::LongName),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_a_path_or_refused() {
        let long = [vec![b'a'; 256], vec![b'a'; 1025]];
        let refused = [
            (&b""[..], KeyError::EmptyName),
            (b"/", KeyError::EmptyName),
            (b"/a", KeyError::EmptyName),
            (b"a//b", KeyError::EmptyName),
            (b"a//", KeyError::EmptyName),
            (b".", KeyError::DotName),
            (b"..", KeyError::DotName),
            (b"a/../b", KeyError::DotName),
            (b"a/./b", KeyError::DotName),
            (b"../a", KeyError::DotName),
            (b"a/..", KeyError::DotName),
            (b"a/../", KeyError::DotName),
            (b"a\0b", KeyError::Nul),
            (b".forebay-s3/x", KeyError::Hidden),
            (b"a/.forebay-put-1", KeyError::Hidden),
            (&long[0], KeyError::LongName),
            (&long[1], KeyError::TooLong),
        ];
        for (key, why) in refused {
            assert_eq!(ObjectKey::parse(key), Err(why), "{}", key.escape_ascii());
        }
        let key = ObjectKey::parse(b"a/.b/c..").expect("a path");
        assert_eq!((key.dirs.len(), key.name.as_bytes(), key.is_dir), (2, &b"c.."[..], false));
        let dir = ObjectKey::parse("a/ä/".as_bytes()).expect("a path");
        assert_eq!((dir.dirs.len(), dir.name.as_bytes(), dir.is_dir), (1, "ä".as_bytes(), true));
    }
}
