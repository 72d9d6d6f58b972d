//! What a storage service allows its users, and when it answers a request: decisions only, of a clock that is passed in.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hasher;
use std::str::FromStr;
use std::time::Duration;

use siphasher::sip::SipHasher13;
use types::{Error, ErrorKind};

/// What a bucket saves up while nobody asks: what a sleeper who wakes late has missed, and no more. Timers here are a
/// millisecond late, on a busy machine several.
const SAVED: Duration = Duration::from_millis(10);
/// Files that are remembered; then those that have nothing to wait for are forgotten.
const FILES_MAX: usize = 1 << 16;
/// The least that a Retry-After header can say.
const RETRY_AFTER: Duration = Duration::from_secs(1);
/// The key of the draws of busy answers.
const BUSY: u64 = 0x6275_7379;

/// Limits that services publish. `azure-blob-2018` and `azure-file-2018`: each blob, and each share, as the Azure HPC IO
/// study had them.
const PRESETS: [(&str, &str); 2] = [
    ("azure-blob-2018", "file=60MiB/s,file-requests=500/s"),
    ("azure-file-2018", "all=60MiB/s,requests=1000/s"),
];

/// None: without that limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceLimits {
    /// Bytes a second of each file, both directions together.
    pub file_bytes: Option<u64>,
    /// Requests a second to each file.
    pub file_requests: Option<u64>,
    /// Bytes a second of all files.
    pub bytes: Option<u64>,
    /// Requests a second of all clients of the process.
    pub requests: Option<u64>,
    /// From a request's turn to the first byte of its answer.
    pub first_byte: Duration,
    /// Of ten thousand requests so many are answered with "busy, retry after".
    pub busy_in_10_000: u32,
    /// What a busy answer asks for.
    pub retry_after: Duration,
}

impl Default for ServiceLimits {
    fn default() -> ServiceLimits {
        ServiceLimits {
            file_bytes: None,
            file_requests: None,
            bytes: None,
            requests: None,
            first_byte: Duration::ZERO,
            busy_in_10_000: 0,
            retry_after: RETRY_AFTER,
        }
    }
}

/// `file=60MiB/s,file-requests=500/s,all=1GiB/s,requests=20000/s,first-byte=20ms,busy=1%,retry-after=1s`, or a preset's
/// name, also in front of others: `azure-blob-2018,first-byte=20ms`.
impl FromStr for ServiceLimits {
    type Err = Error;

    fn from_str(text: &str) -> Result<ServiceLimits, Error> {
        let mut service = ServiceLimits::default();
        for part in text.split(',') {
            match PRESETS.iter().find(|(name, _)| *name == part) {
                Some((_, limits)) => limits.split(',').try_for_each(|part| service.set(part))?,
                None => service.set(part)?,
            }
        }
        Ok(service)
    }
}

impl ServiceLimits {
    /// The most bytes a second that requests of so many bytes to so many files at a time can get.
    pub fn most(&self, files: u64, block_bytes: u64) -> Option<u64> {
        let blocks = |requests: Option<u64>| requests.map(|count| count.saturating_mul(block_bytes));
        let each =
            [self.file_bytes, blocks(self.file_requests)].map(|rate| Some(rate?.saturating_mul(files)));
        let all = [self.bytes, blocks(self.requests)];
        each.into_iter().chain(all).flatten().min()
    }

    fn set(&mut self, part: &str) -> Result<(), Error> {
        let wrong = || {
            let presets = PRESETS.map(|(name, _)| name).join(", ");
            let reason = format!(
                "\"{part}\" is no limit; write file=60MiB/s, file-requests=500/s, all=1GiB/s, requests=20000/s, \
                 first-byte=20ms, busy=1%, retry-after=1s, several with commas, or one of {presets}"
            );
            Error::new(ErrorKind::Config, "limits", reason)
        };
        let (name, value) = part.split_once('=').ok_or_else(wrong)?;
        match name {
            "file" => self.file_bytes = Some(rate(value).ok_or_else(wrong)?),
            "file-requests" => self.file_requests = Some(per_second(value).ok_or_else(wrong)?),
            "all" => self.bytes = Some(rate(value).ok_or_else(wrong)?),
            "requests" => self.requests = Some(per_second(value).ok_or_else(wrong)?),
            "first-byte" => self.first_byte = time(value).ok_or_else(wrong)?,
            "busy" => self.busy_in_10_000 = percent(value).ok_or_else(wrong)?,
            "retry-after" => self.retry_after = time(value).ok_or_else(wrong)?,
            _ => return Err(wrong()),
        }
        Ok(())
    }
}

