//! Whole tiers, as they run, in this process.

mod cluster;
mod several;
