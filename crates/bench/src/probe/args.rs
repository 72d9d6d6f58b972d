//! `forebay bench probe`.

use std::process::ExitCode;
use std::time::Duration;

use types::Result;

use super::Config;
use crate::args::OutputArgs;
use crate::results;

/// How far is my storage: round trips of each operation, and what a distance would cost.
#[derive(Clone, Debug, clap::Args)]
pub struct ProbeArgs {
    #[arg(
        value_name = "TARGET",
        help = "nfs://HOST[:PORT]/EXPORT, s3://BUCKET[/PREFIX] (az://, gs://, azfile:// too), or a mounted directory"
    )]
    pub target: String,
    /// A nearer server to compare with, a tier for instance, as nfs://HOST/EXPORT
    #[arg(long, value_name = "URL")]
    pub near: Option<String>,
    /// Round trips to add, one after the other
    #[arg(long, value_name = "TIMES", value_delimiter = ',', default_value = "0,10ms,25ms,50ms", value_parser = quantity::duration)]
    pub delays: Vec<Duration>,
    /// Repetitions at each distance; below 6 a median has no confidence interval
    #[arg(short = 'n', long, value_name = "N", default_value_t = 9, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub repetitions: u16,
    /// Samples without a relay, for median and p99
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub samples: u32,
    /// Numbers of parallel streams that read the big file
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "1,2,4,8,16")]
    pub streams: Vec<usize>,
    /// How long each number of streams reads
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = quantity::duration)]
    pub stream_time: Duration,
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
    #[command(flatten)]
    pub output: OutputArgs,
}

impl ProbeArgs {
    pub fn config(&self) -> Config {
        Config {
            target: self.target.clone(),
            near: self.near.clone(),
            delays: self.delays.clone(),
            repetitions: self.repetitions.into(),
            samples: self.samples as usize,
            streams: self.streams.clone(),
            stream_time: self.stream_time,
            read_ahead: self.read_ahead,
            small_file: self.small_file.clone(),
            big_file: self.big_file.clone(),
            write: self.write,
            command: results::command(),
            ..Config::default()
        }
    }
}

/// Probes and publishes the result.
pub async fn command(args: ProbeArgs) -> Result<ExitCode> {
    let mut file = super::run(args.config()).await?;
    crate::ceiling::measure().await?.tell(&mut file);
    results::publish(&file, &args.output)
}
