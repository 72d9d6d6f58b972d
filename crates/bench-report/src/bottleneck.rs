//! What limits a run: one verdict from what was measured about each part of the path.
//!
//! Every measured part gets a pressure between 0 and 1, and the highest one above [`BUSY`] is the limit. The client is
//! asked first: if it is saturated the run measured the client, whatever else is busy too. Parts that were not
//! measured are named, because the true limit may be among them.

use std::fmt;

use strum::VariantArray;

/// A part at this fraction of its capacity is the limit.
pub const BUSY: f64 = 0.85;
/// A run that waits for round trips half of its time is limited by them: nothing else can be more.
pub const WAITING: f64 = 0.5;

pub const WORDS: &str = "limited by:";

/// A part of the path, in its order, and what its pressure is a fraction of. Of several nodes the busiest counts.
#[derive(Clone, Copy, Debug, strum::Display, PartialEq, Eq, strum::VariantArray)]
pub enum LimitingPart {
    /// CPU seconds of the load generator over wall seconds x cores it may use; of its busiest thread if that is more.
    #[strum(to_string = "client CPU")]
    ClientCpu,
    /// Bytes moved over what the client's link carries.
    #[strum(to_string = "client NIC")]
    ClientNic,
    /// The tier's CPU seconds over wall seconds x cores.
    #[strum(to_string = "cache CPU")]
    CacheCpu,
    #[strum(to_string = "cache NIC")]
    CacheNic,
    /// The tier's disk: busy time over wall time.
    #[strum(to_string = "cache disk")]
    CacheDisk,
    /// Serial round trips x RTT over the time of the job.
    #[strum(to_string = "WAN RTT")]
    WanRtt,
    /// Bytes between tier (or client, if direct) and origin over what that link carries.
    #[strum(to_string = "WAN bandwidth")]
    WanBandwidth,
    /// The origin's CPU or disk, the busier of the two.
    #[strum(to_string = "origin")]
    Origin,
}

/// A part with its pressure; None if it was not measured, as one that is not named at all.
pub type Pressure = (LimitingPart, Option<f64>);

impl LimitingPart {
    fn is_client(self) -> bool {
        matches!(self, LimitingPart::ClientCpu | LimitingPart::ClientNic)
    }
}

pub struct Bottleneck {
    pub limit: Option<LimitingPart>,
    /// How busy it is, and what else is.
    pub why: String,
}

impl Bottleneck {
    /// The run measured the load generator, and says nothing of the storage.
    pub fn is_client(&self) -> bool {
        self.limit.is_some_and(LimitingPart::is_client)
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

pub fn bottleneck(measured: &[Pressure]) -> Bottleneck {
    let (mut known, mut unknown) = (Vec::new(), Vec::new());
    for &limit in LimitingPart::VARIANTS {
        let pressures =
            measured.iter().filter(|(part, _)| *part == limit).filter_map(|(_, pressure)| *pressure);
        match pressures.filter(|pressure| pressure.is_finite()).max_by(f64::total_cmp) {
            Some(pressure) => known.push(BusyPart { limit, pressure }),
            None => unknown.push(limit.to_string()),
        }
    }
    let busiest = |of: &dyn Fn(LimitingPart) -> bool| {
        let busy = known.iter().filter(|p| of(p.limit) && p.excess() >= 0.0);
        busy.max_by(|a, b| a.excess().total_cmp(&b.excess())).map(|p| p.limit)
    };
    let limit = busiest(&LimitingPart::is_client).or_else(|| busiest(&|_| true));

    known.sort_by(|a, b| b.excess().total_cmp(&a.excess()));
    // The limit first: an origin may be busier than the client that hides it.
    known.sort_by_key(|p| Some(p.limit) != limit);
    let mut why: Vec<String> = known.iter().take(3).map(BusyPart::describe).collect();
    if !unknown.is_empty() {
        why.push(format!("not measured: {}", unknown.join(", ")));
    }
    Bottleneck { limit, why: why.join("; ") }
}

struct BusyPart {
    limit: LimitingPart,
    pressure: f64,
}

impl BusyPart {
    /// How far above its own threshold, so that shares of different kinds can be compared.
    fn excess(&self) -> f64 {
        let full = if self.limit == LimitingPart::WanRtt { WAITING } else { BUSY };
        self.pressure / full - 1.0
    }

    fn describe(&self) -> String {
        let percent = self.pressure * 100.0;
        match self.limit {
            LimitingPart::WanRtt => format!("{percent:.0} % of the time are round trips"),
            limit => format!("{limit} {percent:.0} %"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(measured: &[Pressure]) -> String {
        bottleneck(measured).to_string()
    }

    #[test]
    fn a_saturated_client_is_the_verdict_even_if_the_origin_is_busier() {
        let found = bottleneck(&[(LimitingPart::ClientCpu, Some(0.9)), (LimitingPart::Origin, Some(1.0))]);
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
        let pressures = [0.2, 0.3, 0.1, 0.3, 0.4, 0.1, 0.2, 0.5];
        let parts = LimitingPart::VARIANTS;
        let with = |busy: Option<LimitingPart>| {
            let one = |(part, low)| (part, Some(if busy == Some(part) { 0.95 } else { low }));
            bottleneck(&parts.iter().copied().zip(pressures).map(one).collect::<Vec<_>>())
        };
        assert_eq!(with(None).limit, None);
        let twice = [(LimitingPart::Origin, Some(0.1)), (LimitingPart::Origin, Some(0.95))];
        assert_eq!(bottleneck(&twice).limit, Some(LimitingPart::Origin), "the busiest counts");
        for &limit in parts {
            let found = with(Some(limit));
            assert_eq!(found.limit, Some(limit));
            assert!(found.to_string().starts_with(&format!("limited by: {limit} (")), "{found}");
            assert_eq!(found.is_client(), matches!(limit, LimitingPart::ClientCpu | LimitingPart::ClientNic));
        }
    }

    /// vFXT direct, 3381 round trips: 58 % of the time at 221 ms, 28 % at 69.5 ms.
    #[test]
    fn waiting_half_of_the_time_is_enough() {
        let direct = |rtt: f64, seconds: f64| {
            [(LimitingPart::WanRtt, Some(3381.0 * rtt / seconds)), (LimitingPart::Origin, Some(0.8))]
        };
        let far = verdict(&direct(0.221, 1280.0));
        assert!(
            far.starts_with("limited by: WAN RTT (58 % of the time are round trips; origin 80 %"),
            "{far}"
        );
        assert_eq!(bottleneck(&direct(0.0695, 836.0)).limit, None);
    }

    #[test]
    fn what_was_not_measured_is_named_and_never_taken_for_idle() {
        let nothing = verdict(&[]);
        assert!(
            nothing.starts_with("limited by: nothing that was measured (not measured: client CPU"),
            "{nothing}"
        );
        assert!(nothing.ends_with("WAN bandwidth, origin)"), "{nothing}");
        let broken = bottleneck(&[(LimitingPart::Origin, Some(f64::NAN))]);
        assert_eq!(broken.limit, None);
    }
}
