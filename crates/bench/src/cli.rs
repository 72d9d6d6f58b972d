//! `forebay bench EXPERIMENT`: what can be typed. Each experiment has a file of its own.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use types::{Error, ErrorKind, Result};

use crate::crew::alone;

/// The least that has a confidence interval.
const REPETITIONS: u32 = 6;

/// How far is my storage, and what does the tier buy me?
#[derive(Parser)]
#[command(name = "forebay-bench", bin_name = "forebay bench", version)]
pub struct BenchArgs {
    #[command(subcommand)]
    experiment: Experiment,
}

#[derive(Subcommand)]
enum Experiment {
    /// How far is my storage: round trips of each operation, and what a distance would cost
    Probe(crate::probe::ProbeArgs),
    /// What a tier buys: many nodes read one scene direct, cold and warm, at several distances
    Render(crate::render::RenderArgs),
    /// Single and multiple files, readers and writers, over sizes and numbers of workers
    Shapes(crate::shapes::ShapesArgs),
    /// A load of your own: files, order, mixture, pace
    Load(crate::load::LoadArgs),
    /// The sob stress tests 1 to 4
    Sob(crate::sob::SobArgs),
    /// The link by itself: several streams between one pair, then several pairs
    Link(crate::link::LinkArgs),
    /// How a cache gets warm, and how large it must be: data sets of a quarter to four times its size
    WorkingSet(crate::working_set::WorkingSetArgs),
    /// A graph of tasks over two sites
    Workflow(crate::workflow::WorkflowArgs),
    /// Epochs of a training job: every client reads every file in an order of its own, cold and warm
    Loader(crate::loader::LoaderArgs),
    /// Reads that grow with the number of copies
    Replicas(crate::replicas::ReplicasArgs),
    /// A TCP relay that makes a near server far
    Relay(crate::relay_command::RelayArgs),
    /// Is B different from A? Exit code 0: same or better, 1: worse, 2: nothing can be said
    Compare(crate::results::CompareArgs),
    /// Remove what a run has left: one with --keep, or one that was killed
    Clean(crate::bed::CleanArgs),
    /// Print a result file again, or write it in another form
    Show {
        result: PathBuf,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Run again what made a result file
    Again {
        result: PathBuf,
        /// Where the new result goes; the old one's place is not written again
        #[arg(long, value_name = "DIR")]
        out: Option<PathBuf>,
        /// Only say what would be run
        #[arg(long)]
        dry_run: bool,
    },
}

/// Where the result goes. The terminal gets it in any case.
#[derive(Args, Clone, Debug, Default)]
pub struct OutputArgs {
    /// Write NAME.json, NAME.md, NAME.csv and NAME.html here
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Print JSON instead of the table
    #[arg(long)]
    pub json: bool,
    /// Exit with 1 if a row is INVALID
    #[arg(long)]
    pub strict: bool,
}

/// What all experiments take.
#[derive(Args, Clone, Debug)]
pub struct CommonArgs {
    /// The original's parameters and columns, at --scale of its size
    #[arg(long)]
    pub faithful: bool,
    /// How large: small (a laptop, minutes), medium, full (the original), or a factor such as 0.05
    #[arg(long, value_name = "SIZE", default_value = "small", value_parser = Scale::parse, allow_hyphen_values = true)]
    pub scale: Scale,
    /// Repetitions of each condition; below 6 there is no confidence interval [default: 6, with --faithful the study's]
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: Option<u32>,
    /// Of contents and orders
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// End the run, with what it has, after this time
    #[arg(long, value_name = "TIME", default_value = "2h", value_parser = quantity::duration)]
    pub time_budget: std::time::Duration,
    /// Most bytes that may be written to a target
    #[arg(long, value_name = "SIZE", default_value = "64GiB", value_parser = quantity::size)]
    pub byte_budget: u64,
    /// Only say what would be done and how much it moves; render also says how long it takes
    #[arg(long)]
    pub dry_run: bool,
    /// Where the operator's interface of the tier answers that the target leads to: its configuration goes into the result
    #[arg(long, value_name = "ADDR", value_parser = quantity::address)]
    pub admin: Option<std::net::SocketAddr>,
    #[command(flatten)]
    pub output: OutputArgs,
    #[command(flatten)]
    pub launch: LaunchArgs,
}

/// Run on several processes or machines. Under mpirun and srun nothing of this is needed.
#[derive(Args, Clone, Debug)]
pub struct LaunchArgs {
    /// So many processes on this machine
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub procs: Option<u32>,
    /// These machines too, over ssh; processes on each after a colon
    #[arg(long, value_name = "A,B[:N]")]
    pub hosts: Option<String>,
    /// Where the first process listens for the others
    #[arg(long, value_name = "HOST:PORT")]
    pub coordinator: Option<String>,
    /// A directory that all machines see, for finding each other
    #[arg(long, value_name = "DIR")]
    pub rendezvous: Option<PathBuf>,
    /// A label for this process, or for each: 0-1=north,2-3=south
    #[arg(long, value_name = "LABELS")]
    pub site: Option<String>,
    /// The command that reaches a host of --hosts, with its options
    #[arg(long, value_name = "COMMAND", default_value = "ssh")]
    pub ssh: String,
}

/// Of the original's size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    factor: f64,
    /// It was asked for by the word, and may mean another factor.
    is_small: bool,
}

