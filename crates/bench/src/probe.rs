//! How far is my storage? The round trips of each operation, as the slope of its time against distance: a relay in
//! front of the server adds round trips of several lengths, and a line through the medians tells what one of them costs.
//! So the server's own time and the distance it has already do not matter; both are in the intercept.
//!
//! Start with `nfs.rs` (how a server is measured), then `answer.rs` (what follows from it).

mod answer;
mod args;
mod far;
mod losses;
mod nfs;
mod objects;
mod operation;
pub(crate) mod ports;
mod posix;
mod samples;
mod store;
mod streams;

use std::time::{Duration, Instant, SystemTime};

use bench_report::model::ResultFile;
use types::{Error, ErrorKind, Result};

pub use args::{ProbeArgs, command};

use crate::mounts::is_http_store;

#[derive(Clone, Debug)]
pub struct Config {
    /// `nfs://host[:port]/export?...`, a bucket or share as any target's URL has it, or a directory of anything mounted.
    pub target: String,
    /// Something nearer to compare with, a tier in front of the target for instance: from which distance on is it
    /// faster? An NFS URL. Default: none.
    pub near: Option<String>,
    /// Round trips that are added, one after the other. Default 0, 10, 25 and 50 ms: far more than the scatter of a
    /// local server, and two seconds a repetition.
    pub delays: Vec<Duration>,
    /// Of each operation at each delay. Default 9: a median needs 6 for its interval.
    pub repetitions: usize,
    /// Of each operation without a relay, for median and p99. Default 100, which is the least that has a p99.
    pub samples: usize,
    /// An operation whose samples take longer than this gets fewer of them, but 6. Default 3 s.
    pub sample_time: Duration,
    /// Parallel streams that read the big file. Default 1, 2, 4, 8, 16.
    pub streams: Vec<usize>,
    /// How long each number of streams reads. Default 250 ms, after the streams have started up.
    pub stream_time: Duration,
    /// Of each number of streams. Default 6, which is the least that has a confidence interval.
    pub stream_repetitions: usize,
    /// READs under way in each stream. Default 8.
    pub read_ahead: usize,
    /// A file of at most 64 KiB, below the export or directory. Default: one is looked for.
    pub small_file: Option<String>,
    /// A large file for the streams. Default: the largest that is found.
    pub big_file: Option<String>,
    /// Also create, write and remove one small file in the target's root. Default no: a probe only looks.
    pub write: bool,
    /// Of the order of the delays. Default 1.
    pub seed: u64,
    /// What was typed, for the result file.
    pub command: Vec<String>,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            target: String::new(),
            near: None,
            delays: [0, 10, 25, 50].map(Duration::from_millis).to_vec(),
            repetitions: 9,
            samples: 100,
            sample_time: Duration::from_secs(3),
            streams: vec![1, 2, 4, 8, 16],
            stream_time: Duration::from_millis(250),
            stream_repetitions: 6,
            read_ahead: 8,
            small_file: None,
            big_file: None,
            write: false,
            seed: 1,
            command: Vec::new(),
        }
    }
}

const STREAMS_MAX: usize = 256;
const READ_AHEAD_MAX: usize = 64;

impl Config {
    fn check(&self) -> Result<()> {
        let wrong = |what: &str| Err(Error::new(ErrorKind::Config, "probe:", what));
        if self.target.is_empty() {
            return wrong("which storage? give nfs://HOST/EXPORT, s3://BUCKET or a directory");
        }
        let mut delays = self.delays.clone();
        delays.sort();
        delays.dedup();
        if delays.len() < 3 {
            return wrong("a line needs three different delays at least, for example 0,10ms,25ms,50ms");
        }
        if self.repetitions == 0 || self.samples == 0 || self.stream_repetitions == 0 {
            return wrong("repetitions and samples are at least 1");
        }
        if self.streams.iter().any(|n| !(1..=STREAMS_MAX).contains(n)) {
            return wrong("streams are from 1 to 256");
        }
        if !(1..=READ_AHEAD_MAX).contains(&self.read_ahead) {
            return wrong("reads under way are from 1 to 64");
        }
        Ok(())
    }
}

/// Measures the target and answers: tables, plots, the repetitions, and the findings.
pub async fn run(config: Config) -> Result<ResultFile> {
    config.check()?;
    let (started, start) = (SystemTime::now(), Instant::now());
    let mut result = if config.target.starts_with("nfs://") {
        answer::of_server(&config, &nfs::measure(&config).await?)
    } else if is_http_store(&config.target) {
        answer::of_path(&config, &store::measure(&config).await?)
    } else {
        answer::of_path(&config, &posix::measure(&config).await?)
    };
    result.started = crate::fingerprint::timestamp(started);
    result.seconds = start.elapsed().as_secs_f64();
    result.fingerprint = crate::fingerprint::of_this_machine();
    let target = crate::fingerprint::of_target(&config.target);
    result.fingerprint.extend(target.map(|told| ("target".to_owned(), told)));
    let validity = bench_report::report::validity(&result);
    result.answer.push(validity);
    Ok(result)
}
