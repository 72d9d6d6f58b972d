//! One state of the cache, measured once: what the nodes saw, and what the counters say it cost.

use std::collections::BTreeMap;
use std::time::Duration;

use bench_load::process::relay_cpu_seconds;
use bench_load::{Amount, LoadJob, PhaseOutcome, Threads, Usage};
use bench_report::median;
use types::Result;

use crate::value::Pass;
use crate::{CounterPage, GIB, Line, Ranks, ResultBuilder, Testbed, TierPrices, TierProcess, value};

#[derive(Clone, Copy, Debug, strum::Display, PartialEq, Eq)]
#[strum(serialize_all = "lowercase")]
pub enum CacheMode {
    Direct,
    Cold,
    Warm,
}

impl CacheMode {
    pub const ALL: [CacheMode; 3] = [CacheMode::Direct, CacheMode::Cold, CacheMode::Warm];
}

/// A cache may fetch a little twice: what was being fetched when it was evicted, a tail read ahead.
const COLD_EXTRA: f64 = 1.05;
/// What a warm run may still read: nothing but what rounding makes of it.
pub const WARM_EXTRA: f64 = 0.001;

/// Why the states of the cache were not what their names say, by the counters. `unique`: bytes of the data set; `all`:
/// bytes that all clients together had to read in an epoch.
pub fn unproved(triple: &Triple, unique: u64, all: u64) -> Vec<String> {
    let mut reasons = Vec::new();
    for mode in CacheMode::ALL {
        let (read, all) = (triple.of(mode).phase.bytes_read, all.saturating_mul(triple.of(mode).epochs));
        if read != all {
            reasons.push(format!("{mode}: the clients read {read} bytes, not {all}"));
        }
    }
    let (direct, cold, warm) = (&triple.direct, &triple.cold, &triple.warm);
    if direct.line_bytes < all {
        reasons.push(format!("not direct: {} of {all} bytes came over the line", direct.line_bytes));
    }
    let most = (unique as f64 * COLD_EXTRA) as u64;
    if !(unique..=most).contains(&cold.origin_bytes) {
        reasons.push(format!(
            "not cold: {} bytes came from the storage, the data set has {unique}",
            cold.origin_bytes
        ));
    }
    if warm.origin_bytes > (unique as f64 * WARM_EXTRA) as u64 {
        reasons.push(format!("not warm: {} bytes came from the storage", warm.origin_bytes));
    }
    reasons
}

/// One repetition at one distance.
pub struct Triple {
    pub direct: Sample,
    pub cold: Sample,
    pub warm: Sample,
}

impl Triple {
    pub fn of(&self, mode: CacheMode) -> &Sample {
        match mode {
            CacheMode::Direct => &self.direct,
            CacheMode::Cold => &self.cold,
            CacheMode::Warm => &self.warm,
        }
    }
}

/// A figure of a state, by repetition.
pub fn values(triples: &[Triple], mode: CacheMode, value: impl Fn(&Sample) -> f64) -> Vec<f64> {
    triples.iter().map(|triple| value(triple.of(mode))).collect()
}

/// What the medians of these repetitions are worth.
pub fn worth(draft: &mut ResultBuilder, triples: &[Triple], prices: Option<&TierPrices>) {
    let [direct, cold, warm] = CacheMode::ALL.map(|mode| pass(triples, mode));
    value::tell(draft, prices, direct, cold, warm);
}

/// One pass in a state, by the medians.
pub fn pass(triples: &[Triple], mode: CacheMode) -> Pass {
    let middle = |value: fn(&Sample) -> f64| {
        // A state that would be too short to be believed is gone through several times.
        let of_one = |sample: &Sample| value(sample) / sample.epochs.max(1) as f64;
        median(&values(triples, mode, of_one)).unwrap_or(0.0)
    };
    Pass {
        seconds: middle(Sample::makespan),
        origin_bytes: middle(|s| s.origin_bytes as f64),
        origin_calls: middle(|s| s.origin_calls as f64),
        by_tier: mode != CacheMode::Direct,
    }
}

