//! What limits a run, and what it cannot have exceeded: every experiment asks here, so that all of them say it in the
//! same words. For a load on a target of the user's: [`LoadBounds`]. For a state that the bench has put up: [`of_sample`].

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use bench_load::outcome::PhaseOutcome;
use bench_report::bottleneck::{Bottleneck, LimitingPart, Pressure, bottleneck};
use bench_report::{median, sanity};
use quantity::ByteRate;

use crate::mounts::{path_of, server_of};
use crate::{
    CacheMode, Line, MachineCeiling, Nic, Ranks, ResultBuilder, Sample, TargetMount, Triple, is_http_store,
    sample,
};

/// The ceiling of memory is half a second's look on a machine that may have been busy: a run may be faster than that
/// by so much before anybody doubts it.
const MEMORY_DOUBT: f64 = 1.5;
const MEMORY: &str = "this machine's memory";
/// Finding out where a host is.
const PATIENCE: Duration = Duration::from_secs(3);

#[derive(Clone, Debug, Default, PartialEq)]
enum TargetPath {
    #[default]
    Here,
    Over(Option<Nic>),
}

/// What a load on a target must pass through. The other machines of a run are taken to be like this one.
#[derive(Clone, Debug, Default)]
pub struct LoadBounds {
    machines: f64,
    cores: f64,
    way: TargetPath,
    /// Bytes a second, contents verified, on one machine.
    memory: Option<f64>,
}

/// A row of a sweep: its name, its nodes and all its repetitions.
pub type SweepRow<'a> = (String, u32, &'a [PhaseOutcome]);

impl LoadBounds {
    pub async fn of(target: &str, ceiling: &MachineCeiling, ranks: &Ranks) -> LoadBounds {
        let hosts: BTreeSet<&str> = ranks.places().iter().map(|place| place.host.as_str()).collect();
        LoadBounds {
            machines: hosts.len().max(1) as f64,
            cores: cores(),
            way: way(target).await,
            memory: Some(ceiling.memory_rate),
        }
    }

    /// Why the repetitions of a row cannot be what they say: faster than the slower of link and memory. Only for
    /// work whose bytes are all compared, as the memory's are.
    pub fn exceeded(&self, runs: &[impl Borrow<PhaseOutcome>]) -> Option<String> {
        let memory = self.memory.map(|rate| (rate * MEMORY_DOUBT * self.machines, MEMORY.to_owned()));
        let link = self.link().map(|(rate, name)| (rate, format!("the link {name}")));
        let (limit, what) = link.into_iter().chain(memory).min_by(|a, b| a.0.total_cmp(&b.0))?;
        runs.iter()
            .filter_map(|run| rate(run.borrow()))
            .find_map(|rate| sanity::faster_than(rate, limit, &what))
    }

    /// What limits the load, as a verdict; with a warning if it was the bench.
    pub fn tell(&self, draft: &mut ResultBuilder, what: &str, runs: &[impl Borrow<PhaseOutcome>]) {
        let told = bottleneck(&self.measured(runs));
        draft.limit(what, &told);
        if told.is_client() {
            draft.warning(format!(
                "{what}: the bench itself was the limit, so this says nothing about the storage; use more processes or machines"
            ));
        }
    }

    /// For a sweep over shapes and sizes: what limits how many of its rows, and whether the links of the nodes explain
    /// them all.
    pub fn judge(&self, draft: &mut ResultBuilder, rows: &[SweepRow]) {
        let mut by_limit: Vec<(Bottleneck, Vec<&str>)> = Vec::new();
        for (name, _, runs) in rows {
            let told = bottleneck(&self.measured(runs));
            match by_limit.iter_mut().find(|(known, _)| known.limit == told.limit) {
                Some((_, names)) => names.push(name),
                None => by_limit.push((told, vec![name])),
            }
        }
        // What is known first.
        by_limit.sort_by_key(|(told, names)| (told.limit.is_none(), std::cmp::Reverse(names.len())));
        for (told, names) in by_limit {
            let of = format!("{} of {} rows", names.len(), rows.len());
            let first = names.first().copied().unwrap_or_default();
            let text = format!("{of} are {told}; that is of {first}");
            match told.limit {
                Some(_) => draft.verdict(text),
                None => draft.note(text),
            }
            if told.is_client() {
                draft.warning(format!(
                    "{of} measure the bench and not the storage ({}); use more processes or machines",
                    names.join(", ")
                ));
            }
        }
        if let Some(why) = self.capped(rows) {
            draft.note(why);
        }
    }

