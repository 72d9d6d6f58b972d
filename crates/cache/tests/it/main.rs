//! The cache as its users see it: right bytes, fetched once, kept over restarts, within its room.

#[path = "../line/mod.rs"]
mod line;

mod ahead;
mod concurrency;
mod copying;
mod damage;
mod disk;
mod failing;
mod guests;
mod harness;
mod metrics;
mod model;
mod rebase;
mod restart;
mod simulation;
mod space;
mod whole;