#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// What the clients saw.
    pub phase: PhaseOutcome,
    pub epochs: u64,
    /// Payload bytes that came from the storage.
    pub origin_bytes: u64,
    pub origin_calls: u64,
    /// By kind: the clients' own names for them, or the tier's.
    pub origin_kinds: BTreeMap<String, u64>,
    /// READs among them.
    pub origin_reads: u64,
    /// Bytes on the line, protocol included.
    pub line_bytes: u64,
    /// Reads at the tier that had to wait for the storage.
    pub waits: u64,
    /// None without a tier.
    pub tier_switches: Option<u64>,
    pub client_cpu: f64,
    /// Of the bench process that held most.
    pub client_peak_bytes: u64,
    pub tier_used: Usage,
    pub origin_cpu: Option<f64>,
    /// How far apart the processes began.
    pub skew: Duration,
}

impl Sample {
    /// Seconds from the common start to the last frame.
    pub fn makespan(&self) -> f64 {
        self.phase.last_done_s().unwrap_or(0.0)
    }

    /// Of the clients, to whatever is next to them.
    pub fn client_calls(&self) -> u64 {
        self.phase.calls.values().sum()
    }

    /// Bytes from the storage for each byte that a client read.
    pub fn amplification(&self) -> f64 {
        self.origin_bytes as f64 / self.phase.bytes_read.max(1) as f64
    }

    /// CPU seconds of clients, tier and storage for each GiB that a client read.
    pub fn cpu_per_gib(&self) -> f64 {
        let all = self.client_cpu + self.tier_used.cpu_seconds + self.origin_cpu.unwrap_or(0.0);
        all / (self.phase.bytes_read as f64 / GIB)
    }
}

pub async fn take(
    ranks: &Ranks,
    testbed: &Testbed,
    line: &Line,
    url: &str,
    job: &LoadJob,
    tier: Option<&TierProcess>,
    what: &str,
) -> Result<Sample> {
    let look = || -> Result<(CounterPage, Usage)> {
        Ok(match tier {
            Some(tier) => (tier.counters()?, tier.process.usage()),
            None => Default::default(),
        })
    };
    let threads = || tier.map(|tier| Threads::of_process(tier.process.id()));
    let (before, tier_before) = look()?;
    let (nas_before, line_before, relay_before) =
        (testbed.nas_usage(), line.bytes_down(), relay_cpu_seconds());
    let tier_threads = threads();
    let loaded = ranks.load(url, job, what).await?;
    let relay_cpu = relay_cpu_seconds() - relay_before;
    let tier_switches = threads().zip(tier_threads).map(|(after, before)| after.since(&before));
    let line_bytes = line.bytes_down() - line_before;
    let (after, tier_after) = look()?;
    let counted = after.since(&before);
    let client_peak_bytes = loaded.outcome.rss_max_bytes;
    let phase = loaded.outcome.into_first()?;
    let calls = |name: &str| phase.calls.get(name).copied().unwrap_or(0);
    let (origin_bytes, origin_calls, origin_reads, origin_kinds) = match tier {
        Some(_) => {
            let kinds = counted.origin_kinds();
            (counted.origin_bytes(), counted.origin_calls(), counted.origin_reads(), kinds)
        }
        None => {
            let reads = calls("read") + calls("GET");
            (phase.bytes_read, phase.calls.values().sum(), reads, phase.calls.clone())
        }
    };
    Ok(Sample {
        epochs: job.phases.first().map_or(1, |phase| match phase.work.amount {
            Amount::Epochs(epochs) => epochs,
            Amount::Draws(_) => 1,
        }),
        origin_bytes,
        origin_calls,
        origin_kinds,
        origin_reads,
        line_bytes,
        waits: counted.waits(),
        tier_switches,
        // The relay works in this process, and is the line's.
        client_cpu: (phase.cpu_seconds - relay_cpu).max(0.0),
        client_peak_bytes,
        tier_used: tier_after - tier_before,
        origin_cpu: nas_before.and_then(|before| Some((testbed.nas_usage()? - before).cpu_seconds)),
        skew: loaded.skew,
        phase,
    })
}

#[cfg(test)]
pub mod tests;
