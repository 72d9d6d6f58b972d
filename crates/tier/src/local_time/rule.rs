//! A rule for the time of day, as POSIX writes it in TZ: `CET-1CEST,M3.5.0,M10.5.0/3`. Pure.

const DAY: i64 = 86_400;
/// For a summer time without dates, as the C library has it.
const DATES_DEFAULT: &str = ",M3.2.0,M11.1.0";
/// Days before each month.
const BEFORE_MONTH: [i64; 13] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334, 365];

/// Seconds east of UTC; nothing if it is no rule.
pub fn offset_at(rule: &str, now: i64) -> Option<i32> {
    let mut text = Text(rule.as_bytes());
    text.name()?;
    let standard = -text.time(24)?;
    let offset = match text.0 {
        [] => standard,
        _ => {
            text.name()?;
            let summer = match text.0.first() {
                None | Some(b',') => standard + 3600,
                Some(_) => -text.time(24)?,
            };
            if text.0.is_empty() {
                text = Text(DATES_DEFAULT.as_bytes());
            }
            let (start, end) = (text.date()?, text.date()?);
            if !text.0.is_empty() {
                return None;
            }
            let year = year_of(now.checked_add(standard)?.div_euclid(DAY))?;
            let (start, end) = (start.in_year(year) - standard, end.in_year(year) - summer);
            // South of the equator summer is at both ends of the year.
            let is_summer = if start <= end { start <= now && now < end } else { now < end || start <= now };
            if is_summer { summer } else { standard }
        }
    };
    i32::try_from(offset).ok()
}

/// When a time of the year begins: a day and seconds of it.
struct Date {
    day: DayOf,
    time: i64,
}

enum DayOf {
    /// 1 to 365; the 29th of February has no number.
    Common(i64),
    /// 0 to 365.
    Any(i64),
    /// The week of the month from 1, 5 being the last; the day of the week from Sunday, which is 0.
    Week { month: usize, week: i64, weekday: i64 },
}

impl Date {
    /// Seconds since 1970, by the local clock.
    fn in_year(&self, year: i64) -> i64 {
        let leap = i64::from(is_leap(year));
        let day = match self.day {
            DayOf::Common(day) => day - 1 + if day >= 60 { leap } else { 0 },
            DayOf::Any(day) => day,
            DayOf::Week { month, week, weekday } => {
                let after_february = |month: usize| if month > 2 { leap } else { 0 };
                let first = BEFORE_MONTH[month - 1] + after_february(month);
                let next = BEFORE_MONTH[month] + after_february(month + 1);
                // The first of January 1970 was a Thursday.
                let first_weekday = (days_before(year) + first + 4).rem_euclid(7);
                let day = first + (weekday - first_weekday).rem_euclid(7) + (week - 1) * 7;
                if day >= next { day - 7 } else { day }
            }
        };
        (days_before(year) + day) * DAY + self.time
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

/// From 1970 to the first of January.
fn days_before(year: i64) -> i64 {
    let leaps = |year: i64| year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    365 * (year - 1970) + leaps(year - 1) - leaps(1969)
}

/// The year of a day since 1970, of those that a clock may show.
fn year_of(day: i64) -> Option<i64> {
    let day = (-1_000_000..100_000_000).contains(&day).then_some(day)?;
    // The mean year is exact over 400 of them, and less than a year off in between.
    let guess = 1970 + (day * 400).div_euclid(146_097);
    (guess - 1..=guess + 1).rev().find(|year| days_before(*year) <= day)
}

/// What is left to read.
struct Text<'a>(&'a [u8]);

impl Text<'_> {
    /// `CET`, `<+03>`; which, is of no interest.
    fn name(&mut self) -> Option<()> {
        let end = match self.0.first()? {
            b'<' => self.0.iter().position(|byte| *byte == b'>')? + 1,
            _ => self.0.iter().position(|byte| !byte.is_ascii_alphabetic()).unwrap_or(self.0.len()),
        };
        self.0 = &self.0[end..];
        (end >= 3).then_some(())
    }

