//! Mode, owner and times of an object, as the tools of its store keep them with it. Pure.
//!
//! - S3, as s3fs: `mode` (decimal, with the file's type), `uid`, `gid`, `mtime` and `atime` (seconds, a dot, nanoseconds;
//!   rclone's `mtime` is the same)
//! - Azure, as azcopy's `--preserve-posix-properties`: `permissions` (decimal, with the file's type), `posix_owner`,
//!   `posix_group`, `modtime` and `posix_atime` (nanoseconds), `is_symlink`
//! - Google, as gcloud's `--preserve-posix` and `--preserve-symlinks`: `goog-reserved-posix-mode` (octal),
//!   `goog-reserved-posix-uid`, `goog-reserved-posix-gid`, `goog-reserved-file-mtime` and `goog-reserved-file-atime` (whole
//!   seconds; the nanoseconds are stored beside them), `goog-reserved-file-is-symlink`

use std::hash::Hasher as _;

use ring::rand::{SecureRandom, SystemRandom};
use siphasher::sip128::{Hasher128, SipHasher13};
use types::{Attr, Error, ErrorKind, FileKind, Result, SetAttr, TimeChange, Timestamp, Version};

use crate::dir_times::DirChange;
use crate::store::{Metadata, ObjectStat};
use crate::url::{Config, Dialect};

/// The file type in a mode.
const TYPE: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;
const NANOS: i128 = 1_000_000_000;

/// The metadata names of one convention.
struct AttributeNames {
    mode: &'static str,
    uid: &'static str,
    gid: &'static str,
    mtime: &'static str,
    atime: &'static str,
    /// Ours: the verifier of the exclusive create that made the object.
    verifier: &'static str,
    /// Ours, too: the mark of the writer that made the object.
    writer: &'static str,
}

const S3FS: AttributeNames = AttributeNames {
    mode: "mode",
    uid: "uid",
    gid: "gid",
    mtime: "mtime",
    atime: "atime",
    verifier: "forebay-create",
    writer: "forebay-draft",
};
const AZCOPY: AttributeNames = AttributeNames {
    mode: "permissions",
    uid: "posix_owner",
    gid: "posix_group",
    mtime: "modtime",
    atime: "posix_atime",
    verifier: "forebay_create",
    writer: "forebay_draft",
};
const GCLOUD: AttributeNames = AttributeNames {
    mode: "goog-reserved-posix-mode",
    uid: "goog-reserved-posix-uid",
    gid: "goog-reserved-posix-gid",
    mtime: "goog-reserved-file-mtime",
    atime: "goog-reserved-file-atime",
    verifier: "forebay-create",
    writer: "forebay-draft",
};
/// Ours: the nanoseconds of the times that gcloud stores in seconds.
const MTIME_NANOS: &str = "forebay-mtime-nanos";
const ATIME_NANOS: &str = "forebay-atime-nanos";

fn names(dialect: Dialect) -> &'static AttributeNames {
    match dialect {
        Dialect::S3 => &S3FS,
        Dialect::Azure => &AZCOPY,
        Dialect::Gcs => &GCLOUD,
    }
}

/// The metadata that marks a link where the mode does not: blobfuse2 and gcloud store nothing else.
fn link(dialect: Dialect) -> Option<&'static str> {
    match dialect {
        Dialect::S3 => None,
        Dialect::Azure => Some("is_symlink"),
        Dialect::Gcs => Some("goog-reserved-file-is-symlink"),
    }
}

/// The version of these contents: objects with the same ETag and size are taken for the same.
pub fn version(etag: &str, size: u64) -> Version {
    let mut hasher = SipHasher13::new_with_keys(0x6f62_6a65_6374_0001, 1);
    hasher.write(etag.trim_start_matches("W/").as_bytes());
    hasher.write_u64(size);
    Version(hasher.finish128().as_bytes())
}

