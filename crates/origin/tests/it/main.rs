//! Origins and their wrappers.

mod contract;
mod deep;
mod doubts;
mod identity;
mod stable;
mod wrappers;
