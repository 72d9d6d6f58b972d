//! `forebay bench`: how far is my storage, and what does the tier buy me?
//!
//! # Cast
//! - An **experiment** is a file with its arguments, its plan and its tables: `probe`, `render`, `working_set`, `loader`,
//!   `shapes`, `sob`, `load`, `workflow`, `link`, `replicas`. `cli` knows them all; nothing else does.
//! - What is measured is the user's, a directory on it (`target_dir::TargetDir`), or what the bench puts up: a
//!   `testbed::Testbed` with its data set and its `testbed::Line`s (crate `relay`), a NAS or a tier as processes of their
//!   own (`fixture`).
//! - `nodes::ClusterStage`: files behind a running cluster of the user's, whose nodes are named on the command line. The bench starts
//!   no node: labs that do (`testkit::lab::cluster`) run it as a user does.
//! - `ranks::Ranks`: this run's processes. Rank 0 runs the experiment and gives loads to all (crates `bench-fleet`, `bench-load`).
//! - `budget::Budget`: the time that a run may take, repetition by repetition. `knee`: the load at which more workers bring no
//!   more.
//! - `driver`: the frame of a measurement on a `driver::MeasuredStorage`, which is left as it was. `driver::TargetLoad` is a load on the
//!   user's target, of which `sob`, `shapes` and `load` say only what is loaded and which columns tell of it.
//! - `sample::Sample`: one state of a cache, as clients and the tier's counters saw it. `limit::LoadBounds`: what this machine
//!   and its link allow. `ceiling`: what the bench itself can do. `cost` and `value`: what it is worth.
//! - `results::ResultBuilder`: the result as it is filled, `columns`: a table of it as the list of its columns; crate
//!   `bench-report` judges and prints it.
//!
//! # The way of a run
//! `cli::run` parses, the experiment's `command` checks its plan and hands itself to `driver::command`, which tells it
//! (`--dry-run` ends here) or joins the ranks. Rank 0 measures: it makes or puts up the storage, gives each repetition as a job to `ranks`, fills the
//! result, and removes what it wrote. `results::publish` prints it and writes its files.
//!
//! # Invariants
//! A row that cannot be true is INVALID and says why. What was written is removed however the run ends. The same experiment runs on
//! one process or many without knowing it.
//!
//! Begin with `sob.rs`: the shortest experiment that has all parts; then `driver.rs` and `render.rs`.

mod args;
mod budget;
mod ceiling;
pub mod cli;
mod columns;
mod cost;
mod driver;
mod entries;
pub mod fingerprint;
pub mod fixture;
mod knee;
mod limit;
pub mod link;
mod load;
mod loader;
mod mounts;
mod nic;
mod nodes;
pub mod probe;
mod progress;
mod ranks;
pub mod relay_command;
mod render;
mod replicas;
pub mod results;
mod sample;
mod shapes;
mod sob;
mod target_dir;
mod testbed;
mod value;
mod worker_phases;
mod workflow;
mod working_set;

// What experiments are made of, under one roof.
use args::{CommonArgs, OutputArgs, Scale, block_size, one_of, refuse};
use budget::Budget;
use ceiling::MachineCeiling;
use driver::{MeasuredStorage, RepeatedLoad, TargetLoad};
use fixture::{CounterPage, TierProcess, Watch};
use knee::{KneeArgs, KneeResult, KneeStep};
use limit::LoadBounds;
use mounts::{TargetMount, is_http_store};
use nic::Nic;
use ranks::{Ranks, alone, signalled, unless_interrupted};
use results::{ResultBuilder, publish};
use sample::{CacheMode, Sample, Triple};
use target_dir::{TargetArgs, TargetDir};
use testbed::{Line, Testbed, data_set};
use value::{PriceArgs, TierPrices};
use worker_phases::{GIB, LoadRow, MIB};
