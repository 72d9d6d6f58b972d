//! `forebay bench`: how far is my storage, and what does the tier buy me?
//!
//! Each experiment is a file (`probe`, `render`, `shapes`, `sob`, `loader`, `working_set`,
//! `workflow`, `link`, `replicas`). They put up
//! what they measure (`stage`, `rig`, lines of crate `relay`) or take the user's (`bed`), give jobs to a `crew` of one process or many,
//! and fill a result (`results`). What a job does is `bench-load`'s, what its numbers mean `bench-report`'s, and how
//! processes find each other `bench-fleet`'s.

mod args;
mod bed;
mod budget;
mod ceiling;
pub mod cli;
mod cost;
mod crew;
pub mod fingerprint;
mod knee;
mod limit;
pub mod link;
mod load;
mod loader;
mod mounts;
mod nic;
pub mod probe;
mod progress;
pub mod relay_command;
mod render;
mod replicas;
pub mod results;
pub mod rig;
mod sample;
mod shapes;
mod sob;
mod spans;
mod stage;
mod value;
mod workflow;
mod working_set;
