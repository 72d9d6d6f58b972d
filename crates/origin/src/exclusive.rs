//! Where an exclusive create keeps its verifier until the file's times are set: in these times, as Linux's NFS server
//! does, so that it survives a restart without a store of its own. Where a file cannot be made without a name first (no
//! O_TMPFILE), a crash between the creation and the setting of the times leaves an empty file that no repetition knows
//! again: `Exists`, as over NFS.

use types::{Attr, CreateVerifier, SetAttr, TimeChange, Timestamp};

/// Years up to 2038: file systems have no others for certain.
const SECONDS: u32 = 0x7fff_ffff;

/// The access and the modification time of a file that was created with this verifier.
fn times_of(verifier: CreateVerifier) -> (Timestamp, Timestamp) {
    let [a, b, c, d, e, f, g, h] = verifier;
    let time = |bytes| Timestamp { seconds: i64::from(u32::from_be_bytes(bytes) & SECONDS), nanos: 0 };
    (time([a, b, c, d]), time([e, f, g, h]))
}

/// What keeps the verifier in a file just made.
pub fn set_of(verifier: CreateVerifier) -> SetAttr {
    let (atime, mtime) = times_of(verifier);
    SetAttr { atime: TimeChange::To(atime), mtime: TimeChange::To(mtime), ..SetAttr::default() }
}

/// Whether a file that is there was created with this verifier and not touched since.
pub fn is_repetition(found: &Attr, verifier: CreateVerifier) -> bool {
    found.is_file() && found.size == 0 && (found.atime, found.mtime) == times_of(verifier)
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::FileKind;

    fn created_with(verifier: CreateVerifier) -> Attr {
        let (atime, mtime) = times_of(verifier);
        let ctime = Timestamp { seconds: 1_700_000_000, nanos: 1 };
        let (kind, mode, nlink, uid, gid, size, used) = (FileKind::Regular, 0o644, 1, 0, 0, 0, 0);
        Attr {
            kind,
            mode,
            nlink,
            uid,
            gid,
            size,
            used,
            rdev: (0, 0),
            fsid: 1,
            fileid: 2,
            atime,
            mtime,
            ctime,
        }
    }

    #[test]
    fn a_file_is_known_by_its_verifier_until_it_is_touched() {
        let found = created_with(*b"\xffverifi\xff");
        assert!(is_repetition(&found, *b"\xffverifi\xff"));
        assert!(!is_repetition(&found, *b"\xfeverifi\xff"));
        assert!(!is_repetition(&Attr { size: 1, ..found }, *b"\xffverifi\xff"));
        assert!(!is_repetition(&Attr { mtime: found.ctime, ..found }, *b"\xffverifi\xff"));
        assert!(!is_repetition(&Attr { kind: FileKind::Socket, ..found }, *b"\xffverifi\xff"));
    }
}
