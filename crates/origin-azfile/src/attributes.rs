//! What an answer tells of a file or directory, and the attributes that come of it. Pure.
//!
//! Size and times are the service's (SMB's, to 100 ns); mode, owner, finer digits of a time and the time of the last
//! access are stored as metadata, under the names of s3fs.

use std::hash::Hasher as _;

use ::http::HeaderMap;
use chrono::{DateTime, SecondsFormat, Utc};
use origin_object::attributes::StoredAttributes;
use origin_object::dir_times::DirChange;
use origin_object::store::Metadata;
use origin_object::{AttributeSource, Dialect};
use siphasher::sip128::{Hasher128, SipHasher13};
use types::{Attr, Error, ErrorKind, FileKind, Result, SetAttr, TimeChange, Timestamp, Version};

use crate::api::metadata_of;
use crate::names::FileKey;
use crate::url::Config;

/// The ticks of a second, of 100 ns each.
const TICKS: i64 = 10_000_000;
/// The convention of stored attributes: no tool of Azure Files has one of its own.
pub const STORED_AS: Dialect = Dialect::S3;
/// The mode bits that a read-only file loses.
const WRITABLE: u32 = 0o222;
/// Headers that are reset when a file's size is set without sending them again. Not its MD5, which is wrong then.
const KEPT: [(&str, &str); 5] = [
    ("content-type", "x-ms-content-type"),
    ("content-encoding", "x-ms-content-encoding"),
    ("content-language", "x-ms-content-language"),
    ("cache-control", "x-ms-cache-control"),
    ("content-disposition", "x-ms-content-disposition"),
];

/// A file or directory, as one answer describes it.
#[derive(Clone, Debug)]
pub struct FileStat {
    pub is_dir: bool,
    pub key: FileKey,
    /// The id of its parent directory.
    pub parent: Option<u64>,
    /// Bytes.
    pub size: u64,
    /// Without quotation marks.
    pub etag: String,
    pub written: i64,
    pub changed: i64,
    pub read_only: bool,
    /// `None`: a listing does not have it.
    pub metadata: Option<Metadata>,
    /// Headers to send again when its size is set.
    pub kept: HeaderMap,
}

/// Parses `2026-01-02T03:04:05.1234567Z` into hundreds of nanoseconds since 1970.
pub fn ticks(text: &str) -> Option<i64> {
    let time = DateTime::parse_from_rfc3339(text).ok()?;
    time.timestamp().checked_mul(TICKS)?.checked_add(i64::from(time.timestamp_subsec_nanos() / 100))
}

fn ticks_of(time: Timestamp) -> Option<i64> {
    time.seconds.checked_mul(TICKS)?.checked_add(i64::from(time.nanos / 100))
}

fn timestamp(ticks: i64) -> Timestamp {
    Timestamp { seconds: ticks.div_euclid(TICKS), nanos: (ticks.rem_euclid(TICKS) * 100) as u32 }
}

/// Formats a time for the service, which has none before 1601.
pub fn format_time(time: Timestamp) -> Result<String> {
    let out = || {
        Error::new(ErrorKind::InvalidArgument, "set", format!("the time {time:?}, which a share cannot have"))
    };
    let whole = DateTime::<Utc>::from_timestamp(time.seconds, 0).filter(|_| time.nanos < 1_000_000_000);
    let whole =
        whole.filter(|_| (-11_644_473_600..253_402_300_800).contains(&time.seconds)).ok_or_else(out)?;
    let text = whole.to_rfc3339_opts(SecondsFormat::Secs, true);
    Ok(format!("{}.{:07}Z", text.trim_end_matches('Z'), time.nanos / 100))
}

