//! What limits a run: one verdict from what was measured about each part of the path.
//!
//! Every measured part gets a pressure between 0 and 1, and the highest one above [`BUSY`] is the limit. The client is
//! asked first: if it is saturated the run measured the client, whatever else is busy too. Parts that were not
//! measured are named, because the true limit may be among them.

use std::fmt;

/// A part at this fraction of its capacity is the limit.
pub const BUSY: f64 = 0.85;
/// A run that waits for round trips half of its time is limited by them: nothing else can be more.
pub const WAITING: f64 = 0.5;

/// What a sentence about a limit has in it.
pub const WORDS: &str = "limited by:";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitingPart {
    ClientCpu,
    ClientNic,
    CacheCpu,
    CacheNic,
    CacheDisk,
    WanRtt,
    WanBandwidth,
    Origin,
}

impl fmt::Display for LimitingPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LimitingPart::ClientCpu => "client CPU",
            LimitingPart::ClientNic => "client NIC",
            LimitingPart::CacheCpu => "cache CPU",
            LimitingPart::CacheNic => "cache NIC",
            LimitingPart::CacheDisk => "cache disk",
            LimitingPart::WanRtt => "WAN RTT",
            LimitingPart::WanBandwidth => "WAN bandwidth",
            LimitingPart::Origin => "origin",
        })
    }
}

/// Fractions between 0 and 1; None if it was not measured. Of several nodes, the busiest.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Utilization {
    /// CPU seconds of the load generator over wall seconds x cores it may use; of its busiest thread if that is more.
    pub client_cpu: Option<f64>,
    /// Bytes moved over what the client's link carries.
    pub client_nic: Option<f64>,
    /// The tier's CPU seconds over wall seconds x cores.
    pub cache_cpu: Option<f64>,
    pub cache_nic: Option<f64>,
    /// The tier's disk: busy time over wall time.
    pub cache_disk: Option<f64>,
    /// Serial round trips x RTT over the time of the job.
    pub wan_rtt_share: Option<f64>,
    /// Bytes between tier (or client, if direct) and origin over what that link carries.
    pub wan_bandwidth: Option<f64>,
    /// The origin's CPU or disk, the busier of the two.
    pub origin: Option<f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Bottleneck {
    /// None if nothing that was measured is busy.
    pub limit: Option<LimitingPart>,
    /// How busy it is, and what else is.
    pub why: String,
}

impl Bottleneck {
    /// The run measured the load generator, and says nothing of the storage.
    pub fn is_client(&self) -> bool {
        matches!(self.limit, Some(LimitingPart::ClientCpu | LimitingPart::ClientNic))
    }
}

/// `limited by: client CPU (97 % of its cores; ...)`.
impl fmt::Display for Bottleneck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.limit {
            Some(limit) => write!(f, "{WORDS} {limit} ({})", self.why),
            None => write!(f, "{WORDS} nothing that was measured ({})", self.why),
        }
    }
}

/// The verdict.
pub fn bottleneck(measured: &Utilization) -> Bottleneck {
    let parts = parts(measured);
    let known: Vec<BusyPart> = parts.iter().copied().filter(|p| p.pressure.is_some()).collect();
    let unknown: Vec<String> =
        parts.iter().filter(|p| p.pressure.is_none()).map(|p| p.limit.to_string()).collect();
    let busiest = |of: &dyn Fn(LimitingPart) -> bool| {
        let busy = known.iter().filter(|p| of(p.limit) && p.excess() >= 0.0);
        busy.max_by(|a, b| a.excess().total_cmp(&b.excess())).map(|p| p.limit)
    };
    let client = |limit| matches!(limit, LimitingPart::ClientCpu | LimitingPart::ClientNic);
    let limit = busiest(&client).or_else(|| busiest(&|_| true));

    let mut ordered = known;
    ordered.sort_by(|a, b| b.excess().total_cmp(&a.excess()));
    // The limit first: an origin may be busier than the client that hides it.
    ordered.sort_by_key(|p| Some(p.limit) != limit);
    let mut why: Vec<String> = ordered.iter().take(3).map(BusyPart::describe).collect();
    if !unknown.is_empty() {
        why.push(format!("not measured: {}", unknown.join(", ")));
    }
    Bottleneck { limit, why: why.join("; ") }
}

#[derive(Clone, Copy)]
struct BusyPart {
    limit: LimitingPart,
    pressure: Option<f64>,
    full: f64,
}

impl BusyPart {
    /// How far above its own threshold, so that shares of different kinds can be compared.
    fn excess(&self) -> f64 {
        self.pressure.map_or(f64::NEG_INFINITY, |p| p / self.full - 1.0)
    }

