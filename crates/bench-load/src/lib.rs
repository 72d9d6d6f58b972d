//! Load: what emulated clients do to a target, and what was measured of it.
//!
//! A [`target::Target`] makes clients; a [`shape::LoadWork`] says which client touches which bytes in which order;
//! a [`pace::LoadPace`] says when; [`engine::run`] does it and returns an [`outcome::LoadOutcome`]. What is written is
//! generated ([`data::SeededData`]) and can be checked byte by byte, version included. This crate knows no
//! experiment, no statistics and no other process: those are `bench`, `bench-report` and `bench-fleet`. Everything is
//! written below a [`safety::RunDir`]; a [`dataset::Dataset`] there is laid out once and used again.
//!
//! Start with `target.rs` (what a client can do), then `shape.rs` (the plan), then `engine.rs`.

pub mod ceiling;
pub mod data;
pub mod dataset;
pub mod engine;
pub mod outcome;
pub mod pace;
pub mod preflight;
pub mod process;
pub mod safety;
pub mod shape;
pub mod target;
