//! Latencies: an HDR histogram of microseconds with three digits, that can be merged and carried in a result file.
//!
//! The carried form is the uncompressed V2 encoding of the HdrHistogram family in base64. It comes from files and from other processes:
//! its length and its header are checked before the library reads its counts.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hdrhistogram::Histogram as Hdr;
use hdrhistogram::serialization::{Deserializer as HdrReader, Serializer as _, V2Serializer};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use types::{Error, ErrorKind, Result};

use crate::model::{Cell, NamedHistogram, Point, Series, Table, TableRow};

/// A day. Longer operations count as one that took a day.
pub const MICROSECONDS_MAX: u64 = 24 * 3600 * 1_000_000;
const DIGITS: u8 = 3;
const COOKIE: u32 = 0x1c84_9313;
const HEADER_BYTES: usize = 40;
/// 2048 values in the first bucket and 1024 in each other, until a day is reached; nine bytes each at most.
const VALUES_MAX: usize = 28 * 1024;
const ENCODED_BYTES_MAX: usize = HEADER_BYTES + 9 * VALUES_MAX;

/// The percentiles that every table has.
pub const PERCENTILES: [(&str, f64); 6] =
    [("p50", 50.0), ("p90", 90.0), ("p95", 95.0), ("p99", 99.0), ("p99.9", 99.9), ("p99.99", 99.99)];

#[derive(Clone, PartialEq)]
pub struct Histogram {
    counts: Hdr<u64>,
    /// Samples: the library's own sum is not checked.
    samples: u64,
}