    fn describe(&self) -> String {
        let percent = self.pressure.unwrap_or(0.0) * 100.0;
        match self.limit {
            LimitingPart::WanRtt => format!("{percent:.0} % of the time are round trips"),
            limit => format!("{limit} {percent:.0} %"),
        }
    }
}

/// The parts in the order of the path. A pressure that is no number was not measured.
fn parts(measured: &Utilization) -> [BusyPart; 8] {
    let busy = |limit, pressure: Option<f64>| BusyPart {
        limit,
        pressure: pressure.filter(|p| p.is_finite()),
        full: BUSY,
    };
    [
        busy(LimitingPart::ClientCpu, measured.client_cpu),
        busy(LimitingPart::ClientNic, measured.client_nic),
        busy(LimitingPart::CacheCpu, measured.cache_cpu),
        busy(LimitingPart::CacheNic, measured.cache_nic),
        busy(LimitingPart::CacheDisk, measured.cache_disk),
        BusyPart { full: WAITING, ..busy(LimitingPart::WanRtt, measured.wan_rtt_share) },
        busy(LimitingPart::WanBandwidth, measured.wan_bandwidth),
        busy(LimitingPart::Origin, measured.origin),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(measured: Utilization) -> String {
        bottleneck(&measured).to_string()
    }

    #[test]
    fn a_saturated_client_is_the_verdict_even_if_the_origin_is_busier() {
        let found =
            bottleneck(&Utilization { client_cpu: Some(0.9), origin: Some(1.0), ..Utilization::default() });
        assert_eq!(found.limit, Some(LimitingPart::ClientCpu));
        assert!(found.is_client());
        assert!(
            found.why.starts_with("client CPU 90 %; origin 100 %; not measured: client NIC"),
            "{}",
            found.why
        );
    }

    #[test]
    fn each_part_can_be_the_limit() {
        let all = Utilization {
            client_cpu: Some(0.2),
            client_nic: Some(0.3),
            cache_cpu: Some(0.1),
            cache_nic: Some(0.3),
            cache_disk: Some(0.4),
            wan_rtt_share: Some(0.1),
            wan_bandwidth: Some(0.2),
            origin: Some(0.5),
        };
        assert_eq!(bottleneck(&all).limit, None);
        let high = Some(0.95);
        let cases = [
            (Utilization { client_cpu: high, ..all }, LimitingPart::ClientCpu),
            (Utilization { client_nic: high, ..all }, LimitingPart::ClientNic),
            (Utilization { cache_cpu: high, ..all }, LimitingPart::CacheCpu),
            (Utilization { cache_nic: high, ..all }, LimitingPart::CacheNic),
            (Utilization { cache_disk: high, ..all }, LimitingPart::CacheDisk),
            (Utilization { wan_rtt_share: high, ..all }, LimitingPart::WanRtt),
            (Utilization { wan_bandwidth: high, ..all }, LimitingPart::WanBandwidth),
            (Utilization { origin: high, ..all }, LimitingPart::Origin),
        ];
        for (measured, limit) in cases {
            let found = bottleneck(&measured);
            assert_eq!(found.limit, Some(limit));
            assert!(found.to_string().starts_with(&format!("limited by: {limit} (")), "{found}");
            assert_eq!(found.is_client(), matches!(limit, LimitingPart::ClientCpu | LimitingPart::ClientNic));
        }
    }

    /// vFXT direct, 3381 round trips: 58 % of the time at 221 ms, 28 % at 69.5 ms.
    #[test]
    fn waiting_half_of_the_time_is_enough() {
        let direct = |rtt: f64, seconds: f64| Utilization {
            wan_rtt_share: Some(3381.0 * rtt / seconds),
            origin: Some(0.8),
            ..Utilization::default()
        };
        let far = verdict(direct(0.221, 1280.0));
        assert!(
            far.starts_with("limited by: WAN RTT (58 % of the time are round trips; origin 80 %"),
            "{far}"
        );
        assert_eq!(bottleneck(&direct(0.0695, 836.0)).limit, None);
    }

    #[test]
    fn what_was_not_measured_is_named_and_never_taken_for_idle() {
        let nothing = verdict(Utilization::default());
        assert!(
            nothing.starts_with("limited by: nothing that was measured (not measured: client CPU"),
            "{nothing}"
        );
        assert!(nothing.ends_with("WAN bandwidth, origin)"), "{nothing}");
        let broken = bottleneck(&Utilization { origin: Some(f64::NAN), ..Utilization::default() });
        assert_eq!(broken.limit, None);
    }
}
