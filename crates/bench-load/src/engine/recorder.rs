//! Where the workers of a phase put down what they measured. A few shards, so that they seldom meet.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bench_report::histogram::Histogram;

use crate::outcome::{Errors, Interval, PhaseOutcome, ThroughputSeries, Verification, size_class};
use crate::process::Switches;

/// A histogram takes 229 KB and a shard has up to twenty: these take 20 MB at most, and more processors than this are not
/// kept busy by one process.
const SHARDS: usize = 4;

/// The most intervals: at the default of 0.2 s three and a half hours; what comes later is added to the last one.
const INTERVALS_MAX: usize = 1 << 16;

/// A kind of call, as it is named in the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallKind {
    Create,
    Open,
    Read,
    Write,
    Sync,
    Stat,
    List,
    Delete,
}

impl CallKind {
    fn name(self) -> &'static str {
        match self {
            CallKind::Create => "create",
            CallKind::Open => "open",
            CallKind::Read => "read",
            CallKind::Write => "write",
            CallKind::Sync => "sync",
            CallKind::Stat => "stat",
            CallKind::List => "list",
            CallKind::Delete => "delete",
        }
    }
}

pub struct Recorder {
    interval_s: f64,
    shards: Vec<Mutex<Shard>>,
}

#[derive(Default)]
pub struct Shard {
    service: BTreeMap<CallKind, Histogram>,
    unit: Histogram,
    unit_by_size: BTreeMap<u64, Histogram>,
    first_block: Histogram,
    all_blocks: Histogram,
    response: Histogram,
    pub lateness: Histogram,
    pub errors: Errors,
    pub verification: Verification,
    bytes_read: u64,
    bytes_written: u64,
    units: u64,
    intervals: Vec<Interval>,
}

impl Recorder {
    pub fn new(interval_s: f64) -> Recorder {
        Recorder { interval_s, shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    /// The shard for that worker.
    pub fn shard(&self, worker: usize) -> MutexGuard<'_, Shard> {
        let shard = self.shards.get(worker % SHARDS).expect("there are SHARDS shards");
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The interval of that moment after the start.
    pub fn interval(&self, at: Duration) -> usize {
        // A cast of a float saturates.
        ((at.as_secs_f64() / self.interval_s) as usize).min(INTERVALS_MAX - 1)
    }

    /// Everything but the spans and what is measured outside.
    pub fn outcome(&self) -> PhaseOutcome {
        let mut all = PhaseOutcome {
            name: String::new(),
            spans: Vec::new(),
            bytes_read: 0,
            bytes_written: 0,
            units: 0,
            service: BTreeMap::new(),
            unit: Histogram::new(),
            unit_by_size: BTreeMap::new(),
            first_block: Histogram::new(),
            all_blocks: Histogram::new(),
            response: Histogram::new(),
            lateness: Histogram::new(),
            series: ThroughputSeries { interval_s: self.interval_s, intervals: Vec::new() },
            errors: Errors::default(),
            verification: Verification::default(),
            calls: BTreeMap::new(),
            cpu_seconds: 0.0,
            switches: Switches::default(),
            forgot: None,
            stopped: None,
        };
        for worker in 0..SHARDS {
            let shard = std::mem::take(&mut *self.shard(worker));
            for (call, histogram) in &shard.service {
                all.service.entry(call.name().to_owned()).or_default().merge(histogram);
            }
            all.unit.merge(&shard.unit);
            for (class, histogram) in &shard.unit_by_size {
                all.unit_by_size.entry(*class).or_default().merge(histogram);
            }
            all.first_block.merge(&shard.first_block);
            all.all_blocks.merge(&shard.all_blocks);
            all.response.merge(&shard.response);
            all.lateness.merge(&shard.lateness);
            all.errors.merge(shard.errors);
            all.verification.merge(shard.verification);
            all.bytes_read += shard.bytes_read;
            all.bytes_written += shard.bytes_written;
            all.units += shard.units;
            all.series.merge(&ThroughputSeries { interval_s: self.interval_s, intervals: shard.intervals });
        }
        all
    }
}

impl Shard {
    pub fn call(&mut self, call: CallKind, took: Duration) {
        self.service.entry(call).or_default().record(took);
    }

    pub fn moved(&mut self, interval: usize, read: u64, written: u64) {
        self.bytes_read += read;
        self.bytes_written += written;
        let entry = self.entry(interval);
        entry.bytes_read += read;
        entry.bytes_written += written;
    }

    /// A file was read or written that is as large as others are not.
    pub fn of_size(&mut self, bytes: u64, took: Duration) {
        self.unit_by_size.entry(size_class(bytes)).or_default().record(took);
    }

    /// More than one block was read.
    pub fn several_blocks(&mut self, first: Duration, all: Duration) {
        self.first_block.record(first);
        self.all_blocks.record(all);
    }

    /// `intended` is how long ago the touch should have begun, in an open loop.
    pub fn unit_done(&mut self, interval: usize, took: Duration, intended: Option<Duration>) {
        self.units += 1;
        self.unit.record(took);
        if let Some(response) = intended {
            self.response.record(response);
        }
        let slow = u64::try_from(intended.unwrap_or(took).as_micros()).unwrap_or(u64::MAX);
        let entry = self.entry(interval);
        entry.units += 1;
        entry.slowest_us = entry.slowest_us.max(slow);
    }

    pub fn failed(&mut self, interval: usize) {
        self.entry(interval).errors += 1;
    }

    /// `interval` comes from [`Recorder::interval`], which bounds it.
    fn entry(&mut self, interval: usize) -> &mut Interval {
        if self.intervals.len() <= interval {
            self.intervals.resize(interval + 1, Interval::default());
        }
        self.intervals.get_mut(interval).expect("resized to hold it")
    }
}
