//! Origins and their layers.

mod contract;
mod deep;
mod doubts;
mod identity;
mod layers;
mod stable;
