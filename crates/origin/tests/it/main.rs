//! Origins and their wrappers.

mod contract;
mod wrappers;
