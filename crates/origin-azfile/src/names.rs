//! Names that a share can have, and references to its objects. Pure.
//!
//! A reference is the kind (`d` or `f`), the object's key (the service's file id and the time of its creation, 8
//! bytes each, which a later object of the same name does not have), and the path below the served directory. The
//! interface knows paths only; each answer has the id of what is there now, and it is compared.

use bytes::Bytes;
use origin::{Identity, REFERENCE_MAX, Reference};
use types::{Error, ErrorKind, Name, Result};

/// The longest path, in UTF-16 units, as the service counts them.
const PATH_MAX: usize = 2048;
/// The prefix of temporary names: a file is created under one at the top and then renamed, so that it never replaces
/// another's.
const DRAFT: &str = ".forebay-new-";

/// The identity of an object for as long as it exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileKey {
    pub id: u64,
    /// Its creation, in hundreds of nanoseconds since 1970.
    pub created: i64,
}

impl FileKey {
    fn bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.id.to_be_bytes());
        bytes[8..].copy_from_slice(&self.created.to_be_bytes());
        bytes
    }

    pub fn identity(self) -> Identity {
        Identity(Bytes::copy_from_slice(&self.bytes()))
    }
}

/// A parsed reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareRef {
    pub is_dir: bool,
    pub key: FileKey,
    pub path: String,
}

impl ShareRef {
    pub fn reference(&self) -> Reference {
        let mut bytes = vec![if self.is_dir { b'd' } else { b'f' }];
        bytes.extend_from_slice(&self.key.bytes());
        bytes.extend_from_slice(self.path.as_bytes());
        Reference(bytes.into())
    }

    pub fn of(reference: &Reference) -> Result<ShareRef> {
        let foreign = || Error::new(ErrorKind::Stale, "use reference", "to another kind of origin");
        let (kind, rest) = reference.0.split_first().ok_or_else(foreign)?;
        let (id, rest) = rest.split_first_chunk::<8>().ok_or_else(foreign)?;
        let (created, path) = rest.split_first_chunk::<8>().ok_or_else(foreign)?;
        let is_dir = match kind {
            b'd' => true,
            b'f' => false,
            _ => return Err(foreign()),
        };
        let path = std::str::from_utf8(path).map_err(|_| foreign())?.to_owned();
        let key = FileKey { id: u64::from_be_bytes(*id), created: i64::from_be_bytes(*created) };
        Ok(ShareRef { is_dir, key, path })
    }

    /// The path of a name in this directory. Refuses a name that the share cannot have, with the reason.
    pub fn child(&self, name: &Name) -> Result<String> {
        if !self.is_dir {
            return Err(Error::new(ErrorKind::NotADirectory, "look into", &self.path));
        }
        path_of(&self.path, name)
    }
}

fn path_of(dir: &str, name: &Name) -> Result<String> {
    let refuse = |why: &str| Error::new(ErrorKind::InvalidArgument, "name", format!("{name}: {why}"));
    let text =
        std::str::from_utf8(name.as_bytes()).map_err(|_| refuse("names on an Azure share are UTF-8"))?;
    check(text).map_err(|why| refuse(&why))?;
    let path = join(dir, text);
    if path.encode_utf16().count() > PATH_MAX || path.len() + 32 > REFERENCE_MAX {
        let context = format!("{path}: a path on an Azure share has at most {PATH_MAX} characters");
        return Err(Error::new(ErrorKind::NameTooLong, "name", context));
    }
    Ok(path)
}

/// Refuses a path that no object of a share can have.
pub fn demand_path(path: &[u8]) -> Result<()> {
    let (dir, name) = path.split_at(path.iter().rposition(|byte| *byte == b'/').unwrap_or(0));
    let name = Name::new(name.strip_prefix(b"/").unwrap_or(name).to_vec())?;
    path_of(&String::from_utf8_lossy(dir), &name).map(drop)
}

