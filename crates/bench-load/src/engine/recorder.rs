//! Where the workers of a phase put down what they measured. A few shards, so that they seldom meet; each is an outcome of
//! its own, and they are merged as those of several processes are.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use crate::locked;
use crate::outcome::{Interval, PhaseOutcome, ThroughputSeries, size_class};

/// A histogram takes 229 KB and a shard has up to twenty: these take 20 MB at most, and more processors than this are not
/// kept busy by one process.
const SHARDS: usize = 4;

/// The most intervals: at the default of 0.2 s three and a half hours; what comes later is added to the last one.
const INTERVALS_MAX: usize = 1 << 16;

pub struct Recorder {
    interval_s: f64,
    shards: Vec<Mutex<PhaseOutcome>>,
}

impl Recorder {
    pub fn new(interval_s: f64) -> Recorder {
        Recorder { interval_s, shards: (0..SHARDS).map(|_| Mutex::default()).collect() }
    }

    /// The shard for that worker.
    pub fn shard(&self, worker: usize) -> MutexGuard<'_, PhaseOutcome> {
        let shard = self.shards.get(worker % SHARDS).expect("there are SHARDS shards");
        locked(shard)
    }

    /// The interval of that moment after the start.
    pub fn interval(&self, at: Duration) -> usize {
        // A cast of a float saturates.
        ((at.as_secs_f64() / self.interval_s) as usize).min(INTERVALS_MAX - 1)
    }

    /// Everything but the spans and what is measured outside.
    pub fn outcome(&self) -> PhaseOutcome {
        let series = ThroughputSeries { interval_s: self.interval_s, intervals: Vec::new() };
        let mut all = PhaseOutcome { series, ..PhaseOutcome::default() };
        for worker in 0..SHARDS {
            all.merge(std::mem::take(&mut *self.shard(worker)));
        }
        all
    }
}

/// What a worker puts into its shard. An `interval` comes from [`Recorder::interval`], which bounds it.
impl PhaseOutcome {
    pub(super) fn call(&mut self, call: &str, took: Duration) {
        match self.service.get_mut(call) {
            Some(histogram) => histogram.record(took),
            None => self.service.entry(call.to_owned()).or_default().record(took),
        }
    }

    pub(super) fn moved(&mut self, interval: usize, read: u64, written: u64) {
        self.bytes_read += read;
        self.bytes_written += written;
        let entry = self.entry(interval);
        entry.bytes_read += read;
        entry.bytes_written += written;
    }

    /// A file was read or written that is as large as others are not.
    pub(super) fn of_size(&mut self, bytes: u64, took: Duration) {
        self.unit_by_size.entry(size_class(bytes)).or_default().record(took);
    }

    /// `intended` is how long ago the touch should have begun, in an open loop.
    pub(super) fn unit_done(&mut self, interval: usize, took: Duration, intended: Option<Duration>) {
        self.units += 1;
        self.unit.record(took);
        if let Some(response) = intended {
            self.response.record(response);
        }
        self.entry(interval).units += 1;
    }

    fn entry(&mut self, interval: usize) -> &mut Interval {
        let intervals = &mut self.series.intervals;
        if intervals.len() <= interval {
            intervals.resize(interval + 1, Interval::default());
        }
        intervals.get_mut(interval).expect("resized to hold it")
    }
}
