//! The `Date` header of answers.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::HeaderValue;
use s3s::dto::{Timestamp, TimestampFormat};

pub fn http_date(time: &Timestamp) -> Option<HeaderValue> {
    let mut text = Vec::new();
    time.format(TimestampFormat::HttpDate, &mut text).ok()?;
    HeaderValue::try_from(text).ok()
}

/// The current date as a header, formatted once a second for all answers.
#[derive(Default)]
pub struct DateCache(Mutex<Option<(u64, HeaderValue)>>);

impl DateCache {
    pub fn now(&self) -> Option<HeaderValue> {
        self.at(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs())
    }

    fn at(&self, second: u64) -> Option<HeaderValue> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, date)) = &*last
            && *known == second
        {
            return Some(date.clone());
        }
        let date = http_date(&Timestamp::from(UNIX_EPOCH + Duration::from_secs(second)))?;
        *last = Some((second, date.clone()));
        Some(date)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_second_has_its_date() {
        let dates = DateCache::default();
        for (second, date) in [
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (1_795_565_000, "Wed, 25 Nov 2026 00:03:20 GMT"),
            (1_795_564_999, "Wed, 25 Nov 2026 00:03:19 GMT"),
        ] {
            assert_eq!(dates.at(second).expect("a date"), date);
        }
    }
}