/// Without its 28672 counts.
impl std::fmt::Debug for Histogram {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Histogram({} samples, up to {:?} us)", self.samples, self.max())
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

/// A histogram travels as its V2 encoding, which is bounded before it is read.
impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.serialize_str(&self.encode())
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(from: D) -> std::result::Result<Histogram, D::Error> {
        Histogram::decode(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

impl Histogram {
    pub fn new() -> Histogram {
        let counts =
            Hdr::new_with_bounds(1, MICROSECONDS_MAX, DIGITS).expect("the bounds are valid constants");
        Histogram { counts, samples: 0 }
    }

    pub fn record(&mut self, latency: std::time::Duration) {
        self.record_microseconds(u64::try_from(latency.as_micros()).unwrap_or(u64::MAX), 1);
    }

    /// `count` operations of the same latency; above a day they count as a day.
    pub fn record_microseconds(&mut self, microseconds: u64, count: u64) {
        // Sums beyond u64 are not a measurement any more; they stay at the largest.
        let count = count.min(u64::MAX - self.samples);
        if count == 0 {
            // The library would take the value for its largest.
            return;
        }
        self.samples += count;
        self.counts.saturating_record_n(microseconds.min(MICROSECONDS_MAX), count);
    }

    pub fn merge(&mut self, other: &Histogram) {
        for value in other.counts.iter_recorded() {
            self.record_microseconds(value.value_iterated_to(), value.count_at_value());
        }
    }

    pub fn len(&self) -> u64 {
        self.samples
    }

    pub fn is_empty(&self) -> bool {
        self.samples == 0
    }

    /// Microseconds, to three digits. None without samples, never zero for "no data"; and None if there are too few
    /// samples for that percentile to differ from the largest (p99 needs a hundred).
    pub fn percentile(&self, percent: f64) -> Option<u64> {
        let beyond = self.samples as f64 * (1.0 - percent / 100.0);
        // One part in a billion for the rounding of 99.99 / 100.
        (beyond > 1.0 - 1e-9).then(|| self.counts.value_at_percentile(percent))
    }

    pub fn max(&self) -> Option<u64> {
        (!self.is_empty()).then(|| self.counts.max())
    }

    pub fn min(&self) -> Option<u64> {
        (!self.is_empty()).then(|| self.counts.min())
    }

    pub fn mean(&self) -> Option<f64> {
        (!self.is_empty()).then(|| self.counts.mean())
    }

    /// Samples of more than so many microseconds (to three digits).
    pub fn above(&self, microseconds: u64) -> u64 {
        let below = self.counts.count_between(0, microseconds.min(MICROSECONDS_MAX));
        self.samples.saturating_sub(below)
    }

    pub fn percentile_ms(&self, percent: f64) -> Option<f64> {
        self.percentile(percent).map(|us| us as f64 / 1000.0)
    }

    /// A percentile in milliseconds, for a table; `what` was counted, if that was not often enough.
    pub fn milliseconds(&self, percent: f64, what: &str) -> Cell {
        let too_few = || Cell::missing(format!("{} {what} are too few", self.len()));
        self.percentile_ms(percent).map_or_else(too_few, Cell::Number)
    }

    /// The cumulative distribution for a step plot: (milliseconds, percent of all operations that were as fast).
    pub fn cumulative(&self, name: impl Into<String>) -> Series {
        /// Enough for a curve without corners.
        const POINTS: u32 = 200;
        let (Some(min), Some(max)) = (self.min(), self.max()) else { return Series::ours(name, Vec::new()) };
        let foot = Point::at(min.max(1) as f64 / 1000.0, 0.0);
        let mut points = vec![foot];
        for i in 1..=POINTS {
            let percent = 100.0 * f64::from(i) / f64::from(POINTS);
            let value = if i == POINTS { max } else { self.counts.value_at_percentile(percent).min(max) };
            let x = value.max(1) as f64 / 1000.0;
            match points.last_mut() {
                Some(last) if last.x == x && *last != foot => last.y = percent,
                _ => points.push(Point::at(x, percent)),
            }
        }
        Series::ours(name, points)
    }

    pub fn to_named(&self, name: impl Into<String>) -> NamedHistogram {
        NamedHistogram { name: name.into(), v2_base64: self.encode() }
    }

    pub fn encode(&self) -> String {
        let mut bytes = Vec::new();
        V2Serializer::new().serialize(&self.counts, &mut bytes).expect("counts are below 2^63");
        BASE64.encode(&bytes)
    }

    /// Of what [`Histogram::encode`], or another writer of V2 with three digits from 1 to at most a day, wrote.
    /// Anything else is an error, whatever its bytes are.
    pub fn decode(text: &str) -> Result<Histogram> {
        let damaged = |why: &str| Error::new(ErrorKind::Corrupt, "decode histogram", why);
        if text.len() > ENCODED_BYTES_MAX.div_ceil(3) * 4 {
            return Err(damaged("longer than any histogram of three digits and a day"));
        }
        let bytes = BASE64.decode(text).ok().ok_or_else(|| damaged("not base64"))?;
        let (header, counts) = bytes.split_at_checked(HEADER_BYTES).ok_or_else(|| damaged("too short"))?;
        let word = |at: usize| be_u32(header, at);
        let long = |at: usize| u64::from(be_u32(header, at)) << 32 | u64::from(be_u32(header, at + 4));
        if word(0) != COOKIE {
            return Err(damaged("not of version 2, uncompressed"));
        }
        if word(4) as usize != counts.len() {
            return Err(damaged("its length is not the one in its header"));
        }
        if word(8) != 0 || word(12) != u32::from(DIGITS) || long(16) != 1 {
            return Err(damaged("not of three digits from 1 on"));
        }
        if !(2..=MICROSECONDS_MAX).contains(&long(24)) {
            return Err(damaged("its range is longer than a day"));
        }
        let unfit = || damaged("its counts do not fit its range");
        // A number of 2^62 or more is no count, and as one of empty values it is too large for the library, too.
        if counts.windows(9).any(|number| number == [0xff; 9]) {
            return Err(unfit());
        }
        let read = HdrReader::new().deserialize(&mut &bytes[..]).ok();
        read.and_then(Histogram::of).ok_or_else(unfit)
    }

    /// None if the samples are more than can be counted.
    fn of(counts: Hdr<u64>) -> Option<Histogram> {
        let recorded = counts.iter_recorded();
        let all = recorded.map(|value| value.count_at_value()).try_fold(0, u64::checked_add)?;
        let mut histogram = Histogram::new();
        histogram.merge(&Histogram { counts, samples: all });
        Some(histogram)
    }
}

fn be_u32(bytes: &[u8], at: usize) -> u32 {
    bytes.iter().skip(at).take(4).fold(0, |word, byte| word << 8 | u32::from(*byte))
}

/// One row for each histogram, in milliseconds. Percentiles that so few samples cannot tell are missing, with the
/// reason.
pub fn table(title: &str, histograms: &[(String, Histogram)]) -> Table {
    let latencies = PERCENTILES.iter().map(|(name, _)| *name).chain(["max"]);
    let latencies = latencies.map(|name| format!("{name} (ms)"));
    let columns = ["Operation", "Samples"].map(str::to_owned).into_iter().chain(latencies);
    let ms = |microseconds: Option<u64>, n: u64| match microseconds {
        Some(v) => Cell::Number(four_digits(v) / 1000.0),
        None if n == 0 => Cell::missing("no samples"),
        None => Cell::missing(format!("{n} samples are too few")),
    };
    let row = |(name, h): &(String, Histogram)| {
        let mut cells = vec![Cell::text(name), Cell::Count(h.len())];
        cells.extend(PERCENTILES.iter().map(|(_, percent)| ms(h.percentile(*percent), h.len())));
        cells.push(ms(h.max(), h.len()));
        TableRow::new(cells)
    };
    Table::new(title, columns, histograms.iter().map(row).collect())
}

/// The histogram knows three, the fourth is for rounding.
fn four_digits(microseconds: u64) -> f64 {
    let power = 10u64.pow(microseconds.checked_ilog10().unwrap_or(0).saturating_sub(3));
    ((microseconds + power / 2) / power * power) as f64
}

#[cfg(test)]
mod tests;