/// `60MiB/s`: KiB, MiB or GiB; a transfer that a second does not end is a slip of the pen.
fn rate(text: &str) -> Option<u64> {
    let units = [("KiB/s", 10), ("MiB/s", 20), ("GiB/s", 30)];
    let (digits, shift) = units.iter().find_map(|(unit, shift)| Some((text.strip_suffix(unit)?, *shift)))?;
    let bytes = whole(digits)?.checked_mul(1 << shift)?;
    (1024..=1 << 40).contains(&bytes).then_some(bytes)
}

fn per_second(text: &str) -> Option<u64> {
    whole(text.strip_suffix("/s")?).filter(|count| (1..=10_000_000).contains(count))
}

/// Up to an hour.
fn time(text: &str) -> Option<Duration> {
    let units = [("us", 1e-6), ("ms", 1e-3), ("s", 1.0)];
    let (digits, unit) = units.iter().find_map(|(unit, s)| Some((text.strip_suffix(unit)?, *s)))?;
    let seconds = number(digits)? * unit;
    (seconds <= 3600.0).then(|| Duration::from_nanos((seconds * 1e9).round() as u64))
}

fn percent(text: &str) -> Option<u32> {
    let percent = number(text.strip_suffix('%')?)?;
    (percent <= 100.0).then(|| (percent * 100.0).round() as u32)
}

/// Digits alone: `parse` would take a plus sign.
fn whole(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok())?
}

/// Without signs and exponents.
fn number(text: &str) -> Option<f64> {
    text.bytes().all(|b| b.is_ascii_digit() || b == b'.').then(|| text.parse().ok())?
}

/// As it is typed.
impl fmt::Display for ServiceLimits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = |name: &str, bytes: Option<u64>| {
            bytes.map(|bytes| match bytes {
                b if b.is_multiple_of(1 << 20) => format!("{name}={}MiB/s", b >> 20),
                b => format!("{name}={}KiB/s", b >> 10),
            })
        };
        let requests = |name: &str, count: Option<u64>| count.map(|count| format!("{name}={count}/s"));
        let time = |name: &str, time: Duration| format!("{name}={}us", time.as_micros());
        let busy = self.busy_in_10_000 > 0;
        let parts = [
            rate("file", self.file_bytes),
            requests("file-requests", self.file_requests),
            rate("all", self.bytes),
            requests("requests", self.requests),
            (!self.first_byte.is_zero()).then(|| time("first-byte", self.first_byte)),
            busy.then(|| format!("busy={}%", f64::from(self.busy_in_10_000) / 100.0)),
            busy.then(|| time("retry-after", self.retry_after)),
        ];
        let told = parts.into_iter().flatten().collect::<Vec<_>>().join(",");
        f.write_str(if told.is_empty() { "busy=0%" } else { &told })
    }
}

/// What a service says to a request. Moments are of the caller's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceAnswer {
    /// Its turn comes at `begin`; the last byte of its answer is there at `done`.
    Granted { begin: Duration, done: Duration },
    /// Not now: ask again then.
    Busy { again: Duration },
}

/// A service at work: what its buckets hold.
#[derive(Debug)]
pub struct ServiceState {
    service: ServiceLimits,
    all: TokenBuckets,
    files: HashMap<String, TokenBuckets>,
    asked: u64,
}

#[derive(Debug, Default)]
struct TokenBuckets {
    requests: CallBucket,
    bytes: CallBucket,
}

