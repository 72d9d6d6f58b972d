//! The words of forebay.toml for junctions that are written `back`, and for their journal.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use quantity::{Size, parsed};
use serde::Deserialize;
use serde::de::Deserializer;
use types::Durability;
use vfs::{ConflictPolicy, FlushWindow};

/// Four of the journal's segments: the least with which it can still move entries out of each other's way.
pub const JOURNAL_SIZE_MIN: u64 = 256 << 20;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct JournalTable {
    /// Of the journal, and of nothing else.
    pub dir: Option<PathBuf>,
    /// Bytes that it may take there.
    pub size: Option<JournalSize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalSize(pub u64);

impl FromStr for JournalSize {
    type Err = String;

    fn from_str(text: &str) -> Result<JournalSize, String> {
        let Size(bytes) = text.parse()?;
        if bytes < JOURNAL_SIZE_MIN {
            let floor = JOURNAL_SIZE_MIN >> 20;
            return Err(format!("a journal of \"{text}\" is below the floor of {floor}MiB; give it 10GiB"));
        }
        Ok(JournalSize(bytes))
    }
}

/// Bytes per second: `"50MiB"`, `"50MiB/s"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(pub u64);

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        match text.strip_suffix("/s").unwrap_or(text).trim().parse() {
            Ok(Size(bytes)) if bytes > 0 => Ok(Rate(bytes)),
            Ok(_) => Err(format!(
                "at \"{text}\" nothing would ever be flushed; write bytes per second such as \"50MiB\", or leave it out \
                 for no limit"
            )),
            Err(_) => Err(format!("\"{text}\" is no rate; write bytes per second such as \"50MiB\"")),
        }
    }
}

/// Times of day: `"22:00-06:00"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hours(pub FlushWindow);

impl FromStr for Hours {
    type Err = String;

    fn from_str(text: &str) -> Result<Hours, String> {
        let window = text.split_once('-').and_then(|(from, to)| {
            let (from, to) = (time_of_day(from.trim())?, time_of_day(to.trim())?);
            Some(FlushWindow { from, to })
        });
        match window {
            Some(window) if window.from == window.to => Err(format!(
                "the window \"{text}\" is never open; for the whole day write \"00:00-24:00\", or no window at all"
            )),
            Some(window) => Ok(Hours(window)),
            None => {
                Err(format!("\"{text}\" is no window; write two local times of day such as \"22:00-06:00\""))
            }
        }
    }
}

/// `24:00` is the end of the day.
fn time_of_day(text: &str) -> Option<Duration> {
    let (hour, minute) = text.split_once(':')?;
    let two_digits = |text: &str| {
        let are_two = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
        are_two.then(|| text.parse::<u8>().ok()).flatten()
    };
    let (hour, minute) = (u64::from(two_digits(hour)?), u64::from(two_digits(minute)?));
    let minutes = hour * 60 + minute;
    (minute < 60 && minutes <= 24 * 60).then(|| Duration::from_secs(minutes * 60))
}

/// What happens when others changed at the origin what is about to be flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conflicts(pub ConflictPolicy);

impl FromStr for Conflicts {
    type Err = String;

    fn from_str(text: &str) -> Result<Conflicts, String> {
        match text {
            "keep-both" => Ok(Conflicts(ConflictPolicy::KeepBoth)),
            "ours" => Ok(Conflicts(ConflictPolicy::Ours)),
            "theirs" => Ok(Conflicts(ConflictPolicy::Theirs)),
            other => Err(format!(
                "\"{other}\" settles no conflict; write \"keep-both\" (ours is stored beside theirs), \"ours\" or \"theirs\""
            )),
        }
    }
}

/// `"always"` or `"fsync"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DurabilityName(pub Durability);

impl FromStr for DurabilityName {
    type Err = String;

    fn from_str(text: &str) -> Result<DurabilityName, String> {
        match text {
            "fsync" => Ok(DurabilityName(Durability::Fsync)),
            "always" => Ok(DurabilityName(Durability::Always)),
            other => Err(format!(
                "\"{other}\" is no durability; write \"fsync\" (on the disk when a program calls fsync, as on a local file \
                 system) or \"always\" (before a change is answered)"
            )),
        }
    }
}

macro_rules! typed_as_text {
    ($($name:ident),*) => {$(
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                parsed(deserializer)
            }
        }
    )*};
}

typed_as_text!(JournalSize, Rate, Hours, Conflicts, DurabilityName);

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn windows_are_two_times_of_day() {
        let window = |from, to| Ok(Hours(FlushWindow { from, to }));
        assert_eq!("22:00-06:00".parse(), window(22 * HOUR, 6 * HOUR));
        assert_eq!("00:00 - 24:00".parse(), window(Duration::ZERO, 24 * HOUR));
        assert_eq!("12:30-13:45".parse(), window(HOUR * 25 / 2, HOUR * 55 / 4));
        for wrong in
            ["", "22-06", "22:00", "22:00-6:00", "22:60-23:00", "24:01-01:00", "+1:00-02:00", "at night"]
        {
            assert!(wrong.parse::<Hours>().is_err_and(|e| e.contains("22:00-06:00")), "{wrong}");
        }
        assert!("06:00-06:00".parse::<Hours>().is_err_and(|e| e.contains("never open")));
    }

    #[test]
    fn a_rate_is_bytes_per_second_and_not_nothing() {
        assert_eq!("50MiB".parse(), Ok(Rate(50 << 20)));
        assert_eq!("1GB/s".parse(), Ok(Rate(1_000_000_000)));
        assert!("0".parse::<Rate>().is_err_and(|e| e.contains("leave it out")));
        for wrong in ["", "fast", "1Gbit/s", "-1MiB"] {
            assert!(wrong.parse::<Rate>().is_err_and(|e| e.contains("50MiB")), "{wrong}");
        }
    }

    #[test]
    fn a_journal_has_room_for_four_segments() {
        assert_eq!("256MiB".parse(), Ok(JournalSize(256 << 20)));
        assert!("255MiB".parse::<JournalSize>().is_err_and(|e| e.contains("256MiB")));
        assert!("much".parse::<JournalSize>().is_err_and(|e| e.contains("20GiB")));
    }

    #[test]
    fn conflicts_are_settled_in_one_of_three_ways() {
        assert_eq!("keep-both".parse(), Ok(Conflicts(ConflictPolicy::KeepBoth)));
        assert_eq!("ours".parse(), Ok(Conflicts(ConflictPolicy::Ours)));
        assert_eq!("theirs".parse(), Ok(Conflicts(ConflictPolicy::Theirs)));
        assert!("mine".parse::<Conflicts>().is_err_and(|e| e.contains("keep-both")));
    }

    #[test]
    fn a_durability_is_one_of_two_words() {
        assert_eq!("fsync".parse(), Ok(DurabilityName(Durability::Fsync)));
        assert_eq!("always".parse(), Ok(DurabilityName(Durability::Always)));
        for wrong in ["", "Always", "never", "async"] {
            let why = wrong.parse::<DurabilityName>().expect_err("refused");
            assert!(why.contains("\"fsync\"") && why.contains("\"always\""), "{why}");
        }
    }
}