/// The fileid of a path, for programs that list.
pub fn fileid(path: &[u8]) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(0x6f62_6a65_6374_0002, 1);
    hasher.write(path);
    hasher.finish128().as_u128() as u64
}

/// The metadata name for the mark of a writer, and a new unique mark.
pub fn write_mark(dialect: Dialect) -> Result<(String, String)> {
    let mut random = [0; 16];
    SystemRandom::new()
        .fill(&mut random)
        .map_err(|e| Error::new(ErrorKind::Io, "draw", "a random number").with_source(e))?;
    Ok((mark_name(dialect).to_owned(), format!("{:032x}", u128::from_be_bytes(random))))
}

/// The metadata name of a writer's mark.
pub fn mark_name(dialect: Dialect) -> &'static str {
    names(dialect).writer
}

/// The mark that says whose bytes these are: of the writer, or of the exclusive create that made the object.
pub fn mark(metadata: &Metadata, dialect: Dialect) -> Option<&str> {
    let names = names(dialect);
    metadata.get(names.writer).or_else(|| metadata.get(names.verifier)).map(String::as_str)
}

/// The metadata names of a file's times.
pub fn time_names(dialect: Dialect) -> [&'static str; 2] {
    let names = names(dialect);
    [names.mtime, names.atime]
}

/// The attributes of a file that are stored with an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredAttributes {
    /// The mode with the file type.
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub mtime: Option<Timestamp>,
    pub atime: Option<Timestamp>,
    pub verifier: Option<[u8; 8]>,
}

impl StoredAttributes {
    /// Parses the metadata; a value that cannot be parsed counts as absent.
    pub fn of(metadata: &Metadata, dialect: Dialect) -> StoredAttributes {
        let names = names(dialect);
        let text = |name: &str| metadata.get(name).map(|text| text.trim());
        let number = |name: &str| text(name)?.parse::<u32>().ok();
        let time = |name: &str, nanos: &str| match dialect {
            Dialect::S3 => time(text(name)?),
            Dialect::Azure => azure_time(text(name)?),
            Dialect::Gcs => {
                let seconds = text(name)?.parse().ok()?;
                let nanos = number(nanos).filter(|nanos| i128::from(*nanos) < NANOS).unwrap_or(0);
                Some(Timestamp { seconds, nanos })
            }
        };
        let mut mode = text(names.mode).and_then(|text| match dialect {
            Dialect::S3 => mode(text),
            Dialect::Azure => azure_mode(text),
            Dialect::Gcs => u32::from_str_radix(text, 8).ok().filter(|mode| mode & !(TYPE | 0o7777) == 0),
        });
        if link(dialect).is_some_and(|name| text(name) == Some("true")) {
            mode = Some(SYMLINK | mode.unwrap_or(0o777) & 0o7777);
        }
        StoredAttributes {
            mode,
            uid: number(names.uid),
            gid: number(names.gid),
            mtime: time(names.mtime, MTIME_NANOS),
            atime: time(names.atime, ATIME_NANOS),
            verifier: text(names.verifier)
                .and_then(|text| u64::from_str_radix(text, 16).ok())
                .map(u64::to_be_bytes),
        }
    }