/// A token bucket, kept as the moment at which what was taken has been filled in again.
#[derive(Debug, Default)]
struct CallBucket {
    full: Duration,
}

impl CallBucket {
    /// When `amount` that is asked for at `now` begins and ends to flow. Who asks first is served first.
    fn take(&mut self, now: Duration, amount: u64, per_second: Option<u64>) -> (Duration, Duration) {
        let Some(per_second) = per_second else { return (now, now) };
        let begin = self.full.max(now.saturating_sub(SAVED));
        let nanos = u128::from(amount) * 1_000_000_000 / u128::from(per_second.max(1));
        // Beyond five centuries nobody looks.
        self.full = begin.saturating_add(Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX)));
        (begin.max(now), self.full.max(now))
    }
}

impl ServiceState {
    pub fn new(service: ServiceLimits) -> ServiceState {
        ServiceState { service, all: TokenBuckets::default(), files: HashMap::new(), asked: 0 }
    }

    /// To a request about the file that moves so many bytes. A busy answer is a request too.
    pub fn ask(&mut self, now: Duration, path: &str, bytes: u64) -> ServiceAnswer {
        let service = self.service;
        if self.files.len() >= FILES_MAX && !self.files.contains_key(path) {
            self.files.retain(|_, file| file.requests.full.max(file.bytes.full) > now);
        }
        let of_file = service.file_bytes.is_some() || service.file_requests.is_some();
        let mut other = TokenBuckets::default();
        let file = if of_file { self.files.entry(path.to_owned()).or_default() } else { &mut other };
        let (begin, _) = self.all.requests.take(now, 1, service.requests);
        let (begin, _) = file.requests.take(begin, 1, service.file_requests);
        let ready = begin.saturating_add(service.first_byte);
        self.asked += 1;
        if draw(self.asked) % 10_000 < u64::from(service.busy_in_10_000) {
            return ServiceAnswer::Busy { again: ready.saturating_add(service.retry_after) };
        }
        let (_, of_file) = file.bytes.take(ready, bytes, service.file_bytes);
        let (_, of_all) = self.all.bytes.take(ready, bytes, service.bytes);
        ServiceAnswer::Granted { begin, done: of_file.max(of_all) }
    }
}