    fn capped(&self, rows: &[SweepRow]) -> Option<String> {
        let TargetPath::Over(nic) = &self.way else { return None };
        let link = nic.as_ref().and_then(|nic| nic.rate);
        let of_row = |(_, nodes, runs): &SweepRow| {
            let rates: Vec<f64> = runs.iter().filter_map(rate).collect();
            // Nodes that are emulated on one machine share its link.
            let links = if link.is_some() { self.machines } else { f64::from(*nodes) };
            Some(median(&rates)? / links.max(1.0))
        };
        sanity::nic_cap(&rows.iter().filter_map(of_row).collect::<Vec<_>>(), link)
    }

    fn measured(&self, runs: &[impl Borrow<PhaseOutcome>]) -> [Pressure; 2] {
        let runs = || runs.iter().map(Borrow::borrow);
        let seconds: f64 = runs().filter_map(PhaseOutcome::last_done_s).sum();
        let cpu: f64 = runs().map(|run: &PhaseOutcome| run.cpu_seconds).sum();
        let bytes: f64 = runs().map(one_direction).sum();
        let known = seconds > 0.0;
        // Phases without a barrier between them are booked on the first of them.
        let cpu = (known && cpu > 0.0).then(|| share(cpu, seconds, self.cores * self.machines));
        let nic = self.link().filter(|_| known).map(|(rate, _)| share(bytes, seconds, rate));
        [(LimitingPart::ClientCpu, cpu), (LimitingPart::ClientNic, nic)]
    }

    /// Bytes a second of all machines' links together, and the name of ours.
    fn link(&self) -> Option<(f64, String)> {
        match &self.way {
            TargetPath::Over(Some(nic)) => nic.rate.map(|rate| (rate * self.machines, nic.to_string())),
            _ => None,
        }
    }
}

pub fn cores() -> f64 {
    std::thread::available_parallelism().map_or(1.0, |n| n.get() as f64)
}

/// A link carries as much in each direction.
fn one_direction(run: &PhaseOutcome) -> f64 {
    run.bytes_read.max(run.bytes_written) as f64
}

fn rate(run: &PhaseOutcome) -> Option<f64> {
    run.last_done_s().filter(|seconds| *seconds > 0.0).map(|seconds| one_direction(run) / seconds)
}

async fn way(target: &str) -> TargetPath {
    if target.starts_with("nfs://") || is_http_store(target) {
        // A service's own address is in one place or another.
        let Some(server) = server_of(target) else { return TargetPath::Over(None) };
        let found = tokio::time::timeout(PATIENCE, tokio::net::lookup_host(server)).await;
        let address = found.ok().and_then(|found| found.ok()?.next());
        return address.map_or(TargetPath::Over(None), |address| over(address.ip()));
    }
    match TargetMount::of(path_of(target)) {
        Some(mount) if mount.is_far() => {
            mount.server.map_or(TargetPath::Over(None), |server| over(server.ip()))
        }
        _ => TargetPath::Here,
    }
}

fn over(address: IpAddr) -> TargetPath {
    if address.is_loopback() {
        TargetPath::Here
    } else {
        Nic::to(address).map_or(TargetPath::Here, |nic| TargetPath::Over(Some(nic)))
    }
}

/// What limits streams between this process and others: its own CPU seconds, how long they ran, the most that went over
/// our link at once (bytes a second), and that link.
pub fn of_streams(cpu_seconds: f64, seconds: f64, most: Option<f64>, nic: Option<&Nic>) -> Bottleneck {
    let link = nic.and_then(|nic| nic.rate);
    let cpu = (seconds > 0.0).then(|| share(cpu_seconds, seconds, cores()));
    let nic = most.zip(link).map(|(most, link)| share(most, 1.0, link));
    bottleneck(&[(LimitingPart::ClientCpu, cpu), (LimitingPart::ClientNic, nic)])
}

