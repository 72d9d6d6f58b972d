//! Whole tiers, as they run, in this process.

mod cluster;
mod cluster_client;
mod several;
