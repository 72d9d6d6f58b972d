//! `forebay bench`: how far is my storage, and what does the tier buy me?
//!
//! Each experiment is a file (`probe`, `render`, `shapes`, `sob`, `loader`, `working_set`,
//! `workflow`, `link`, `replicas`). They put up
//! what they measure (`testbed`, `fixture`, lines of crate `relay`) or take the user's (`target_dir`), give jobs to the `ranks` of a run, one process or many,
//! and fill a result (`results`). What a job does is `bench-load`'s, what its numbers mean `bench-report`'s, and how
//! processes find each other `bench-fleet`'s.

mod args;
mod budget;
mod ceiling;
pub mod cli;
mod cost;
mod driver;
pub mod fingerprint;
pub mod fixture;
mod knee;
mod limit;
pub mod link;
mod load;
mod loader;
mod mounts;
mod nic;
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