impl CommonArgs {
    /// `study`: how often the original ran it.
    pub fn repetitions(&self, study: u32) -> u32 {
        self.repetitions.unwrap_or(if self.faithful { study } else { REPETITIONS })
    }
}

impl Scale {
    pub const fn new(factor: f64) -> Scale {
        Scale { factor, is_small: false }
    }

    pub fn parse(text: &str) -> std::result::Result<Scale, String> {
        match text {
            "small" => Ok(Scale { factor: 0.005, is_small: true }),
            "medium" => Ok(Scale::new(0.05)),
            "full" => Ok(Scale::new(1.0)),
            _ => {
                let factor = text.parse().ok().filter(|factor| (0.0001..=10.0).contains(factor));
                let wrong = || {
                    format!("\"{text}\" is no scale; write small, medium, full or a factor from 0.0001 to 10")
                };
                factor.map(Scale::new).ok_or_else(wrong)
            }
        }
    }

    pub fn factor(self) -> f64 {
        self.factor
    }

    /// `small` means another factor where the original's own size is small, or large.
    pub fn small_is(self, factor: f64) -> Scale {
        if self.is_small { Scale { factor, ..self } } else { self }
    }

    /// `whole` at this scale, at least `least`.
    pub fn of(self, whole: u64, least: u64) -> u64 {
        ((whole as f64 * self.factor).round() as u64).max(least)
    }
}

pub async fn run(args: BenchArgs) -> Result<ExitCode> {
    match args.experiment {
        Experiment::Probe(args) => alone(crate::probe::command(args)).await,
        Experiment::Render(args) => crate::render::command(args).await,
        Experiment::Shapes(args) => crate::shapes::command(args).await,
        Experiment::Load(args) => crate::load::command(args).await,
        Experiment::Sob(args) => crate::sob::command(args).await,
        Experiment::Link(args) => crate::link::command(args).await,
        Experiment::Workflow(args) => alone(crate::workflow::command(args)).await,
        Experiment::Loader(args) => crate::loader::command(args).await,
        Experiment::WorkingSet(args) => crate::working_set::command(args).await,
        Experiment::Replicas(args) => alone(async { crate::replicas::command(args) }).await,
        Experiment::Relay(args) => crate::relay_command::serve(args).await.map(|()| ExitCode::SUCCESS),
        Experiment::Compare(args) => crate::results::compare(&args),
        Experiment::Clean(args) => crate::bed::clean(args).await,
        Experiment::Show { result, output } => crate::results::show(&result, &output),
        Experiment::Again { result, out, dry_run } => crate::results::again(&result, out.as_deref(), dry_run),
    }
}

/// Whether another process of the same run reports this error.
pub fn is_said_elsewhere(error: &Error) -> bool {
    bench_fleet::said_by_rank_0(error)
}

/// Wrong usage: one line, exit code 2.
pub fn refuse<T>(message: impl std::fmt::Display) -> Result<T> {
    Err(Error::new(ErrorKind::Config, "bench:", message))
}
