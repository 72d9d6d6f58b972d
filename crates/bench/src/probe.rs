//! How far is my storage? The round trips of each operation, as the slope of its time against distance: a relay in
//! front of the server adds round trips of several lengths, and a line through the medians tells what one of them costs.
//! So the server's own time and the distance it has already do not matter; both are in the intercept.
//!
//! Start with `nfs.rs` (how a server is measured), then `answer.rs` (what follows from it).

mod answer;
mod calls;
pub(crate) mod far;
mod losses;
mod nfs;
mod objects;
mod operation;
mod posix;
mod samples;
mod store;
mod streams;

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use bench_report::ResultFile;
use clap::Args;
use clap::builder::RangedU64ValueParser;
use types::{Error, ErrorKind, Result};

use crate::args::typed;
use crate::{OutputArgs, is_http_store, results};

/// How far is my storage: round trips of each operation, and what a distance would cost.
#[derive(Args, Clone, Debug)]
pub struct ProbeArgs {
    #[command(flatten)]
    config: Config,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Args, Clone, Debug)]
pub struct Config {
    #[arg(
        value_name = "TARGET",
        help = "nfs://HOST[:PORT]/EXPORT, s3://BUCKET[/PREFIX] (az://, gs://, azfile:// too), or a mounted directory"
    )]
    pub target: String,
    /// A nearer server to compare with, a tier for instance, as nfs://HOST/EXPORT
    #[arg(long, value_name = "URL")]
    pub near: Option<String>,
    // By default far more than the scatter of a local server, and two seconds a repetition.
    /// Round trips to add, one after the other
    #[arg(long, value_name = "TIMES", value_delimiter = ',', default_value = "0,10ms,25ms,50ms", value_parser = quantity::duration)]
    pub delays: Vec<Duration>,
    /// Repetitions at each distance; below 6 a median has no confidence interval
    #[arg(short = 'n', long, value_name = "N", default_value_t = 9, value_parser = RangedU64ValueParser::<usize>::new().range(1..=1000))]
    pub repetitions: usize,
    // By default the least that has a p99.
    /// Samples without a relay, for median and p99
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = RangedU64ValueParser::<usize>::new().range(1..=100_000))]
    pub samples: usize,
    /// An operation whose samples take longer than this gets fewer of them, but 6.
    #[arg(skip = Duration::from_secs(3))]
    pub sample_time: Duration,
    /// Numbers of parallel streams that read the big file
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "1,2,4,8,16")]
    pub streams: Vec<usize>,
    // After the streams have started up.
    /// How long each number of streams reads
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = quantity::duration)]
    pub stream_time: Duration,
    /// Of each number of streams: the least that has a confidence interval.
    #[arg(skip = 6_usize)]
    pub stream_repetitions: usize,
    /// READs under way in each stream
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub read_ahead: usize,
    /// The small file, below TARGET; one is looked for otherwise
    #[arg(long, value_name = "PATH")]
    pub small_file: Option<String>,
    /// The file that the streams read; the largest that is found otherwise
    #[arg(long, value_name = "PATH")]
    pub big_file: Option<String>,
    /// Also create, write and remove a small file in TARGET
    #[arg(long)]
    pub write: bool,
    /// Of the order of the delays.
    #[arg(skip = 1_u64)]
    pub seed: u64,
}

impl Default for Config {
    /// What the command line has if nothing is typed, and no target.
    fn default() -> Config {
        typed(&[""]).expect("the defaults are within their own bounds")
    }
}

const STREAMS_MAX: usize = 256;
const READ_AHEAD_MAX: usize = 64;

impl Config {
    fn check(&self) -> Result<()> {
        if self.target.is_empty() {
            return Err(wrong("which storage? give nfs://HOST/EXPORT, s3://BUCKET or a directory"));
        }
        if self.delays.iter().collect::<BTreeSet<_>>().len() < 3 {
            let why = "a line needs three different delays at least, for example 0,10ms,25ms,50ms";
            return Err(wrong(why));
        }
        if self.repetitions == 0 || self.samples == 0 || self.stream_repetitions == 0 {
            return Err(wrong("repetitions and samples are at least 1"));
        }
        if self.streams.iter().any(|n| !(1..=STREAMS_MAX).contains(n)) {
            return Err(wrong("streams are from 1 to 256"));
        }
        if !(1..=READ_AHEAD_MAX).contains(&self.read_ahead) {
            return Err(wrong("reads under way are from 1 to 64"));
        }
        Ok(())
    }
}

/// What was asked for cannot be measured.
fn wrong(what: impl std::fmt::Display) -> Error {
    Error::new(ErrorKind::Config, "probe:", what)
}

pub async fn command(args: ProbeArgs) -> Result<ExitCode> {
    let mut file = run(args.config).await?;
    crate::ceiling::measure(crate::args::ROW_TIME).await?.tell(&mut file);
    results::publish(&file, &args.output)
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
    let target = crate::fingerprint::of_target(&config.target);
    result.fingerprint.extend(target.map(|told| ("target".to_owned(), told)));
    let validity = bench_report::report::validity(&result);
    result.answer.push(validity);
    Ok(result)
}
