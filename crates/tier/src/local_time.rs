//! How far the clocks of this place are from UTC, as TZ or `/etc/localtime` say.

use chrono::{DateTime, Local, Offset, TimeZone};

/// Seconds east of UTC, at a time since 1970. Follows summer time, and a TZ file that is replaced, without a restart. A place
/// that cannot be read is UTC.
pub fn utc_offset(now: i64) -> i32 {
    let utc = DateTime::from_timestamp(now, 0).unwrap_or_default();
    Local.offset_from_utc_datetime(&utc.naive_utc()).fix().local_minus_utc()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::utc_offset;

    /// The place of a process is its environment: the test runs itself once for each.
    #[test]
    fn the_clocks_are_those_of_the_place_in_summer_and_in_winter() {
        const WINTER: i64 = 1_768_478_400;
        const SUMMER: i64 = 1_784_116_800;
        if std::env::var_os("TELL_OFFSETS").is_some() {
            println!("offsets: {} {} {}", utc_offset(WINTER), utc_offset(SUMMER), utc_offset(i64::MAX));
            return;
        }
        let berlin = "CET-1CEST,M3.5.0,M10.5.0/3";
        for (place, winter, summer) in [
            (berlin, 3600, 7200),
            ("EST5EDT,M3.2.0,M11.1.0", -18_000, -14_400),
            ("AEST-10AEDT,M10.1.0,M4.1.0/3", 39_600, 36_000),
            ("<+0545>-5:45", 20_700, 20_700),
            ("UTC", 0, 0),
            ("No/Such_Place", 0, 0),
        ] {
            let told = Command::new(std::env::current_exe().expect("this test"))
                .args([
                    "--exact",
                    "--nocapture",
                    "local_time::tests::the_clocks_are_those_of_the_place_in_summer_and_in_winter",
                ])
                .env("TELL_OFFSETS", "1")
                .env("TZ", place)
                .output()
                .expect("runs");
            let told = String::from_utf8_lossy(&told.stdout).into_owned();
            assert!(told.contains(&format!("offsets: {winter} {summer} ")), "{place}: {told}");
        }
    }
}
