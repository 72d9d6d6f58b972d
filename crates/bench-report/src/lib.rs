//! What a bench run found, as data: its model with a schema version, the statistics over it, and its four outputs
//! (Markdown, CSV, JSON, one HTML page). Pure: knows nothing of targets, clocks or networks.
//!
//! An experiment fills a [`model::ResultFile`] with cells from [`summary::estimate`], rows that [`overlap`] and
//! [`sanity`] found believable, and fits from [`fit`]; the outputs take it from there. Nothing here adds rates of
//! workers that did not work at the same time, and nothing prints a zero for what was not measured.

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
