//! The clients that were cut short, and why: for metrics, `forebay status` and the log, all of it bounded.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::registry::Registry;
use tracing::warn;

use crate::client_of;

/// The most entries; the one that was quiet for longest is forgotten for a new one.
const ENTRIES_MAX: usize = 128;
/// An entry that was quiet for this time is not reported any more.
const QUIET: Duration = Duration::from_secs(10 * 60);
/// The count within `QUIET` that raises an ALARM: one refused mount is no attack.
pub const ALARM_COUNT: u64 = 10;
/// The least time between two log lines about one client for one reason.
const LOG_PAUSE: Duration = Duration::from_secs(60);
/// The most log lines about all clients in that time.
const LOG_LINES_MAX: u32 = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Offence {
    /// No export rule admits its address.
    NotAdmitted,
    /// One of its connections was closed, or not taken, because it has so many.
    TooManyConnections,
    /// A request began and did not continue.
    Unfinished,
    /// It does not take its answers.
    SlowReader,
    /// It sent something that is no request.
    Malformed,
    /// The TLS handshake did not complete.
    Handshake,
    /// Its requests are not signed, or wrongly; they are refused, its connections stay.
    Unsigned,
    UnknownKey,
    WrongSignature,
    WrongClock,
}

impl Offence {
    pub fn name(self) -> &'static str {
        match self {
            Offence::NotAdmitted => "not_admitted",
            Offence::TooManyConnections => "too_many_connections",
            Offence::Unfinished => "unfinished_request",
            Offence::SlowReader => "slow_reader",
            Offence::Malformed => "malformed",
            Offence::Handshake => "handshake",
            Offence::Unsigned => "unsigned",
            Offence::UnknownKey => "unknown_key",
            Offence::WrongSignature => "wrong_signature",
            Offence::WrongClock => "wrong_clock",
        }
    }

    /// A sentence for the operator.
    pub fn description(self) -> &'static str {
        match self {
            Offence::NotAdmitted => "no export rule admits it; its connections are closed",
            Offence::TooManyConnections => "it has too many connections; the least active of them are closed",
            Offence::Unfinished => "it begins requests and does not send on; its connections are closed",
            Offence::SlowReader => "it does not take its answers; its connections are closed",
            Offence::Malformed => "what it sends is no request; its connections are closed",
            Offence::Handshake => "it opens connections and agrees on no TLS; they are closed",
            Offence::Unsigned => "its requests are not signed; they are refused",
            Offence::UnknownKey => "it signs with an access key that is not known; its requests are refused",
            Offence::WrongSignature => {
                "its signatures are wrong (secret key, region or form); its requests are refused"
            }
            Offence::WrongClock => "its clock differs by too much; its requests are refused",
        }
    }
}

/// One client's entry, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offender {
    pub front: &'static str,
    pub address: IpAddr,
    pub offence: Offence,
    /// The count since it was last quiet for ten minutes.
    pub count: u64,
    pub since_last: Duration,
}

#[derive(Debug, Default)]
pub struct Offenders {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    known: HashMap<(&'static str, IpAddr, Offence), OffenceRecord>,
    totals: HashMap<(&'static str, Offence), u64>,
    log_period: Option<Instant>,
    log_lines: u32,
}

#[derive(Debug)]
struct OffenceRecord {
    count: u64,
    last: Instant,
    logged: Option<Instant>,
}

impl Offenders {
    pub fn record(&self, front: &'static str, address: IpAddr, offence: Offence) {
        let address = client_of(address);
        let count = self.count_offence(front, address, offence, Instant::now());
        if let Some(count) = count {
            warn!(client = %address, reason = offence.name(), count, "{front}: {}", offence.description());
        }
    }

    /// Counts an offence. Returns the count so far if a log line is due.
    fn count_offence(
        &self,
        front: &'static str,
        client: IpAddr,
        offence: Offence,
        now: Instant,
    ) -> Option<u64> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = &mut *state;
        *state.totals.entry((front, offence)).or_default() += 1;
        let key = (front, client, offence);
        if state.known.len() >= ENTRIES_MAX && !state.known.contains_key(&key) {
            let oldest = state.known.iter().min_by_key(|(_, known)| known.last).map(|(key, _)| *key);
            oldest.map(|key| state.known.remove(&key));
        }
        let known = state.known.entry(key).or_insert(OffenceRecord { count: 0, last: now, logged: None });
        if now.saturating_duration_since(known.last) > QUIET {
            known.count = 0;
        }
        known.count += 1;
        known.last = now;
        let is_over =
            |at: Option<Instant>| at.is_none_or(|at| now.saturating_duration_since(at) >= LOG_PAUSE);
        if !is_over(known.logged) {
            return None;
        }
        if is_over(state.log_period) {
            (state.log_period, state.log_lines) = (Some(now), 0);
        }
        if state.log_lines >= LOG_LINES_MAX {
            return None;
        }
        state.log_lines += 1;
        known.logged = Some(now);
        Some(known.count)
    }

    /// The offenders of the last ten minutes, the worst first.
    pub fn recent(&self) -> Vec<Offender> {
        self.recent_at(Instant::now())
    }

    fn recent_at(&self, now: Instant) -> Vec<Offender> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let told = state.known.iter().map(|((front, address, offence), known)| Offender {
            front,
            address: *address,
            offence: *offence,
            count: known.count,
            since_last: now.saturating_duration_since(known.last),
        });
        let mut told: Vec<_> = told.filter(|offender| offender.since_last <= QUIET).collect();
        told.sort_by_key(|o| (std::cmp::Reverse(o.count), o.front, o.address, o.offence));
        told
    }