    /// Writes the attributes into the metadata; all else in it stays.
    pub fn into_metadata(self, mut metadata: Metadata, dialect: Dialect) -> Metadata {
        let names = names(dialect);
        let mut put = |name: &str, value: Option<String>| match value {
            Some(value) => drop(metadata.insert(name.to_owned(), value)),
            None => drop(metadata.remove(name)),
        };
        put(
            names.mode,
            self.mode.map(|mode| match dialect {
                Dialect::S3 | Dialect::Azure => mode.to_string(),
                Dialect::Gcs => format!("{:03o}", mode & 0o7777),
            }),
        );
        put(names.uid, self.uid.map(|uid| uid.to_string()));
        put(names.gid, self.gid.map(|gid| gid.to_string()));
        let text = |time: Timestamp| match dialect {
            Dialect::S3 => format!("{}.{:09}", time.seconds, time.nanos),
            Dialect::Azure => nanoseconds(time).to_string(),
            Dialect::Gcs => time.seconds.to_string(),
        };
        put(names.mtime, self.mtime.map(text));
        put(names.atime, self.atime.map(text));
        put(names.verifier, self.verifier.map(|verifier| format!("{:016x}", u64::from_be_bytes(verifier))));
        if dialect == Dialect::Gcs {
            let nanos = |time: Option<Timestamp>| Some(time?.nanos).filter(|nanos| *nanos > 0);
            put(MTIME_NANOS, nanos(self.mtime).map(|nanos| nanos.to_string()));
            put(ATIME_NANOS, nanos(self.atime).map(|nanos| nanos.to_string()));
        }
        if let Some(name) = link(dialect) {
            put(name, self.is_symlink().then(|| "true".to_owned()));
        }
        metadata
    }

    /// The attributes after `set`, at `now` by this machine's clock: the store has no clock that it would put into
    /// metadata.
    pub fn set(mut self, set: &SetAttr, now: Timestamp) -> StoredAttributes {
        let kind = self.mode.map_or(REGULAR, |mode| mode & TYPE);
        self.mode = set.mode.map(|mode| kind | mode & 0o7777).or(self.mode);
        self.uid = set.uid.or(self.uid);
        self.gid = set.gid.or(self.gid);
        let time = |change, kept| match change {
            TimeChange::Keep => kept,
            TimeChange::Now => Some(now),
            TimeChange::To(time) => Some(time),
        };
        self.mtime = time(set.mtime, self.mtime);
        self.atime = time(set.atime, self.atime);
        // Times that are set end the exclusive create, as at other origins.
        if set.mtime != TimeChange::Keep || set.atime != TimeChange::Keep {
            self.verifier = None;
        }
        self
    }

    pub fn is_symlink(&self) -> bool {
        self.mode.is_some_and(|mode| mode & TYPE == SYMLINK)
    }

    /// The attributes of a new link.
    pub fn symlink() -> StoredAttributes {
        StoredAttributes { mode: Some(SYMLINK | 0o777), ..StoredAttributes::default() }
    }
}

/// Parses a mode: decimal as s3fs writes it, octal as rclone does, which has no 8 and no 9 and six digits.
fn mode(text: &str) -> Option<u32> {
    let octal =
        u32::from_str_radix(text, 8).ok().filter(|mode| matches!(mode & TYPE, REGULAR | SYMLINK | 0o40_000));
    let decimal = text.parse::<u32>().ok().filter(|mode| mode & !(TYPE | 0o7777) == 0);
    octal.filter(|_| text.len() >= 6).or(decimal)
}

fn time(text: &str) -> Option<Timestamp> {
    let (seconds, fraction) = text.split_once('.').unwrap_or((text, ""));
    let seconds = seconds.parse().ok()?;
    if fraction.len() > 9 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let nanos = format!("{fraction:0<9}").parse().ok()?;
    Some(Timestamp { seconds, nanos })
}

/// Parses a mode: decimal as azcopy writes it; for a managed Lustre it writes four octal digits, which begin with 0.
fn azure_mode(text: &str) -> Option<u32> {
    match text.strip_prefix('0') {
        Some(octal) if !octal.is_empty() => u32::from_str_radix(octal, 8).ok().filter(|mode| *mode <= 0o7777),
        _ => text.parse().ok().filter(|mode| mode & !(TYPE | 0o7777) == 0),
    }
}

fn azure_time(text: &str) -> Option<Timestamp> {
    let nanos: i128 = text.parse().ok()?;
    let seconds = i64::try_from(nanos.div_euclid(NANOS)).ok()?;
    Some(Timestamp { seconds, nanos: nanos.rem_euclid(NANOS) as u32 })
}

