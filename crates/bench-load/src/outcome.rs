//! What a run measured, as data that can be sent and added up over processes.
//!
//! Nothing here grows with the number of operations: histograms, a series of fixed length, one span per worker,
//! the first few errors. Rates are not computed here: what may be added is for `bench-report` to judge.

use std::collections::BTreeMap;

use bench_report::histogram::Histogram;
use serde::{Deserialize, Serialize};
use types::{Error, ErrorKind, Result};

use crate::data::Fault;

/// Errors and wrong bytes of which the text is kept.
pub const TOLD_MAX: usize = 8;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoadOutcome {
    /// Of the data that was written and compared ([`crate::data::GENERATOR`]).
    pub generator: u16,
    pub phases: Vec<PhaseOutcome>,
    /// Most memory that one of the processes held, since it began, bytes.
    pub rss_max_bytes: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PhaseOutcome {
    pub name: String,
    pub spans: Vec<WorkerSpan>,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// Touches that were done: files, blocks, directories, as the work says.
    pub units: u64,
    /// Time of each call, by its name: `open`, `read`, `write`, `sync` (making a file durable and closing it),
    /// `stat`, `list`, `delete`. Microseconds.
    pub service: BTreeMap<String, Histogram>,
    /// Time of each touch from when a worker began with it.
    pub unit: Histogram,
    /// The same for files of several sizes: of those up to so many bytes, see [`size_class`]. Empty if all files are as
    /// large.
    pub unit_by_size: BTreeMap<u64, Histogram>,
    /// Of touches that read more than one block: until the first block was there, its file's opening included.
    pub first_block: Histogram,
    /// Of the same touches: until all was there.
    pub all_blocks: Histogram,
    /// Time of each touch from when it should have begun. Empty in a closed loop, where that is the same.
    pub response: Histogram,
    /// By how much a free worker began later than the schedule said: the bench's own error, part of `response`.
    pub lateness: Histogram,
    pub series: ThroughputSeries,
    pub errors: Errors,
    pub verification: Verification,
    /// Calls to the far side by the protocol's names, where the target counts them.
    pub calls: BTreeMap<String, u64>,
    /// Of these processes, user and system.
    pub cpu_seconds: f64,
    /// How often a thread of these processes left the processor, to wait or because others were to have it.
    #[serde(default)]
    pub switches: u64,
    /// Why it ended before its work was done.
    pub stopped: Option<Stop>,
}

/// One worker's part of a phase. Seconds after the phase's start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerSpan {
    pub client: u32,
    pub worker: u32,
    /// When it began, after its stagger.
    pub start_s: f64,
    /// When it was done, what it wrote being durable.
    pub end_s: f64,
    /// How much of that it spent in making data durable.
    pub sync_s: f64,
    pub bytes: u64,
    pub units: u64,
    /// Bytes moved until some moments in between: (seconds after the phase's start, bytes).
    pub progress: Vec<(f64, u64)>,
    /// It was cut off before it was done.
    pub cut: bool,
}