pub fn join(dir: &str, name: &str) -> String {
    if dir.is_empty() { name.to_owned() } else { format!("{dir}/{name}") }
}

/// `Err`: why a share cannot have this name.
/// <https://learn.microsoft.com/rest/api/storageservices/naming-and-referencing-shares--directories--files--and-metadata>
pub fn check(name: &str) -> std::result::Result<(), String> {
    if let Some(c) = name.chars().find(|c| "\"\\/:|<>*?".contains(*c) || c.is_control()) {
        return Err(format!("an Azure share has no names with {c:?}, nor with any of \" \\ / : | < > * ?"));
    }
    let upper = name.to_ascii_uppercase();
    let numbered = ["LPT", "COM"].iter().filter_map(|device| upper.strip_prefix(device));
    let mut numbered = numbered.filter(|number| matches!(number.as_bytes(), [b'1'..=b'9']));
    let is_device = matches!(upper.as_str(), "PRN" | "AUX" | "NUL" | "CON" | "CLOCK$");
    if is_device || numbered.next().is_some() || matches!(name, "" | "." | "..") {
        return Err("an Azure share has no such name: it is a device to Windows".to_owned());
    }
    Ok(())
}

/// The form in which paths that differ in case only are equal.
pub fn folded(path: &str) -> String {
    path.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

pub fn temporary_name(number: u64) -> String {
    format!("{DRAFT}{number:016x}")
}

/// Whether it is a temporary name, which a crash may leave; not listed.
pub fn is_temporary(name: &str) -> bool {
    let number = name.strip_prefix(DRAFT);
    number.is_some_and(|number| number.len() == 16 && number.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(bytes: &[u8]) -> Name {
        Name::new(bytes.to_vec()).unwrap()
    }

    #[test]
    fn a_reference_is_read_as_it_was_written() {
        let key = FileKey { id: u64::MAX - 5, created: -7 };
        for path in ["", "a", "a b/é/c."] {
            for is_dir in [true, false] {
                let place = ShareRef { is_dir, key, path: path.to_owned() };
                assert_eq!(ShareRef::of(&place.reference()).unwrap(), place);
            }
        }
        for foreign in [&b""[..], b"d", b"d1234567", b"x123456781234567812", b"f1234567812345678\xff"] {
            let read = ShareRef::of(&Reference(Bytes::copy_from_slice(foreign)));
            assert_eq!(read.unwrap_err().kind(), ErrorKind::Stale);
        }
    }

    #[test]
    fn what_no_share_can_have_is_refused_with_the_reason() {
        let dir = ShareRef { is_dir: true, key: FileKey { id: 1, created: 1 }, path: "d".into() };
        for fine in ["a", "Com10", "com0", "con.txt", ".hidden", "dot.", "ünïcode", "a;b#c%d+e"] {
            assert_eq!(dir.child(&name(fine.as_bytes())).unwrap(), format!("d/{fine}"));
        }
        for bad in [
            &b"a:b"[..],
            b"a\\b",
            b"what?",
            b"*",
            b"a|b",
            b"<a>",
            b"\"",
            b"a\nb",
            b"\x7f",
            b"nul",
            b"LPT1",
            b"com9",
            b"\xff",
        ] {
            let error = dir.child(&name(bad)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            assert!(error.to_string().contains("Azure share"), "{error}");
        }
        assert!(demand_path(b"d/e/fine").is_ok() && demand_path(b"fine").is_ok());
        assert_eq!(demand_path(b"d/e/nul").unwrap_err().kind(), ErrorKind::InvalidArgument);
        let long = format!("{}/name", "x".repeat(2044));
        assert_eq!(demand_path(long.as_bytes()).unwrap_err().kind(), ErrorKind::NameTooLong);
        let deep = ShareRef { path: "x".repeat(2040), ..dir };
        assert_eq!(deep.child(&name(b"123456789")).unwrap_err().kind(), ErrorKind::NameTooLong);
    }
}