    pub fn register(self: &Arc<Self>, registry: &mut Registry) {
        registry.register_collector(Box::new(OffenderCollector(self.clone())));
    }
}

#[derive(Debug)]
struct OffenderCollector(Arc<Offenders>);

impl Collector for OffenderCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        let totals = {
            let state = self.0.state.lock().unwrap_or_else(PoisonError::into_inner);
            let mut totals: Vec<_> = state.totals.iter().map(|(key, count)| (*key, *count)).collect();
            totals.sort_unstable();
            totals
        };
        let kind = ConstCounter::new(0_u64).metric_type();
        let help = "Connections and requests that were cut short for the others' sake, by reason";
        let mut family = encoder.encode_descriptor("forebay_clients_cut", help, None, kind)?;
        for ((front, offence), count) in totals {
            let labels = [("front", front), ("reason", offence.name())];
            ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
        }
        let help = "The same by client, of those of the last ten minutes";
        let kind = prometheus_client::metrics::gauge::ConstGauge::new(0_i64).metric_type();
        let mut family = encoder.encode_descriptor("forebay_client_cut", help, None, kind)?;
        for told in self.0.recent() {
            let address = told.address.to_string();
            let labels =
                [("front", told.front), ("reason", told.offence.name()), ("address", address.as_str())];
            let gauge = prometheus_client::metrics::gauge::ConstGauge::new(
                i64::try_from(told.count).unwrap_or(i64::MAX),
            );
            gauge.encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u16) -> IpAddr {
        let [high, low] = last.to_be_bytes();
        IpAddr::from([10, 0, high, low])
    }

    #[test]
    fn a_client_is_logged_once_a_minute_and_all_together_ten_times() {
        let (offenders, start) = (Offenders::default(), Instant::now());
        let noted = |last, seconds| {
            offenders.count_offence(
                "nfs",
                address(last),
                Offence::Unfinished,
                start + Duration::from_secs(seconds),
            )
        };
        assert_eq!(noted(0, 0), Some(1));
        assert_eq!((1..50).filter_map(|_| noted(0, 30)).count(), 0);
        assert_eq!(noted(0, 61), Some(51));
        assert_eq!((1..500).filter_map(|last| noted(last, 62)).count(), 9);
        assert_eq!(offenders.recent_at(start + Duration::from_secs(62)).len(), ENTRIES_MAX);
        assert_eq!(offenders.recent_at(start + Duration::from_secs(1000)), []);
    }

    #[test]
    fn metrics_name_the_client_and_the_reason() {
        let offenders = Arc::new(Offenders::default());
        let mut registry = Registry::default();
        offenders.register(&mut registry);
        offenders.record("s3", address(7), Offence::SlowReader);
        offenders.record("s3", address(7), Offence::SlowReader);
        let mut page = String::new();
        prometheus_client::encoding::text::encode(&mut page, &registry).expect("encoded");
        for line in [
            r#"forebay_clients_cut_total{front="s3",reason="slow_reader"} 2"#,
            r#"forebay_client_cut{front="s3",reason="slow_reader",address="10.0.0.7"} 2"#,
        ] {
            assert!(page.lines().any(|told| told == line), "{line} is missing in:\n{page}");
        }
    }
}