/// The version of these contents.
pub fn version(etag: &str, size: u64, written: i64) -> Version {
    let mut hasher = SipHasher13::new_with_keys(0x617a_6669_6c65_0001, 1);
    hasher.write(etag.trim_matches('"').as_bytes());
    hasher.write_u64(size);
    hasher.write_i64(written);
    Version(hasher.finish128().as_bytes())
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

/// From an answer to a read: the ETag, the time of the last write, and the file's id, if it has one.
pub fn of_read(headers: &HeaderMap) -> Option<(String, i64, Option<u64>)> {
    let etag = text(headers, "etag")?.to_owned();
    let written = ticks(text(headers, "x-ms-file-last-write-time")?)?;
    Some((etag, written, text(headers, "x-ms-file-id").and_then(|id| id.parse().ok())))
}

impl FileStat {
    /// From the headers of an answer. `None`: something is missing, or makes no sense.
    pub fn of(headers: &HeaderMap, is_dir: bool, size: Option<u64>) -> Option<FileStat> {
        let number = |name: &str| text(headers, name)?.parse::<u64>().ok();
        let time = |name: &str| ticks(text(headers, name)?);
        let size = if is_dir { Some(0) } else { size.or_else(|| number("content-length")) };
        let kept = KEPT.iter().filter_map(|(told, name)| {
            Some((::http::HeaderName::from_static(name), headers.get(*told)?.clone()))
        });
        Some(FileStat {
            is_dir,
            key: FileKey { id: number("x-ms-file-id")?, created: time("x-ms-file-creation-time")? },
            parent: number("x-ms-file-parent-id"),
            size: size?,
            etag: text(headers, "etag")?.trim_matches('"').to_owned(),
            written: time("x-ms-file-last-write-time")?,
            changed: time("x-ms-file-change-time")?,
            read_only: text(headers, "x-ms-file-attributes").is_some_and(is_read_only),
            metadata: Some(metadata_of(headers)),
            kept: if is_dir { HeaderMap::new() } else { kept.collect() },
        })
    }

    pub fn version(&self) -> Version {
        version(&self.etag, self.size, self.written)
    }

    pub fn stored(&self) -> StoredAttributes {
        self.metadata.as_ref().map(|stored| StoredAttributes::of(stored, STORED_AS)).unwrap_or_default()
    }

    /// Whether this exclusive create made it, unchanged since: a create gives both times the same value, and each
    /// write changes one.
    pub fn is_made_by(&self, verifier: [u8; 8]) -> bool {
        self.stored().verifier == Some(verifier) && self.written == self.key.created && self.size == 0
    }

    /// Whether it is a link. With listed attributes it counts as a file, since listings do not show the mark.
    pub fn is_symlink(&self, config: &Config) -> bool {
        config.attributes == AttributeSource::Stored && !self.is_dir && self.stored().is_symlink()
    }

    pub fn attr(&self, config: &Config, noted: DirChange) -> Attr {
        let stored = self.stored();
        let mut written = timestamp(self.written);
        let mut changed = timestamp(self.changed);
        // The stored time is finer, unless somebody wrote since.
        let finer = stored.mtime.filter(|time| ticks_of(*time) == Some(self.written));
        if self.is_dir && noted.seen {
            (written, changed) = (written.max(noted.at), changed.max(noted.at));
        }
        let mtime = finer.filter(|_| !(self.is_dir && noted.seen)).unwrap_or(written);
        let default = if self.is_dir { config.dir_mode } else { config.file_mode };
        let default = if self.read_only && !self.is_dir { default & !WRITABLE } else { default };
        let kind = match self.is_dir {
            true => FileKind::Directory,
            false if self.is_symlink(config) => FileKind::Symlink,
            false => FileKind::Regular,
        };
        let size = if self.is_dir { 4096 } else { self.size };
        Attr {
            kind,
            mode: stored.mode.map_or(default, |mode| mode & 0o7777),
            nlink: if self.is_dir { 2 } else { 1 },
            uid: stored.uid.unwrap_or(config.uid),
            gid: stored.gid.unwrap_or(config.gid),
            size,
            used: size,
            rdev: (0, 0),
            fsid: 0,
            fileid: self.key.id,
            atime: stored.atime.unwrap_or(mtime),
            mtime,
            ctime: changed,
        }
    }
}

/// `ReadOnly | Archive`
pub fn is_read_only(attributes: &str) -> bool {
    attributes.split(['|', ',']).any(|attribute| attribute.trim() == "ReadOnly")
}

/// The part of `set` that is stored as metadata. Of mtime only the digits that are too fine for the service.
pub fn stored(before: StoredAttributes, set: &SetAttr, now: Timestamp) -> StoredAttributes {
    let after = before.set(set, now);
    let is_coarse = |time: &Timestamp| !time.nanos.is_multiple_of(100);
    let mtime = match set.mtime {
        TimeChange::Keep => after.mtime,
        TimeChange::Now | TimeChange::To(_) => after.mtime.filter(is_coarse),
    };
    StoredAttributes { mtime, ..after }
}

/// The time by this machine's clock, to the service's resolution.
pub fn now() -> Timestamp {
    let now = origin_object::dir_times::now();
    Timestamp { nanos: now.nanos / 100 * 100, ..now }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_go_out_and_come_back() {
        for (seconds, nanos) in
            [(0, 0), (1_234_567_890, 123_456_700), (-5, 999_999_900), (-11_644_473_600, 0)]
        {
            let time = Timestamp { seconds, nanos };
            assert_eq!(ticks(&format_time(time).unwrap()).map(timestamp), Some(time));
        }
        assert_eq!(
            format_time(Timestamp { seconds: 1_767_323_045, nanos: 5 }).unwrap(),
            "2026-01-02T03:04:05.0000000Z"
        );
        for (seconds, nanos) in [(-11_644_473_601, 0), (i64::MAX, 0), (0, 1_000_000_000)] {
            assert_eq!(
                format_time(Timestamp { seconds, nanos }).unwrap_err().kind(),
                ErrorKind::InvalidArgument
            );
        }
        assert_eq!(ticks("yesterday"), None);
    }

    #[test]
    fn only_what_the_service_cannot_keep_is_stored() {
        let coarse =
            SetAttr { mtime: TimeChange::To(Timestamp { seconds: 1, nanos: 500 }), ..SetAttr::default() };
        assert_eq!(stored(StoredAttributes::default(), &coarse, now()), StoredAttributes::default());
        let time = Timestamp { seconds: 1, nanos: 501 };
        let fine = SetAttr { mtime: TimeChange::To(time), ..SetAttr::default() };
        let kept = stored(StoredAttributes::default(), &fine, now());
        assert_eq!(kept.mtime, Some(time));
        assert_eq!(stored(kept, &coarse, now()), StoredAttributes::default());
    }

    #[test]
    fn each_part_of_a_version_counts() {
        let one = version("\"e\"", 1, 1);
        assert_eq!(one, version("e", 1, 1));
        assert!(
            [version("f", 1, 1), version("e", 2, 1), version("e", 1, 2)].iter().all(|other| *other != one)
        );
    }
}
