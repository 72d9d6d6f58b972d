//! `forebay bench EXPERIMENT`: what can be typed. Each experiment has a file of its own.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use types::{Error, Result};

use crate::{OutputArgs, alone};

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
    Link(crate::link::LinkTestArgs),
    /// How a cache gets warm, and how large it must be: data sets of a quarter to four times its size
    WorkingSet(crate::working_set::WorkingSetArgs),
    /// A graph of tasks over two sites
    Workflow(crate::workflow::WorkflowArgs),
    /// Epochs of a training job: every client reads every file in an order of its own, cold and warm
    Loader(crate::loader::LoaderArgs),
    /// Reads of a cluster that grow with the number of copies, before, during and after a repair
    Replicas(crate::replicas::ReplicasArgs),
    /// A TCP relay that makes a near server far
    Relay(crate::relay_command::RelayArgs),
    /// Is B different from A? Exit code 0: same or better, 1: worse, 2: nothing can be said
    Compare(crate::results::CompareArgs),
    /// Remove what a run has left: one with --keep, or one that was killed
    Clean(crate::target_dir::CleanArgs),
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

pub async fn run(args: BenchArgs) -> Result<ExitCode> {
    match args.experiment {
        Experiment::Probe(args) => alone(crate::probe::command(args)).await,
        Experiment::Render(args) => crate::render::command(args).await,
        Experiment::Shapes(args) => crate::shapes::command(args).await,
        Experiment::Load(args) => crate::load::command(args).await,
        Experiment::Sob(args) => crate::sob::command(args).await,
        Experiment::Link(args) => crate::link::command(args).await,
        Experiment::Workflow(args) => crate::workflow::command(args).await,
        Experiment::Loader(args) => crate::loader::command(args).await,
        Experiment::WorkingSet(args) => crate::working_set::command(args).await,
        Experiment::Replicas(args) => crate::replicas::command(args).await,
        Experiment::Relay(args) => crate::relay_command::serve(args).await.map(|()| ExitCode::SUCCESS),
        Experiment::Compare(args) => crate::results::compare(&args),
        Experiment::Clean(args) => crate::target_dir::clean(args).await,
        Experiment::Show { result, output } => crate::results::show(&result, &output),
        Experiment::Again { result, out, dry_run } => crate::results::again(&result, out.as_deref(), dry_run),
    }
}

/// Whether another process of the same run reports this error.
pub fn is_said_elsewhere(error: &Error) -> bool {
    bench_fleet::said_by_rank_0(error)
}
