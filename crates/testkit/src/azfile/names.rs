//! What may be a name on a share, and which names are the same one.
//! <https://learn.microsoft.com/rest/api/storageservices/naming-and-referencing-shares--directories--files--and-metadata>

/// In UTF-16 units, as the service counts characters.
const NAME_MAX: usize = 255;
const PATH_MAX: usize = 2048;
const FORBIDDEN: &[char] = &['"', '\\', ':', '|', '<', '>', '*', '?'];
const RESERVED: &[&str] = &["prn", "aux", "nul", "con", "clock$"];

/// `None`: fine.
pub fn refused(path: &str) -> Option<&'static str> {
    if path.encode_utf16().count() > PATH_MAX {
        return Some("InvalidFileOrDirectoryPathName");
    }
    path.split('/').any(is_refused).then_some("InvalidResourceName")
}

fn is_refused(name: &str) -> bool {
    let folded = folded(name);
    let device = |prefix: &str| {
        folded.strip_prefix(prefix).is_some_and(|n| matches!(n.as_bytes(), [digit] if digit.is_ascii_digit()))
    };
    name.is_empty()
        || matches!(name, "." | "..")
        || name.encode_utf16().count() > NAME_MAX
        || name
            .chars()
            .any(|c| c.is_control() || FORBIDDEN.contains(&c) || ('\u{e000}'..='\u{f8ff}').contains(&c))
        || RESERVED.contains(&folded.as_str())
        || device("lpt")
        || device("com")
}

/// Two names with the same one cannot be in a directory together.
pub fn folded(name: &str) -> String {
    name.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

/// Without the header that allows them, dots at the end of a name are taken off.
pub fn without_trailing_dots(path: &str) -> String {
    let parts: Vec<_> = path.split('/').map(|part| part.trim_end_matches('.')).collect();
    parts.join("/")
}