fn nanoseconds(time: Timestamp) -> i128 {
    i128::from(time.seconds) * NANOS + i128::from(time.nanos)
}

/// A file's attributes: the stored ones, else the store's, else the junction's defaults.
pub fn of_file(config: &Config, path: &[u8], stat: &ObjectStat) -> Attr {
    let stored = StoredAttributes::of(&stat.metadata, config.dialect);
    let kind = if stored.is_symlink() { FileKind::Symlink } else { FileKind::Regular };
    Attr {
        kind,
        mode: stored.mode.map_or(config.file_mode, |mode| mode & 0o7777),
        nlink: 1,
        uid: stored.uid.unwrap_or(config.uid),
        gid: stored.gid.unwrap_or(config.gid),
        size: stat.size,
        used: stat.size,
        rdev: (0, 0),
        fsid: 0,
        fileid: fileid(path),
        atime: stored.atime.or(stored.mtime).unwrap_or(stat.modified),
        mtime: stored.mtime.unwrap_or(stat.modified),
        ctime: stat.modified,
    }
}

/// A directory's attributes; it is no object. The times are those of its last change that we know of.
pub fn of_directory(config: &Config, path: &[u8], marker: Option<&ObjectStat>, times: DirChange) -> Attr {
    let stored = marker.map(|stat| StoredAttributes::of(&stat.metadata, config.dialect)).unwrap_or_default();
    // The times were set, and nothing has changed since.
    let mtime = stored.mtime.filter(|_| !times.seen).unwrap_or(times.at);
    Attr {
        kind: FileKind::Directory,
        mode: stored.mode.map_or(config.dir_mode, |mode| mode & 0o7777),
        nlink: 2,
        uid: stored.uid.unwrap_or(config.uid),
        gid: stored.gid.unwrap_or(config.gid),
        size: 4096,
        used: 4096,
        rdev: (0, 0),
        fsid: 0,
        fileid: fileid(path),
        atime: mtime,
        mtime,
        ctime: times.at,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(pairs: &[(&str, &str)]) -> Metadata {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn what_s3fs_and_rclone_store_is_understood() {
        let s3fs = StoredAttributes::of(
            &metadata(&[
                ("mode", "33200"),
                ("uid", "1000"),
                ("gid", "100"),
                ("mtime", "1595002920.000000123"),
            ]),
            Dialect::S3,
        );
        assert_eq!((s3fs.mode, s3fs.uid, s3fs.gid), (Some(0o100_660), Some(1000), Some(100)));
        assert_eq!(s3fs.mtime, Some(Timestamp { seconds: 1_595_002_920, nanos: 123 }));
        let rclone =
            StoredAttributes::of(&metadata(&[("mode", "100640"), ("mtime", "1595002920.5")]), Dialect::S3);
        assert_eq!(rclone.mode, Some(0o100_640));
        assert_eq!(rclone.mtime, Some(Timestamp { seconds: 1_595_002_920, nanos: 500_000_000 }));
        assert!(StoredAttributes::of(&metadata(&[("mode", "41471")]), Dialect::S3).is_symlink());
        let nonsense = [("mode", "rw"), ("uid", "-1"), ("mtime", "yesterday"), ("gid", ""), ("atime", "1.x")];
        assert_eq!(StoredAttributes::of(&metadata(&nonsense), Dialect::S3), StoredAttributes::default());
    }

    #[test]
    fn what_is_stored_comes_back_and_what_others_stored_stays() {
        let stored = StoredAttributes {
            mode: Some(0o100_751),
            uid: Some(0),
            gid: Some(u32::MAX),
            mtime: Some(Timestamp { seconds: -5, nanos: 1 }),
            atime: Some(Timestamp { seconds: 7, nanos: 0 }),
            verifier: Some([0, 1, 2, 3, 4, 5, 6, 255]),
        };
        for dialect in [Dialect::S3, Dialect::Azure, Dialect::Gcs] {
            let mode = names(dialect).mode;
            let kept = stored.into_metadata(metadata(&[("colour", "blue"), (mode, "1")]), dialect);
            // gcloud stores no type in a mode.
            let kind = if dialect == Dialect::Gcs { 0 } else { REGULAR };
            assert_eq!(
                StoredAttributes::of(&kept, dialect),
                StoredAttributes { mode: Some(kind | 0o751), ..stored }
            );
            assert_eq!(kept["colour"], "blue");
            assert_eq!(
                StoredAttributes::default().into_metadata(kept, dialect),
                metadata(&[("colour", "blue")])
            );
            let link = StoredAttributes::symlink().into_metadata(Metadata::new(), dialect);
            assert!(StoredAttributes::of(&link, dialect).is_symlink());
        }
    }

    #[test]
    fn what_azcopy_and_blobfuse_store_is_understood() {
        let of = |pairs: &[(&str, &str)]| StoredAttributes::of(&metadata(pairs), Dialect::Azure);
        let azcopy = of(&[
            ("permissions", "33200"),
            ("posix_owner", "1000"),
            ("posix_group", "100"),
            ("modtime", "1595002920000000123"),
            ("posix_atime", "-1"),
        ]);
        assert_eq!((azcopy.mode, azcopy.uid, azcopy.gid), (Some(0o100_660), Some(1000), Some(100)));
        assert_eq!(azcopy.mtime, Some(Timestamp { seconds: 1_595_002_920, nanos: 123 }));
        assert_eq!(azcopy.atime, Some(Timestamp { seconds: -1, nanos: 999_999_999 }));
        assert_eq!(of(&[("permissions", "0640")]).mode, Some(0o640));
        assert!(of(&[("is_symlink", "true")]).is_symlink());
        let nonsense =
            [("permissions", "rwx"), ("posix_owner", "-1"), ("modtime", "2026-01-02 03:04:05 +0000")];
        assert_eq!(of(&nonsense), StoredAttributes::default());
    }

    #[test]
    fn what_gcloud_stores_is_understood() {
        let of = |pairs: &[(&str, &str)]| StoredAttributes::of(&metadata(pairs), Dialect::Gcs);
        let gcloud = of(&[
            ("goog-reserved-posix-mode", "640"),
            ("goog-reserved-posix-uid", "1000"),
            ("goog-reserved-posix-gid", "100"),
            ("goog-reserved-file-mtime", "1595002920"),
            ("goog-reserved-file-atime", "-1"),
        ]);
        assert_eq!((gcloud.mode, gcloud.uid, gcloud.gid), (Some(0o640), Some(1000), Some(100)));
        assert_eq!(gcloud.mtime, Some(Timestamp { seconds: 1_595_002_920, nanos: 0 }));
        assert_eq!(gcloud.atime, Some(Timestamp { seconds: -1, nanos: 0 }));
        assert!(of(&[("goog-reserved-file-is-symlink", "true")]).is_symlink());
        let fine = StoredAttributes {
            mtime: Some(Timestamp { seconds: 7, nanos: 5 }),
            ..StoredAttributes::default()
        };
        let stored = fine.into_metadata(Metadata::new(), Dialect::Gcs);
        assert_eq!(stored["goog-reserved-file-mtime"], "7");
        let nonsense =
            [("goog-reserved-posix-mode", "rwx"), ("goog-reserved-file-mtime", "1.5"), (MTIME_NANOS, "5")];
        assert_eq!(of(&nonsense), StoredAttributes::default());
    }

    #[test]
    fn contents_are_told_apart_by_etag_and_size() {
        assert_eq!(version("\"a\"", 1), version("W/\"a\"", 1));
        assert_ne!(version("\"a\"", 1), version("\"a\"", 2));
        assert_ne!(version("\"a\"", 1), version("\"b\"", 1));
    }
}