/// What was moved in each interval from the phase's start on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThroughputSeries {
    /// Seconds.
    pub interval_s: f64,
    pub intervals: Vec<Interval>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    pub bytes_read: u64,
    pub bytes_written: u64,
    pub units: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errors {
    pub count: u64,
    pub by_kind: BTreeMap<String, u64>,
    /// The first ones.
    pub told: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verification {
    /// Bytes that were compared.
    pub checked_bytes: u64,
    /// Reads with a byte that nobody wrote.
    pub corrupt: u64,
    /// Reads of a version from before the expected one.
    pub stale: u64,
    /// Reads of a version from after the expected one.
    pub newer: u64,
    /// Reads of another file's or another offset's data.
    pub misplaced: u64,
    /// Where the first ones are.
    pub told: Vec<Located>,
}

impl Verification {
    pub fn wrong(&self) -> u64 {
        [self.corrupt, self.stale, self.newer, self.misplaced].iter().fold(0, |sum, n| sum.saturating_add(*n))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Located {
    pub path: String,
    pub offset: u64,
    pub fault: Fault,
    pub expected_version: u32,
}

#[derive(Clone, Copy, Debug, strum::Display, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// No fault.
    #[strum(to_string = "the time that was asked for was over")]
    Asked,
    #[strum(to_string = "the time budget was used up")]
    Time,
    #[strum(to_string = "the byte budget was used up")]
    Bytes,
    #[strum(to_string = "too many calls failed")]
    Errors,
    /// They were given up.
    #[strum(to_string = "calls were still without an answer when time was over")]
    Hung,
}

/// The largest size in the class of a file of so many bytes: 4 KiB, 64 KiB, 1 MiB, 16 MiB, 256 MiB, or no limit. A power
/// of 16 each: few enough for a histogram each, and between them other things cost time.
pub fn size_class(bytes: u64) -> u64 {
    let limits = [12, 16, 20, 24, 28].map(|shift| 1_u64 << shift);
    limits.into_iter().find(|limit| bytes <= *limit).unwrap_or(u64::MAX)
}

impl LoadOutcome {
    /// Adds what another process measured in the same run.
    pub fn merge(&mut self, other: LoadOutcome) -> Result<()> {
        let names = |outcome: &LoadOutcome| outcome.phases.iter().map(|p| p.name.clone()).collect::<Vec<_>>();
        if self.generator != other.generator || names(self) != names(&other) {
            let reason = "the processes did not run the same phases with the same program; start one binary";
            return Err(Error::new(ErrorKind::Config, "merge outcomes", reason));
        }
        self.rss_max_bytes = self.rss_max_bytes.max(other.rss_max_bytes);
        for (phase, other) in self.phases.iter_mut().zip(other.phases) {
            phase.merge(other);
        }
        Ok(())
    }

    /// The outcome of a job's first phase, which is its only one.
    pub fn into_first(self) -> Result<PhaseOutcome> {
        let first = self.phases.into_iter().next();
        first.ok_or_else(|| Error::new(ErrorKind::Io, "measure", "no phase came back"))
    }
}

impl PhaseOutcome {
    /// Bytes in both directions.
    pub fn bytes(&self) -> u64 {
        self.bytes_read.saturating_add(self.bytes_written)
    }

    /// From the phase's start to the last worker's end, seconds; `None` if nobody worked.
    pub fn last_done_s(&self) -> Option<f64> {
        self.spans.iter().map(|span| span.end_s).reduce(f64::max)
    }

    /// What makes the phase's numbers unfit to be believed, one line each; empty if nothing does.
    pub fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        if self.errors.count > 0 {
            let first = self.errors.told.first().map_or("", String::as_str);
            faults.push(format!("{} calls failed, the first: {first}", self.errors.count));
        }
        if self.verification.wrong() > 0 {
            let v = &self.verification;
            let (corrupt, stale, others) = (v.corrupt, v.stale, v.newer.saturating_add(v.misplaced));
            let first = v.told.first().map(|at| format!(", the first: {at}")).unwrap_or_default();
            faults
                .push(format!("wrong bytes: {corrupt} corrupt, {stale} stale, {others} other reads{first}"));
        }
        // What was cut off at an unknown place is not what the row's name says, whatever its rate.
        let stopped = self.stopped.filter(|stop| *stop != Stop::Asked);
        faults.extend(stopped.map(|stop| format!("stopped before its end: {stop}")));
        faults
    }

    /// Adds what other workers measured in the same phase.
    pub(crate) fn merge(&mut self, other: PhaseOutcome) {
        self.spans.extend(other.spans);
        self.spans.sort_by_key(|span| (span.client, span.worker));
        self.bytes_read = self.bytes_read.saturating_add(other.bytes_read);
        self.bytes_written = self.bytes_written.saturating_add(other.bytes_written);
        self.units = self.units.saturating_add(other.units);
        merge_by_key(&mut self.service, &other.service);
        self.unit.merge(&other.unit);
        merge_by_key(&mut self.unit_by_size, &other.unit_by_size);
        self.first_block.merge(&other.first_block);
        self.all_blocks.merge(&other.all_blocks);
        self.response.merge(&other.response);
        self.lateness.merge(&other.lateness);
        self.series.merge(&other.series);
        self.errors.merge(other.errors);
        self.verification.merge(other.verification);
        add_counts(&mut self.calls, other.calls);
        self.cpu_seconds += other.cpu_seconds;
        self.switches = self.switches.saturating_add(other.switches);
        self.stopped = self.stopped.max(other.stopped);
    }
}

/// Adds each of `others` to the histogram of the same key.
pub fn merge_by_key<K: Clone + Ord>(all: &mut BTreeMap<K, Histogram>, others: &BTreeMap<K, Histogram>) {
    for (key, histogram) in others {
        all.entry(key.clone()).or_default().merge(histogram);
    }
}

fn add_counts(all: &mut BTreeMap<String, u64>, others: BTreeMap<String, u64>) {
    for (name, count) in others {
        let sum = all.entry(name).or_default();
        *sum = sum.saturating_add(count);
    }
}

impl ThroughputSeries {
    /// Both have the interval that the job gives; if not, the other's is taken as it is, which shows.
    pub(crate) fn merge(&mut self, other: &ThroughputSeries) {
        if self.intervals.len() < other.intervals.len() {
            self.intervals.resize(other.intervals.len(), Interval::default());
        }
        self.interval_s = self.interval_s.max(other.interval_s);
        for (mine, theirs) in self.intervals.iter_mut().zip(&other.intervals) {
            mine.bytes_read = mine.bytes_read.saturating_add(theirs.bytes_read);
            mine.bytes_written = mine.bytes_written.saturating_add(theirs.bytes_written);
            mine.units = mine.units.saturating_add(theirs.units);
        }
    }
}

impl Errors {
    pub(crate) fn record(&mut self, kind: &str, text: impl FnOnce() -> String) {
        self.count = self.count.saturating_add(1);
        *self.by_kind.entry(kind.to_owned()).or_default() += 1;
        if self.told.len() < TOLD_MAX {
            self.told.push(text());
        }
    }

    pub(crate) fn merge(&mut self, other: Errors) {
        self.count = self.count.saturating_add(other.count);
        add_counts(&mut self.by_kind, other.by_kind);
        self.told.extend(other.told);
        self.told.truncate(TOLD_MAX);
    }
}

impl Verification {
    pub(crate) fn record(&mut self, located: impl FnOnce() -> Located, fault: Fault) {
        let count = match fault {
            Fault::Corrupt => &mut self.corrupt,
            Fault::Stale { .. } => &mut self.stale,
            Fault::Newer { .. } => &mut self.newer,
            Fault::Misplaced { .. } => &mut self.misplaced,
        };
        *count = count.saturating_add(1);
        if self.told.len() < TOLD_MAX {
            self.told.push(located());
        }
    }

    pub fn merge(&mut self, other: Verification) {
        self.checked_bytes = self.checked_bytes.saturating_add(other.checked_bytes);
        self.corrupt = self.corrupt.saturating_add(other.corrupt);
        self.stale = self.stale.saturating_add(other.stale);
        self.newer = self.newer.saturating_add(other.newer);
        self.misplaced = self.misplaced.saturating_add(other.misplaced);
        self.told.extend(other.told);
        self.told.truncate(TOLD_MAX);
    }
}

impl std::fmt::Display for Located {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}: ", self.path, self.offset)?;
        match self.fault {
            Fault::Corrupt => write!(f, "bytes that nobody wrote"),
            Fault::Stale { version } => {
                write!(f, "version {version} where version {} is the latest", self.expected_version)
            }
            Fault::Newer { version } => {
                write!(f, "version {version} where version {} was expected", self.expected_version)
            }
            Fault::Misplaced { file, offset } => write!(f, "the data of file {file} at {offset}"),
        }
    }
}
