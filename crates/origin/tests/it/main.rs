//! Origins and their wrappers.

mod contract;
mod deep;
mod doubts;
mod stable;
mod wrappers;
