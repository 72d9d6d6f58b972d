//! `forebay bench` as its users meet it: what it prints and writes, how it ends, and that nothing of it stays behind.
//!
//! No assertion is about how fast something is. Where a slope or a fit is asked for, the line is long enough that the
//! scatter of a busy machine is small beside it.

mod bucket;
mod compare;
mod damage;
mod distance;
mod honest;
mod launch;
mod load;
mod program;
mod refusal;
mod render;
pub mod room;
mod safety;
mod working_set;