/// What limits tasks that read over a line and compute: CPU seconds of the bench, which reads for all of them, how long
/// they took, and what came over the line.
pub fn of_tasks(cpu_seconds: f64, seconds: f64, line_bytes: u64, rate: Option<ByteRate>) -> Bottleneck {
    let seconds = seconds.max(0.001);
    bottleneck(&[
        (LimitingPart::ClientCpu, Some(share(cpu_seconds, seconds, cores()))),
        (LimitingPart::WanBandwidth, line_share(line_bytes, seconds, rate)),
    ])
}

/// What limits one state that the bench has put up. `serial`: round trips that a job makes one after the other, if
/// they are known; `rate`: what the line carries.
pub fn of_sample(
    sample: &Sample,
    mode: CacheMode,
    line: &Line,
    rate: Option<ByteRate>,
    serial: Option<f64>,
) -> Bottleneck {
    let seconds = sample.makespan().max(0.001);
    let cpu = |used: f64| share(used, seconds, cores());
    let waiting = serial.map(|trips| (trips * line.rtt_ms / 1000.0 / seconds).min(1.0));
    bottleneck(&[
        (LimitingPart::ClientCpu, Some(cpu(sample.client_cpu))),
        (LimitingPart::CacheCpu, (mode != CacheMode::Direct).then(|| cpu(sample.tier_used.cpu_seconds))),
        (LimitingPart::WanRtt, waiting),
        (LimitingPart::WanBandwidth, line_share(sample.line_bytes, seconds, rate)),
        (LimitingPart::Origin, sample.origin_cpu.map(cpu)),
    ])
}

fn line_share(bytes: u64, seconds: f64, rate: Option<ByteRate>) -> Option<f64> {
    rate.map(|rate| share(bytes as f64, seconds, rate.bytes_per_second() as f64))
}

/// Of what could have been used, or moved, in so many seconds.
fn share(used: f64, seconds: f64, per_second: f64) -> f64 {
    (used / (seconds * per_second)).min(1.0)
}

/// Why a state that the bench has put up cannot be what it says: faster than the line that its bytes came over, or than
/// this machine's memory. What a cache gave is not held against the line.
pub fn sample_exceeded(
    sample: &Sample,
    mode: CacheMode,
    rate: Option<ByteRate>,
    ceiling: &MachineCeiling,
) -> Option<String> {
    let seconds = sample.makespan().max(1e-9);
    let line = rate.filter(|_| mode != CacheMode::Warm).map(|rate| rate.bytes_per_second() as f64);
    let over =
        line.and_then(|line| sanity::faster_than(sample.origin_bytes as f64 / seconds, line, "the line"));
    over.or_else(|| {
        sanity::faster_than(
            sample.phase.bytes_read as f64 / seconds,
            ceiling.memory_rate * MEMORY_DOUBT,
            MEMORY,
        )
    })
}

/// Why these repetitions must not be believed. `unique` and `all` are as [`sample::unproved`] takes them, `rate` is what the line
/// carries.
pub fn invalid_samples(
    triples: &[Triple],
    unique: u64,
    all: u64,
    rate: Option<ByteRate>,
    ceiling: &MachineCeiling,
) -> Vec<String> {
    let mut reasons = Vec::new();
    for triple in triples {
        for mode in CacheMode::ALL {
            let sample = triple.of(mode);
            let faults = sample.phase.faults().into_iter().chain(sanity::too_short(sample.makespan()));
            let faults = faults.chain(sample_exceeded(sample, mode, rate, ceiling));
            reasons.extend(faults.map(|why| format!("{mode}: {why}")));
        }
        reasons.extend(sample::unproved(triple, unique, all));
    }
    distinct(reasons)
}

/// Each reason once, in an order of its own.
pub fn distinct(mut reasons: Vec<String>) -> Vec<String> {
    reasons.sort();
    reasons.dedup();
    reasons
}

#[cfg(test)]
pub mod tests;