/// A number of the request's own, the same in each run.
fn draw(request: u64) -> u64 {
    let mut hasher = SipHasher13::new_with_keys(BUSY, 0);
    hasher.write_u64(request);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn service(text: &str) -> ServiceLimits {
        text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    fn done(answer: ServiceAnswer) -> f64 {
        match answer {
            ServiceAnswer::Granted { done, .. } => done.as_secs_f64(),
            ServiceAnswer::Busy { .. } => panic!("{answer:?}"),
        }
    }

    #[test]
    fn limits_are_read_as_they_are_printed() {
        for text in [
            "file=60MiB/s,file-requests=500/s",
            "all=1536KiB/s,requests=20000/s,first-byte=20000us",
            "busy=1.5%,retry-after=250000us",
            "busy=0%",
        ] {
            assert_eq!(service(text).to_string(), text);
        }
        let blob = service("azure-blob-2018,first-byte=20ms");
        assert_eq!((blob.file_bytes, blob.file_requests), (Some(60 * MIB), Some(500)));
        assert_eq!(blob.first_byte, Duration::from_millis(20));
        assert_eq!(service("azure-file-2018").bytes, Some(60 * MIB));
    }

    #[test]
    fn the_tightest_limit_is_the_most_that_can_be_had() {
        let blob = service("azure-blob-2018");
        assert_eq!(blob.most(1, MIB), Some(60 * MIB));
        assert_eq!(blob.most(20, MIB), Some(1200 * MIB));
        assert_eq!(blob.most(1, 4096), Some(500 * 4096), "so many requests of 4 KiB are less");
        assert_eq!(service("all=10MiB/s,requests=5/s").most(99, MIB), Some(5 * MIB));
        assert_eq!(service("first-byte=1s").most(1, MIB), None);
    }

    #[test]
    fn a_limit_that_is_none_is_told_in_one_line_with_what_would_be_right() {
        for wrong in [
            "",
            "file",
            "file=60",
            "file=60MB/s",
            "file=-1MiB/s",
            "file=0KiB/s",
            "file=1B/s",
            "requests=0/s",
            "requests=+5/s",
            "requests=1e9/s",
            "busy=101%",
            "busy=1",
            "first-byte=20",
            "first-byte=2h",
            "retry-after=-1s",
            "speed=1MiB/s",
            "azure-blob-2017",
            "file=1MiB/s,,",
            "first-byte=1e3ms",
        ] {
            let error = wrong.parse::<ServiceLimits>().map(|_| ()).expect_err(wrong);
            let text = error.to_string();
            assert_eq!(error.kind(), ErrorKind::Config, "{wrong}");
            assert!(text.contains("file=60MiB/s") && text.contains("azure-blob-2018"), "{wrong}: {text}");
            assert!(!text.contains('\n'), "{wrong}: {text}");
        }
    }

    #[test]
    fn each_file_has_a_rate_of_its_own_and_all_share_what_is_for_all() {
        let mut each = ServiceState::new(service("file=1MiB/s"));
        let start = Duration::from_secs(100);
        // Less what an idle bucket had saved up.
        let saved = SAVED.as_secs_f64();
        for n in 1..=5 {
            let at = done(each.ask(start, "a", MIB)) - 100.0;
            assert!((at - (f64::from(n) - saved)).abs() < 1e-6, "{n}: {at}");
        }
        assert!(
            (done(each.ask(start, "b", MIB)) - (101.0 - saved)).abs() < 1e-6,
            "another file does not wait"
        );
        let mut all = ServiceState::new(service("all=1MiB/s"));
        all.ask(start, "a", MIB);
        assert!((done(all.ask(start, "b", MIB)) - (102.0 - saved)).abs() < 1e-6);
    }

    #[test]
    fn idle_time_is_not_saved_up() {
        let mut state = ServiceState::new(service("file=1MiB/s"));
        state.ask(Duration::ZERO, "a", MIB);
        let hour = Duration::from_secs(3600);
        assert!((done(state.ask(hour, "a", MIB)) - (3601.0 - SAVED.as_secs_f64())).abs() < 1e-6);
    }

    #[test]
    fn requests_take_turns_and_the_first_byte_takes_its_time() {
        let mut state = ServiceState::new(service("requests=10/s,first-byte=20ms"));
        let start = Duration::from_secs(1);
        let times: Vec<f64> = (0..11).map(|_| done(state.ask(start, "a", 0))).collect();
        assert!((times[0] - 1.02).abs() < 1e-6, "{times:?}");
        assert!((times[10] - (2.02 - SAVED.as_secs_f64())).abs() < 1e-6, "{times:?}");
    }

    #[test]
    fn busy_answers_come_as_often_as_asked_for_and_move_no_bytes() {
        let mut state = ServiceState::new(service("busy=10%,retry-after=2s,all=1KiB/s"));
        let busy = (0..10_000).filter(|_| match state.ask(Duration::ZERO, "a", 0) {
            ServiceAnswer::Busy { again } => again == Duration::from_secs(2),
            ServiceAnswer::Granted { .. } => false,
        });
        // Five standard deviations of a binomial count; the draws are fixed, so this never wavers.
        let busy = busy.count();
        assert!((850..1150).contains(&busy), "{busy}");
        let mut never = ServiceState::new(service("busy=100%,file=1KiB/s"));
        assert!((0..100).all(|_| matches!(never.ask(Duration::ZERO, "a", MIB), ServiceAnswer::Busy { .. })));
        assert_eq!(never.files["a"].bytes.full, Duration::ZERO);
    }

    #[test]
    fn files_that_have_nothing_to_wait_for_are_forgotten() {
        let mut state = ServiceState::new(service("file=1MiB/s"));
        for n in 0..FILES_MAX as u64 * 2 {
            state.ask(Duration::from_secs(n), &n.to_string(), 1);
        }
        assert!(state.files.len() <= FILES_MAX, "{}", state.files.len());
    }
}
