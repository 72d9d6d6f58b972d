//! Maps keys to paths. Pure. An object is a file, the part of its key up to a slash is a directory.
//!
//! A reference is the path below the URL's prefix: a directory's ends with a slash, the root's is empty. A key that
//! cannot be a path is reported and left alone.

use bytes::Bytes;
use origin::Reference;
use types::{Error, ErrorKind, Name, Result};

use crate::drafts::is_draft;
use crate::url::Dialect;

/// The longest key that the stores take, in bytes.
pub const KEY_MAX: usize = 1024;
/// The directory below the URL's prefix for uploads to Google's store, whose parts are ordinary objects: no listing
/// shows it.
pub const UPLOADS: &str = ".forebay-uploads";

/// The URL's prefix in the bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyBase {
    /// Empty, or with a slash at its end.
    prefix: String,
    dialect: Dialect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    File,
    Directory,
}

/// What a key of a listing is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListedName {
    Name(Name),
    /// The marker of the directory itself.
    Itself,
    /// It cannot be a path; why not.
    NoPath(&'static str),
}

impl KeyBase {
    /// From a URL's path, with slashes around it or without.
    pub fn new(prefix: &str, dialect: Dialect) -> KeyBase {
        let prefix = prefix.trim_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        KeyBase { prefix, dialect }
    }

    pub fn as_str(&self) -> &str {
        &self.prefix
    }

    /// Why the store cannot have such a name: Azure takes a backslash for a slash, and may drop a trailing dot.
    fn refuses(&self, name: &str) -> Option<&'static str> {
        match self.dialect {
            Dialect::S3 => None,
            Dialect::Azure if name.contains('\\') => Some("names at Azure have no backslash"),
            Dialect::Azure if name.ends_with('.') => Some("names at Azure have no dot at their end"),
            Dialect::Gcs if name.contains(['\r', '\n']) => Some("names at Google have no line breaks"),
            Dialect::Gcs if name == UPLOADS => Some("this name is for what is being uploaded"),
            Dialect::Azure | Dialect::Gcs => None,
        }
    }

    /// The key of a file; for a directory that of its marker, which is the prefix of all keys in it.
    pub fn key(&self, reference: &Reference) -> Result<String> {
        let path = std::str::from_utf8(&reference.0).map_err(|_| {
            let context = "which is not UTF-8: a reference to another kind of origin";
            Error::new(ErrorKind::InvalidArgument, "use reference", context)
        })?;
        if is_draft(reference) {
            return Err(Error::new(ErrorKind::Stale, "use reference", "of a draft, which has no key"));
        }
        Ok(format!("{}{path}", self.prefix))
    }

    /// What a key in a listing of `dir` (a key that ends with a slash, or the base) is.
    pub fn classify(&self, dir: &str, key: &str) -> ListedName {
        let Some(rest) = key.strip_prefix(dir) else {
            return ListedName::NoPath("it is not in what was asked for");
        };
        let name = rest.strip_suffix('/').unwrap_or(rest);
        match name {
            "" if rest.is_empty() => ListedName::Itself,
            "" => ListedName::NoPath("it has two slashes in a row"),
            "." | ".." => ListedName::NoPath("a part of it is . or .."),
            name => match (self.refuses(name), Name::new(name.as_bytes().to_vec())) {
                (Some(why), _) => ListedName::NoPath(why),
                (None, Ok(name)) => ListedName::Name(name),
                (None, Err(_)) => ListedName::NoPath("a part of it is longer than 255 bytes, or has a NUL"),
            },
        }
    }
}

impl KeyBase {
    /// Refuses a path that no key can have.
    pub fn demand_path(&self, path: &[u8], is_dir: bool) -> Result<()> {
        let (dir, name) = path.split_at(path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1));
        let (dir, name) = (Reference(Bytes::copy_from_slice(dir)), Name::new(name.to_vec())?);
        let what = if is_dir { KeyKind::Directory } else { KeyKind::File };
        child(self, &dir, &name, what).map(drop)
    }
}

pub fn what(reference: &Reference) -> KeyKind {
    match reference.0.last() {
        None | Some(b'/') => KeyKind::Directory,
        Some(_) => KeyKind::File,
    }
}

