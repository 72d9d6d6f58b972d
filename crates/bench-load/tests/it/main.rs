//! Load as an experiment uses it: jobs over every kind of target, with faults planted.

mod dataset;
mod engine;
mod faulty;
mod limited;
mod memory;
mod nfs;
mod objects;
mod safety;
mod served;
mod shares;
mod targets;
mod with_ganesha;