    fn takes(&mut self, byte: u8) -> bool {
        let rest = self.0.strip_prefix(&[byte]);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    fn number(&mut self, range: std::ops::RangeInclusive<i64>) -> Option<i64> {
        let end = self.0.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(self.0.len());
        let (digits, rest) = self.0.split_at(end);
        self.0 = rest;
        let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
        range.contains(&number).then_some(number)
    }

    /// `-5:30`, in seconds.
    fn time(&mut self, hours_max: i64) -> Option<i64> {
        let sign = if self.takes(b'-') { -1 } else { 1 };
        if sign == 1 {
            self.takes(b'+');
        }
        let mut seconds = self.number(0..=hours_max)? * 3600;
        for unit in [60, 1] {
            if !self.takes(b':') {
                break;
            }
            seconds += self.number(0..=59)? * unit;
        }
        Some(sign * seconds)
    }

    /// `,M3.5.0/2`
    fn date(&mut self) -> Option<Date> {
        if !self.takes(b',') {
            return None;
        }
        let day = if self.takes(b'M') {
            let month = usize::try_from(self.number(1..=12)?).ok()?;
            let week = self.takes(b'.').then(|| self.number(1..=5)).flatten()?;
            let weekday = self.takes(b'.').then(|| self.number(0..=6)).flatten()?;
            DayOf::Week { month, week, weekday }
        } else if self.takes(b'J') {
            DayOf::Common(self.number(1..=365)?)
        } else {
            DayOf::Any(self.number(0..=365)?)
        };
        // A week is what tables have that need more than a day.
        let time = if self.takes(b'/') { self.time(167)? } else { 2 * 3600 };
        Some(Date { day, time })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At noon, UTC.
    fn on(rule: &str, year: i64, month: usize, day: i64) -> Option<i32> {
        let leap = i64::from(month > 2 && is_leap(year));
        let days = days_before(year) + BEFORE_MONTH[month - 1] + leap + day - 1;
        offset_at(rule, days * DAY + DAY / 2)
    }

    #[test]
    fn summer_begins_and_ends_to_the_second() {
        let berlin = "CET-1CEST,M3.5.0,M10.5.0/3";
        // 29 March and 25 October 2026, 01:00 UTC.
        for (change, before, after) in [(1_774_746_000, 3600, 7200), (1_792_890_000, 7200, 3600)] {
            assert_eq!(offset_at(berlin, change - 1), Some(before));
            assert_eq!(offset_at(berlin, change), Some(after));
        }
        let new_york = "EST5EDT,M3.2.0,M11.1.0";
        assert_eq!((on(new_york, 2026, 3, 7), on(new_york, 2026, 3, 9)), (Some(-18_000), Some(-14_400)));
        assert_eq!(offset_at("EST5EDT", 1_784_116_800), offset_at(new_york, 1_784_116_800));
    }

    #[test]
    fn south_of_the_equator_summer_is_over_the_new_year() {
        let sydney = "AEST-10AEDT,M10.1.0,M4.1.0/3";
        assert_eq!((on(sydney, 2026, 1, 1), on(sydney, 2026, 12, 31)), (Some(39_600), Some(39_600)));
        assert_eq!(on(sydney, 2026, 7, 1), Some(36_000));
    }

    #[test]
    fn days_may_be_counted_and_hours_be_odd() {
        assert_eq!(on("IST-5:30", 2026, 1, 1), Some(19_800));
        assert_eq!(on("<+0545>-5:45", 2026, 1, 1), Some(20_700));
        assert_eq!(on("LMT0:01:15", 2026, 1, 1), Some(-75));
        let counted = "AAA0BBB,J60,J300";
        assert_eq!(
            (on(counted, 2024, 2, 29), on(counted, 2024, 3, 1)),
            (Some(0), Some(3600)),
            "1 March is J60"
        );
        let counted = "AAA0BBB,59,300";
        assert_eq!((on(counted, 2024, 2, 28), on(counted, 2024, 2, 29)), (Some(0), Some(3600)));
        // The whole year, as tables write it.
        assert_eq!(on("XXX3EDT4,0/0,J365/23", 2026, 6, 1), Some(-14_400));
    }

    #[test]
    fn what_is_no_rule_tells_nothing() {
        for wrong in [
            "",
            "X",
            "UTC",
            "UTC25",
            "Europe/Berlin",
            "CET-1CEST,M3.5.0",
            "CET-1CEST,M13.5.0,M10.5.0",
            "<CET-1",
            "\u{e9}t\u{e9}1",
        ] {
            assert_eq!(offset_at(wrong, 0), None, "{wrong}");
        }
        assert_eq!(offset_at("CET-1CEST,M3.5.0,M10.5.0/3", i64::MAX), None, "no clock shows that");
    }
}