/// The reference of a name in a directory. An error tells what no key can be: a name that is not UTF-8 is in no
/// bucket.
pub fn child(base: &KeyBase, dir: &Reference, name: &Name, what: KeyKind) -> Result<Reference> {
    if self::what(dir) != KeyKind::Directory {
        return Err(Error::new(ErrorKind::NotADirectory, "look into", dir.0.escape_ascii()));
    }
    let Ok(text) = std::str::from_utf8(name.as_bytes()) else {
        let context = format!("{name}: keys of object stores are UTF-8");
        return Err(Error::new(ErrorKind::InvalidArgument, "name", context));
    };
    if let Some(why) = base.refuses(text) {
        return Err(Error::new(ErrorKind::InvalidArgument, "name", format!("{name}: {why}")));
    }
    let mut path = Vec::with_capacity(dir.0.len() + text.len() + 1);
    path.extend_from_slice(&dir.0);
    path.extend_from_slice(text.as_bytes());
    if what == KeyKind::Directory {
        path.push(b'/');
    }
    if base.prefix.len() + path.len() > KEY_MAX {
        let context = format!("{}: a key has at most {KEY_MAX} bytes", path.escape_ascii());
        return Err(Error::new(ErrorKind::NameTooLong, "name", context));
    }
    Ok(Reference(Bytes::from(path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(path: &str) -> Reference {
        Reference(Bytes::copy_from_slice(path.as_bytes()))
    }

    fn name(text: &str) -> Name {
        Name::new(text.as_bytes().to_vec()).unwrap()
    }

    #[test]
    fn a_path_is_the_key_behind_the_prefix() {
        for prefix in ["a/b", "/a/b", "a/b/"] {
            assert_eq!(KeyBase::new(prefix, Dialect::S3).key(&reference("c/d")).unwrap(), "a/b/c/d");
            assert_eq!(KeyBase::new(prefix, Dialect::S3).key(&reference("")).unwrap(), "a/b/");
        }
        assert_eq!(KeyBase::new("", Dialect::S3).key(&reference("")).unwrap(), "");
    }

    #[test]
    fn files_and_directories_are_told_apart_by_the_slash() {
        let base = KeyBase::new("p", Dialect::S3);
        let dir = child(&base, &reference(""), &name("d"), KeyKind::Directory).unwrap();
        assert_eq!((dir.clone(), what(&dir)), (reference("d/"), KeyKind::Directory));
        let file = child(&base, &dir, &name("f"), KeyKind::File).unwrap();
        assert_eq!((file.clone(), what(&file)), (reference("d/f"), KeyKind::File));
        let below = child(&base, &file, &name("x"), KeyKind::File);
        assert_eq!(below.unwrap_err().kind(), ErrorKind::NotADirectory);
        assert_eq!(what(&reference("")), KeyKind::Directory);
    }

    #[test]
    fn keys_that_are_no_paths_are_told_of() {
        let base = KeyBase::new("", Dialect::S3);
        let table = [
            ("d/", "d/", ListedName::Itself),
            ("d/", "d/f", ListedName::Name(name("f"))),
            ("d/", "d/sub/", ListedName::Name(name("sub"))),
            ("", "top", ListedName::Name(name("top"))),
            ("d/", "d//", ListedName::NoPath("it has two slashes in a row")),
            ("", "/", ListedName::NoPath("it has two slashes in a row")),
            ("d/", "d/../", ListedName::NoPath("a part of it is . or ..")),
            ("d/", "d/.", ListedName::NoPath("a part of it is . or ..")),
            ("d/", "e/f", ListedName::NoPath("it is not in what was asked for")),
        ];
        for (dir, key, expected) in table {
            assert_eq!(base.classify(dir, key), expected, "{key} in {dir}");
        }
        let long = format!("d/{}", "x".repeat(256));
        assert!(matches!(base.classify("d/", &long), ListedName::NoPath(_)));
    }

    #[test]
    fn what_no_key_can_be_is_refused() {
        let base = KeyBase::new(&"p".repeat(900), Dialect::S3);
        let long = child(&base, &reference(""), &name(&"x".repeat(200)), KeyKind::File);
        assert_eq!(long.unwrap_err().kind(), ErrorKind::NameTooLong);
        for (text, dialect) in [
            ("a\\b", Dialect::Azure),
            ("end.", Dialect::Azure),
            ("two\nlines", Dialect::Gcs),
            (UPLOADS, Dialect::Gcs),
        ] {
            let base = KeyBase::new("", dialect);
            let refused = child(&base, &reference(""), &name(text), KeyKind::File);
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
            assert!(matches!(base.classify("", text), ListedName::NoPath(_)));
            assert!(
                child(&KeyBase::new("", Dialect::S3), &reference(""), &name(text), KeyKind::File).is_ok()
            );
        }
        let base = KeyBase::new("p", Dialect::Azure);
        let path = |length: usize| {
            let dirs = format!("{}/", "x".repeat(255)).repeat(3);
            format!("d/{dirs}{}", "x".repeat(length - 2 - dirs.len()))
        };
        assert!(base.demand_path(path(1022).as_bytes(), false).is_ok());
        for (path, is_dir) in [(path(1023), false), (path(1022), true)] {
            assert_eq!(base.demand_path(path.as_bytes(), is_dir).unwrap_err().kind(), ErrorKind::NameTooLong);
        }
        assert_eq!(base.demand_path(b"d/end.", false).unwrap_err().kind(), ErrorKind::InvalidArgument);
        let bytes = Name::new(b"\xff".to_vec()).unwrap();
        let refused = child(&base, &reference(""), &bytes, KeyKind::File);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}
