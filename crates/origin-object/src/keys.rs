//! Which key is which path: pure. An object is a file, the part of its key up to a slash is a directory.
//!
//! A reference is the path below the URL's prefix: of a file without, of a directory with a slash at its end, of the root
//! nothing. A key that no path can be is told of and left alone.

use bytes::Bytes;
use origin::Reference;
use types::{Error, ErrorKind, Name, Result};

use crate::url::Dialect;

/// Longest key that the stores take, in bytes.
pub const KEY_MAX: usize = 1024;
/// The directory, in the URL's prefix, of what is being uploaded to Google's store, where that is objects like others:
/// no listing shows it.
pub const UPLOADS: &str = ".forebay-uploads";

/// Where the URL's prefix lies in the bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// Empty, or with a slash at its end.
    prefix: String,
    dialect: Dialect,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    File,
    Directory,
}

/// One name of a page of a listing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shown {
    Name(Name),
    /// The marker of the directory itself.
    Itself,
    /// No path: why not.
    NoPath(&'static str),
}

impl Base {
    /// Of a URL's path, with slashes around it or without.
    pub fn new(prefix: &str, dialect: Dialect) -> Base {
        let prefix = prefix.trim_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        Base { prefix, dialect }
    }

    pub fn as_str(&self) -> &str {
        &self.prefix
    }

    /// Why the store cannot have such a name: to Azure's a backslash is a slash, and a dot at the end may go.
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

    /// The object's key; of a directory that of its marker, and what all keys in it begin with.
    pub fn key(&self, reference: &Reference) -> Result<String> {
        let path = std::str::from_utf8(&reference.0).map_err(|_| {
            let context = "which is not UTF-8: a reference to another kind of origin";
            Error::new(ErrorKind::InvalidArgument, "use reference", context)
        })?;
        Ok(format!("{}{path}", self.prefix))
    }

    /// What a name in a listing of `dir` (a key that ends with a slash, or the base) is called.
    pub fn shown(&self, dir: &str, key: &str) -> Shown {
        let Some(rest) = key.strip_prefix(dir) else {
            return Shown::NoPath("it is not in what was asked for");
        };
        let name = rest.strip_suffix('/').unwrap_or(rest);
        match name {
            "" if rest.is_empty() => Shown::Itself,
            "" => Shown::NoPath("it has two slashes in a row"),
            "." | ".." => Shown::NoPath("a part of it is . or .."),
            name => match (self.refuses(name), Name::new(name.as_bytes().to_vec())) {
                (Some(why), _) => Shown::NoPath(why),
                (None, Ok(name)) => Shown::Name(name),
                (None, Err(_)) => Shown::NoPath("a part of it is longer than 255 bytes, or has a NUL"),
            },
        }
    }
}

impl Base {
    /// Refuses a path that no key can be.
    pub fn demand_path(&self, path: &[u8], is_dir: bool) -> Result<()> {
        let (dir, name) = path.split_at(path.iter().rposition(|byte| *byte == b'/').map_or(0, |at| at + 1));
        let (dir, name) = (Reference(Bytes::copy_from_slice(dir)), Name::new(name.to_vec())?);
        let what = if is_dir { What::Directory } else { What::File };
        child(self, &dir, &name, what).map(drop)
    }
}

pub fn what(reference: &Reference) -> What {
    match reference.0.last() {
        None | Some(b'/') => What::Directory,
        Some(_) => What::File,
    }
}

/// The name in the directory. `NotFound` tells apart what cannot be there from what is wrong: a name that is not UTF-8 is
/// in no bucket.
pub fn child(base: &Base, dir: &Reference, name: &Name, what: What) -> Result<Reference> {
    if self::what(dir) != What::Directory {
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
    if what == What::Directory {
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
            assert_eq!(Base::new(prefix, Dialect::S3).key(&reference("c/d")).unwrap(), "a/b/c/d");
            assert_eq!(Base::new(prefix, Dialect::S3).key(&reference("")).unwrap(), "a/b/");
        }
        assert_eq!(Base::new("", Dialect::S3).key(&reference("")).unwrap(), "");
    }

    #[test]
    fn files_and_directories_are_told_apart_by_the_slash() {
        let base = Base::new("p", Dialect::S3);
        let dir = child(&base, &reference(""), &name("d"), What::Directory).unwrap();
        assert_eq!((dir.clone(), what(&dir)), (reference("d/"), What::Directory));
        let file = child(&base, &dir, &name("f"), What::File).unwrap();
        assert_eq!((file.clone(), what(&file)), (reference("d/f"), What::File));
        let below = child(&base, &file, &name("x"), What::File);
        assert_eq!(below.unwrap_err().kind(), ErrorKind::NotADirectory);
        assert_eq!(what(&reference("")), What::Directory);
    }

    #[test]
    fn keys_that_are_no_paths_are_told_of() {
        let base = Base::new("", Dialect::S3);
        let table = [
            ("d/", "d/", Shown::Itself),
            ("d/", "d/f", Shown::Name(name("f"))),
            ("d/", "d/sub/", Shown::Name(name("sub"))),
            ("", "top", Shown::Name(name("top"))),
            ("d/", "d//", Shown::NoPath("it has two slashes in a row")),
            ("", "/", Shown::NoPath("it has two slashes in a row")),
            ("d/", "d/../", Shown::NoPath("a part of it is . or ..")),
            ("d/", "d/.", Shown::NoPath("a part of it is . or ..")),
            ("d/", "e/f", Shown::NoPath("it is not in what was asked for")),
        ];
        for (dir, key, expected) in table {
            assert_eq!(base.shown(dir, key), expected, "{key} in {dir}");
        }
        let long = format!("d/{}", "x".repeat(256));
        assert!(matches!(base.shown("d/", &long), Shown::NoPath(_)));
    }

    #[test]
    fn what_no_key_can_be_is_refused() {
        let base = Base::new(&"p".repeat(900), Dialect::S3);
        let long = child(&base, &reference(""), &name(&"x".repeat(200)), What::File);
        assert_eq!(long.unwrap_err().kind(), ErrorKind::NameTooLong);
        for (text, dialect) in [
            ("a\\b", Dialect::Azure),
            ("end.", Dialect::Azure),
            ("two\nlines", Dialect::Gcs),
            (UPLOADS, Dialect::Gcs),
        ] {
            let base = Base::new("", dialect);
            let refused = child(&base, &reference(""), &name(text), What::File);
            assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
            assert!(matches!(base.shown("", text), Shown::NoPath(_)));
            assert!(child(&Base::new("", Dialect::S3), &reference(""), &name(text), What::File).is_ok());
        }
        let base = Base::new("p", Dialect::Azure);
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
        let refused = child(&base, &reference(""), &bytes, What::File);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}
