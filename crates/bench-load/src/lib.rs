//! Load: what emulated clients do to a target, and what was measured of it.
//!
//! # Cast
//! - A [`target::Target`] is storage by its URL: a directory, an NFS server, a bucket, a share, or one of these with a
//!   service's limits in front. It makes [`target::Client`]s, each of which is one machine to the storage.
//! - A [`shape::LoadWork`] says which client touches which bytes of a [`shape::Layout`] in which order; a [`pace::LoadPace`] says when.
//! - A [`engine::LoadJob`] is phases of work for a set of clients; [`engine::run`] does it. A [`engine::PhaseGate`] lets processes begin a
//!   phase together.
//! - A [`outcome::LoadOutcome`] is what came of it: spans of workers, histograms, calls, faults. Outcomes of processes merge.
//! - [`data::SeededData`] generates what is written, and tells what is wrong with what was read: corrupt, stale or misplaced.
//! - A [`safety::RunDir`] is the only place that is written; a [`dataset::Dataset`] in it is laid out once and used again.
//!
//! # The way of a touch
//! `engine.rs` opens the gate; each `engine/worker.rs` takes numbers of its `shape::Sequence`, waits as the pace says, calls its client,
//! compares each byte, and records into `engine/recorder.rs`. Nothing is kept per touch: memory is bounded by workers and histograms.
//!
//! # Invariants
//! No byte counts that was not compared as the job asks. Nothing outside the run's directory is written or removed. This crate knows
//! no experiment, no statistics and no other process: those are `bench`, `bench-report` and `bench-fleet`.
//!
//! Begin with `target.rs` (what a client can do), then `shape.rs` (the plan), then `engine.rs`.

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

use std::sync::{Mutex, MutexGuard, PoisonError};

pub use data::{FileVersion, SeededData};
pub use dataset::{DataSetDir, Dataset};
pub use engine::{Files, LoadJob, LoadLimits, LoadPhase, LocalGate, PhaseGate, Progress};
pub use outcome::{LoadOutcome, PhaseOutcome, Stop, ThroughputSeries, Verification, WorkerSpan};
pub use pace::{Arrivals, LoadPace, Stagger};
pub use process::{Threads, Usage};
pub use safety::{Cleanup, RunDir};
pub use shape::{
    AccessOrder, Amount, ClientSet, Layout, LoadOperation, LoadWork, Sequence, Sharing, Sizes, Touch,
    TouchUnit,
};
pub use target::{Client, EntryKind, Target, from_url};

/// What is in the mutex, after a panic too: every section in this crate leaves it whole.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
