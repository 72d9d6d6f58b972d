//! The date of a request, and the scope of its credential.

use std::fmt;

/// `20130524T000000Z`.
#[derive(Clone, PartialEq, Eq)]
pub struct AmzDate(String);

impl AmzDate {
    /// Parses a date that exists.
    pub fn parse(text: &str) -> Option<AmzDate> {
        let bytes = text.as_bytes();
        let shape = bytes.len() == 16
            && bytes.iter().enumerate().all(|(at, byte)| match at {
                8 => *byte == b'T',
                15 => *byte == b'Z',
                _ => byte.is_ascii_digit(),
            });
        let date = AmzDate(text.to_owned());
        (shape && date.is_real()).then_some(date)
    }

    /// `20130524`.
    pub fn day(&self) -> &str {
        &self.0[..8]
    }

    /// Since 1970.
    pub fn seconds(&self) -> i64 {
        let [year, month, day, hour, minute, second] = self.fields();
        // Days since 1970-03-01, with the leap day at the end of a year.
        let (year, month) = if month <= 2 { (year - 1, month + 9) } else { (year, month - 3) };
        let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
        (days - 719_468) * 86_400 + hour * 3600 + minute * 60 + second
    }

    fn is_real(&self) -> bool {
        let [year, month, day, hour, minute, second] = self.fields();
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        let days = match month {
            2 => 28 + i64::from(leap),
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => 0,
        };
        year >= 1970 && (1..=days).contains(&day) && hour < 24 && minute < 60 && second < 61
    }

    fn fields(&self) -> [i64; 6] {
        [0..4, 4..6, 6..8, 9..11, 11..13, 13..15].map(|part| {
            let digits = self.0.as_bytes().get(part).unwrap_or_default();
            digits.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'))
        })
    }
}

impl fmt::Display for AmzDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for AmzDate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// `20130524/us-east-1/s3/aws4_request`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialScope {
    pub date: String,
    pub region: String,
    pub service: String,
}

impl CredentialScope {
    /// Splits a credential into the key's id, which may have slashes, and the scope.
    pub fn of_credential(credential: &str) -> Option<(String, CredentialScope)> {
        let mut parts = credential.rsplitn(5, '/');
        if parts.next()? != "aws4_request" {
            return None;
        }
        let service = parts.next()?.to_owned();
        let region = parts.next()?.to_owned();
        let date = parts.next()?.to_owned();
        let id = parts.next()?.to_owned();
        Some((id, CredentialScope { date, region, service }))
    }
}

impl fmt::Display for CredentialScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}/aws4_request", self.date, self.region, self.service)
    }
}
