//! Attributes in the kernel's form.

use std::time::{Duration, SystemTime};

use fuser::{FileAttr, FileType, INodeNo, TimeOrNow};
use types::{Attr, FileKind, TimeChange, Timestamp};

/// The preferred block size in `stat`: the kernel's page, as local file systems say.
const BLOCK: u32 = 4096;

pub fn file_attr(nodeid: u64, attr: &Attr) -> FileAttr {
    let (atime, mtime, ctime) = (time(attr.atime), time(attr.mtime), time(attr.ctime));
    FileAttr {
        ino: INodeNo(nodeid),
        size: attr.size,
        blocks: attr.used.div_ceil(512),
        atime,
        mtime,
        ctime,
        crtime: SystemTime::UNIX_EPOCH, // of another operating system
        kind: file_type(attr.kind),
        perm: (attr.mode & 0o7777) as u16,
        nlink: attr.nlink,
        uid: attr.uid,
        gid: attr.gid,
        rdev: device(attr.rdev),
        blksize: BLOCK,
        flags: 0,
    }
}

pub fn file_type(kind: FileKind) -> FileType {
    match kind {
        FileKind::Regular => FileType::RegularFile,
        FileKind::Directory => FileType::Directory,
        FileKind::Symlink => FileType::Symlink,
        FileKind::BlockDevice => FileType::BlockDevice,
        FileKind::CharDevice => FileType::CharDevice,
        FileKind::Socket => FileType::Socket,
        FileKind::Fifo => FileType::NamedPipe,
    }
}

/// A time that `SystemTime` cannot hold is shown as 1970.
fn time(t: Timestamp) -> SystemTime {
    let epoch = SystemTime::UNIX_EPOCH;
    let nanos = Duration::from_nanos(u64::from(t.nanos));
    let whole = Duration::from_secs(t.seconds.unsigned_abs());
    let seconds = if t.seconds < 0 { epoch.checked_sub(whole) } else { epoch.checked_add(whole) };
    seconds.and_then(|seconds| seconds.checked_add(nanos)).unwrap_or(epoch)
}

/// The kernel's `new_encode_dev`: 12 bits of major, 20 of minor.
fn device((major, minor): (u32, u32)) -> u32 {
    (minor & 0xff) | (major & 0xfff) << 8 | (minor & 0xf_ff00) << 12
}

/// The kernel's `new_decode_dev`: major and minor.
pub fn device_of(rdev: u32) -> (u32, u32) {
    ((rdev >> 8) & 0xfff, (rdev & 0xff) | (rdev >> 12) & 0xf_ff00)
}

/// The change of a time that SETATTR asks for.
pub fn time_change(time: Option<TimeOrNow>) -> TimeChange {
    match time {
        None => TimeChange::Keep,
        Some(TimeOrNow::Now) => TimeChange::Now,
        Some(TimeOrNow::SpecificTime(time)) => TimeChange::To(timestamp(time)),
    }
}

/// For times before 1970 the library subtracts the whole seconds *and* the nanoseconds from the epoch, where the
/// kernel means the nanoseconds to be added.
fn timestamp(time: SystemTime) -> Timestamp {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => Timestamp {
            seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            nanos: since.subsec_nanos(),
        },
        Err(before) => {
            let before = before.duration();
            let seconds = i64::try_from(before.as_secs()).map_or(i64::MIN, |seconds| -seconds);
            Timestamp { seconds, nanos: before.subsec_nanos() }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_and_absurd_ones_are_shown() {
        let at = |seconds, nanos| time(Timestamp { seconds, nanos });
        let epoch = SystemTime::UNIX_EPOCH;
        assert_eq!(at(1, 5), epoch + Duration::new(1, 5));
        assert_eq!(at(-2, 500_000_000), epoch - Duration::from_millis(1500));
        assert!(at(i64::MIN, 0) <= epoch);
        assert!(at(i64::MAX, 999_999_999) >= epoch);
    }

    #[test]
    fn device_numbers_are_packed_as_linux_does() {
        assert_eq!(device((8, 1)), 0x801);
        assert_eq!(device((0x123, 0x4_5678)), 0x4561_2378);
        for numbers in [(8, 1), (0x123, 0x4_5678), (0xfff, 0xf_ffff), (0, 0)] {
            assert_eq!(device_of(device(numbers)), numbers);
        }
    }

    #[test]
    fn times_to_set_are_what_the_kernel_meant() {
        let epoch = SystemTime::UNIX_EPOCH;
        let of = |time| time_change(Some(TimeOrNow::SpecificTime(time)));
        assert_eq!(of(epoch + Duration::new(7, 9)), TimeChange::To(Timestamp { seconds: 7, nanos: 9 }));
        // The library's form of -2 s + 0.5 s.
        let early = TimeChange::To(Timestamp { seconds: -2, nanos: 500_000_000 });
        assert_eq!(of(epoch - Duration::new(2, 500_000_000)), early);
        assert_eq!(time_change(Some(TimeOrNow::Now)), TimeChange::Now);
        assert_eq!(time_change(None), TimeChange::Keep);
    }
}
