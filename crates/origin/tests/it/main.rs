//! Origins and their wrappers.

mod contract;
mod doubts;
mod stable;
mod wrappers;
