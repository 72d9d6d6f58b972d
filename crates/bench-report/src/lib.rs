//! What a bench run found, as data: its model with a schema version, the statistics over it, and its four outputs
//! (Markdown, CSV, JSON, one HTML page). Pure: knows nothing of targets, clocks or networks.
//!
//! # Cast
//! - [`model::ResultFile`]: tables, plots, measures, findings and histograms of one run; everything else reads or fills it.
//! - [`summary::estimate`] makes a cell of repetitions, [`overlap::PhaseSpans`] the rates of workers, [`histogram::Histogram`] latencies,
//!   [`fit`] lines through distances.
//! - [`sanity`] says why a row cannot be true, [`bottleneck`] what limits it, [`significance`] and [`compare`] whether two results
//!   differ. [`distribution`] has what these calculate with.
//! - [`published`]: the figures of the studies that our experiments repeat.
//! - [`markdown`], [`csv`], [`json`], [`html`] with [`plot`]: the outputs. [`report`] has what several of them tell, [`format`](mod@format) numbers.
//!
//! # The way of a number
//! Repetitions become a median with its interval (`summary`), a cell of a row that may be INVALID (`sanity`), a measure that another
//! result is compared by, and text (`format`).
//!
//! # Invariants
//! Rates of workers that did not work at the same time are never added. What was not measured is missing with its reason, never zero.
//! A file that is read is checked before it is believed.
//!
//! Begin with `model.rs`, then `summary.rs` and `overlap.rs`.

pub mod bottleneck;
pub mod compare;
pub mod csv;
pub mod distribution;
pub mod fit;
pub mod format;
pub mod histogram;
pub mod html;
pub mod json;
pub mod markdown;
mod markup;
pub mod model;
pub mod overlap;
pub mod plot;
pub mod published;
pub mod report;
pub mod sanity;
pub mod significance;
pub mod summary;

pub use histogram::Histogram;
pub use model::{
    AnswerLine, AnswerPart, Axis, Better, Cell, Finding, Measure, Plot, PlotKind, Point, ResultFile, Series,
    Severity, Table, TableRow,
};
pub use overlap::{PhaseSpans, Refusal, Span};
pub use published::PUBLISHED;
pub use summary::{coefficient_of_variation, estimate, estimate_or, median, noise_floor, point};
