//! Reads /proc/self/mountinfo: what is mounted where.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountEntry {
    /// The major and minor number as text; they identify one mounted file system for as long as it lives.
    pub device: String,
    pub mount_point: PathBuf,
    pub kind: String,
}

/// The topmost mount at exactly this path, if any.
pub fn top_at(path: &Path) -> Option<MountEntry> {
    // A failure counts as "nothing mounted": mounting will then say what is wrong.
    let text = std::fs::read("/proc/self/mountinfo").ok()?;
    // The last line for a path is the topmost mount.
    let lines = text.rsplit(|byte| *byte == b'\n');
    lines.filter_map(parse).find(|entry| entry.mount_point.as_os_str() == path.as_os_str())
}

/// `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw`
fn parse(line: &[u8]) -> Option<MountEntry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let device = text(fields.nth(2)?);
    let mount_point = unescape(fields.nth(1)?);
    let mut after = fields.skip_while(|field| *field != b"-").skip(1);
    let kind = text(after.next()?);
    after.next()?; // the source: the line is not cut short before it
    Some(MountEntry { device, mount_point, kind })
}

fn text(field: &[u8]) -> String {
    String::from_utf8_lossy(field).into_owned()
}

/// Blanks and the like are written as a backslash and three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, after @ ..] = rest {
        let octal = after.get(..3).filter(|_| *first == b'\\').and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        bytes.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { after.get(3..).unwrap_or_default() } else { after };
    }
    PathBuf::from(OsString::from_vec(bytes))
}

/// The path as the kernel will name it. A file system that is mounted there is not asked: it may be dead and never
/// answer.
pub fn absolute(path: &Path) -> std::io::Result<PathBuf> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) => {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            let place = parent.canonicalize()?.join(name);
            // mount(2) would follow a link; nothing is mounted on one.
            let is_link = top_at(&place).is_none()
                && std::fs::symlink_metadata(&place).is_ok_and(|meta| meta.is_symlink());
            if is_link { place.canonicalize() } else { Ok(place) }
        }
        _ => path.canonicalize(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    #[test]
    fn a_line_is_read_with_and_without_optional_fields() {
        let line = b"36 35 98:0 / /mnt/a\\040b\\134c rw,noatime master:1 shared:2 - fuse.forebay forebay rw";
        let entry = parse(line).expect("a whole line");
        assert_eq!((entry.device.as_str(), entry.kind.as_str()), ("98:0", "fuse.forebay"));
        assert_eq!(entry.mount_point.as_os_str().as_bytes(), b"/mnt/a b\\c");
        let entry = parse(b"1 2 0:3 / / rw - ext4 /dev/vda rw").expect("a whole line");
        assert_eq!((entry.mount_point, entry.kind.as_str()), (PathBuf::from("/"), "ext4"));
    }

    #[test]
    fn half_a_line_is_nothing() {
        let line = b"36 35 98:0 / /mnt rw - ext4 x rw";
        for cut in 0..24 {
            assert_eq!(parse(&line[..cut]), None);
        }
        assert_eq!(unescape(b"a\\04"), PathBuf::from("a\\04"));
        assert_eq!(unescape(b"\\999\\"), PathBuf::from("\\999\\"));
    }

    #[test]
    fn the_root_is_mounted() {
        assert!(
            top_at(Path::new("/")).is_some() && top_at(Path::new("/proc")).is_some_and(|e| e.kind == "proc")
        );
    }
}
